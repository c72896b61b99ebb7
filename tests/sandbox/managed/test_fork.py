"""A sandbox is copied with its memory where its tier can: whoever dies meanwhile, it is not lost, and it runs once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.backends.interpreter.backend import must_be_whole
from kasmon.errors import LaunchError, SandboxError
from kasmon.model.commands import Fork
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPhase, SandboxPolicy
from kasmon.model.sandbox.snapshot import ForkOrigin, describe_origin
from kasmon.paths import Paths
from kasmon.sandbox.managed.checkpoints import ForkResult, fork_sandbox
from kasmon.sandbox.managed.idle_policy import origin_of, store_origin
from kasmon.sandbox.managed.sandbox import ManagedSandbox
from tests.support.sandbox.pausing_tier import CopyingTier
from tests.support.sandbox.sandbox_process import DiedError, SandboxProcess

OTHER = SandboxPolicy(session=SessionId("otherone"))
ORIGIN = ForkOrigin(source=SessionId("abcdefgh"), name="lab", at=1.0)


class CopyingStage(SandboxProcess):
    """Whose tier copies memory."""

    tier_name, keeps_memory = "microvm", True

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.tier: CopyingTier = CopyingTier(root)

    def copied(self, box: ManagedSandbox, checkpoint: str = "") -> ForkResult:
        folder = self.root / "folder"
        folder.mkdir(exist_ok=True)
        wish = Fork(checkpoint=checkpoint, folder=str(folder), memory=str(self.root / "state"), session=OTHER.session)
        return fork_sandbox(box, self.keeping, wish, OTHER)


@pytest.fixture
def stage(root: Path) -> Iterator[CopyingStage]:
    built = CopyingStage(root)
    yield built
    built.close()


@pytest.mark.sandboxes
def test_a_running_sandbox_is_copied_with_its_memory_and_continues(stage: CopyingStage) -> None:
    box = stage.arrived()
    box.run("python", "x = 42")

    assert ForkResult() == stage.copied(box)
    assert stage.tier.check_snapshot(OTHER)
    assert "42\n" == box.run("python", "print(x)").stdout


@pytest.mark.sandboxes
def test_a_sandbox_paused_to_disk_stays_paused(stage: CopyingStage) -> None:
    box = stage.arrived()
    box.sleep(to_disk=True)
    before = stage.moves()

    assert ForkResult() == stage.copied(box)
    assert before == stage.moves()
    assert stage.tier.kept(stage.policy)


@pytest.mark.sandboxes
def test_a_sandbox_paused_in_memory_is_paused_to_disk_then(stage: CopyingStage) -> None:
    box = stage.arrived()
    box.run("python", "x = 42")
    box.sleep()

    assert ForkResult() == stage.copied(box)
    assert (SandboxPhase.PAUSED, False) == (box.phase, box.journal.sandbox_state.held)
    box.wake()
    assert "42\n" == box.run("python", "print(x)").stdout


@pytest.mark.sandboxes
@pytest.mark.parametrize("after", [False, True], ids=["before it is written", "once it is written"])
@pytest.mark.parametrize("step", range(1, 7))
def test_a_killed_host_leaves_one_sandbox_that_exists_once_with_its_memory(
    stage: CopyingStage, step: int, after: bool
) -> None:
    box = stage.arrived()
    box.run("python", "x = 42")
    stage.dies_at = (step, after)
    with pytest.raises(DiedError):
        stage.copied(box)
    stage.dies_at = None
    heir = stage.host()

    lost = heir.arrive()
    lost = heir.wake() or lost

    assert "" == lost
    assert 1 == stage.living
    assert "42\n" == heir.run("python", "print(x)").stdout


@pytest.mark.sandboxes
def test_a_memory_that_cannot_be_written_to_disk_is_copied_by_a_checkpoint_with_a_report(stage: CopyingStage) -> None:
    box = stage.arrived()
    box.run("python", "x = 42; open('file', 'w').write('kept')")
    stage.tier.fails = "the disk is full"

    got = stage.copied(box)

    assert (True, "it failed: the disk is full") == (bool(got.checkpoint), got.why)
    assert "kept" == (stage.root / "folder" / "file").read_text()
    assert "42\n" == box.run("python", "print(x)").stdout


@pytest.mark.sandboxes
def test_a_failed_copy_leaves_the_original_unchanged(stage: CopyingStage) -> None:
    box = stage.arrived()
    box.run("python", "x = 42")
    box.sleep(to_disk=True)
    stage.tier.fails = "the disk is full"

    with pytest.raises(SandboxError, match="the disk is full"):
        stage.copied(box)

    assert "" == box.wake()
    assert "42\n" == box.run("python", "print(x)").stdout


@pytest.mark.sandboxes
def test_an_unusable_memory_is_not_copied_and_its_sandbox_is_not_resumed(stage: CopyingStage) -> None:
    box = stage.arrived()
    box.sleep(to_disk=True)
    snapshot = stage.tier.kept(stage.policy)
    assert snapshot is not None
    stage.tier.snapshots(stage.policy).path(snapshot, "ram").write_bytes(b"stat")
    before = stage.moves()

    with pytest.raises(SandboxError, match="truncated: ram has 4 bytes of 5") as raised:
        stage.copied(box)

    assert "--at" in raised.value.hint
    assert before == stage.moves()
    assert stage.tier.check_snapshot(OTHER) is None


@pytest.mark.sandboxes
def test_a_tier_that_copies_no_memory_uses_a_checkpoint_with_a_report(root: Path) -> None:
    stage = SandboxProcess(root)
    try:
        box = stage.arrived()
        box.run("python", "x = 42; open('file', 'w').write('kept')")
        (root / "folder").mkdir()

        got = fork_sandbox(box, stage.keeping, Fork(folder=str(root / "folder"), session=OTHER.session), OTHER)

        assert ("c1", "a jail cannot copy its memory") == (got.checkpoint, got.why)
        assert "kept" == (root / "folder" / "file").read_text()
    finally:
        stage.close()


@pytest.mark.sandboxes
def test_at_a_checkpoint_there_is_no_memory_and_the_sandbox_is_not_paused_for_it(stage: CopyingStage) -> None:
    box = stage.arrived()
    point = stage.keeping.create("asked")
    before = stage.moves()

    assert ForkResult(point, "a checkpoint contains no memory") == stage.copied(box, point)
    assert before == stage.moves()


def test_no_session_starts_on_an_incomplete_copy(tmp_path: Path) -> None:
    here = Paths(state=tmp_path, config=tmp_path, given_runtime=tmp_path)
    here.folder("twin").mkdir(parents=True)
    must_be_whole(here, SessionId("twin"))

    for content in (None, b"", b"{"):
        store_origin(here, "twin", ORIGIN)
        if content is not None:
            here.origin("twin").write_bytes(content)
        with pytest.raises(LaunchError, match="incomplete"):
            must_be_whole(here, SessionId("twin"))

    store_origin(here, "twin", ForkOrigin(source=ORIGIN.source, name="lab", at=1.0, is_whole=True, with_memory=True))
    must_be_whole(here, SessionId("twin"))
    found = origin_of(here, "twin")
    assert found is not None
    assert "with its memory" == describe_origin(found)


def test_a_fork_states_how_much_of_its_source_it_has() -> None:
    by_files = ForkOrigin(source=ORIGIN.source, name="lab", at=1.0, is_whole=True, why="a jail cannot copy its memory")

    assert "incomplete" == describe_origin(ORIGIN)
    assert "files and saved state only, because a jail cannot copy its memory" == describe_origin(by_files)
