"""A sandbox with its facts, as its host has it: for tests of its life, in which any process may die at any moment."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kasmon.model.events import Event, NoticeRaised, SandboxPhaseChanged
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPhase, SandboxPolicy
from kasmon.model.sandbox.state import SandboxState, apply_sandbox_event
from kasmon.sandbox.checkpoint.checkpoints import CheckpointStore
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.managed.checkpoints import SandboxCheckpoints
from kasmon.sandbox.managed.idle_policy import LifetimeTerms
from kasmon.sandbox.managed.journal import SandboxJournal
from kasmon.sandbox.managed.sandbox import ManagedSandbox
from tests.support.sandbox.unconfined_tier import UnconfinedTier

ME = SessionId("abcdefgh")


class DiedError(BaseException):
    """The process that kept the sandbox was killed here."""


class SandboxProcess:
    """One session's sandbox below *root*; `host()` is a process that keeps it, as far as a sandbox can tell."""

    tier_name, keeps_memory = "jail", False

    def __init__(self, root: Path, policy: SandboxPolicy | None = None, session: SessionId = ME) -> None:
        self.root = root
        self.tier = UnconfinedTier(root)
        self.policy = policy or SandboxPolicy(session=session)
        self.facts: list[Event] = []
        self.dies_at: tuple[int, bool] | None = None
        """At which fact from now the one who writes dies: before it is written (False), or after (True)."""
        self.terms = LifetimeTerms()
        self.clock: Callable[[], float] = time.time
        self.boxes: list[ManagedSandbox] = []

    def host(self) -> ManagedSandbox:
        """A process that knows nothing but the facts."""
        kind: dict[str, Any] = {"tier": self.tier_name, "keeps_memory": self.keeps_memory}
        journal = SandboxJournal(self.sandbox_state(), self._write, terms=self.terms, clock=self.clock, **kind)
        box = ManagedSandbox(self.tier, self.policy, journal, lambda runtime: GuestChannel(runtime.socket))
        self.keeping = SandboxCheckpoints(box, CheckpointStore(self.root / "points"), self.root / "inherited")
        self.boxes.append(box)
        return box

    def sandbox_state(self) -> SandboxState | None:
        known: SandboxState | None = None
        for fact in self.facts:
            known = apply_sandbox_event(known, fact)
        return known

    def arrived(self) -> ManagedSandbox:
        box = self.host()
        box.arrive()
        return box

    def moves(self) -> list[tuple[SandboxPhase, str]]:
        return [(fact.phase, fact.step) for fact in self.facts if isinstance(fact, SandboxPhaseChanged)]

    def told(self) -> str:
        """All that people were told."""
        notices = [fact.text for fact in self.facts if isinstance(fact, NoticeRaised)]
        return "\n".join(
            [*notices, *(fact.lost for fact in self.facts if isinstance(fact, SandboxPhaseChanged) and fact.lost)]
        )

    @property
    def living(self) -> int:
        """How many agents of this stage run."""
        return sum(child.poll() is None for child in self.tier.made)

    def close(self) -> None:
        for box in self.boxes:
            if box.guest is not None:
                box.guest.close()
        runtimes = [fact.runtime for fact in self.facts if isinstance(fact, SandboxPhaseChanged) and fact.runtime]
        for runtime in (*runtimes, None):
            self.tier.destroy(self.policy, runtime)

    def _write(self, event: Event) -> None:
        if self.dies_at is None:
            self.facts.append(event)
            return
        left, after = self.dies_at
        self.dies_at = (left - 1, after)
        if left > 1:
            self.facts.append(event)
            return
        if after and left == 1:
            self.facts.append(event)
        raise DiedError
