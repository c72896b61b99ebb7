"""The lines around the cards of the wave board: the plan's progress, its question, the key bar. Pure."""

from collections.abc import Sequence
from typing import Final

from kasmon.model.formatting import age
from kasmon.model.plan.plan import Task
from kasmon.model.plan.progress import SETTLED
from kasmon.model.transcript.text import Token, wrap
from kasmon.sanitize import clean_line
from kasmon.supervisor.plans.boards import PlanBoard
from kasmon.tui.keymap import ROWS, KeyMap, Keys
from kasmon.tui.plan_board.card_text import cost
from kasmon.tui.plan_board.decisions import decision_of, list_offered, waits_for_advance
from kasmon.tui.status_bars import KeyHint
from kasmon.tui.theme.look import StyledSpan, ThemeStyles, money, width_of
from kasmon.tui.widgets.text_lines import DrawnLine

MOST_LINES: Final = 3
NOTHING: Final = (
    ("", Token.TEXT),
    ("No plans yet.", Token.STRONG),
    ("Start one with `kasmon plan run FILE`; its waves appear here.", Token.FAINT),
)
OUTCOMES: Final = {"done": "good", "claimed": "good", "failed": "state-crashed", "aborted": "faint"}
"""How a plan ended -> its role."""


def head_line(
    board: PlanBoard | None, which: tuple[int, int], keys: KeyMap, look: ThemeStyles, now: float, width: int
) -> DrawnLine:
    """Return the plan in one line; *which* is its number and how many there are."""
    spans: list[StyledSpan] = [(" waves ", "accent.bold"), (" ", "text")]
    if board is None:
        return DrawnLine(tuple(spans))
    right: list[StyledSpan] = []
    if which[1] > 1:
        both = f"{keys.shown('plan_back', look.utf8)} {keys.shown('plan_on', look.utf8)}"
        right = [(f"plan {which[0]} of {which[1]} ", "soft"), (f" {both} ", "accent.bold")]
    run, tasks = board.run, board.plan.tasks
    done = sum(run.of(task.id).state in SETTLED for task in tasks)
    spans += [(clean_line(board.plan.name), "text.bold"), ("  ", "text"), _state(board)]
    further: list[list[StyledSpan]] = [[(f"   {done}/{len(tasks)}", "text.bold"), (" done", "soft")]]
    further.append([(f"   {board.plan.waves} {'wave' if board.plan.waves == 1 else 'waves'}", "soft")])
    if run.began_at:
        further.append([(f"   {age((run.ended_at or now) - run.began_at)}", "soft")])
    if usd := sum(cost(board, at) or 0.0 for at in run.tasks.values()):
        further.append([(f"   {money(usd)}", "text.bold")])
    for each in further:
        if width_of(spans) + width_of(each) + width_of(right) < width:
            spans += each
    return DrawnLine(tuple(spans), tuple(right))


def _state(board: PlanBoard) -> StyledSpan:
    run = board.run
    if not board.has_begun:
        return ("not started", "soft")
    if run.state == "ended":
        return (run.outcome, OUTCOMES.get(run.outcome, "soft"))
    if run.is_aborted:
        return ("aborting", "warn")
    return ("paused", "state-paused") if run.state == "paused" else ("running", "state-working")


def notice_lines(board: PlanBoard | None, keys: KeyMap, look: ThemeStyles, width: int) -> list[DrawnLine]:
    """Return the notices on top: the plan's question, that it is not being run, that its file was edited."""
    if board is None:
        return []
    lines: list[DrawnLine] = []
    if board.problem:
        lines += _bar(board.problem, "bad", look, width)
    if not board.has_begun:
        key = keys.shown("plan_edit", look.utf8)
        return lines + _bar(f"Not started: {key} shows what the plan would run, and starts it.", "info", look, width)
    if board.run.state == "ended":
        return lines + (_bar(board.run.why, "surface", look, width) if board.run.why else [])
    if board.ahead.question:
        asks = board.ahead.question
        key = f" ({keys.shown('plan_advance', look.utf8)} starts it)" if waits_for_advance(board) else ""
        lines += _bar(f"{look.state_glyph('asking')} {asks[0].upper()}{asks[1:]}{key}", "state-asking", look, width)
    elif board.ahead.held:
        lines += _bar(f"Held: {board.ahead.held}. No further task starts.", "warn", look, width)
    if board.run.is_stopped:
        key = keys.shown("plan_pause", look.utf8)
        lines += _bar(f"Stopped, with its sessions. {key} resumes the plan.", "state-paused", look, width)
    elif not board.is_run:
        key = keys.shown("plan_pause", look.utf8)
        lines += _bar(f"The process of this plan has ended. {key} resumes the plan.", "bad", look, width)
    elif board.run.state == "paused":
        key = keys.shown("plan_pause", look.utf8)
        lines += _bar(f"Paused: no new tasks start. {key} resumes the plan.", "state-paused", look, width)
    if board.edit is not None:
        key = keys.shown("plan_edit", look.utf8)
        lines += _bar(f"The plan file changed: {key} reviews the changes.", "info", look, width)
    return lines


def _bar(text: str, role: str, look: ThemeStyles, width: int) -> list[DrawnLine]:
    """*text* on as many lines as it needs, each as wide as the window."""
    rows = wrap([(clean_line(text), Token.TEXT)], max(1, width - 2))
    shown = [row.text for row in rows[:MOST_LINES]]
    if len(rows) > MOST_LINES:
        shown[-1] = look.cut(f"{shown[-1]} {look.mark('more')}", width - 2)
    solid = "soft" if role == "surface" else f"{role}.solid.bold"
    return [DrawnLine(((look.fit(f" {line}", width), solid),)) for line in shown]


def bar(board: PlanBoard | None, task: Task | None, keys: KeyMap, look: ThemeStyles) -> tuple[KeyHint, ...]:
    actions: Sequence[str] = () if board is None else list_offered(board, task)
    labels: dict[str, str] = {"plan_pause": "pause" if board is None else decision_of(board, Keys.PLAN_PAUSE)}
    if board is not None and board.edit is not None:
        actions = ("plan_edit", *actions)
        labels["plan_edit"] = "review changes" if board.has_begun else "run"
    shown = (*actions, "leave_board", "help")
    return tuple(KeyHint(each, keys.shown(each, look.utf8), labels.get(each, ROWS[each].label)) for each in shown)
