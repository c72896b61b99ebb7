"""A sandbox whose tier keeps its memory snapshot: whoever dies at whatever step, the memory is gone on from once, or is
said to be lost."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.errors import SandboxUnreachableError
from kasmon.model.sandbox.policy import SandboxPhase
from tests.support.sandbox.full_disk import full_disk
from tests.support.sandbox.pausing_tier import PausingTier
from tests.support.sandbox.sandbox_process import DiedError, SandboxProcess

pytestmark = pytest.mark.sandboxes


class KeepingStage(SandboxProcess):
    tier_name, keeps_memory = "microvm", True

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.tier: PausingTier = PausingTier(root)


@pytest.fixture
def stage() -> Iterator[KeepingStage]:
    root = Path(tempfile.mkdtemp(prefix="ks-", dir="/tmp"))
    built = KeepingStage(root)
    yield built
    built.close()
    shutil.rmtree(root)


def test_it_is_paused_to_disk_and_another_process_resumes_it(stage: KeepingStage) -> None:
    box = stage.arrived()
    box.run("python", "x = 42")
    box.sleep(to_disk=True)

    sandbox_state = box.journal.sandbox_state
    snapshot = stage.tier.kept(stage.policy)
    assert snapshot is not None
    assert (SandboxPhase.PAUSED, False, snapshot.id) == (
        sandbox_state.phase,
        sandbox_state.held,
        sandbox_state.snapshot,
    )
    heir = stage.host()
    assert "" == heir.arrive() == heir.wake()
    assert "42\n" == heir.run("python", "print(x)").stdout
    assert stage.tier.kept(stage.policy) is None


@pytest.mark.parametrize("after", [False, True], ids=["before it is written", "once it is written"])
@pytest.mark.parametrize(("name", "step"), [*(("sleep", n) for n in (1, 2, 3)), *(("wake", n) for n in (1, 2, 3))])
def test_the_next_host_has_its_memory_for_any_last_event(
    stage: KeepingStage, name: str, step: int, after: bool
) -> None:
    box = stage.arrived()
    box.run("python", "x = 42")
    if name == "wake":
        box.sleep(to_disk=True)
    stage.dies_at = (step, after)
    with pytest.raises(DiedError):
        box.sleep(to_disk=True) if name == "sleep" else box.wake()
    stage.dies_at = None
    heir = stage.host()

    lost = heir.arrive()
    lost = heir.wake() or lost

    assert "" == lost
    assert 1 == stage.living
    assert "42\n" == heir.run("python", "print(x)").stdout


def test_a_refused_memory_is_reported_as_lost_with_the_reason_and_the_files_are_kept(
    stage: KeepingStage,
) -> None:
    box = stage.arrived()
    box.run("python", "x = 42; open('file', 'w').write('kept')")
    box.sleep(to_disk=True)
    snapshot = stage.tier.kept(stage.policy)
    assert snapshot is not None
    stage.tier.snapshots(stage.policy).path(snapshot, "ram").write_bytes(b"stat")

    lost = box.wake()

    assert "truncated: ram has 4 bytes of 5" in lost
    assert "interpreter state lost" in lost
    assert "False kept\n" == box.run("python", "print('x' in globals(), open('file').read())").stdout
    assert 1 == stage.living


def test_a_failed_resume_stays_paused_with_its_memory_and_is_retried_the_next_time(stage: KeepingStage) -> None:
    box = stage.arrived()
    box.run("python", "x = 42")
    box.sleep(to_disk=True)
    before = stage.tier.kept(stage.policy)

    stage.tier.fails = "there is too little memory"
    with pytest.raises(
        SandboxUnreachableError, match="was not resumed: it failed: there is too little memory"
    ) as failed:
        box.wake()

    assert "Its memory snapshot is unchanged" in failed.value.hint
    assert (SandboxPhase.PAUSED, False) == (box.phase, box.journal.sandbox_state.is_intended)
    assert before == stage.tier.kept(stage.policy)
    assert 1 == stage.living
    assert "" == stage.host().arrive() == box.wake()
    assert "42\n" == box.run("python", "print(x)").stdout


@pytest.mark.parametrize("to_disk", [False, True], ids=["in memory", "on disk"])
def test_on_a_full_disk_it_stays_paused_and_resumes_later(stage: KeepingStage, to_disk: bool) -> None:
    box = stage.arrived()
    box.run("python", "x = 42")
    box.sleep(to_disk=to_disk)
    with full_disk(8), pytest.raises(SandboxUnreachableError, match="cannot be recorded"):
        box.wake()

    assert (SandboxPhase.PAUSED, not to_disk) == (box.phase, box.journal.sandbox_state.held)
    assert "" == box.wake()
    assert "42\n" == box.run("python", "print(x)").stdout
