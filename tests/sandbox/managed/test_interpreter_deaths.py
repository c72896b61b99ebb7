"""One interpreter alone is killed at each step of what is done with its sandbox: nothing hangs, the others hold what
they held, and nothing is said to be kept that is not.

A step is a call that the host makes on the way; between two of them the agent inside does its part. Of what was held
either it is still there, or the answer, a notice or the checkpoint's own words say that it is not.
"""

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any, Final

import pytest

from kasmon.errors import KasmonError
from kasmon.model.events import Checkpointed
from kasmon.model.sandbox.policy import INTERPRETERS, Interpreter, RunResult, SandboxPhase
from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.shared.processes import tree
from tests.sandbox.conftest import command_of, policy
from tests.sandbox.guest.test_run_ends import HOLD, SHOW, SPINS
from tests.support.sandbox.sandbox_process import SandboxProcess
from tests.support.wait import until

pytestmark = pytest.mark.sandboxes
OURS: Final = f"{os.sep}kasmon{os.sep}sandbox{os.sep}"
LIMIT_S: Final = 100.0
PATHS: Final = (0.0, 0.35, 0.6, 0.9)
"""How far it has come when the kill comes, as a share of all the calls that it makes; 0 is before the first."""
WORKER: Final = {"python": b"main.py\0python\0", "bash": b"\0--rcfile\0", "node": b"nodeworker.js\0"}
PRINTS: Final[dict[Interpreter, str]] = {
    "python": "import time\nprint('on', flush=True)\ntime.sleep(0.05)\nprint('over')",
    "bash": "echo on; sleep 0.05; echo over",
    "node": "console.log('on'); await new Promise(done => setTimeout(done, 50)); console.log('over')",
}


class Scene:
    """A sandbox in which each interpreter holds 41, and a checkpoint of that."""

    def __init__(self, stage: SandboxProcess) -> None:
        self.stage, self.box = stage, stage.arrived()
        self.answers: list[RunResult] = []
        self.lost = ""
        self.has_killed = False
        self.held()
        self.kept = stage.keeping.create("asked")

    def held(self) -> None:
        for interpreter in INTERPRETERS:
            self.box.run(interpreter, HOLD[interpreter])

    def worker(self, interpreter: Interpreter) -> int | None:
        runtime = self.box.journal.sandbox_state.runtime
        if runtime is None:
            return None
        found = [pid for pid in tree(runtime.pid) if WORKER[interpreter] in command_of(pid)]
        return found[0] if found else None

    def kill(self, interpreter: Interpreter) -> None:
        if (pid := self.worker(interpreter)) is not None:
            os.kill(pid, signal.SIGKILL)
            self.has_killed = True

    # What is done with it.

    def run(self, interpreter: Interpreter) -> None:
        self.answers.append(self.box.run(interpreter, PRINTS[interpreter], timeout_s=10))

    def timeout(self, interpreter: Interpreter) -> None:
        self.answers.append(self.box.run(interpreter, SPINS[interpreter], timeout_s=0.1))

    def interrupt(self, interpreter: Interpreter) -> None:
        within = self.box.guest
        assert within is not None
        with ThreadPoolExecutor(1) as others:
            going = others.submit(self.box.run, interpreter, SPINS[interpreter], timeout_s=10, run=os.urandom(8).hex())
            until(lambda: going.done() or interpreter in within.ping("n").busy)
            within.interrupt(interpreter)
            self.answers.append(going.result(LIMIT_S))

    def freeze(self, interpreter: Interpreter) -> None:
        self.box.sleep()
        self.lost = self.box.wake()

    def checkpoint(self, interpreter: Interpreter) -> None:
        self.kept = self.stage.keeping.create("asked")

    def restore(self, interpreter: Interpreter) -> None:
        self.lost = self.stage.keeping.restore(self.kept)


ACTS: Final = ("run", "timeout", "interrupt", "freeze", "checkpoint", "restore")


def done(scene: Scene, act: str, interpreter: Interpreter, kill_at: int | None) -> int:
    """Do *act*, in which the interpreter is killed at that call; how many calls there were. It comes to an end."""
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        if event == "call" and OURS in frame.f_code.co_filename:
            calls += 1
            if kill_at is not None and calls >= kill_at and not scene.has_killed:
                scene.kill(interpreter)

    def work() -> None:
        sys.setprofile(count)
        try:
            getattr(scene, act)(interpreter)
        except KasmonError as error:
            scene.lost = f"{scene.lost} {error.message}"
        finally:
            sys.setprofile(None)

    with ThreadPoolExecutor(1) as others:
        others.submit(work).result(LIMIT_S)
    return calls


def judged(scene: Scene, act: str, interpreter: Interpreter, told_before: str) -> None:
    """What is there is what was said to be there."""
    box = scene.box
    assert SandboxPhase.RUNNING is box.phase
    said_before = (
        scene.lost or scene.stage.told() != told_before or any(not ran.session_preserved for ran in scene.answers)
    )
    shown = box.run(interpreter, SHOW[interpreter])
    assert "41\n" == shown.stdout or said_before or not shown.session_preserved, (shown, scene.answers)
    for other in INTERPRETERS:
        if other != interpreter:
            assert "41\n" == box.run(other, SHOW[other]).stdout, other
    if act == "checkpoint":
        kept = [fact for fact in scene.stage.facts if isinstance(fact, Checkpointed)]
        [claimed] = [fact.kept for fact in kept if fact.checkpoint == scene.kept]
        scene.stage.keeping.restore(scene.kept)
        there = "41\n" == box.run(interpreter, SHOW[interpreter]).stdout
        assert there is any(name.startswith(f"{interpreter}: held") for name in claimed), claimed


def tried(scene: Scene, act: str, interpreter: Interpreter, paths: tuple[float, ...]) -> None:
    calls = done(scene, act, interpreter, None)
    for place in paths:
        scene.held()
        scene.kept = scene.stage.keeping.create("asked")
        scene.answers, scene.lost, scene.has_killed, told = [], "", False, scene.stage.told()
        if not place:
            scene.kill(interpreter)
        done(scene, act, interpreter, max(1, int(calls * place)) if place else None)
        if not scene.has_killed:  # it took fewer calls this time, or had none that runs
            scene.kill(interpreter)
        judged(scene, act, interpreter, told)


@pytest.mark.parametrize("interpreter", INTERPRETERS)
@pytest.mark.parametrize("act", ACTS)
def test_an_interpreter_killed_at_any_point_reports_its_loss(
    stage: SandboxProcess, act: str, interpreter: Interpreter
) -> None:
    tried(Scene(stage), act, interpreter, PATHS if interpreter == "python" else PATHS[1::2])


def test_the_same_applies_in_a_jail(can_jail: None, stage: SandboxProcess) -> None:
    real = Jail()
    stage.policy = policy("w")
    stage.tier = real  # type: ignore[assignment]
    try:
        scene = Scene(stage)
        for act in ACTS:
            tried(scene, act, "python", PATHS[2:3])
    finally:
        for box in stage.boxes:
            if box.guest is not None:
                box.guest.close()
        real.forget(stage.policy)
