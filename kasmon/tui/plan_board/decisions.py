"""What a key on the wave board does in the current state: a command, one to be confirmed, or a refusal.

Pure. The command is checked again when it is executed, as a board may be outdated.
"""

from typing import Final, NamedTuple

from kasmon.model.plan.events import PlanAction
from kasmon.model.plan.plan import Task
from kasmon.model.plan.progress import TaskState
from kasmon.supervisor.plans import approval
from kasmon.supervisor.plans.boards import PlanBoard
from kasmon.tui.action import Action
from kasmon.tui.keymap import Keys
from kasmon.tui.plan_board.card_text import ON, find_card_state

DECISIONS: Final[dict[Action, PlanAction]] = {
    Keys.TASK_RETRY: "retry",
    Keys.TASK_SKIP: "skip",
    Keys.TASK_REPLACE: "replace",
    Keys.TASK_ACCEPT: "accept",
    Keys.PLAN_ADVANCE: "advance",
    Keys.PLAN_ABORT: "abort",
}
"""Action -> its decision; `plan_pause` pauses or resumes."""
OF_TASK: Final = frozenset(["retry", "skip", "replace", "accept"])

OFFERED: Final = {
    Keys.TASK_ACCEPT: ("claimed",),
    Keys.TASK_RETRY: ("failed", "claimed", "again"),
    Keys.TASK_REPLACE: ("failed", "claimed", "again"),
    Keys.TASK_SKIP: ("failed", "waits", "ready", "again"),
}
"""Action -> the states of a task in which the key bar offers it."""


class PlanDecision(NamedTuple):
    """What a key does now: either `refusal` or `action` is set."""

    action: PlanAction | None = None
    task: str = ""
    """The task that it is about; empty for the plan."""
    questions: tuple[str, ...] = ()
    """The question to confirm first; empty if it is done at once."""
    refusal: str = ""


def decision_of(board: PlanBoard, action: Action) -> PlanAction:
    """Return what *action* decides on *board* now."""
    if action is Keys.PLAN_PAUSE:
        return "resume" if board.run.state == "paused" or not board.is_run else "pause"
    return DECISIONS[action]


def resolve_action(board: PlanBoard, task: Task | None, action: Action) -> PlanDecision:
    """Return what *action* does while the cursor is on *task*."""
    decision = decision_of(board, action)
    if not board.has_begun:
        return PlanDecision(refusal="This plan has not been started.")
    if board.run.state == "ended":
        return PlanDecision(refusal=f"This plan has ended: {board.run.outcome}.")
    if decision in OF_TASK and task is None:
        return PlanDecision(refusal="No task is selected.")
    id_ = task.id if task is not None and decision in OF_TASK else ""
    if why := _refusal(board, decision, id_):
        return PlanDecision(refusal=f"{why[0].upper()}{why[1:]}.")
    return PlanDecision(decision, id_, _question(board, task, decision))


def _question(board: PlanBoard, task: Task | None, decision: PlanAction) -> tuple[str, ...]:
    at = board.run.of(task.id).state if task is not None else TaskState.WAITING
    name = f"task {task.id}" if task is not None else ""
    match decision:
        case "abort":
            running = sum(board.run.of(each.id).state is TaskState.RUNNING for each in board.plan.tasks)
            many = "1 session is" if running == 1 else f"{running} sessions are"
            ends = f"{many} stopped; worktrees and branches are kept." if running else "No task is running."
            return (f"Abort plan {board.plan.name}? It cannot be resumed.", ends)
        case "skip" if at in ON:
            return (f"Skip {name}? Its session is stopped. Dependent tasks run without it.",)
        case "skip":
            return (f"Skip {name}? Dependent tasks run without it.",)
        case "retry" if at is TaskState.RUNNING:
            return (f"Retry {name}? Its session is stopped, and the task starts from scratch.",)
        case "retry" if at is TaskState.DONE:
            return (f"Retry {name}? It is done, and starts from scratch.",)
        case _:
            return ()


def list_offered(board: PlanBoard, task: Task | None) -> tuple[str, ...]:
    """Return the actions that count now, for the key bar."""
    if not board.has_begun:
        return ("task_read",) if task is not None else ()
    if board.run.state == "ended":
        return ("task_open", "task_diff") if task is not None and board.run.of(task.id).session else ()
    actions = ["plan_advance"] if waits_for_advance(board) else []
    if task is not None:
        how = find_card_state(board, task).name
        actions += ["task_open", "task_diff"] if board.run.of(task.id).session else []
        actions += [
            action.id
            for action, states in OFFERED.items()
            if how in states and not _refusal(board, DECISIONS[action], task.id)
        ]
    return (*actions, "task_read", "plan_pause")


def waits_for_advance(board: PlanBoard) -> bool:
    """Whether the plan's question is whether its next wave may start."""
    held_up = any(at.state in (TaskState.FAILED, TaskState.CLAIMED) for at in board.run.tasks.values())
    return bool(board.ahead.question) and not held_up and not _refusal(board, "advance")


def _refusal(board: PlanBoard, decision: PlanAction, task: str = "") -> str:
    return approval.refusal(board.plan, board.run, decision, task)
