"""The event journal of one sandbox, and the sandbox state that the events add up to."""

import threading
import time
from collections.abc import Callable, Mapping

import msgspec

from kasmon.model.events import Event, NoticeRaised, SandboxPhaseChanged
from kasmon.model.sandbox.policy import LoggedTier, SandboxPhase, SandboxRuntime
from kasmon.model.sandbox.state import SandboxState, apply_sandbox_event
from kasmon.sandbox.managed.idle_policy import LifetimeTerms, deadlines


class SandboxJournal:
    """The events of one sandbox. `note` records one; an intent is on disk when it returns."""

    def __init__(
        self,
        state: SandboxState | None,
        write: Callable[[Event], None],
        *,
        tier: LoggedTier,
        keeps_memory: bool,
        terms: LifetimeTerms,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            state: the state after the events so far.
            write: records an event; if it raises, nothing was recorded.
            tier: the sandbox's tier.
            keeps_memory: whether it can be paused to disk.
            terms: its time limits.
            clock: returns the time.
        """
        self.sandbox_state = state or SandboxState(phase=SandboxPhase.EXPIRED, is_intended=False, tier=tier)
        self.clock = clock
        self._lock = threading.Lock()
        self._told: set[str] = set()
        self._write = write
        self._tier = tier
        self._keeps_memory = keeps_memory
        self._terms = terms

    def note(self, event: Event) -> None:
        """Record *event* and apply it to the state."""
        self._write(event)
        self.apply(event)

    def apply(self, event: Event) -> None:
        """Apply *event*, which is recorded already."""
        with self._lock:
            self.sandbox_state = apply_sandbox_event(self.sandbox_state, event) or self.sandbox_state

    def move(
        self,
        phase: SandboxPhase,
        *,
        intended: bool = False,
        runtime: SandboxRuntime | None = None,
        generation: int | None = None,
        held: bool = False,
        snapshot: str = "",
        counters: Mapping[str, int] | None = None,
        lost: str = "",
        why: str = "",
        is_used: bool = False,
        used_at: float | None = None,
    ) -> None:
        """Record that the sandbox enters *phase*, or is in it.

        *is_used*: a turn begins or ends about now. *used_at*: when it was last used, if no turn shows that.
        """
        at, known = self.clock(), self.sandbox_state
        moved = SandboxPhaseChanged(
            at=at,
            phase=phase,
            step="intended" if intended else "confirmed",
            tier=self._tier,
            runtime=runtime,
            generation=known.generation if generation is None else generation,
            turn=known.turn,
            held=held,
            snapshot=snapshot,
            counters=dict(known.counters if counters is None else counters),
            used_at=used_at,
            lost=lost,
            why=why,
        )
        then = apply_sandbox_event(known, moved) or known
        if is_used:
            then = msgspec.structs.replace(then, used_at=at)
        is_on_disk = phase is SandboxPhase.PAUSED and not held
        to_come = deadlines(then, self._terms, keeps_memory=self._keeps_memory, is_on_disk=is_on_disk)
        self.note(
            msgspec.structs.replace(
                moved,
                standby_at=None if phase is SandboxPhase.PAUSED else to_come.standby_at,
                pause_at=to_come.pause_at,
                expires_at=to_come.expires_at,
            )
        )

    def add_notice(self, text: str, *, is_warning: bool = True) -> None:
        """Record *text* as a notice for the user."""
        self.note(NoticeRaised(at=self.clock(), text=text, level="warning" if is_warning else "info"))

    def add_notice_once(self, *texts: str) -> None:
        """Record each of *texts* as a notice, unless this journal recorded it before."""
        for text in texts:
            if text not in self._told:
                self._told.add(text)
                self.add_notice(text)
