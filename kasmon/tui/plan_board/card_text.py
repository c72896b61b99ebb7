"""The text of a task's card on the wave board: state, agent, time and cost, what it waits for. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kasmon.model.collisions import CollisionSummary
from kasmon.model.formatting import GLYPHS, age, state_name
from kasmon.model.permission import SessionId
from kasmon.model.plan.placement import machine_requirement
from kasmon.model.plan.plan import Task
from kasmon.model.plan.progress import TaskRun, TaskState
from kasmon.model.plan.scheduler import tries_left
from kasmon.model.session import Session
from kasmon.sanitize import clean_line
from kasmon.supervisor.plans.boards import PlanBoard
from kasmon.tui.theme.look import StyledSpan, ThemeStyles, money, news, width_of

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
"""A task's own state -> its symbol, with and without UTF-8; a running task has its session's."""
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
WORDS: Final = {"waits": "waiting", "again": "retrying", "claimed": "done?", "never": "not started"}
STATE, AGENT, COST, CHECK = 11, 9, 8, 30
"""Cells of a state, an agent and a cost in columns, and the most for the check."""
ROOMY: Final = 64
"""From this width on a low card names agent and cost."""
ON: Final = (TaskState.RUNNING, TaskState.CLAIMED)
NEEDING: Final = frozenset({"asking", "lost"})
"""The states of a session, or of one that its agent started, in which a running task needs the person."""
MOST_CHILDREN: Final = 6
"""A card shows the symbols of this many sessions that its agents started."""


class TaskCardState(NamedTuple):
    name: str
    """A key of `SHAPES`, or while it runs the state of its session."""
    needs_person: bool = False

    def glyph(self, look: ThemeStyles) -> str:
        return (SHAPES.get(self.name) or GLYPHS[self.name])[0 if look.utf8 else 1]

    @property
    def role(self) -> str:
        return ROLES.get(self.name) or f"state-{self.name}"

    @property
    def label(self) -> str:
        return WORDS.get(self.name, self.name)


def find_card_state(board: PlanBoard, task: Task) -> TaskCardState:
    at, is_over = board.run.of(task.id), board.run.state == "ended"
    match at.state:
        case TaskState.RUNNING if is_over:
            return TaskCardState("stopped")
        case TaskState.WAITING if is_over:
            return TaskCardState("never")
        case TaskState.RUNNING:
            name = "starting" if (session := _session(board, at)) is None else state_name(session)
            names = (name, *map(state_name, children_of(board, at)))
            return TaskCardState(name, not NEEDING.isdisjoint(names))
        case TaskState.CLAIMED:
            return TaskCardState("checking") if task.check else TaskCardState("claimed", not is_over)
        case TaskState.FAILED:
            if tries_left(board.run, task) and not is_over:
                return TaskCardState("again")
            return TaskCardState("failed", not is_over)
        case TaskState.WAITING:
            return TaskCardState("waits" if task.id in board.ahead.blocked else "ready")
        case _:
            return TaskCardState(at.state.value)


class TaskCardContext(NamedTuple):
    """What a card depends on besides its plan."""

    look: ThemeStyles
    now: float
    hits: Mapping[SessionId, CollisionSummary] = {}
    """The sessions that change the same as others."""


def narrow(board: PlanBoard, task: Task, place: str, width: int, moment: TaskCardContext) -> list[list[StyledSpan]]:
    """Return the card of *task* as four rows of *width* cells, for a column; *place* is its position in its wave."""
    look, now, hit = moment.look, moment.now, moment.hits.get(SessionId(board.run.of(task.id).session))
    at, how = board.run.of(task.id), find_card_state(board, task)
    loud = ".bold" if how.needs_person else ""
    title = [(f"{how.glyph(look)} ", f"{how.role}{loud}"), *_mark(look, board, at, hit), *_title(task, at)]
    state: list[StyledSpan] = [
        ("  ", "text"),
        (how.label, f"{how.role}{loud}"),
        *_after_dot(look, _time(at, now), "soft"),
    ]
    state += _after_dot(look, agent_of(board, task), "soft") + _after_dot(look, account_of(board, task), "soft")
    state += _after_dot(look, machine_of(board, task), "soft")
    state += _after_dot(look, _cost(board, at), "soft")
    return [
        _row(look, title, _folded_children(look, board, at), width),
        _row(look, state, [], width),
        _row(look, [("  ", "text"), *_collides(look, hit, how), *draw_note(board, task, now)], [], width),
        _row(
            look,
            [("  ", "text"), *_attempts(look, at), *_describe_check(task, at)],
            [*_describe_changes(at), (f"  {place}", "faint")],
            width,
        ),
    ]


def wide(board: PlanBoard, task: Task, width: int, moment: TaskCardContext) -> list[list[StyledSpan]]:
    """Return the card of *task* as two rows of *width* cells, where the waves are below each other."""
    look, now, hit = moment.look, moment.now, moment.hits.get(SessionId(board.run.of(task.id).session))
    at, how = board.run.of(task.id), find_card_state(board, task)
    loud = ".bold" if how.needs_person else ""
    title = [(f"{how.glyph(look)} ", f"{how.role}{loud}"), *_mark(look, board, at, hit), *_title(task, at)]
    state: list[StyledSpan] = [
        ("  ", "text"),
        (look.fit(how.label, STATE), f"{how.role}{loud}"),
        (f"{_time(at, now):>5}", "soft"),
    ]
    if width >= ROOMY:
        agent, spent = look.fit(agent_of(board, task), AGENT), look.fit(_cost(board, at), COST, right=True)
        state = [(agent, "soft"), (spent, "soft"), *state]
    machine, account = machine_of(board, task), account_of(board, task)
    checked = ([(f"on {machine}  ", "soft")] if machine else []) + _attempts(look, at)
    checked = ([(f"account {account}  ", "soft")] if account else []) + checked
    checked += [(look.cut(text, CHECK), role) for text, role in _describe_check(task, at)]
    return [
        _row(look, title, [*_folded_children(look, board, at), *state], width),
        _row(look, [("  ", "text"), *_collides(look, hit, how), *draw_note(board, task, now)], checked, width),
    ]


def draw_note(board: PlanBoard, task: Task, now: float) -> list[StyledSpan]:
    """Return the current note on *task*: what it waits for, what it does, why it failed."""
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
            return [(clean_line(at.why) or "reported done, not checked", "text")]
        case TaskState.DONE if at.is_checked and session is not None and session.last_line:
            return [(clean_line(session.last_line), "faint")]
        case TaskState.DONE | TaskState.SKIPPED:
            return [(clean_line(at.why), "faint")]
        case TaskState.WAITING if at.failures and board.run.state != "ended":
            return [(f"retrying after: {clean_line(at.failures[-1])}", "warn")]
    return []


def agent_of(board: PlanBoard, task: Task) -> str:
    at = board.run.of(task.id)
    session = _session(board, at)
    if session is not None and at.state is not TaskState.WAITING:
        return clean_line(session.agent) or "program"
    return clean_line(at.agent_for(board.plan, task))


def account_of(board: PlanBoard, task: Task) -> str:
    """Return the account that the last attempt of *task* uses; empty for its agent's own log-in, or before that."""
    at = board.run.of(task.id)
    session = _session(board, at)
    if at.ran is None or not at.ran.account:
        return ""
    return clean_line(session.account if session is not None else at.ran.account)


