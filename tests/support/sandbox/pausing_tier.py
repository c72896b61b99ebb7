"""A tier that confines nothing and whose sleep on disk is a stopped process: for tests of what is above such tiers."""

import contextlib
import signal
from pathlib import Path

import psutil

from kasmon.errors import SandboxError
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime
from kasmon.model.sandbox.snapshot import Snapshot, SnapshotMaker, SnapshotVerdict
from kasmon.sandbox.base import PauseResult
from kasmon.sandbox.shared.snapshot_store import SnapshotStore
from tests.support.sandbox.unconfined_tier import UnconfinedTier

MADE_BY = SnapshotMaker(program="bare 1")


class PausingTier(UnconfinedTier):
    """Where its memory counts as on disk, its processes count as gone."""

    keeps_memory = True

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.known: dict[str, SandboxRuntime] = {}
        self.slept: set[int] = set()

    def snapshots(self, policy: SandboxPolicy) -> SnapshotStore:
        return SnapshotStore(self.root / policy.session / "memory", policy.session, "microvm")

    def create(self, policy: SandboxPolicy, /) -> SandboxRuntime:
        runtime = super().create(policy)
        self.snapshots(policy).advance_generation()
        self.known[policy.session] = runtime
        return runtime

    def find(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> bool:
        return runtime.pid not in self.slept and super().find(policy, runtime)

    def adopt(self, policy: SandboxPolicy, /) -> SandboxRuntime | None:
        runtime = self.known.get(policy.session)
        return runtime if runtime is not None and self.find(policy, runtime) else None

    def kept(self, policy: SandboxPolicy, /) -> Snapshot | None:
        with contextlib.suppress(SandboxError):
            return self.snapshots(policy).require_usable(MADE_BY)
        return None

    def check_snapshot(self, policy: SandboxPolicy, /, *, whole: bool = False) -> SnapshotVerdict | None:
        return self.snapshots(policy).check_snapshot(lambda: MADE_BY, whole=whole)

    def pause(
        self, policy: SandboxPolicy, runtime: SandboxRuntime, /, *, to_disk: bool = False, turn: int = 0
    ) -> PauseResult:
        slept = super().pause(policy, runtime)
        if not to_disk:
            return slept
        snapshots = self.snapshots(policy)
        with snapshots.draft() as draft:
            (draft / "ram").write_bytes(b"state")
            snapshot = snapshots.confirm(draft, MADE_BY, turn)
        self.slept.add(runtime.pid)
        return PauseResult(held=False, snapshot=snapshot.id)

    def resume(self, policy: SandboxPolicy, runtime: SandboxRuntime, slept: PauseResult, /) -> SandboxRuntime:
        if not slept.held:
            self._may()
            snapshots = self.snapshots(policy)
            snapshots.mark_used(snapshots.require_usable(MADE_BY))
            self.slept.discard(runtime.pid)
        else:
            self.snapshots(policy).advance_generation()
        return super().resume(policy, runtime, slept)

    def destroy(self, policy: SandboxPolicy, runtime: SandboxRuntime | None, /) -> None:
        for pid in list(self.slept):
            with contextlib.suppress(psutil.Error):
                psutil.Process(pid).send_signal(signal.SIGCONT)
        self.slept.clear()
        self.known.pop(policy.session, None)
        super().destroy(policy, runtime)
        self.snapshots(policy).drop()


class CopyingTier(PausingTier):
    """It copies the record of a memory, and nothing that could go on from it."""

    copied: PauseResult | None = None

    def fork(self, policy: SandboxPolicy, slept: PauseResult, other: SandboxPolicy, /) -> PauseResult:
        self._may()
        snapshot = self.snapshots(policy).require_usable(MADE_BY)
        self.copied = PauseResult(
            held=False, snapshot=self.snapshots(policy).copy_to(self.snapshots(other), snapshot).id
        )
        return self.copied
