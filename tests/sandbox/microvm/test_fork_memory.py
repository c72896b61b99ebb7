"""`kasmon sandbox fork`, `pause`, `ls` and `show` on sandboxes that keep memory: real microVMs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kasmon.sandbox.microvm.machine import MicroVm
from kasmon.sandbox.microvm.warm_pool import MEMORY
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import ForkServer
from tests.support.sandbox.machine_image import CACHE, IMAGE, need_machine, warmed
from tests.support.sandbox.requirements import closed

pytestmark = [pytest.mark.sandboxes, pytest.mark.timeout(240)]
HOLD = "x = 41; open('note', 'w').write('hi')"
ON = "x += 1; open('note', 'a').write('!'); print(x, open('note').read())"
LOOK = "print(x, open('note').read())"


@pytest.fixture
def kasmon(fork_server: ForkServer) -> Iterator[Cli]:
    need_machine()
    warmed(MicroVm(image=IMAGE))
    line = Cli(fork_server)
    line.paths.make()
    for name in ("image", "machines"):
        (line.paths.state / name).symlink_to(CACHE / name)
    yield line
    line("sandbox", "rm", "--all")
    closed(line)


def python(kasmon: Cli, name: str, code: str) -> str:
    done = kasmon("sandbox", "run", name, "--env", "python", code)
    assert 0 == done.code, done.err
    return done.out


def about(kasmon: Cli, name: str) -> dict[str, Any]:
    shown: dict[str, Any] = kasmon("sandbox", "show", name, "--json").json["session"]
    return shown


def image_of(kasmon: Cli, name: str) -> Path:
    base = MicroVm(kasmon.paths).host_folders.base
    return next(path for path in base.glob(f"{about(kasmon, name)['id']}/memory/*/{MEMORY}"))


def test_a_fork_has_all_memory_and_both_continue_separately_running_or_from_disk(kasmon: Cli) -> None:
    """One story, since each sandbox costs a second."""
    kasmon("sandbox", "create", "lab", "--tier", "microvm")
    python(kasmon, "lab", HOLD)

    assert "lab-2 begins as lab, with its memory." in kasmon("sandbox", "fork", "lab").err
    assert "running" == about(kasmon, "lab")["phase"]
    assert "42 hi!\n" == python(kasmon, "lab-2", ON)
    assert "41 hi\n" == python(kasmon, "lab", LOOK)
    origin = about(kasmon, "lab-2")["origin"]
    assert (True, True, "lab") == (origin["whole"], origin["with_memory"], origin["name"])

    assert "paused, memory snapshot on disk (" in kasmon("sandbox", "pause", "lab").out
    [snapshot] = about(kasmon, "lab")["snapshots"]
    assert (True, None, "memory", 2) == tuple(snapshot[key] for key in ("usable", "refused", "kind", "turn"))
    assert "memory snapshot " in kasmon("sandbox", "ls").out
    kasmon("sandbox", "fork", "lab", "twin")
    assert "paused" == about(kasmon, "lab")["phase"]
    assert "41 hi\n" == python(kasmon, "twin", LOOK) == python(kasmon, "lab", LOOK)


def test_an_unusable_memory_is_shown_and_not_forked_and_the_loss_is_reported(kasmon: Cli) -> None:
    kasmon("sandbox", "create", "lab", "--tier", "microvm")
    python(kasmon, "lab", HOLD)
    assert 2 == kasmon("sandbox", "pause", "lab", "--disk", "--hold").code
    assert "paused, memory kept in RAM" in kasmon("sandbox", "pause", "lab", "--hold").out
    kasmon("sandbox", "pause", "lab", "--disk")
    image = image_of(kasmon, "lab")
    image.write_bytes(image.read_bytes()[:-1])

    assert f"not valid: it is truncated: {MEMORY} has " in kasmon("sandbox", "ls").out
    forked = kasmon("sandbox", "fork", "lab", "twin")
    assert (1, True) == (forked.code, "it is truncated" in forked.err)
    assert ["lab"] == [each["name"] for each in kasmon.json("sandbox", "ls")["sandboxes"]]

    assert "interpreter state lost; files kept" in kasmon("sandbox", "resume", "lab").err
    assert "lost        " in kasmon("sandbox", "show", "lab").out
    assert "hi\n" == python(kasmon, "lab", "print(open('note').read())")
