"""What an agent says and nobody here knows: the first of each kind is kept, the rest is counted."""

import json
import logging
from collections import Counter
from typing import Any, Final

from kasmon.model.event import Event, ForeignSeen, NoticeRaised

RAW: Final = 4000
"""How much of it is kept, in characters."""
KINDS: Final = 100
"""How many kinds are told apart; an agent that invents names fills no log."""
NAME: Final = 200
"""How much of its name is kept, in characters."""
NO_MESSAGE: Final = "a line that is no message"

log = logging.getLogger(__name__)


class Foreign:
    """All that was not known, by kind."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()

    def seen(self, what: str, raw: object, at: float) -> list[Event]:
        """What to note about a *what*, said as *raw*; nothing if one was seen before."""
        what = what[:NAME]
        if what not in self.counted and len(self.counted) >= KINDS:
            what = "something else"
        self.counted[what] += 1
        if self.counted[what] > 1:
            return []
        log.info("the agent said something that is not known: %s", what)
        return [ForeignSeen(at=at, what=what, raw=_beginning(raw))]

    def garbage(self, line: bytes, at: float) -> list[Event]:
        """Likewise about a line of its output that is no message."""
        seen = self.seen(NO_MESSAGE, line[: 4 * RAW].decode("utf-8", "replace"), at)
        if not seen:
            return []
        text = "The agent printed a line that is no message of its protocol; it was skipped, as further ones will be."
        return [NoticeRaised(at=at, text=text, level="warning"), *seen]

    def told(self) -> None:
        """Write to the log how often each kind came."""
        for what, count in self.counted.items():
            if count > 1:
                log.info("not known, %d times: %s", count, what)


def _beginning(raw: Any) -> str:
    if isinstance(raw, str):
        return raw[:RAW]
    try:
        return json.dumps(raw, ensure_ascii=False)[:RAW]
    except (TypeError, ValueError, RecursionError):
        return repr(raw)[:RAW]
