"""Which sessions the list shows, and in which order. Pure.

`ListOrder` caches its sort keys: of five thousand sessions, forty change between two updates.
"""

from collections.abc import Container, Iterable, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from kasmon.model.fleet import Fleet, Wave, waves
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import CRASHED
from kasmon.tui.theme.look import state_name

URGENT: Final = CRASHED
"""Up to this `attention` no fold hides a session: it asks, has finished unseen, is lost or crashed."""
DEEPEST: Final = 8
"""The deepest indentation of child rows."""


class SortOrder(StrEnum):
    ATTENTION = "attention"
    NAME = "name"
    AGENT = "agent"
    SINCE = "since"
    COST = "cost"
    WAVE = "wave"


class SessionRow(msgspec.Struct, frozen=True):
    """One session's line; child rows are indented."""

    session: SessionId
    depth: int = 0
    children: int = 0
    """How many rows below it would be folded with it."""


class WaveHeading(msgspec.Struct, frozen=True):
    """A wave's line above its sessions; None is for the sessions that are in no wave."""

    key: str
    wave: Wave | None
    sessions: int
    folded: bool


Item: TypeAlias = SessionRow | WaveHeading


class SessionFilter:
    """A parsed filter: each word must occur in a row's text; `state:` and the other `FIELDS` match one field."""

    FIELDS = ("state", "wave", "agent", "mode", "sandbox")

    def __init__(self, text: str = "") -> None:
        self.text = text
        self._words: list[str] = []
        self._fields: list[tuple[str, frozenset[str]]] = []
        for term in text.casefold().split():
            field, colon, values = term.partition(":")
            if colon and field in self.FIELDS:
                if wanted := frozenset(value for value in values.split(",") if value):
                    self._fields.append((field, wanted))
            else:
                self._words.append(term)

    def __bool__(self) -> bool:
        return bool(self._words or self._fields)

    def takes(self, session: Session) -> bool:
        """Whether *session* matches each named field and each word."""
        for field, wanted in self._fields:
            if not wanted & self._values(session, field):
                return False
        if not self._words:
            return True
        state = state_name(session)
        text = (
            f"{session.name} {session.id} {state} {session.agent} {session.mode.value} {session.sandbox or ''}"
            f" {session.last_line}"
        ).casefold()
        return all(word in text for word in self._words)

    @staticmethod
    def _values(session: Session, field: str) -> frozenset[str]:
        match field:
            case "state":
                return frozenset({session.state.value, state_name(session)})
            case "wave":
                return frozenset() if session.wave is None else frozenset({str(session.wave)})
            case "agent":
                return frozenset({session.agent.casefold()})
            case "sandbox":
                return frozenset({session.sandbox or "none"})
            case _:
                return frozenset({session.mode.value})


class ListSettings(msgspec.Struct, frozen=True, kw_only=True):
    sort: SortOrder = SortOrder.ATTENTION
    by_wave: bool = False
    folded: frozenset[str] = frozenset()
    """Ids of sessions and keys of waves whose rows are folded."""
    filter: str = ""


class ListChange(msgspec.Struct, frozen=True):
    """The difference between two fleets."""

    changed: tuple[Session, ...]
    """New or changed sessions."""
    gone: tuple[SessionId, ...]


def difference(before: Fleet, after: Fleet) -> ListChange:
    """Return the difference from *before* to *after*; fast if most sessions are the same objects."""
    old, new = before.sessions, after.sessions
    if old is new:
        return ListChange((), ())
    if len(old) == len(new):
        pairs = [(a, b) for a, b in zip(old, new, strict=True) if a is not b]
        if all(a.id == b.id for a, b in pairs):
            return ListChange(tuple(b for a, b in pairs if a != b), ())
    known = {session.id: session for session in old}
    left = {session.id for session in new}
    changed = tuple(s for s in new if (was := known.get(s.id)) is not s and was != s)
    return ListChange(changed, tuple(id_ for id_ in known if id_ not in left))


