"""A tier that confines nothing and whose sleep on disk is a stopped process: for tests of what is above such tiers."""

import contextlib
import signal
from pathlib import Path

import psutil

from kasmon.errors import SandboxError
from kasmon.model.sandbox import Policy, Runtime
from kasmon.model.snapshot import Judged, Maker, Snapshot
from kasmon.sandbox.base import Slept
from kasmon.sandbox.memory import Memories
from tests.sandbox.bare import Bare

MADE_BY = Maker(program="bare 1")


class KeepingBare(Bare):
    """Where its memory counts as on disk, its processes count as gone."""

    keeps_memory = True

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.known: dict[str, Runtime] = {}
        self.slept: set[int] = set()

    def memories(self, policy: Policy) -> Memories:
        return Memories(self.root / policy.session / "memory", policy.session, "microvm")

    def create(self, policy: Policy, /) -> Runtime:
        runtime = super().create(policy)
        self.memories(policy).moved_on()
        self.known[policy.session] = runtime
        return runtime

    def find(self, policy: Policy, runtime: Runtime, /) -> bool:
        return runtime.pid not in self.slept and super().find(policy, runtime)

    def adopt(self, policy: Policy, /) -> Runtime | None:
        runtime = self.known.get(policy.session)
        return runtime if runtime is not None and self.find(policy, runtime) else None

    def kept(self, policy: Policy, /) -> Snapshot | None:
        with contextlib.suppress(SandboxError):
            return self.memories(policy).fit(MADE_BY)
        return None

    def judged(self, policy: Policy, /, *, whole: bool = False) -> Judged | None:
        return self.memories(policy).judged(lambda: MADE_BY, whole=whole)

    def pause(self, policy: Policy, runtime: Runtime, /, *, to_disk: bool = False, turn: int = 0) -> Slept:
        slept = super().pause(policy, runtime)
        if not to_disk:
            return slept
        with self.memories(policy).draft() as draft:
            (draft.folder / "ram").write_bytes(b"state")
            snapshot = draft.confirm(MADE_BY, turn)
        self.slept.add(runtime.pid)
        return Slept(held=False, snapshot=snapshot.id)

    def resume(self, policy: Policy, runtime: Runtime, slept: Slept, /) -> Runtime:
        if not slept.held:
            self._may()
            memories = self.memories(policy)
            memories.used(memories.fit(MADE_BY))
            self.slept.discard(runtime.pid)
        else:
            self.memories(policy).moved_on()
        return super().resume(policy, runtime, slept)

    def destroy(self, policy: Policy, runtime: Runtime | None, /) -> None:
        for pid in list(self.slept):
            with contextlib.suppress(psutil.Error):
                psutil.Process(pid).send_signal(signal.SIGCONT)
        self.slept.clear()
        self.known.pop(policy.session, None)
        super().destroy(policy, runtime)
        self.memories(policy).drop()


class CopyingBare(KeepingBare):
    """It copies the record of a memory, and nothing that could go on from it."""

    copied: Slept | None = None

    def fork(self, policy: Policy, slept: Slept, other: Policy, /) -> Slept:
        self._may()
        snapshot = self.memories(policy).fit(MADE_BY)
        self.copied = Slept(held=False, snapshot=self.memories(policy).copy_to(self.memories(other), snapshot).id)
        return self.copied