def machine_of(board: PlanBoard, task: Task) -> str:
    """Return the registered machine that *task* runs on, or is to run on; empty for this one, or if it is open."""
    wanted = machine_requirement(board.plan, task)
    return "" if wanted is None else clean_line(board.run.of(task.id).machine or wanted.machine)


def cost(board: PlanBoard, at: TaskRun) -> float | None:
    """Return the cost of all attempts of a task so far, in US dollars; None if unknown."""
    known = [board.sessions.get(id_) for id_ in (*at.earlier, at.session) if id_]
    costs = [session.cost_usd for session in known if session is not None and session.cost_usd is not None]
    return sum(costs) if costs else None


def _session(board: PlanBoard, at: TaskRun) -> Session | None:
    return board.sessions.get(at.session)


def _title(task: Task, at: TaskRun) -> list[StyledSpan]:
    loud = at.state in (*ON, TaskState.FAILED)
    role = "text.bold" if loud else "text" if at.state is TaskState.WAITING else "soft"
    number: StyledSpan = (f"{clean_line(task.id)} ", "faint")
    title = clean_line(task.title)
    return [number, (title if title != task.id else "", role)]


def _time(at: TaskRun, now: float) -> str:
    """How long its last attempt has been running, or took."""
    if at.duration_s is not None and at.state not in ON:
        return age(at.duration_s)
    if at.state is TaskState.CLAIMED:
        return age(at.since - at.began_at)
    return age(now - at.began_at) if at.state is TaskState.RUNNING else ""


