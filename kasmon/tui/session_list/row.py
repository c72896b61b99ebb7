"""One line of the list: the columns that fit a width, and their content. Pure."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import msgspec
from rich.cells import cell_len
from textual.strip import Strip

from kasmon.model.collisions import CollisionSummary
from kasmon.model.commands import Mode
from kasmon.model.formatting import age, state_label, state_name
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.repository.branch import BranchSummary
from kasmon.sanitize import clean_line
from kasmon.tui.sandbox.status import LONGEST_MODE, badge, is_broken, row_words, to_come
from kasmon.tui.session_list.branch_marks import MOST, branch_marks
from kasmon.tui.session_list.order import ListHeading, SessionRow, SortOrder
from kasmon.tui.theme.look import (
    Background,
    StyledSpan,
    ThemeStyles,
    evidence,
    mode_label,
    money,
    news,
    session_tokens,
    wave_place,
    wave_progress,
)

GAP: Final = 2
MARGIN: Final = 2
"""Cells before the first column: the cursor's bar and a blank."""
LINE_LEAST: Final = 16
"""The activity column gets at least this many cells, or is left out."""


class ListColumn(msgspec.Struct, frozen=True):
    key: str
    """Its content: a key of `_CELLS`."""
    title: str
    width: int
    """In cells."""
    right: bool = False
    sort: SortOrder | None = None
    """The order that a click on its title selects; None if the click does nothing."""
    least: int = 0
    """From this width of the list on it is shown."""
    most: int = 0
    """The most cells that it takes where its longest value has more than `width`."""
    grows_from: int = 0
    """From this width of the list on it does so."""


SHORT_INTERPRETERS: Final = "interp."
MACHINE: Final = ListColumn("machine", "machine", 7, sort=SortOrder.MACHINE, least=60, most=12)
"""Only in a list with sessions of other machines; where it has no space, their names get a mark."""
AGENT: Final = ListColumn("agent", "agent", 9, sort=SortOrder.AGENT, least=60, most=12, grows_from=100)
MODE: Final = ListColumn("mode", "mode", 5, least=78, most=LONGEST_MODE, grows_from=100)
WAVE: Final = ListColumn("wave", "wave", 7, sort=SortOrder.WAVE, least=88)
BRANCH: Final = ListColumn("branch", "branch", 6, least=84, most=MOST)
TAGS: Final = ListColumn("tags", "tags", 4, least=84, most=16)
ABOUT: Final = (MACHINE, AGENT, MODE, WAVE, BRANCH, TAGS)
"""The columns that describe a session."""
IF_USED: Final = frozenset({MACHINE.key, BRANCH.key, TAGS.key})
"""Those that are only shown if a session has a value for them."""
GIVEN_UP: Final = (MODE, WAVE, TAGS, BRANCH, AGENT, MACHINE)
"""The columns to leave out, in this order."""
NUMBERS: Final = (
    ListColumn("seen", "source", 13, least=136),
    ListColumn("tokens", "tokens", 6, right=True, least=112),
    ListColumn("cost", "cost", 7, right=True, sort=SortOrder.COST, least=100),
)


LESS_USED: Final = ("seen", "tokens", "cost", *(column.key for column in GIVEN_UP), "since")
"""The columns of the user's choice that are left out where there is no space, in this order."""
OPTIONAL: Final[tuple[tuple[str, Callable[[Session], bool]], ...]] = (
    ("wave", lambda session: session.wave is not None),
    ("tokens", lambda session: bool(session.tokens and session.tokens.used)),
    ("cost", lambda session: session.cost_usd is not None),
)
"""Columns that are left out if they would be empty, and which sessions fill them."""


