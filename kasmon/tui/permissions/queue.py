"""The rules of the permission card: which request is shown, and when keys count. Pure; the time is an argument."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from kasmon.model.permission import Request, RequestId, SessionId
from kasmon.model.session import Session
from kasmon.tui.gateway.protocol import CardContext

DEAF_S: Final = 0.6
"""A card ignores keys for this long after it appeared or changed, in seconds."""
SILENCE_S: Final = 0.3
"""And until no key was pressed for this long, in seconds."""
QUIET_S: Final = 1.0
"""A card opens by itself only after this long without a key, in seconds."""


class PermissionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a card or the inbox needs to know, at one moment."""

    waiting: tuple[Request, ...] = ()
    sent: frozenset[RequestId] = frozenset()
    """Requests answered here whose outcome is not logged yet."""
    sessions: Mapping[SessionId, Session] = {}
    cards: Mapping[SessionId, CardContext] = {}
    """A session without an entry must not be shown yet."""
    here: SessionId | None = None
    """The session that the user had selected or opened when the card or the inbox opened."""
    listed: frozenset[SessionId] = frozenset()
    """The sessions in the list by then."""
    changed: Mapping[SessionId, RequestId] = {}
    """The request answered here last per session, if it had changed by then, so that nothing was sent."""

    def card_of(self, request: Request) -> CardContext:
        return self.cards.get(request.session, CardContext())


class InputGuard:
    """Whether a card takes keys: not while the user may still be typing at what was there before.

    What counts is what the user saw when pressing a key. So only `update` arms it, which the card calls while it runs,
    and only the second of two successful looks in a row. A process that was stopped resumes with time that the user did
    not see pass, and with unread keys.
    """

    def __init__(self, now: float) -> None:
        self.armed = False
        self._changed_at = now
        self._pressed_at = float("-inf")
        self._was_quiet = False

    def change(self, now: float) -> None:
        """Note that the shown content changed: disarm."""
        self._changed_at, self.armed, self._was_quiet = now, False, False

    def press(self, now: float) -> None:
        """Note a key that came while disarmed."""
        self._pressed_at, self._was_quiet = now, False

    def update(self, now: float) -> bool:
        """Return whether keys count from now on, which then lasts until the next change."""
        may = now >= max(self._changed_at + DEAF_S, self._pressed_at + SILENCE_S)
        self.armed = self.armed or (may and self._was_quiet)
        self._was_quiet = may
        return self.armed


class PermissionQueue:
    """The open requests of the fleet by their `turn`; those answered here are kept until the log confirms it."""

    def __init__(self) -> None:
        self._requests: dict[SessionId, tuple[Request, ...]] = {}
        self._sent: set[RequestId] = set()
        self._put_off: set[RequestId] = set()
        self._waiting: tuple[Request, ...] | None = ()

    def update(self, changed: Iterable[Session], gone: Iterable[SessionId] = ()) -> bool:
        """Update the requests of these sessions; return whether any changed."""
        requests = {session.id: session.requests for session in changed} | dict.fromkeys(gone, ())
        others = {id_: now for id_, now in requests.items() if now != self._requests.get(id_, ())}
        for session_id, now in others.items():
            known = self._requests.pop(session_id, ())
            over = {ask.id for ask in known} - {ask.id for ask in now}
            waited = {ask.id for ask in known if not ask.later}
            self._sent -= over | {ask.id for ask in now if ask.later and ask.id in waited}
            self._put_off -= over
            if now:
                self._requests[session_id] = now
            self._waiting = None
        return bool(others)

    def mark_sent(self, request: RequestId) -> None:
        """Note that an answer was sent: the request is hidden unless that fails."""
        self._sent.add(request)
        self._waiting = None

    def mark_failed(self, request: RequestId) -> None:
        self._sent.discard(request)
        self._waiting = None

    def put_off(self, requests: Iterable[RequestId]) -> None:
        """The user closed the card on these: they stay pending, and no longer open by themselves."""
        self._put_off.update(requests)

    @property
    def waiting(self) -> tuple[Request, ...]:
        """Every open request that is not answered here, in turn."""
        if self._waiting is None:
            requests = (ask for group in self._requests.values() for ask in group if ask.id not in self._sent)
            self._waiting = tuple(sorted(requests, key=turn))
        return self._waiting

    @property
    def in_transit(self) -> frozenset[RequestId]:
        """The requests answered here that are still in the queue."""
        return frozenset(self._sent)

    def rising(self) -> Request | None:
        """Return the request that may open by itself: answerable, not snoozed, and never closed on."""
        may_rise = (ask for ask in self.waiting if ask.answerable and not ask.later and ask.id not in self._put_off)
        return next(may_rise, None)


def turn(ask: Request) -> tuple[bool, float, RequestId]:
    """Return its sort key among the pending requests: the oldest first, snoozed ones last."""
    return ask.later, ask.asked_at, ask.id


def first_for(
    waiting: Sequence[Request], owner: SessionId | None, listed: Collection[SessionId] = ()
) -> Request | None:
    """Return which of *waiting* the card opens with; None if nothing is pending.

    Args:
        waiting: in turn.
        owner: the session that the user has opened or selected; its own request comes first.
        listed: the sessions in the list. If *owner* has no request, the oldest of these comes, else the oldest of all.
    """
    own = (ask for ask in waiting if ask.session == owner)
    in_list = (ask for ask in waiting if ask.session in listed)
    return next(chain(own, in_list, waiting), None)


def place_in(queue: Sequence[Request], request: RequestId) -> int | None:
    """Return its position in *queue*, from 1; None if it is no longer pending."""
    return next((n for n, ask in enumerate(queue, 1) if ask.id == request), None)
