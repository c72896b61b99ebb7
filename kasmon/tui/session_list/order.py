"""Which sessions the list shows, and in which order. Pure.

`ListOrder` caches its sort keys: of five thousand sessions, forty change between two updates.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from kasmon.config.agent_address import machine_of
from kasmon.model.fleet import Fleet, FleetDifference, Wave, waves
from kasmon.model.formatting import state_name
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import CRASHED
from kasmon.tui.session_list.layout import MOST_FOLDED, GroupKey, ListLayout, SavedFilter

URGENT: Final = CRASHED
"""Up to this `attention` no fold hides a session: it asks, has finished unseen, is lost or crashed."""
LOCAL: Final = "local"
"""What a filter calls this machine."""
NO_VALUE: Final = "none"
"""What a filter calls the absence of a value."""
DEEPEST: Final = 8
"""The deepest indentation of child rows."""


class SortOrder(StrEnum):
    ATTENTION = "attention"
    NAME = "name"
    AGENT = "agent"
    SINCE = "since"
    COST = "cost"
    WAVE = "wave"
    MACHINE = "machine"


class SessionRow(msgspec.Struct, frozen=True):
    """One session's line; child rows are indented."""

    session: SessionId
    depth: int = 0
    children: int = 0
    tag: str = ""
    """The tag that it is grouped by: a session with several tags has a line for each."""


class ListHeading(msgspec.Struct, frozen=True):
    """The line above a group of sessions, also of those that belong to no wave, tag, ..."""

    key: str
    label: str
    sessions: int
    folded: bool
    needing: int = 0
    """How many of them need the user."""
    wave: Wave | None = None


ListEntry: TypeAlias = SessionRow | ListHeading


FIELDS: Final[Mapping[str, Callable[[Session], Iterable[str]]]] = {
    "state": lambda session: (session.state.value, state_name(session)),
    "tag": lambda session: session.tags or (NO_VALUE,),
    "plan": lambda session: ((session.plan or NO_VALUE).casefold(),),
    "wave": lambda session: () if session.wave is None else (str(session.wave),),
    "agent": lambda session: (session.agent.casefold(),),
    "account": lambda session: ((session.account or NO_VALUE).casefold(),),
    "mode": lambda session: (session.mode.value,),
    "sandbox": lambda session: (session.sandbox or NO_VALUE,),
    "machine": lambda session: (machine_name(session).casefold(),),
}
"""What a filter can name -> the values of a session that match it."""


