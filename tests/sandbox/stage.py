"""A sandbox with its facts, as its host has it: for tests of its life, in which any process may die at any moment."""

import time
from collections.abc import Callable
from pathlib import Path

from kasmon.model.event import Event, NoticeRaised, SandboxMoved
from kasmon.model.housing import Housing, housed
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import Phase, Policy
from kasmon.sandbox.box import Box
from kasmon.sandbox.channel import Channel
from kasmon.sandbox.checkpoint.checkpoint import Checkpoints
from kasmon.sandbox.journal import Journal
from kasmon.sandbox.keeping import Keeping
from kasmon.sandbox.lifecycle import Terms
from tests.sandbox.bare import Bare

ME = SessionId("abcdefgh")


class DiedError(BaseException):
    """The process that kept the sandbox was killed here."""


class Stage:
    """One session's sandbox below *root*; `host()` is a process that keeps it, as far as a sandbox can tell."""

    def __init__(self, root: Path, policy: Policy | None = None, session: SessionId = ME) -> None:
        self.root = root
        self.tier = Bare(root)
        self.policy = policy or Policy(session=session)
        self.facts: list[Event] = []
        self.dies_at: tuple[int, bool] | None = None
        """At which fact from now the one who writes dies: before it is written (False), or after (True)."""
        self.terms = Terms()
        self.clock: Callable[[], float] = time.time
        self.boxes: list[Box] = []

    def host(self) -> Box:
        """A process that knows nothing but the facts."""
        journal = Journal(
            self.housing(), self._write, tier="jail", keeps_memory=False, terms=self.terms, clock=self.clock
        )
        box = Box(self.tier, self.policy, journal, lambda runtime: Channel(runtime.socket))
        self.keeping = Keeping(box, Checkpoints(self.root / "points"), self.root / "inherited")
        self.boxes.append(box)
        return box

    def housing(self) -> Housing | None:
        known: Housing | None = None
        for fact in self.facts:
            known = housed(known, fact)
        return known

    def arrived(self) -> Box:
        box = self.host()
        box.arrive()
        return box

    def moves(self) -> list[tuple[Phase, str]]:
        return [(fact.phase, fact.step) for fact in self.facts if isinstance(fact, SandboxMoved)]

    def told(self) -> str:
        """All that people were told."""
        notices = [fact.text for fact in self.facts if isinstance(fact, NoticeRaised)]
        return "\n".join(
            [*notices, *(fact.lost for fact in self.facts if isinstance(fact, SandboxMoved) and fact.lost)]
        )

    @property
    def living(self) -> int:
        """How many agents of this stage run."""
        return sum(child.poll() is None for child in self.tier.made)

    def close(self) -> None:
        for box in self.boxes:
            if box.within is not None:
                box.within.close()
        runtimes = [fact.runtime for fact in self.facts if isinstance(fact, SandboxMoved) and fact.runtime]
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
