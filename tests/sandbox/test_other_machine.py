"""A sandbox on another machine: used, paused and resumed from here, also after the connection was cut."""

import asyncio
import os
import re
import signal
from collections.abc import Iterator

import pytest

import kasmon.supervisor.machines.sandboxes  # noqa: F401 - its first import reads a path, which is an error on the loop
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Checkpoint, Restore, Run
from kasmon.model.permission import SessionId
from kasmon.tui.gateway.live.gateway import LiveGateway
from tests.support.bus.two_command_lines import MACHINE, TwoCommandLines
from tests.support.cli.fork_server import ForkServer
from tests.support.sandbox.requirements import closed
from tests.support.wait import until

pytestmark = pytest.mark.sandboxes


@pytest.fixture
def lines(can_jail: None, fork_server: ForkServer) -> Iterator[TwoCommandLines]:
    lines = TwoCommandLines(fork_server)
    yield lines
    if lines.link:
        lines.cut()
    closed(lines.there)
    lines.here.close()


def test_an_interpreter_keeps_its_values_over_a_disconnect_and_a_pause(lines: TwoCommandLines) -> None:
    lab = lines.there("sandbox", "create", "lab").out.strip()
    lines.until(lab, lambda known: known is not None and known["state"] == "idle")

    set_ = lines.here("sandbox", "run", "--lang", "python", f"{MACHINE}:lab", "x = 41; print('set')")
    assert (0, "set\n") == (set_.code, set_.out), set_.err
    paused = lines.here.json("sandbox", "pause", lab)
    folder = lines.there.json("sandbox", "ls")["sandboxes"][0]["works_in"]["folder"]
    assert {"folder": f"{MACHINE}:{folder}", "copy_of": None} == paused["session"]["works_in"]
    lines.until(lab, lambda known: known["state"] in ("standby", "paused"))

    lines.cut()
    refused = lines.here("sandbox", "resume", lab)
    assert 69 == refused.code
    assert re.search(rf"{MACHINE}.* (unreachable|not run)", refused.err), refused.err
    lines.connect()

    resumed = lines.here("sandbox", "resume", lab)
    assert 0 == resumed.code, resumed.err
    lines.until(lab, lambda known: known["state"] == "idle")
    printed = lines.here("sandbox", "run", "--lang", "python", lab, "print(x + 1)")
    assert (0, "42\n") == (printed.code, printed.out), printed.err


async def test_the_dashboard_checkpoints_restores_forks_and_replays_a_sandbox_on_the_machine(
    lines: TwoCommandLines,
) -> None:
    lab = SessionId(lines.there("sandbox", "create", "lab").out.strip())
    lines.until(lab, lambda known: known is not None and known["state"] == "idle")
    gateway = await asyncio.to_thread(LiveGateway, lines.here.paths)
    await asyncio.to_thread(gateway.first)
    operations = await gateway.operations()

    await operations.change_sandbox(lab, Run(interpreter="python", code="x = 41\nopen('a.txt', 'w').write('a')"))
    kept = await operations.change_sandbox(lab, Checkpoint())
    history = await gateway.sandbox(lab)
    asked = history.checkpoints[-1]
    await operations.change_sandbox(lab, Run(interpreter="bash", code="rm a.txt"))
    while not any(each.turn == 2 and each.when == "after" for each in (await gateway.sandbox(lab)).checkpoints):
        pass  # a checkpoint follows the answer; each look is a command there
    changes = await gateway.changes_of(lab, 2)
    await operations.change_sandbox(lab, Restore(checkpoint=asked.id))
    forked = await operations.fork_sandbox(lab, "lab-2", asked.id)
    replayed = await operations.replay_sandbox(lab, "lab-3")
    await asyncio.to_thread(gateway.first)
    names = {each.name: each for each in (await asyncio.to_thread(gateway.watch.refresh)).sessions}
    for name in ("lab", "lab-2"):
        printed = lines.here(
            "sandbox", "run", "--lang", "python", f"{MACHINE}:{name}", "print(x, open('a.txt').read())"
        )
        assert (0, "41 a\n") == (printed.code, printed.out), printed.err
    pid = lock_holder(lines.there.paths.host_lock(lab))
    assert pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: lock_holder(lines.there.paths.host_lock(lab)) is None, what="the end of its host")
    again = await operations.change_sandbox(lab, Checkpoint())
    await asyncio.to_thread(gateway.close)

    assert kept == f"lab: checkpoint {asked.id} created"
    assert [run.interpreter for run in history.runs] == ["python"]
    assert history.policy is not None
    assert "deleted file" in changes.diff
    assert forked.startswith("Created lab-2 from lab, files and saved state only")
    assert replayed == "lab-3: 2 runs replayed"
    assert {"lab", "lab-2", "lab-3"} == set(names)
    assert {MACHINE} == {each.via for each in names.values()}
    assert re.fullmatch(r"lab: checkpoint \S+ created", again)
