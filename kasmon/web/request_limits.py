"""Limits on requests: how many unknown links an address may open, how often one may be opened, and a pace for floods.

Guessing a signature of 256 bits is hopeless, so a valid link always opens: an address that is locked out may be that of
a proxy, through which the user comes too. All memory here is bounded.
"""

from collections import OrderedDict
from typing import Final

import msgspec

MAX_UNKNOWN: Final = 20
"""After this many unknown links within `WINDOW_S`, an address is locked out."""
MAX_VIEWS: Final = 60
"""How many requests for one link are served within `WINDOW_S`."""
WINDOW_S: Final = 60.0
LOCKED_S: Final = 600.0
"""How long an address is locked out, in seconds."""
MAX_COUNTED: Final = 256
"""The most addresses, and links, that are counted at once; the one counted longest ago is dropped."""


class Count(msgspec.Struct):
    """The requests of one address, or for one link, since `began_at`."""

    began_at: float
    number: int = 0
    locked_until: float = 0.0


class RequestLimits:
    """Counts requests. Times are in seconds, of one clock."""

    def __init__(self) -> None:
        self._unknown: OrderedDict[str, Count] = OrderedDict()
        self._views: OrderedDict[str, Count] = OrderedDict()

    def __len__(self) -> int:
        return len(self._unknown) + len(self._views)

    def is_locked(self, address: str, now: float) -> bool:
        """Whether unknown links from *address* are refused without an explanation."""
        count = self._unknown.get(address)
        return count is not None and now < count.locked_until

    def add_unknown(self, address: str, now: float) -> None:
        """Count an unknown link that *address* opened, and lock the address out after `MAX_UNKNOWN`."""
        count = _count(self._unknown, address, now)
        if count.number >= MAX_UNKNOWN:
            count.locked_until = now + LOCKED_S

    def add_view(self, link: str, now: float) -> bool:
        """Count a request for *link*; False if there were too many."""
        return _count(self._views, link, now).number <= MAX_VIEWS


class Pace:
    """Says how long to wait before the next of many events, so that they are no more than a rate. Times in seconds."""

    def __init__(self, burst: int, rate_hz: float, longest_s: float = 3600.0) -> None:
        """*burst*: how many events are let through at once; *rate_hz*: how many a second from then on.

        *longest_s*: the longest wait.
        """
        self._burst_s, self._gap_s, self._longest_s = burst / rate_hz, 1 / rate_hz, longest_s
        self._next_at = float("-inf")

    def add(self, now: float) -> float:
        """Count an event; return how long it has to wait."""
        begin = max(self._next_at, now - self._burst_s)
        self._next_at = min(begin + self._gap_s, now + self._longest_s)
        return max(0.0, self._next_at - now)


def _count(counts: OrderedDict[str, Count], name: str, now: float) -> Count:
    """Return the count for *name*, one higher; drop the oldest count if there are too many."""
    count = counts.get(name)
    if count is None or (now - count.began_at >= WINDOW_S and now >= count.locked_until):
        count = counts[name] = Count(now)
    counts.move_to_end(name)
    if len(counts) > MAX_COUNTED:
        counts.popitem(last=False)
    count.number += 1
    return count