def columns(
    width: int,
    names: int = 20,
    *,
    chosen: Sequence[str] = (),
    without: frozenset[str] = frozenset(),
    **longest: int,
) -> tuple[ListColumn, ...]:
    """Return the columns of a list *width* cells wide.

    *names*, and *longest* by the key of a column, are the cells of the longest value of each; *without* are the empty
    columns. The activity column gets the rest. It matters most: the columns of `GIVEN_UP` make space for it. State and
    name always come first. *chosen* are the other columns by key, in their order, of which those are shown that fit;
    empty for the usual ones.
    """
    widest = 14 if width < 60 else 20 if width < 100 else 28
    state = ListColumn("state", "state", 12 if width >= 50 else 11, sort=SortOrder.ATTENTION)
    name = ListColumn("name", "name", max(8, min(names, widest)), sort=SortOrder.NAME)
    since = ListColumn("since", "age", 5, right=True, sort=SortOrder.SINCE)
    hidden = without | {key for key in IF_USED if not longest.get(key)}
    about, numbers = (
        [each for each in group if (width >= each.least or chosen) and each.key not in hidden]
        for group in (ABOUT, NUMBERS)
    )
    about = [_widen(each, longest.get(each.key, 0), width) for each in about]
    if chosen:
        return (state, name, *_fit_chosen(width, (state, name), (*about, since, *numbers), chosen))
    while (line := _compute_rest(width, state, name, *about, since, *numbers)) < LINE_LEAST and about:
        about.remove(next(column for given in GIVEN_UP for column in about if column.key == given.key))
    if line < LINE_LEAST:
        return (state, name, since)
    return (state, name, *about, since, ListColumn("line", "activity", line), *numbers)


def _widen(column: ListColumn, longest: int, width: int) -> ListColumn:
    cells = min(longest, column.most) if width >= column.grows_from else 0
    return msgspec.structs.replace(column, width=max(column.width, cells))


def _fit_chosen(
    width: int, first: Sequence[ListColumn], others: Iterable[ListColumn], chosen: Sequence[str]
) -> list[ListColumn]:
    """Return those of *others* that are *chosen* and fit after *first*, in the order of *chosen*."""
    kept = [column for column in others if column.key in chosen]
    least = LINE_LEAST if "line" in chosen else -GAP
    while (left := _compute_rest(width, *first, *kept)) < least and kept:
        kept.remove(next(column for key in LESS_USED for column in kept if column.key == key))
    if "line" in chosen and left >= LINE_LEAST:
        kept.append(ListColumn("line", "activity", left))
    return sorted(kept, key=lambda column: chosen.index(column.key))


def empty_columns(sessions: Collection[Session]) -> frozenset[str]:
    return frozenset(key for key, fills in OPTIONAL if not any(map(fills, sessions)))


def _compute_rest(width: int, *taken: ListColumn) -> int:
    """Return the cells that these columns leave for one more."""
    return width - MARGIN - 1 - sum(column.width + GAP for column in taken)


def column_at(columns: Sequence[ListColumn], x: int) -> ListColumn | None:
    """Return the column whose title, or the gap after it, is at cell *x* of the list."""
    start = MARGIN
    for column in columns:
        if start <= x < start + column.width + GAP:
            return column
        start += column.width + GAP
    return None


class RowContent(msgspec.Struct, frozen=True):
    """All that a row's strip depends on except theme and time: equal values draw equal strips while `moments` agree."""

    session: Session
    item: SessionRow
    columns: tuple[ListColumn, ...]
    width: int
    selected: bool = False
    pinned: bool = False
    folded: bool = False
    collides: CollisionSummary | None = None
    branch: BranchSummary | None = None


def moments(session: Session, now: float) -> str:
    """Return the ages that a row shows, as text: the row is redrawn when this changes."""
    until = session.limited_until
    wait = "" if until is None else age(until - now)
    lived = "" if session.sandbox_state is None else f" {to_come(session, now)} {row_words(session, now)}"
    proposed = f" {age(now - session.finish_proposed_at)}" if session.finish_proposed else ""
    return f"{age(now - session.since)} {wait} {evidence(session, now)}{lived}{proposed}"