def _cost(board: PlanBoard, at: TaskRun) -> str:
    usd = cost(board, at)
    return "" if usd is None else money(usd)


def children_of(board: PlanBoard, at: TaskRun) -> tuple[Session, ...]:
    """Return the sessions that the agent of a task's last attempt started, those that theirs did, and so on."""
    return board.children.get(at.session, ())


def _folded_children(look: ThemeStyles, board: PlanBoard, at: TaskRun) -> list[StyledSpan]:
    children = sorted(children_of(board, at), key=lambda each: each.attention)
    if not children:
        return []
    shapes: list[StyledSpan] = [(look.glyph(each), f"state-{state_name(each)}") for each in children[:MOST_CHILDREN]]
    more: list[StyledSpan] = [(look.mark("more"), "faint")] if len(children) > MOST_CHILDREN else []
    return [(f"{look.mark('shut')}{len(children)} ", "accent"), *shapes, *more]


def _mark(look: ThemeStyles, board: PlanBoard, at: TaskRun, hit: CollisionSummary | None) -> list[StyledSpan]:
    """The collisions of its changes with others', and a proposal to finish it or what its agent started."""
    known = (_session(board, at), *children_of(board, at))
    is_proposed = any(each is not None and each.finish_proposed for each in known)
    return [
        *([] if hit is None else [(f"{look.mark('collides')} ", "bad.bold" if hit.lines else "warn")]),
        *([(f"{look.mark('proposal')} ", "info")] if is_proposed else []),
    ]


def _collides(look: ThemeStyles, hit: CollisionSummary | None, how: TaskCardState) -> list[StyledSpan]:
    """The collisions of its changes with others'; a request to the user takes precedence."""
    if hit is None or how.needs_person:
        return []
    return [(clean_line(hit.text), "bad" if hit.lines else "warn"), (f" {look.mark('dot')} ", "faint")]


def _describe_check(task: Task, at: TaskRun) -> list[StyledSpan]:
    if at.check is None or at.state is TaskState.WAITING:
        is_over = at.state in (TaskState.DONE, TaskState.FAILED, TaskState.SKIPPED)
        if not task.check or is_over:
            return [("not checked" if is_over else "no check", "faint")]
        now = at.state is TaskState.CLAIMED
        return [(f"{'checking' if now else 'check'}: {clean_line(task.check)}", "info" if now else "faint")]
    if at.check.ok:
        took = f" {age(at.check.took_s)}" if at.check.took_s >= 1 else ""
        return [(f"check passed{took}", "good")]
    return [(f"check {clean_line(at.check.why) or f'failed (exit {at.check.exit_code})'}", "bad")]


def _last_line(at: TaskRun) -> str:
    lines = at.check.output.splitlines() if at.check is not None and not at.check.ok else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _attempts(look: ThemeStyles, at: TaskRun) -> list[StyledSpan]:
    if at.attempt < 2:
        return []
    return [(f"attempt {at.attempt}", "warn"), (f" {look.mark('dot')} ", "faint")]


def _describe_changes(at: TaskRun) -> list[StyledSpan]:
    if at.changed is None or at.state not in (TaskState.CLAIMED, TaskState.DONE):
        return []
    many = "nothing changed" if not at.changed else "1 file" if at.changed == 1 else f"{at.changed} files"
    return [(many, "faint" if at.changed else "warn")]


def _after_dot(look: ThemeStyles, text: str, role: str) -> list[StyledSpan]:
    return [(f" {look.mark('dot')} ", "faint"), (text, role)] if text else []


def _row(look: ThemeStyles, left: Sequence[StyledSpan], right: Sequence[StyledSpan], width: int) -> list[StyledSpan]:
    """*left* and *right* at the ends of *width* cells; *left* is cut where both do not fit."""
    right = list(right) if width_of(right) + 8 <= width else []
    space = width - width_of(right) - (1 if right else 0)
    shown: list[StyledSpan] = []
    for text, role in left:
        cut = look.cut(text, space)
        shown.append((cut, role))
        space -= width_of([(cut, role)])
        if cut != text or space <= 0:
            break
    return [*shown, (" " * (width - width_of(shown) - width_of(right)), "text"), *right]
