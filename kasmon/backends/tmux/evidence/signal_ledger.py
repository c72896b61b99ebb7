"""The last signal of each source on one agent, and the state they give. Only a changed signal becomes an event."""

import time

from kasmon.model.events import SignalSeen
from kasmon.model.evidence import HOOK_LAG_S, Signal, StateVerdict, claims, judge, replace_signal

WORDLESS = frozenset({"output", "fallback"})
"""Sources that report only what the screen does, not what the agent does."""
OUTLASTED = ("hook", "program")
"""Sources that do not report every end of a turn, or every dialog: a screen that stays the same overrides them."""


class SignalLedger:
    """The signals of one agent; *logged* are those in its log."""

    def __init__(self, logged: tuple[Signal, ...] = ()) -> None:
        self._signals = logged

    @property
    def verdict(self) -> StateVerdict:
        """The state that all signals together give now."""
        return judge(self._signals, time.time())

    @property
    def reports_agent_state(self) -> bool:
        """Whether a source reports the agent's state, and not only whether it prints."""
        return any(claims(signal) for signal in self._signals if signal.source not in WORDLESS)

    def last(self, source: str) -> Signal | None:
        return next((signal for signal in self._signals if signal.source == source), None)

    def record(self, signal: SignalSeen) -> None:
        """Record *signal*, which became an event."""
        self._signals = replace_signal(self._signals, signal)

    def is_news(self, signal: SignalSeen) -> bool:
        """Whether *signal* becomes an event: it differs from its source's last one, or overrides `OUTLASTED`."""
        last = self.last(signal.source)
        if signal.prompt or last is None:
            return True
        return _comparison_key(last) != _comparison_key(signal) or self._outlasts(last, signal)

    def _outlasts(self, last: Signal, signal: SignalSeen) -> bool:
        """Whether an unchanged screen *signal* came long enough after a contradicting signal to override that."""
        others = [other for source in OUTLASTED if (other := self.last(source)) and not claims(other) & claims(last)]
        return signal.source == "screen" and any(last.at < other.at + HOOK_LAG_S <= signal.at for other in others)


def _comparison_key(signal: Signal | SignalSeen) -> tuple[object, ...]:
    """Return the fields that make a signal new: text counts only in a question, a failure or an unreadable screen."""
    counts = "asking" in signal.value or signal.value == "unreadable" or signal.failed
    return signal.value, signal.asking, signal.until, signal.rule, signal.failed, signal.text if counts else ""