def header(columns: Sequence[ListColumn], width: int, sort: SortOrder, look: ThemeStyles) -> Strip:
    """Return the titles above the list; the one it is sorted by is marked."""
    spans: list[StyledSpan] = [(" " * MARGIN, "faint")]
    for column in columns:
        sorted_by = column.sort is sort
        mark = f" {look.mark('open')}" if sorted_by and len(column.title) + 2 <= column.width else ""
        role = "accent" if sorted_by else "faint"
        spans += [(look.fit(column.title + mark, column.width, column.right), role), (" " * GAP, "faint")]
    return look.strip(spans[:-1], width)


def row(line: RowContent, now: float, look: ThemeStyles) -> Strip:
    spans: list[StyledSpan] = [(look.mark("cursor") if line.selected else " ", "accent"), (" ", "text")]
    for column in line.columns:
        cell = _CELLS[column.key](line, now, look)
        if line.session.is_unreachable:
            cell = [(text, "soft" if role == "soft" and column.key == "line" else "faint") for text, role in cell]
        spans += _fit(cell, column, look)
        spans.append((" " * GAP, "text"))
    return look.strip(spans[:-1], line.width, "selected" if line.selected else "background")


def heading(item: ListHeading, width: int, selected: bool, look: ThemeStyles) -> Strip:
    """Return the line above a group: its name, its sessions and those that need the user; or a wave's progress."""
    fold = look.mark("shut" if item.folded else "open")
    background: Background = "selected" if selected else "background"
    spans: list[StyledSpan] = [(look.mark("cursor") if selected else " ", "accent"), (f" {fold} ", "accent")]
    if item.wave is None:
        name = look.cut(clean_line(item.label), max(8, width - 30))
        role = "soft.bold" if item.key.endswith(" ") else "accent.bold"
        spans += [(name, role), (f"  {item.sessions}", "faint")]
        if item.needing:
            spans.append((f"  {item.needing} {'needs' if item.needing == 1 else 'need'} you", "state-asking"))
    else:
        plan = look.cut(clean_line(item.wave.plan or ""), 32)
        spans += [(f"wave {item.wave.number}", "accent.bold"), (f"  {plan}" if plan else "", "soft"), ("  ", "text")]
        spans += [*wave_progress(item.wave, look), (" done", "faint")]
    used = sum(cell_len(text) for text, _ in spans)
    spans += [("  ", "text"), (look.mark("rule") * max(0, width - used - 3), "line")]
    return look.strip(spans, width, background)


def _fit(spans: Sequence[StyledSpan], column: ListColumn, look: ThemeStyles) -> list[StyledSpan]:
    """Return *spans* in exactly the column's width; the last one that fits is cut."""
    fitted: list[StyledSpan] = []
    left = column.width
    for text, role in spans:
        shown = look.cut(text, left)
        left -= cell_len(shown)
        fitted.append((shown, role))
        if left <= 0 or shown != text:
            break
    blank: StyledSpan = (" " * left, "text")
    return [blank, *fitted] if column.right else [*fitted, blank]


def _state(line: RowContent, now: float, look: ThemeStyles) -> list[StyledSpan]:
    name = state_name(line.session)
    many = f" {look.mark('times')}{len(line.session.requests)}" if len(line.session.requests) > 1 else ""
    loud = ".bold" if name in ("asking", "finished", "lost", "crashed") else ""
    return [(f"{look.state_glyph(name)} {state_label(line.session)}{many}", f"state-{name}{loud}")]


def _name(line: RowContent, now: float, look: ThemeStyles) -> list[StyledSpan]:
    session, depth = line.session, line.item.depth
    indent = "  " * (depth - 1) + f"{look.mark('child')} " if depth else ""
    fold = f" {look.mark('shut')}{line.item.children}" if line.folded and line.item.children else ""
    pin = f" {look.mark('pin')}" if line.pinned else ""
    quiet = state_name(session) in ("ended", "paused", "standby", "hibernated")
    role = "text.bold" if line.selected else "soft" if quiet else "text"
    name: StyledSpan = (clean_line(session.name) or str(session.id), role)
    has_machine = any(column.key == MACHINE.key for column in line.columns)
    away: list[StyledSpan] = [(f"{look.mark('remote')} ", "faint")] if session.via and not has_machine else []
    hit = line.collides
    mark: list[StyledSpan] = [] if hit is None else [(f" {look.mark('collides')}", "bad.bold" if hit.lines else "warn")]
    breach: list[StyledSpan] = [(f" {look.mark('breach')}", "bad.bold")] if is_broken(session) else []
    proposed: list[StyledSpan] = [(f" {look.mark('proposal')}", "info")] if session.finish_proposed else []
    return [(indent, "faint"), *away, name, *breach, *mark, *proposed, (f"{fold}{pin}", "accent")]


