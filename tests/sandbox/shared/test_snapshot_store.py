"""Memories on disk: the old one stands until the new one does, each is gone on from once, and only where it fits."""

import contextlib
import errno
import os
from pathlib import Path

import msgspec
import pytest

from kasmon.boot_id import boot
from kasmon.errors import SandboxError, SandboxUnreachableError, SnapshotRefusedError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.snapshot import Snapshot, SnapshotMaker, SnapshotVerdict
from kasmon.sandbox.shared import snapshot_store
from kasmon.sandbox.shared.snapshot_store import SnapshotStore
from tests.support.sandbox.full_disk import full_disk

ME, OTHER = SessionId("abcdefgh"), SessionId("zyxwvuts")
MADE_BY = SnapshotMaker(program="qemu 7.2", machine="pc-q35-7.2", cpu="Nehalem", image="1f")


@pytest.fixture
def snapshots(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "memory", ME, "microvm")


def keep(snapshots: SnapshotStore, content: bytes = b"state", turn: int = 0) -> Snapshot:
    with snapshots.draft() as draft:
        (draft / "ram").write_bytes(content)
        return snapshots.confirm(draft, MADE_BY, turn)


class KilledError(BaseException):
    """The process that wrote was killed here."""


def test_a_memory_carries_what_it_is_of_and_what_wrote_it(snapshots: SnapshotStore) -> None:
    snapshots.advance_generation()
    kept = keep(snapshots, b"state", turn=3)

    assert (ME, "microvm", "memory", 3, 1, boot(), MADE_BY, 5) == (
        kept.session, kept.tier, kept.kind, kept.turn, kept.disk_generation, kept.boot, kept.made_by, kept.size_bytes,
    )  # fmt: skip
    assert kept == snapshots.current() == snapshots.require_usable(MADE_BY)
    assert b"state" == snapshots.path(kept, "ram").read_bytes()


def test_only_its_owner_can_read_it(snapshots: SnapshotStore) -> None:
    kept = keep(snapshots)

    modes = {path.name: path.stat().st_mode & 0o777 for path in snapshots.folder.rglob("*")}
    assert {kept.id: 0o700, "ram": 0o600, "snapshot.json": 0o600, "state.json": 0o600} == modes


def test_the_earlier_one_is_removed_once_the_next_is_confirmed(snapshots: SnapshotStore) -> None:
    first, second = keep(snapshots), keep(snapshots)

    assert second == snapshots.current()
    assert not (snapshots.folder / first.id).exists()


@pytest.mark.parametrize("step", ["chmod", "fsync", "rename", "replace"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_crash_during_a_write_leaves_the_old_or_the_new_one_whole(
    snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch, step: str, nth: int
) -> None:
    first = keep(snapshots, b"first")
    with monkeypatch.context() as patch:
        calls = iter(range(1, 1000))
        where: object = os if step == "fsync" else Path
        real = getattr(where, step)

        def dies(*given: object, **named: object) -> object:
            if next(calls) == nth:
                raise KilledError
            return real(*given, **named)

        patch.setattr(where, step, dies)
        patch.setattr(snapshot_store, "remove_tree", lambda _: None)  # the dead sweep nothing
        with contextlib.suppress(KilledError):
            keep(snapshots, b"second")

    found = snapshots.require_usable(MADE_BY)
    assert (snapshots.path(found, "ram").read_bytes() == b"first") is (found == first)
    third = keep(snapshots, b"third")
    assert {third.id, "state.json"} == {path.name for path in snapshots.folder.iterdir()}


def test_a_disk_that_fills_up_meanwhile_leaves_the_old_one(snapshots: SnapshotStore) -> None:
    first = keep(snapshots)

    def fills() -> None:
        with snapshots.draft() as draft:
            (draft / "ram").write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SandboxError, match="the disk is full"):
        fills()

    assert first == snapshots.require_usable(MADE_BY)
    assert [first.id] == [path.name for path in snapshots.folder.iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    ("step", "nth"), [*(("fsync", n) for n in range(1, 7)), ("rename", 1), ("replace", 1), ("replace", 2)]
)
def test_a_disk_that_is_full_at_any_step_leaves_the_old_or_the_new_one_and_reports_it(
    snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch, step: str, nth: int
) -> None:
    first = keep(snapshots, b"first")
    with monkeypatch.context() as patch:
        calls = iter(range(1, 1000))
        where: object = os if step == "fsync" else Path
        real = getattr(where, step)

        def fills(*given: object, **named: object) -> object:
            if next(calls) == nth:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*given, **named)

        patch.setattr(where, step, fills)
        with pytest.raises(SandboxError, match="its memory was not saved: the disk is full"):
            keep(snapshots, b"second")

    found = snapshots.require_usable(MADE_BY)
    assert (snapshots.path(found, "ram").read_bytes() == b"first") is (found == first)
    third = keep(snapshots, b"third")
    assert {third.id, "state.json"} == {path.name for path in snapshots.folder.iterdir()}


