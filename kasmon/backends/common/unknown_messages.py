"""Messages of an agent that this version of kasmon does not know: each kind is reported once, and counted."""

import logging
from collections import Counter
from typing import Final

from kasmon.backends.common.json_access import as_json
from kasmon.model.events import Event, NoticeRaised, UnknownMessageSeen

RAW_CHARACTERS: Final = 4000
"""How much of an unknown message is reported."""
KINDS: Final = 100
"""How many kinds are distinguished; an agent that invents names cannot fill the log."""
NAME_CHARACTERS: Final = 200
OTHER: Final = "something else"

log = logging.getLogger(__name__)


class UnknownMessages:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def report(self, what: str, raw: object, at: float, notice: str = "") -> list[Event]:
        """Return the events for the message *raw* of the kind *what*, with a *notice*; none if the kind came before."""
        what = what[:NAME_CHARACTERS]
        if what not in self.counts and len(self.counts) >= KINDS:
            what = OTHER
        self.counts[what] += 1
        if self.counts[what] > 1:
            return []
        raw_text = raw if isinstance(raw, str) else as_json(raw)
        events: list[Event] = [NoticeRaised(at=at, text=notice, level="warning")] if notice else []
        return [*events, UnknownMessageSeen(at=at, what=what, raw=raw_text[:RAW_CHARACTERS])]

    def log_counts(self) -> None:
        """Log how often each kind occurred that occurred again."""
        for what, count in self.counts.items():
            if count > 1:
                log.warning("%s came %d times; this version of kasmon does not know it", what, count)