def _machine(line: RowContent, now: float, look: ThemeStyles) -> list[StyledSpan]:
    return [(clean_line(line.session.via), "soft")]


def _tags(line: RowContent, now: float, look: ThemeStyles) -> list[StyledSpan]:
    return [(clean_line(" ".join(line.session.tags)), "accent")]


def _agent(line: RowContent, now: float, look: ThemeStyles) -> list[StyledSpan]:
    mark = f" {look.mark('bypass')}" if line.session.bypassing else ""
    space = next(column.width for column in line.columns if column.key == AGENT.key)
    agent = clean_line(line.session.agent)
    is_short = len(agent) > space - len(mark) and line.session.mode is Mode.INTERPRETER
    agent = clean_line(SHORT_INTERPRETERS) if is_short else agent
    return [(look.cut(agent, space - len(mark)), "soft"), (mark, "bad.bold")]


def _mode(line: RowContent, now: float, look: ThemeStyles) -> list[StyledSpan]:
    mark = look.mark("fallback") if line.session.fallback else ""
    space = next(column.width for column in line.columns if column.key == MODE.key) - len(mark)
    if line.session.sandbox:
        return [*badge(line.session, look, space), (mark, "warn")]
    label = clean_line(mode_label(line.session))
    label = label if cell_len(label) <= space else clean_line(label.partition(" ")[0])
    return [(look.cut(label, space), "faint"), (mark, "warn")]


def _wave(line: RowContent, now: float, look: ThemeStyles) -> list[StyledSpan]:
    return [(wave_place(line.session), "faint")]


def _branch(line: RowContent, now: float, look: ThemeStyles) -> list[StyledSpan]:
    return [] if line.branch is None else branch_marks(line.branch, look)


def _since(line: RowContent, now: float, look: ThemeStyles) -> list[StyledSpan]:
    role = "state-asking" if state_name(line.session) == "asking" else "soft"
    return [(age(now - line.session.since), role)]


def _line(line: RowContent, now: float, look: ThemeStyles) -> list[StyledSpan]:
    hit, parts = line.collides, [*row_words(line.session, now), *news(line.session, now)]
    request = line.branch.pull_request if line.branch is not None else None
    if line.session.state is SessionState.ASKING:
        return parts
    if request is not None and request.note:
        parts = [(clean_line(request.note), "bad"), (f" {look.mark('dot')} ", "faint"), *parts]
    if hit is None:
        return parts
    return [(clean_line(hit.text), "bad" if hit.lines else "warn"), (f" {look.mark('dot')} ", "faint"), *parts]


def _build_viewed(line: RowContent, now: float, look: ThemeStyles) -> list[StyledSpan]:
    return [(clean_line(evidence(line.session, now)), "faint")]


def _tokens(line: RowContent, now: float, look: ThemeStyles) -> list[StyledSpan]:
    return [(session_tokens(line.session), "soft")]


def _cost(line: RowContent, now: float, look: ThemeStyles) -> list[StyledSpan]:
    return [("" if line.session.cost_usd is None else money(line.session.cost_usd), "soft")]


_CELLS: Final[dict[str, Callable[[RowContent, float, ThemeStyles], list[StyledSpan]]]] = {
    "state": _state,
    "name": _name,
    "machine": _machine,
    "agent": _agent,
    "mode": _mode,
    "tags": _tags,
    "wave": _wave,
    "branch": _branch,
    "since": _since,
    "line": _line,
    "seen": _build_viewed,
    "tokens": _tokens,
    "cost": _cost,
}