class SessionFilter:
    """A parsed filter: each word must occur in a row's text; `state:` and the other `FIELDS` match one field."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self._words: list[str] = []
        self._fields: list[tuple[str, frozenset[str]]] = []
        for term in text.casefold().split():
            field, colon, values = term.partition(":")
            if colon and field in FIELDS:
                if wanted := frozenset(value for value in values.split(",") if value):
                    self._fields.append((field, wanted))
            else:
                self._words.append(term)

    def __bool__(self) -> bool:
        return bool(self._words or self._fields)

    def takes(self, session: Session) -> bool:
        """Whether *session* matches each named field and each word."""
        for field, wanted in self._fields:
            if wanted.isdisjoint(FIELDS[field](session)):
                return False
        if not self._words:
            return True
        state = state_name(session)
        text = (
            f"{session.name} {session.id} {state} {session.agent} {session.mode.value} {session.sandbox or ''}"
            f" {session.via} {' '.join(session.tags)} {session.last_line}"
        ).casefold()
        return all(word in text for word in self._words)


class FilterCounts:
    """How many sessions each saved filter matches; of an update it looks at the changed sessions alone."""

    def __init__(self) -> None:
        self._saved: tuple[SavedFilter, ...] = ()
        self._filters: list[SessionFilter] = []
        self._matching: list[set[SessionId]] = []

    def use(self, saved: tuple[SavedFilter, ...], sessions: Iterable[Session]) -> None:
        if saved != self._saved:
            self._saved = saved
            self._filters = [SessionFilter(each.text) for each in saved]
            self._matching = [{one.id for one in sessions if each.takes(one)} for each in self._filters]

    def update(self, changed: Iterable[Session], gone: Iterable[SessionId]) -> None:
        """Count *changed* by their new values, and drop *gone*."""
        for each, matching in zip(self._filters, self._matching, strict=True):
            matching.difference_update(gone)
            for session in changed:
                (matching.add if each.takes(session) else matching.discard)(session.id)

    def counts(self) -> tuple[int, ...]:
        """Return the number of matching sessions of each filter."""
        return tuple(map(len, self._matching))


class ListSettings(msgspec.Struct, frozen=True, kw_only=True):
    sort: SortOrder = SortOrder.ATTENTION
    group: GroupKey = GroupKey.NONE
    folded: frozenset[str] = frozenset()
    """Ids of sessions and keys of headings whose rows are folded."""
    filter: str = ""
    filters: tuple[SavedFilter, ...] = ()
    columns: tuple[str, ...] = ()
    """These two as in `ListLayout`."""

    @property
    def layout(self) -> ListLayout:
        """What is kept of them."""
        headings = sorted(key for key in self.folded if " " in key)
        folded = tuple(headings[:MOST_FOLDED])
        return ListLayout(group=self.group, folded=folded, filters=self.filters, columns=self.columns)


class ListOrder:
    """The sessions of the newest fleet, and their order."""

    def __init__(self) -> None:
        self.sessions: dict[SessionId, Session] = {}
        self._order: list[SessionId] = []
        self._keys: dict[SessionId, tuple[object, ...]] = {}
        self._sort = SortOrder.ATTENTION

    def update(self, fleet: Fleet, change: FleetDifference) -> bool:
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
            is_elsewhere = before is None or _place(before) != _place(session)
            moved = moved or self._keys.get(session.id) != key or is_elsewhere
            self._keys[session.id] = key
        if change.gone:
            self._order = [id_ for id_ in self._order if id_ in self.sessions]
        return moved

    def items(self, fleet: Fleet, view: ListSettings) -> list[ListEntry]:
        """Return the lines of the list under *view*."""
        if view.sort is not self._sort:
            self._sort = view.sort
            self._keys = {id_: _key(session, view.sort) for id_, session in self.sessions.items()}
        self._order.sort(key=self._keys.__getitem__)
        wanted = SessionFilter(view.filter)
        ids = [id_ for id_ in self._order if wanted.takes(self.sessions[id_])] if wanted else self._order
        match view.group:
            case GroupKey.NONE:
                return self._nest(ids, view)
            case GroupKey.WAVE:
                return self._by_wave(fleet, ids, view)
            case _:
                return self._by_value(ids, view)

    def _by_value(self, ids: Sequence[SessionId], view: ListSettings) -> list[ListEntry]:
        """Return the rows below a heading for each value; child rows stay below their parent."""
        shown_ids = set(ids)
        groups: dict[str, list[SessionId]] = {}
        for id_ in ids:
            for value in group_values(self.sessions[self._root(id_, shown_ids)], view.group) or ("",):
                groups.setdefault(value, []).append(id_)
        if groups.keys() <= {""}:
            return self._nest(ids, view)
        items: list[ListEntry] = []
        for value in sorted(groups, key=lambda value: (not value, value)):
            key = f"{view.group} {value}"
            label = value or f"no {view.group}"
            items += self._group(key, label, groups[value], view, tag=value if view.group is GroupKey.TAG else "")
        return items

    def _by_wave(self, fleet: Fleet, ids: Sequence[SessionId], view: ListSettings) -> list[ListEntry]:
        shown_ids = set(ids)
        items: list[ListEntry] = []
        placed: set[SessionId] = set()
        for wave in waves(fleet):
            key = f"wave {wave.plan or ''}/{wave.number}"
            members = [session.id for session in wave.sessions if session.id in shown_ids]
            placed.update(members)
            if members:
                tops = set(members)
                members += [id_ for id_ in ids if id_ not in placed and self._root(id_, shown_ids) in tops]
                placed.update(members)
                members = members if view.sort is SortOrder.WAVE else _select_in_order(ids, members)
                items += self._group(key, f"wave {wave.number}", members, view, wave)
        rest = [id_ for id_ in ids if id_ not in placed]
        return items + (self._group("wave ", "no wave", rest, view) if rest and items else self._nest(rest, view))

    def _group(
        self,
        key: str,
        label: str,
        members: Sequence[SessionId],
        view: ListSettings,
        wave: Wave | None = None,
        tag: str = "",
    ) -> list[ListEntry]:
        folded = key in view.folded
        needing = sum(self.sessions[id_].attention <= URGENT for id_ in members)
        heading = ListHeading(key, label, len(members), folded, needing, wave)
        return [heading, *self._nest(members, view, folded, tag)]

    def _nest(
        self, ids: Sequence[SessionId], view: ListSettings, hidden: bool = False, tag: str = ""
    ) -> list[ListEntry]:
        """Return rows in this order, child rows below their parent; of *hidden* and folded ones only the urgent.

        By attention, a parent takes the position of its most urgent child.
        """
        shown_ids = set(ids)
        children: dict[SessionId, list[SessionId]] = {}
        for id_ in ids:
            parent = self.sessions[id_].parent
            if parent is not None and parent in shown_ids and parent != id_:
                children.setdefault(parent, []).append(id_)
        if not children and not hidden:
            return [SessionRow(id_, tag=tag) for id_ in ids]
        below_others = {child for group in children.values() for child in group}
        counts = Counter(above for id_ in below_others for above in self._line(id_, shown_ids)[1:])
        urgent = [id_ for id_ in ids if self.sessions[id_].attention <= URGENT]
        lifted = [self._root(id_, shown_ids) for id_ in urgent] if view.sort is SortOrder.ATTENTION else []
        kept = {above for id_ in urgent for above in self._line(id_, shown_ids)}
        rows: list[ListEntry] = []
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
                    rows.append(SessionRow(id_, depth, counts[id_], tag))
                is_hidden = is_hidden or id_ in view.folded
                left += [(child, min(depth + 1, DEEPEST), is_hidden) for child in reversed(below)]
        return rows

    def _root(self, id_: SessionId, shown_ids: Container[SessionId]) -> SessionId:
        return self._line(id_, shown_ids)[-1]

    def _line(self, id_: SessionId, shown_ids: Container[SessionId]) -> list[SessionId]:
        """Return *id_*, its parent, and so on; each session at most once."""
        line = [id_]
        while (parent := self.sessions[line[-1]].parent) is not None and parent in shown_ids and parent not in line:
            line.append(parent)
        return line


def _select_in_order(ids: Iterable[SessionId], members: Iterable[SessionId]) -> list[SessionId]:
    wanted = set(members)
    return [id_ for id_ in ids if id_ in wanted]


def _place(session: Session) -> tuple[object, ...]:
    """Return what its place under headings depends on, and what they count."""
    values = (session.tags, session.config_folder, session.via, session.account)
    return (session.parent, session.wave, session.plan, *values, session.attention <= URGENT)


def group_values(session: Session, group: GroupKey) -> tuple[str, ...]:
    """Return the values by which *session* is grouped; none if it has no such value. Not for waves."""
    match group:
        case GroupKey.TAG:
            return session.tags
        case GroupKey.MACHINE:
            return (machine_name(session),)
        case GroupKey.FOLDER:
            value = session.config_folder
        case GroupKey.PLAN:
            value = session.plan or ""
        case _:
            value = session.account
    return (value,) if value else ()


def machine_name(session: Session) -> str:
    """Return the machine that it runs on, `LOCAL` for this one."""
    return session.via or machine_of(session.agent) or LOCAL


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
        case SortOrder.MACHINE:
            return (session.via, *attention)
        case _:
            return attention
