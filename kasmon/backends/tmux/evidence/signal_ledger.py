"""The last word of each source on one agent, and what they add up to. A word becomes a fact when it is another one."""

import time

from kasmon.model.events import SignalSeen
from kasmon.model.evidence import HOOK_LAG_S, Signal, StateVerdict, claims, heard, judge

WORDLESS = frozenset({"output", "fallback"})
"""Sources that do not know what the agent does, only what its screen does."""
OUTLASTED = ("hook", "program")
"""Sources that do not tell every ending of a turn, or every dialog: a screen that stands on knows better."""


class SignalLedger:
    """The signals of one agent; *known* are those in its log."""

    def __init__(self, known: tuple[Signal, ...] = ()) -> None:
        self._signals = known

    @property
    def verdict(self) -> StateVerdict:
        """What all sources together say now."""
        return judge(self._signals, time.time())

    @property
    def can_tell(self) -> bool:
        """Whether somebody says what it does, and not only whether it prints."""
        return any(claims(signal) for signal in self._signals if signal.source not in WORDLESS)

    def last(self, source: str) -> Signal | None:
        """What *source* said last."""
        return next((signal for signal in self._signals if signal.source == source), None)

    def noted(self, signal: SignalSeen) -> None:
        """*signal* became a fact."""
        self._signals = heard(
            self._signals,
            Signal(
                source=signal.source,
                value=signal.value,
                at=signal.at,
                asking=signal.asking,
                text=signal.text,
                until=signal.until,
                rule=signal.rule,
                failed=signal.failed,
            ),
        )

    def is_news(self, signal: SignalSeen) -> bool:
        """Whether *signal* is to become a fact: its source says something else, or says the same against one of
        `OUTLASTED`."""
        last = self.last(signal.source)
        if signal.prompt or last is None:
            return True
        return _word(last) != _word(signal) or self._outlasts(last, signal)

    def _outlasts(self, last: Signal, signal: SignalSeen) -> bool:
        """Whether a screen that says the same as before says it long enough after another to know better than that."""
        others = [other for source in OUTLASTED if (other := self.last(source)) and not claims(other) & claims(last)]
        return signal.source == "screen" and any(last.at < other.at + HOOK_LAG_S <= signal.at for other in others)


def _word(signal: Signal | SignalSeen) -> tuple[object, ...]:
    """What makes a word another one: a new text only where something is asked, failed, or could not be looked at."""
    counts = "asking" in signal.value or signal.value == "unreadable" or signal.failed
    return signal.value, signal.asking, signal.until, signal.rule, signal.failed, signal.text if counts else ""
