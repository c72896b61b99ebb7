"""What a task's card on the wave board says: its state, who works at it, what it took, what it waits for. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kasmon.clean import clean_line
from kasmon.model.glyph import GLYPHS
from kasmon.model.permission import SessionId
from kasmon.model.plan.next import tries_left
from kasmon.model.plan.run import TaskRun, TaskState
from kasmon.model.plan.spec import Task
from kasmon.model.radar import Collides
from kasmon.model.session import Session
from kasmon.supervisor.plans.boards import Board
from kasmon.tui.look import Look, Span, age, money, news, state_name, width_of

SHAPES: Final = {
    "waits": ("◌", "."),
    "ready": ("○", "o"),
    "checking": ("◑", "c"),
    "claimed": ("◆", "!"),
    "again": ("↻", "r"),
    "done": ("✓", "+"),
    "failed": ("✕", "x"),
    "skipped": ("–", "-"),
    "stopped": ("–", "-"),
    "never": ("◌", "."),
}
"""A task's own state -> its shape, and its shape where the terminal is not UTF-8; one that runs has its session's."""
ROLES: Final = {
    "waits": "faint",
    "ready": "soft",
    "checking": "info",
    "claimed": "state-asking",
    "again": "warn",
    "done": "good",
    "failed": "state-crashed",
    "skipped": "faint",
    "stopped": "faint",
    "never": "faint",
}
WORDS: Final = {"again": "tries again", "never": "not begun"}
STATE, AGENT, COST, CHECK = 11, 9, 8, 30
"""Cells of a state, an agent and a cost where they stand below each other, and the most for what is checked."""
ROOMY: Final = 64
"""From so many cells on a low card names agent and cost."""
ON: Final = (TaskState.RUNNING, TaskState.CLAIMED)


class Standing(NamedTuple):
    """How a task stands, as the board names it."""

    name: str
    """A key of `SHAPES`, or while it runs the state of its session."""
    needs_person: bool = False

    def glyph(self, look: Look) -> str:
        return (SHAPES.get(self.name) or GLYPHS[self.name])[0 if look.utf8 else 1]

    @property
    def role(self) -> str:
        return ROLES.get(self.name) or f"state-{self.name}"

    @property
    def word(self) -> str:
        return WORDS.get(self.name, self.name)


def standing(board: Board, task: Task) -> Standing:
    """How *task* stands."""
    at, is_over = board.run.of(task.id), board.run.state == "ended"
    match at.state:
        case TaskState.RUNNING if is_over:
            return Standing("stopped")
        case TaskState.WAITING if is_over:
            return Standing("never")
        case TaskState.RUNNING:
            name = "starting" if (session := _session(board, at)) is None else state_name(session)
            return Standing(name, name in ("asking", "lost"))
        case TaskState.CLAIMED:
            return Standing("checking") if task.check else Standing("claimed", not is_over)
        case TaskState.FAILED:
            if tries_left(board.run, task) and not is_over:
                return Standing("again")
            return Standing("failed", not is_over)
        case TaskState.WAITING:
            return Standing("waits" if task.id in board.ahead.blocked else "ready")
        case _:
            return Standing(at.state.value)


class Moment(NamedTuple):
    """What a card depends on beside its plan."""

    look: Look
    now: float
    hits: Mapping[SessionId, Collides] = {}
    """The sessions that change what others change."""


def narrow(board: Board, task: Task, place: str, width: int, moment: Moment) -> list[list[Span]]:
    """The card of *task* as four rows of *width* cells, for a column; *place* says which of its wave it is."""
    look, now, hit = moment.look, moment.now, moment.hits.get(SessionId(board.run.of(task.id).session))
    at, how = board.run.of(task.id), standing(board, task)
    loud = ".bold" if how.needs_person else ""
    title: list[Span] = [(f"{how.glyph(look)} ", f"{how.role}{loud}"), *_mark(look, hit), *_title(task, at)]
    state: list[Span] = [("  ", "text"), (how.word, f"{how.role}{loud}"), *_apart(look, _time(at, now), "soft")]
    state += [*_apart(look, agent_of(board, task), "soft"), *_apart(look, _cost(board, at), "soft")]
    return [
        _row(look, title, [], width),
        _row(look, state, [], width),
        _row(look, [("  ", "text"), *_collides(look, hit, how), *said(board, task, now)], [], width),
        _row(
            look,
            [("  ", "text"), *_tried(look, at), *_checked(task, at)],
            [*_changed(at), (f"  {place}", "faint")],
            width,
        ),
    ]


def wide(board: Board, task: Task, width: int, moment: Moment) -> list[list[Span]]:
    """The card of *task* as two rows of *width* cells, where the waves stand below each other."""
    look, now, hit = moment.look, moment.now, moment.hits.get(SessionId(board.run.of(task.id).session))
    at, how = board.run.of(task.id), standing(board, task)
    loud = ".bold" if how.needs_person else ""
    title: list[Span] = [(f"{how.glyph(look)} ", f"{how.role}{loud}"), *_mark(look, hit), *_title(task, at)]
    state: list[Span] = [
        ("  ", "text"),
        (look.fit(how.word, STATE), f"{how.role}{loud}"),
        (f"{_time(at, now):>5}", "soft"),
    ]
    if width >= ROOMY:
        agent, spent = look.fit(agent_of(board, task), AGENT), look.fit(_cost(board, at), COST, right=True)
        state = [(agent, "soft"), (spent, "soft"), *state]
    checked = _tried(look, at) + [(look.cut(text, CHECK), role) for text, role in _checked(task, at)]
    return [
        _row(look, title, state, width),
        _row(look, [("  ", "text"), *_collides(look, hit, how), *said(board, task, now)], checked, width),
    ]


def said(board: Board, task: Task, now: float) -> list[Span]:
    """What there is to say about *task* right now: what it waits for, what it does, why it failed."""
    at = board.run.of(task.id)
    if blocked := board.ahead.blocked.get(task.id):
        return [(clean_line(blocked), "faint")]
    session = _session(board, at)
    match at.state:
        case TaskState.RUNNING if session is not None and board.run.state != "ended":
            return news(session, now)
        case TaskState.FAILED:
            return [(clean_line(_last_line(at) or at.why), "state-crashed")]
        case TaskState.CLAIMED:
            return [(clean_line(at.why) or "its agent calls it done", "text")]
        case TaskState.DONE if at.is_checked and session is not None and session.last_line:
            return [(clean_line(session.last_line), "faint")]
        case TaskState.DONE | TaskState.SKIPPED:
            return [(clean_line(at.why), "faint")]
        case TaskState.WAITING if at.failures and board.run.state != "ended":
            return [(f"once more, after: {clean_line(at.failures[-1])}", "warn")]
    return []


def agent_of(board: Board, task: Task) -> str:
    """Who works at *task*, or is to."""
    at = board.run.of(task.id)
    session = _session(board, at)
    if session is not None and at.state is not TaskState.WAITING:
        return clean_line(session.agent) or "program"
    return clean_line(at.agent or task.agent or ("shell" if task.run else board.plan.agent))


def cost(board: Board, at: TaskRun) -> float | None:
    """What all attempts of a task cost so far, in US dollars; None where nobody told."""
    known = [board.sessions.get(id_) for id_ in (*at.earlier, at.session) if id_]
    told = [session.cost_usd for session in known if session is not None and session.cost_usd is not None]
    return sum(told) if told else None


def _session(board: Board, at: TaskRun) -> Session | None:
    return board.sessions.get(at.session)


def _title(task: Task, at: TaskRun) -> list[Span]:
    loud = at.state in (*ON, TaskState.FAILED)
    role = "text.bold" if loud else "text" if at.state is TaskState.WAITING else "soft"
    number: Span = (f"{clean_line(task.id)} ", "faint")
    title = clean_line(task.title)
    return [number, (title if title != task.id else "", role)]


def _time(at: TaskRun, now: float) -> str:
    """How long its last attempt runs, or took."""
    if at.took_s is not None and at.state not in ON:
        return age(at.took_s)
    if at.state is TaskState.CLAIMED:
        return age(at.since - at.began_at)
    return age(now - at.began_at) if at.state is TaskState.RUNNING else ""


def _cost(board: Board, at: TaskRun) -> str:
    usd = cost(board, at)
    return "" if usd is None else money(usd)


def _mark(look: Look, hit: Collides | None) -> list[Span]:
    return [] if hit is None else [(f"{look.mark('collides')} ", "bad.bold" if hit.lines else "warn")]


def _collides(look: Look, hit: Collides | None, how: Standing) -> list[Span]:
    """What it changes that another one changes; what a person is asked is told before that."""
    if hit is None or how.needs_person:
        return []
    return [(clean_line(hit.words), "bad" if hit.lines else "warn"), (f" {look.mark('dot')} ", "faint")]


def _checked(task: Task, at: TaskRun) -> list[Span]:
    """What its check said, or will ask."""
    if at.check is None or at.state is TaskState.WAITING:
        is_over = at.state in (TaskState.DONE, TaskState.FAILED, TaskState.SKIPPED)
        if not task.check or is_over:
            return [("not checked" if is_over else "no check", "faint")]
        now = at.state is TaskState.CLAIMED
        return [(f"{'is checked' if now else 'check'}: {clean_line(task.check)}", "info" if now else "faint")]
    if at.check.ok:
        took = f" {age(at.check.took_s)}" if at.check.took_s >= 1 else ""
        return [(f"check passed{took}", "good")]
    return [(f"check {clean_line(at.check.why) or f'ended with {at.check.exit_code}'}", "bad")]


def _last_line(at: TaskRun) -> str:
    """The last words of a check that failed, which say most."""
    lines = at.check.output.splitlines() if at.check is not None and not at.check.ok else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _tried(look: Look, at: TaskRun) -> list[Span]:
    if at.attempt < 2:
        return []
    return [(f"attempt {at.attempt}", "warn"), (f" {look.mark('dot')} ", "faint")]


def _changed(at: TaskRun) -> list[Span]:
    """How many files it changed; that it changed none is worth a look."""
    if at.changed is None or at.state not in (TaskState.CLAIMED, TaskState.DONE):
        return []
    many = "nothing changed" if not at.changed else "1 file" if at.changed == 1 else f"{at.changed} files"
    return [(many, "faint" if at.changed else "warn")]


def _apart(look: Look, text: str, role: str) -> list[Span]:
    """*text* behind a dot; nothing where there is none."""
    return [(f" {look.mark('dot')} ", "faint"), (text, role)] if text else []


def _row(look: Look, left: Sequence[Span], right: Sequence[Span], width: int) -> list[Span]:
    """*left* and *right* at the ends of *width* cells; *left* is cut where both do not fit."""
    right = list(right) if width_of(right) + 8 <= width else []
    room = width - width_of(right) - (1 if right else 0)
    shown: list[Span] = []
    for text, role in left:
        cut = look.cut(text, room)
        shown.append((cut, role))
        room -= width_of([(cut, role)])
        if cut != text or room <= 0:
            break
    return [*shown, (" " * (width - width_of(shown) - width_of(right)), "text"), *right]