class ListOrder:
    """The sessions of the newest fleet, and their order."""

    def __init__(self) -> None:
        self.sessions: dict[SessionId, Session] = {}
        self._order: list[SessionId] = []
        self._keys: dict[SessionId, tuple[object, ...]] = {}
        self._sort = SortOrder.ATTENTION

    def update(self, fleet: Fleet, change: ListChange) -> bool:
        """Apply *change*, which led to *fleet*; return whether the order may have changed."""
        moved = bool(change.gone)
        for gone in change.gone:
            self.sessions.pop(gone, None)
            self._keys.pop(gone, None)
        for session in change.changed:
            if session.id not in self.sessions:
                self._order.append(session.id)
            before = self.sessions.get(session.id)
            self.sessions[session.id] = session
            key = _key(session, self._sort)
            moved = moved or self._keys.get(session.id) != key or _placed_otherwise(before, session)
            self._keys[session.id] = key
        if change.gone:
            self._order = [id_ for id_ in self._order if id_ in self.sessions]
        return moved

    def items(self, fleet: Fleet, view: ListSettings) -> list[Item]:
        """Return the lines of the list under *view*."""
        if view.sort is not self._sort:
            self._sort = view.sort
            self._keys = {id_: _key(session, view.sort) for id_, session in self.sessions.items()}
        self._order.sort(key=self._keys.__getitem__)
        wanted = SessionFilter(view.filter)
        ids = [id_ for id_ in self._order if wanted.takes(self.sessions[id_])] if wanted else self._order
        return self._by_wave(fleet, ids, view) if view.by_wave else self._nested(ids, view)

    def _by_wave(self, fleet: Fleet, ids: Sequence[SessionId], view: ListSettings) -> list[Item]:
        here = set(ids)
        items: list[Item] = []
        placed: set[SessionId] = set()
        for wave in waves(fleet):
            key = f"{wave.plan or ''}/{wave.number}"
            members = [session.id for session in wave.sessions if session.id in here]
            placed.update(members)
            if members:
                tops = set(members)
                members += [id_ for id_ in ids if id_ not in placed and self._root(id_, here) in tops]
                placed.update(members)
                items += self._group(key, wave, members if view.sort is SortOrder.WAVE else _kept(ids, members), view)
        rest = [id_ for id_ in ids if id_ not in placed]
        return items + (self._group("", None, rest, view) if rest and items else self._nested(rest, view))

    def _group(self, key: str, wave: Wave | None, members: Sequence[SessionId], view: ListSettings) -> list[Item]:
        folded = f"wave {key}" in view.folded
        heading = WaveHeading(f"wave {key}", wave, len(members), folded)
        return [heading, *self._nested(members, view, folded)]

    def _nested(self, ids: Sequence[SessionId], view: ListSettings, hidden: bool = False) -> list[Item]:
        """Return rows in this order, child rows below their parent; of *hidden* and folded ones only the urgent.

        By attention, a parent takes the position of its most urgent child.
        """
        here = set(ids)
        children: dict[SessionId, list[SessionId]] = {}
        for id_ in ids:
            parent = self.sessions[id_].parent
            if parent is not None and parent in here and parent != id_:
                children.setdefault(parent, []).append(id_)
        if not children and not hidden:
            return [SessionRow(id_) for id_ in ids]
        below_others = {child for group in children.values() for child in group}
        urgent = [id_ for id_ in ids if self.sessions[id_].attention <= URGENT]
        lifted = [self._root(id_, here) for id_ in urgent] if view.sort is SortOrder.ATTENTION else []
        kept = {above for id_ in urgent for above in self._line(id_, here)}
        rows: list[Item] = []
        placed: set[SessionId] = set()
        for top in (*lifted, *(id_ for id_ in ids if id_ not in below_others), *ids):
            left = [(top, 0, hidden)]
            while left:
                id_, depth, is_hidden = left.pop()
                if id_ in placed:
                    continue
                placed.add(id_)
                below = children.get(id_, [])
                if not is_hidden or id_ in kept:
                    rows.append(SessionRow(id_, depth, len(below)))
                is_hidden = is_hidden or id_ in view.folded
                left += [(child, min(depth + 1, DEEPEST), is_hidden) for child in reversed(below)]
        return rows

    def _root(self, id_: SessionId, here: Container[SessionId]) -> SessionId:
        return self._line(id_, here)[-1]

    def _line(self, id_: SessionId, here: Container[SessionId]) -> list[SessionId]:
        """Return *id_*, its parent, and so on; each session at most once."""
        line = [id_]
        while (parent := self.sessions[line[-1]].parent) is not None and parent in here and parent not in line:
            line.append(parent)
        return line


def _kept(ids: Iterable[SessionId], members: Iterable[SessionId]) -> list[SessionId]:
    wanted = set(members)
    return [id_ for id_ in ids if id_ in wanted]


def _placed_otherwise(before: Session | None, after: Session) -> bool:
    return before is None or (before.parent, before.wave, before.plan) != (after.parent, after.wave, after.plan)


def _key(session: Session, sort: SortOrder) -> tuple[object, ...]:
    attention = (session.attention, session.since, session.name, session.id)
    match sort:
        case SortOrder.NAME:
            return (session.name.casefold(), session.id)
        case SortOrder.AGENT:
            return (session.agent, *attention)
        case SortOrder.SINCE:
            return (-session.since, session.name, session.id)
        case SortOrder.COST:
            return (-(session.cost_usd or 0.0), *attention)
        case SortOrder.WAVE:
            return (session.wave is None, session.wave or 0, session.plan or "", session.task or 0, *attention)
        case _:
            return attention
