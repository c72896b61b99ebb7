"""The rules of asking a person: which request is shown, and when keys count. Pure; the time is an argument."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from kasmon.model.permission import Request, RequestId, SessionId
from kasmon.model.session import Session

DEAF_S: Final = 0.6
"""A card takes no key for so long after it appeared or changed, in seconds."""
SILENCE_S: Final = 0.3
"""And none until nothing was pressed for so long, in seconds."""
QUIET_S: Final = 1.0
"""A card rises by itself only after so long without a key, in seconds."""


class PermissionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that a card or the inbox may need to know, at one moment."""

    waiting: tuple[Request, ...] = ()
    sent: frozenset[RequestId] = frozenset()
    """What was answered here, while nobody has said yet that it counts."""
    sessions: Mapping[SessionId, Session] = {}
    known: Mapping[SessionId, tuple[str, ...]] = {}
    """Secret values of each session; one whose are not known yet must not be shown."""
    projects: Mapping[SessionId, str] = {}
    """The folder of each session's project."""
    changed: Mapping[SessionId, RequestId] = {}
    """What was answered here last, and had changed by then, so that nothing was sent."""


class InputGuard:
    """Whether a card takes keys: it does not while a person may still be typing at what was there before.

    What counts is what the person saw when they pressed a key, so nothing arms it but `look`, which the card calls
    while it runs; and only the second look in a row that has nothing against it: a process that stood still wakes up
    with time that nobody saw, and with keys that wait to be read.
    """

    def __init__(self, now: float) -> None:
        self.armed = False
        self._changed_at = now
        self._pressed_at = float("-inf")
        self._looked = False

    def change(self, now: float) -> None:
        """What the card shows is another now: deaf again."""
        self._changed_at, self.armed, self._looked = now, False, False

    def press(self, now: float) -> None:
        """A key came while the card was deaf."""
        self._pressed_at, self._looked = now, False

    def look(self, now: float) -> bool:
        """Whether a key counts from now on. Once it does, it does until the next change."""
        may = now >= max(self._changed_at + DEAF_S, self._pressed_at + SILENCE_S)
        self.armed = self.armed or (may and self._looked)
        self._looked = may
        return self.armed


class PermissionQueue:
    """The open requests of the fleet by their `turn`; what was answered here waits for its fact outside."""

    def __init__(self) -> None:
        self._asks: dict[SessionId, tuple[Request, ...]] = {}
        self._sent: set[RequestId] = set()
        self._put_off: set[RequestId] = set()
        self._waiting: tuple[Request, ...] | None = ()

    def take(self, changed: Iterable[Session], gone: Iterable[SessionId] = ()) -> bool:
        """Learn what these sessions ask now; tell whether anything is another."""
        asks = {session.id: session.asks for session in changed} | dict.fromkeys(gone, ())
        others = {id_: now for id_, now in asks.items() if now != self._asks.get(id_, ())}
        for session_id, now in others.items():
            self._put(session_id, now)
        return bool(others)

    def sent(self, request: RequestId) -> None:
        """An answer to it is on its way: it is not shown again unless that fails."""
        self._sent.add(request)
        self._waiting = None

    def failed(self, request: RequestId) -> None:
        """The answer did not arrive."""
        self._sent.discard(request)
        self._waiting = None

    def put_off(self, requests: Iterable[RequestId]) -> None:
        """A person closed the card on these: they wait on, and no longer rise by themselves."""
        self._put_off.update(requests)

    @property
    def waiting(self) -> tuple[Request, ...]:
        """Every open request that is not answered here, in turn."""
        if self._waiting is None:
            asks = (ask for group in self._asks.values() for ask in group if ask.id not in self._sent)
            self._waiting = tuple(sorted(asks, key=turn))
        return self._waiting

    @property
    def on_the_way(self) -> frozenset[RequestId]:
        """What was answered here, and has not left the queue by that yet."""
        return frozenset(self._sent)

    def rising(self) -> Request | None:
        """The request that may rise by itself: answerable, not set aside, and never closed on."""
        return next((ask for ask in self.waiting if self._may_rise(ask)), None)

    def _may_rise(self, ask: Request) -> bool:
        return ask.answerable and not ask.later and ask.id not in self._put_off

    def _put(self, session: SessionId, asks: tuple[Request, ...]) -> None:
        known = self._asks.get(session, ())
        before, still = {ask.id for ask in known}, {ask.id for ask in asks}
        waited = {ask.id for ask in known if not ask.later}
        self._sent -= (before - still) | {ask.id for ask in asks if ask.later and ask.id in waited}
        self._put_off -= before - still
        if asks:
            self._asks[session] = asks
        else:
            self._asks.pop(session, None)
        self._waiting = None


def turn(ask: Request) -> tuple[bool, float, RequestId]:
    """Its place among all that wait: the first asked first, those that were set aside behind them."""
    return ask.later, ask.asked_at, ask.id


def first_for(waiting: Sequence[Request], here: SessionId | None, listed: Collection[SessionId] = ()) -> Request | None:
    """Which of *waiting* the card opens with; None where nothing waits.

    Args:
        waiting: in turn.
        here: the session that the person has entered or selected; its own request comes first.
        listed: the sessions in the list. Where *here* asks nothing, the oldest of these comes, else the oldest of all.
    """
    own = (ask for ask in waiting if ask.session == here)
    in_list = (ask for ask in waiting if ask.session in listed)
    return next(chain(own, in_list, waiting), None)


def place_in(queue: Sequence[Request], request: RequestId) -> int | None:
    """Which one it is in *queue*, from 1; None if it does not wait any more."""
    return next((n for n, ask in enumerate(queue, 1) if ask.id == request), None)
