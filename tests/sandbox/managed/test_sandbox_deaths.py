"""The process that keeps a sandbox is killed at each step of each transition: nothing hangs, nothing is made twice, and
nothing is said to be kept that is not."""

from collections.abc import Callable

import pytest

from kasmon.model.sandbox.policy import SandboxPhase
from kasmon.sandbox.managed.sandbox import ManagedSandbox
from tests.support.sandbox.sandbox_process import DiedError, SandboxProcess

pytestmark = pytest.mark.sandboxes


def arrive(stage: SandboxProcess, box: ManagedSandbox) -> None:
    box.arrive()


def adopt(stage: SandboxProcess, box: ManagedSandbox) -> None:
    stage.host().arrive()


def sleep(stage: SandboxProcess, box: ManagedSandbox) -> None:
    box.sleep()


def wake(stage: SandboxProcess, box: ManagedSandbox) -> None:
    box.wake()


def keep(stage: SandboxProcess, box: ManagedSandbox) -> None:
    stage.keeping.create("asked")


def restore(stage: SandboxProcess, box: ManagedSandbox) -> None:
    stage.keeping.restore("c1")


def end(stage: SandboxProcess, box: ManagedSandbox) -> None:
    box.end("over")


Act = Callable[[SandboxProcess, ManagedSandbox], None]
TRANSITIONS: dict[str, tuple[tuple[Act, ...], Act, int]] = {
    "create": ((), arrive, 3),
    "sleep": ((arrive,), sleep, 3),
    "wake": ((arrive, sleep), wake, 3),
    "adopt": ((arrive,), adopt, 2),
    "checkpoint": ((arrive,), keep, 3),
    "restore": ((arrive, keep), restore, 5),
    "end": ((arrive,), end, 2),
}
"""What went before, the transition, and how many facts it has."""


def use(box: ManagedSandbox) -> None:
    """Leave something behind in an interpreter and in a file."""
    box.run("python", "x = 42")
    box.run("bash", "echo 42 > file")


@pytest.mark.parametrize("after", [False, True], ids=["before it is written", "once it is written"])
@pytest.mark.parametrize(
    ("name", "step"), [(name, step) for name, (_, _, steps) in TRANSITIONS.items() for step in range(1, steps + 1)]
)
def test_the_next_host_finds_the_sandbox_or_reports_the_loss(
    stage: SandboxProcess, name: str, step: int, after: bool
) -> None:
    before, transition, _ = TRANSITIONS[name]
    box = stage.host()
    for act in before:
        act(stage, box)
        if act is arrive:
            use(box)
    stage.dies_at = (step, after)

    with pytest.raises(DiedError):
        transition(stage, box)
    stage.dies_at = None
    told_before = stage.told()
    heir = stage.host()
    lost = heir.arrive()
    lost = heir.wake() or lost

    assert 1 == stage.living
    assert SandboxPhase.RUNNING is heir.phase
    kept = heir.run("python", "print(globals().get('x'))").stdout
    if before:
        assert "42\n" == heir.run("bash", "cat file").stdout
        has_ended = (name, step, after) == ("end", 2, True)  # as it was to
        assert "42\n" == kept or lost or stage.told() != told_before or has_ended
    assert "42\n" == kept or name in ("create", "restore", "end")


def test_a_transition_has_as_many_steps_as_are_tested(stage: SandboxProcess) -> None:
    """Otherwise some would not be."""
    for before, transition, steps in TRANSITIONS.values():
        stage.close()
        stage.facts.clear()
        box = stage.host()
        for act in before:
            act(stage, box)
            if act is arrive:
                use(box)
        stage.dies_at = (steps + 1, False)
        transition(stage, box)
        assert stage.dies_at == (1, False)
        stage.dies_at = None
