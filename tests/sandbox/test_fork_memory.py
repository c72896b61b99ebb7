"""`kasmon sandbox fork`, `pause`, `ls` and `show` on sandboxes that keep memory: gVisor's, by real processes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kasmon.sandbox.gvisor.image import IMAGE
from kasmon.sandbox.gvisor.tier import Gvisor
from tests.cli.forker import Forker
from tests.cli.line import Line
from tests.sandbox.required import closed, need_gvisor

pytestmark = pytest.mark.sandboxes
HOLD = "x = 41; f = open('note', 'w'); f.write('hi'); f.flush()"
ON = "x += 1; f.write('!'); f.flush(); print(x, open('note').read())"
LOOK = "print(x, open('note').read())"


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    forker = Forker()
    yield forker
    forker.close()


@pytest.fixture
def kasmon(forker: Forker) -> Iterator[Line]:
    need_gvisor()
    line = Line(forker)
    line.environment["KASMON_RUNSC"] = "runsc"
    yield line
    line("sandbox", "rm", "--all")
    closed(line)


def python(kasmon: Line, name: str, code: str) -> str:
    done = kasmon("sandbox", "run", name, "--env", "python", code)
    assert 0 == done.code, done.err
    return done.out


def about(kasmon: Line, name: str) -> dict[str, Any]:
    shown: dict[str, Any] = kasmon("sandbox", "show", name, "--json").json["session"]
    return shown


def image_of(kasmon: Line, name: str) -> Path:
    base = Gvisor(kasmon.places).ground.base
    return next(path for path in base.glob(f"{about(kasmon, name)['id']}/memory/*/{IMAGE}"))


def test_a_fork_has_all_memory_and_both_go_on_each_as_its_own_awake_or_from_disk(kasmon: Line) -> None:
    """With what was open: the copy's file is the copy's. One story, since each sandbox costs a second."""
    kasmon("sandbox", "create", "lab", "--tier", "gvisor")
    python(kasmon, "lab", HOLD)

    forked = kasmon("sandbox", "fork", "lab")

    assert "lab-2 begins as lab, with its memory." in forked.err
    assert "running" == about(kasmon, "lab")["phase"]
    assert "42 hi!\n" == python(kasmon, "lab-2", ON)
    assert "41 hi\n" == python(kasmon, "lab", LOOK)
    origin = about(kasmon, "lab-2")["origin"]
    assert (True, True, "lab") == (origin["whole"], origin["with_memory"], origin["name"])

    assert "paused, its memory on disk (" in kasmon("sandbox", "pause", "lab").out
    [snapshot] = about(kasmon, "lab")["snapshots"]
    assert (True, None, "memory", 2) == tuple(snapshot[key] for key in ("usable", "refused", "kind", "turn"))
    assert "memory on disk " in kasmon("sandbox", "ls").out
    kasmon("sandbox", "fork", "lab", "twin")
    assert "paused" == about(kasmon, "lab")["phase"]
    assert "41 hi\n" == python(kasmon, "twin", LOOK) == python(kasmon, "lab", LOOK)


def test_a_memory_that_cannot_be_used_is_shown_so_and_is_not_forked_and_what_is_lost_is_told(kasmon: Line) -> None:
    kasmon("sandbox", "create", "lab", "--tier", "gvisor")
    python(kasmon, "lab", HOLD)
    assert 2 == kasmon("sandbox", "pause", "lab", "--disk", "--hold").code
    assert "paused, its memory held by its processes" in kasmon("sandbox", "pause", "lab", "--hold").out
    kasmon("sandbox", "pause", "lab", "--disk")
    image = image_of(kasmon, "lab")
    image.write_bytes(image.read_bytes()[:-1])

    assert "cannot be used: it is truncated: checkpoint.img has " in kasmon("sandbox", "ls").out
    forked = kasmon("sandbox", "fork", "lab", "twin")
    assert (1, True) == (forked.code, "it is truncated" in forked.err)
    assert ["lab"] == [each["name"] for each in kasmon.json("sandbox", "ls")["sandboxes"]]
    woken = kasmon("sandbox", "resume", "lab")

    assert "what its interpreters held is lost; its files are as they were" in woken.err
    assert "lost        " in kasmon("sandbox", "show", "lab").out
    assert "hi\n" == python(kasmon, "lab", "print(open('note').read())")
