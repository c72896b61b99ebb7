"""All sessions at one moment: their order, totals and waves."""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from kasmon.errors import SessionNotFoundError
from kasmon.model.permission import Request, SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState


class FleetTotals(msgspec.Struct, frozen=True, kw_only=True):
    states: Mapping[SessionState, int]
    crashed: int
    finished: int
    """The sessions with a finished turn that no person has viewed; `states` does not count them."""
    requests: int
    tokens: int
    cost_usd: float


class Wave(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions that run side by side under one wave number of one plan."""

    number: int
    plan: str | None
    peers: int
    """The wave's size according to its sessions, or their number if that is larger."""
    sessions: tuple[Session, ...]

    @property
    def done(self) -> int:
        """The number of its sessions that ended well."""
        return sum(s.state is SessionState.ENDED and not s.crashed for s in self.sessions)


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Every session that is not removed, and when this was true."""

    sessions: tuple[Session, ...] = ()
    """In no particular order; see `by_attention`."""
    at: float = 0.0
    read_only: str = ""
    """Why events cannot be logged at the moment (a full disk, say); empty if they can."""

    @property
    def here(self) -> tuple[Session, ...]:
        """Those of this machine."""
        return tuple(session for session in self.sessions if not session.via)

    def get(self, session: SessionId) -> Session | None:
        return next((s for s in self.sessions if s.id == session), None)

    def require(self, session: SessionId) -> Session:
        """Return the session with this id. Raises `SessionNotFoundError` if there is none."""
        if (session_found := self.get(session)) is None:
            raise SessionNotFoundError(session)
        return session_found


class FleetDifference(msgspec.Struct, frozen=True):
    """The difference between two fleets."""

    changed: tuple[Session, ...]
    gone: tuple[SessionId, ...]


def difference(before: Fleet, after: Fleet) -> FleetDifference:
    """Return the difference from *before* to *after*; fast if most sessions are the same objects."""
    old, new = before.sessions, after.sessions
    if old is new:
        return FleetDifference((), ())
    if len(old) == len(new):
        pairs = [(a, b) for a, b in zip(old, new, strict=True) if a is not b]
        if all(a.id == b.id for a, b in pairs):
            return FleetDifference(tuple(b for a, b in pairs if a != b), ())
    known = {session.id: session for session in old}
    left = {session.id for session in new}
    changed = tuple(s for s in new if (was := known.get(s.id)) is not s and was != s)
    return FleetDifference(changed, tuple(id_ for id_ in known if id_ not in left))


def peers_of(fleet: Fleet, session: Session) -> tuple[Session, ...]:
    """Return the other sessions of *session*'s wave on its machine, by task; none if it has no wave."""
    if session.wave is None:
        return ()
    beside = (
        other
        for other in fleet.sessions
        if (other.wave, other.plan, other.via) == (session.wave, session.plan, session.via) and other.id != session.id
    )
    return tuple(sorted(beside, key=lambda peer: (peer.task or 0, peer.name)))


def group_by_starter(fleet: Fleet) -> dict[SessionId, list[Session]]:
    """Return the sessions that agents started, by the session whose agent did."""
    started: dict[SessionId, list[Session]] = {}
    for each in fleet.sessions:
        if each.actor is not None:
            started.setdefault(each.actor.session, []).append(each)
    return started


def find_started(started: Mapping[SessionId, Iterable[Session]], session: SessionId) -> tuple[Session, ...]:
    """Return the sessions that the agent of *session* started, those that theirs did, and so on; oldest first.

    *started* is as `group_by_starter` returns it.
    """
    found: dict[SessionId, Session] = {}
    left = [session]
    while left:
        for each in started.get(left.pop(), ()):
            if each.id not in found and each.id != session:
                found[each.id] = each
                left.append(each.id)
    return tuple(sorted(found.values(), key=lambda each: (each.created_at, each.id)))


def find_children(fleet: Fleet, session: SessionId) -> tuple[Session, ...]:
    """Return the sessions that the agent of *session* started, those that theirs did, and so on; oldest first."""
    return find_started(group_by_starter(fleet), session)


def by_attention(sessions: Iterable[Session]) -> tuple[Session, ...]:
    """Return *sessions*, those that need a person first, longest waiting foremost; child rows follow their parent."""
    ordered = sorted(sessions, key=lambda s: (s.attention, s.since, s.name))
    known = {s.id for s in ordered}
    children: dict[SessionId, list[Session]] = {}
    for session in ordered:
        if session.parent in known and session.parent is not None:
            children.setdefault(session.parent, []).append(session)
    placed: list[Session] = []

    def place(session: Session, depth: int) -> None:
        placed.append(session)
        for child in children.get(session.id, ()) if depth < 8 else ():
            place(child, depth + 1)

    for session in ordered:
        if session.parent not in known:
            place(session, 0)
    rest = {s.id for s in ordered} - {s.id for s in placed}
    return (*placed, *(s for s in ordered if s.id in rest))


def requests(fleet: Fleet) -> tuple[Request, ...]:
    """Return every open request, oldest first."""
    return tuple(sorted((ask for s in fleet.sessions for ask in s.requests), key=lambda ask: (ask.asked_at, ask.id)))


def totals(fleet: Fleet) -> FleetTotals:
    return FleetTotals(
        states=Counter(s.state for s in fleet.sessions if not s.is_unviewed),
        crashed=sum(s.crashed for s in fleet.sessions),
        finished=sum(s.is_unviewed for s in fleet.sessions),
        requests=sum(len(s.requests) for s in fleet.sessions),
        tokens=sum(s.tokens.input + s.tokens.output for s in fleet.sessions if s.tokens),
        cost_usd=sum(s.cost_usd or 0.0 for s in fleet.sessions),
    )


def waves(fleet: Fleet) -> tuple[Wave, ...]:
    """Return the waves of the fleet, by plan and number; the sessions in each by task."""
    found: dict[tuple[str, int], list[Session]] = {}
    for session in fleet.sessions:
        if session.wave is not None:
            found.setdefault((session.plan or "", session.wave), []).append(session)
    return tuple(
        Wave(
            number=number,
            plan=plan or None,
            peers=max(len(members), *(s.peers or 0 for s in members)),
            sessions=tuple(sorted(members, key=lambda s: (s.task or 0, s.name))),
        )
        for (plan, number), members in sorted(found.items())
    )