def test_without_a_log_entry_nothing_starts_and_the_memory_stays_valid(snapshots: SnapshotStore) -> None:
    kept = keep(snapshots)
    with full_disk(8):
        with pytest.raises(SandboxUnreachableError, match="cannot be recorded"):
            snapshots.mark_used(kept)
        with pytest.raises(SandboxUnreachableError, match="cannot be recorded"):
            snapshots.advance_generation()

    assert kept == snapshots.require_usable(MADE_BY)


def test_a_memory_is_restored_once(snapshots: SnapshotStore) -> None:
    kept = keep(snapshots)
    snapshots.mark_used(kept)

    with pytest.raises(SnapshotRefusedError, match="used"):
        snapshots.require_usable(MADE_BY)


def test_a_memory_with_a_changed_disk_is_stale(snapshots: SnapshotStore) -> None:
    keep(snapshots)
    snapshots.advance_generation()

    with pytest.raises(SnapshotRefusedError, match="stale: its disk was at 0, and is now at 1"):
        snapshots.require_usable(MADE_BY)


def test_a_truncated_or_changed_memory_is_refused(snapshots: SnapshotStore) -> None:
    path = snapshots.path(keep(snapshots), "ram")

    path.write_bytes(b"stat")
    with pytest.raises(SnapshotRefusedError, match="truncated: ram has 4 bytes of 5"):
        snapshots.require_usable(MADE_BY)
    path.write_bytes(b"stave")
    with pytest.raises(SnapshotRefusedError, match="damaged"):
        snapshots.require_usable(MADE_BY)
    path.unlink()
    with pytest.raises(SnapshotRefusedError, match="damaged"):
        snapshots.require_usable(MADE_BY)


@pytest.mark.parametrize("what", ["program", "machine", "cpu", "image"])
def test_a_memory_of_another_program_is_refused_by_name(snapshots: SnapshotStore, what: str) -> None:
    keep(snapshots)

    with pytest.raises(SnapshotRefusedError, match=f"another {what}.*here: other"):
        snapshots.require_usable(msgspec.structs.replace(MADE_BY, **{what: "other"}))


def test_where_there_is_none_that_is_said_and_one_of_another_session_is_refused(snapshots: SnapshotStore) -> None:
    with pytest.raises(SnapshotRefusedError, match="there is none"):
        snapshots.require_usable(MADE_BY)
    assert snapshots.current() is None

    keep(snapshots)
    with pytest.raises(SnapshotRefusedError, match="belongs to the session 'abcdefgh'"):
        SnapshotStore(snapshots.folder, OTHER, "microvm").require_usable(MADE_BY)


def test_a_copy_has_its_own_owner_and_both_may_be_restored(snapshots: SnapshotStore, tmp_path: Path) -> None:
    kept = keep(snapshots, b"state", turn=2)
    other = SnapshotStore(tmp_path / "other", OTHER, "microvm")

    copied = snapshots.copy_to(other, kept)
    snapshots.mark_used(kept)

    assert copied == other.require_usable(MADE_BY)
    assert (OTHER, 2, b"state") == (copied.session, copied.turn, other.path(copied, "ram").read_bytes())


def test_dropped_memories_leave_nothing(snapshots: SnapshotStore) -> None:
    keep(snapshots)

    snapshots.drop()
    snapshots.drop()

    assert not snapshots.folder.exists()


def test_its_description_is_the_same_whether_it_can_be_restored_or_not(snapshots: SnapshotStore) -> None:
    assert snapshots.check_snapshot(lambda: MADE_BY) is None
    kept = keep(snapshots)

    assert SnapshotVerdict(snapshot=kept) == snapshots.check_snapshot(lambda: MADE_BY, whole=True)
    other = snapshots.check_snapshot(lambda: msgspec.structs.replace(MADE_BY, cpu="Westmere"))
    assert other is not None
    assert "another cpu (Nehalem; here: Westmere)" in other.refused
    snapshots.mark_used(kept)
    spent = snapshots.check_snapshot(lambda: MADE_BY)
    assert spent is not None
    assert "it has already been used" == spent.refused


def test_damage_of_the_same_length_is_found_by_a_full_read(snapshots: SnapshotStore) -> None:
    kept = keep(snapshots)
    snapshots.path(kept, "ram").write_bytes(b"stale")

    quick, thorough = snapshots.check_snapshot(lambda: MADE_BY), snapshots.check_snapshot(lambda: MADE_BY, whole=True)

    assert quick is not None
    assert thorough is not None
    assert ("", "it is damaged: ram has changed since it was written") == (quick.refused, thorough.refused)
    snapshots.path(kept, "ram").write_bytes(b"st")
    short = snapshots.check_snapshot(lambda: MADE_BY)
    assert short is not None
    assert "truncated: ram has 2 bytes of 5" in short.refused


def test_a_memory_that_no_version_can_read_gives_the_reason(snapshots: SnapshotStore) -> None:
    keep(snapshots)

    def nobody() -> SnapshotMaker:
        raise SandboxError("no machine can be made", "there is no image")

    judged = snapshots.check_snapshot(nobody)
    assert judged is not None
    assert "there is no image" in judged.refused
