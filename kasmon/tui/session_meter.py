"""The lines above the prompt box of a session: its usage, model and mode; its to-do list and background tasks."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kasmon.model.commands import Mode
from kasmon.model.events import PlanItem, SubtaskChanged
from kasmon.model.formatting import compact
from kasmon.model.session import Session
from kasmon.sanitize import clean_line
from kasmon.tui.theme.look import StyledSpan, ThemeStyles, count, money, width_of
from kasmon.tui.widgets.text_lines import DrawnLine

if TYPE_CHECKING:
    from kasmon.model.transcript.layout import Transcript

BAR: Final = 12
"""Cells of the bar that shows how full the context is."""
TIGHT: Final = 0.75
FULL: Final = 0.9
"""Shares of the context from which on the bar warns."""


def can(session: Session, ability: str) -> bool:
    """Whether the agent has this ability; an agent that never listed its abilities counts as able."""
    return not session.abilities or ability in session.abilities


def can_be_configured(session: Session) -> bool:
    """Whether its model, its permission mode or an option can be changed while it runs."""
    return session.mode is not Mode.TMUX and session.exists and bool(settable(session))


def settable(session: Session) -> tuple[str, ...]:
    """Return what can be changed while it runs: `model`, `permission_mode`, `switches`."""
    model = "sets_model" in session.abilities and bool(session.models)
    mode = "sets_permission_mode" in session.abilities and bool(session.permission_modes)
    offered = {"model": model, "permission_mode": mode, "switches": bool(session.switches)}
    return tuple(name for name, is_offered in offered.items() if is_offered)


def meter(session: Session, look: ThemeStyles, key: str, width: int) -> DrawnLine | None:
    """Return the line above the prompt box; None if nothing is known. *key* opens the model settings."""
    left = _context(session, look)
    if session.cost_usd:
        left += [*_gap(left), (money(session.cost_usd), "text")]
    if session.tokens is not None and (used := session.tokens.input + session.tokens.output):
        left += [*_gap(left), (count(used), "text"), (" tokens", "faint")]
    right: list[StyledSpan] = [(" ".join(_settings(session, look)), "soft")]
    if can_be_configured(session) and key:
        right += [(f"  {key} ", "accent.bold"), ("change ", "soft")]
    if not left and not right[0][0]:
        return None
    if filled := filled_lines(session):
        longer: list[StyledSpan] = [
            *left,
            *_gap(left),
            (filled[0].removeprefix("In the context: ").rstrip("."), "faint"),
        ]
        left = longer if width_of(longer) + width_of(right) + 4 <= width else left
    for fewer in (_context(session, look), _context(session, look, bar=False)):
        if width_of(left) + width_of(right) + 4 > width:
            left = fewer
    if width_of(left) + width_of(right) + 4 > width:
        right = right[1:]
    return DrawnLine((((" "), "text"), *left), tuple(right), action="configure" if can_be_configured(session) else "")


def filled_lines(session: Session) -> list[str]:
    """Return what fills the context of the session's agent, as far as that says it."""
    tokens = session.tokens
    if tokens is None or not tokens.filled_by:
        return []
    parts = (f"{clean_line(part.name)} {count(part.tokens)}" for part in tokens.filled_by)
    return [f"In the context: {', '.join(parts)}."]


def _context(session: Session, look: ThemeStyles, *, bar: bool = True) -> list[StyledSpan]:
    tokens = session.tokens
    if tokens is None or not tokens.context:
        return []
    if not tokens.limit:
        return [("context ", "faint"), (count(tokens.context), "text")]
    share = min(tokens.context / tokens.limit, 1.0)
    role = "bad" if share >= FULL else "warn" if share >= TIGHT else "info"
    full = max(round(share * BAR), 1)
    shapes = ("━", "─") if look.utf8 else ("#", "-")
    return [
        ("context", "faint"),
        *([(" ", "text"), (shapes[0] * full, role), (shapes[1] * (BAR - full), "line")] if bar else []),
        (f" {share:.0%}", f"{role}.bold" if share >= TIGHT else "text"),
        (f" of {count(tokens.limit)}", "faint"),
    ]


def _settings(session: Session, look: ThemeStyles) -> list[str]:
    on = (each.title or each.id for each in session.switches if each.is_on)
    labels = [clean_line(text) for text in (session.model, session.permission_mode, *on) if text]
    return [f" {look.mark('dot')} ".join(labels)] if labels else []


def _gap(left: list[StyledSpan]) -> list[StyledSpan]:
    return [("   ", "text")] if left else []


ROOMY_ROWS: Final = 30
"""In a lower window, the to-do list is one line."""
ITEMS: Final = 4
"""Most items of the to-do list that are shown, from the first one that is not done."""
TASKS: Final = 3
SIGNS: Final = {"open": ("☐", "-", "faint"), "doing": ("◐", ">", "info.bold"), "done": ("☒", "x", "good")}
"""The sign of an item's state, in UTF-8 and in ASCII, and its role."""


def pinned_lines(transcript: "Transcript", look: ThemeStyles, rows: int) -> list[DrawnLine]:
    """Return the lines for a window of *rows* rows; none if nothing is left to do and nothing runs."""
    items = transcript.plan.items if transcript.plan is not None else ()
    tasks = [task for task in transcript.subtasks.values() if task.in_background or task.job == "command"]
    return [*_to_do(items, look, rows >= ROOMY_ROWS), *_tasks(tasks, look)]


def _to_do(items: tuple[PlanItem, ...], look: ThemeStyles, is_roomy: bool) -> Iterable[DrawnLine]:
    left = [number for number, item in enumerate(items) if item.state != "done"]
    if not left:
        return
    count: StyledSpan = (f" to-do {len(items) - len(left)}/{len(items)} ", "soft")
    shown = items[left[0] : left[0] + ITEMS] if is_roomy else [_current(items)]
    blank: StyledSpan = (" " * len(count[0]), "text")
    for number, item in enumerate(shown):
        sign, plain, role = SIGNS[item.state]
        text: StyledSpan = (clean_line(item.text), role if item.state == "doing" else "soft")
        yield DrawnLine((blank if number else count, (f"{sign if look.utf8 else plain} ", role), text))
    hidden = len(items) - left[0] - len(shown)
    if is_roomy and hidden > 0:
        yield DrawnLine((blank, (f"{hidden} more", "faint")))


def _current(items: tuple[PlanItem, ...]) -> PlanItem:
    """Return the item that the agent works on; else the first that is open."""
    return next((item for state in ("doing", "open") for item in items if item.state == state), items[0])


def _tasks(tasks: list[SubtaskChanged], look: ThemeStyles) -> Iterable[DrawnLine]:
    for task in tasks[:TASKS]:
        spans = [(f" {look.state_glyph('working')} ", "info"), (clean_line(task.title) or task.job, "text")]
        doing = clean_line(task.text)
        used = f"{compact(task.tokens)} tokens" if task.tokens else ""
        about = f" {look.mark('dot')} ".join(part for part in ("in the background", doing, used) if part)
        yield DrawnLine((*spans, (f"  {about}", "faint")))
    if len(tasks) > TASKS:
        yield DrawnLine(((f"   {len(tasks) - TASKS} more in the background", "faint"),))
