"""The outcome of a task according to its session: done, and by which report, or failed. Pure.

| the session | the task |
|---|---|
| its agent called `kasmon ctx --done`, and its turn is over | claimed, by `said` |
| ended with exit code 0 | claimed, by `exit` |
| ended otherwise, or was stopped | failed, and why |
| idle, the turn that carried its prompt is over, and the plan counts that as a report | claimed, by `turn` |
| idle, and no turn is known to have carried its prompt | neither: a person is asked, see `doubt` |
| its turn ended in an error | failed, and which |
| anything else: it asks, is limited, lost, unsure, works, was interrupted | neither |
"""

from typing import Final, Literal, NamedTuple

from kasmon.model.commands import NO_TURN, Receipt, ReceiptState
from kasmon.model.plan.plan import Plan, Task
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState

FINISHED: Final = ReceiptState.FINISHED
UNKNOWN_END: Final = "its command ended with an unknown status"
LOST_S: Final = 15.0
"""A lost prompt counts as not taken only after this long: the host that resumes the session sends it again."""


class TaskOutcome(NamedTuple):
    """The outcome of a task according to its session."""

    by: Literal["said", "turn", "exit", ""]
    """How it was reported as done; empty if it failed."""
    text: str = ""


def word(plan: Plan, task: Task, session: Session, began_at: float, now: float) -> TaskOutcome | None:
    """Return the outcome of *task* according to *session*; None while there is none.

    Args:
        plan: its plan.
        task: the session's task.
        session: its current state.
        began_at: when this attempt began; earlier prompts were another task's in the same terminal.
        now: in seconds since the epoch.
    """
    is_own = not (task.run and task.inherits)  # in a shared terminal, another task may have reported this
    if is_own and session.done is not None and session.state not in (SessionState.WORKING, SessionState.ASKING):
        return TaskOutcome("said", session.done)
    if session.state is SessionState.ENDED:
        if session.exit_code == 0 and not session.stopped and not session.timed_out:
            return TaskOutcome("exit", "it ended with exit code 0")
        return TaskOutcome("", ended_words(session))
    if session.state is not SessionState.IDLE or session.queue or session.waits:
        return None
    receipts = [receipt for receipt in session.receipts if receipt.at >= began_at]
    if not receipts or any(receipt.state in _UNDER_WAY for receipt in receipts):
        return None
    finished = [receipt for receipt in receipts if _is_carried(task, receipt)]
    if receipts[-1].state is ReceiptState.FAILED and session.turn_ended != "limit":
        return TaskOutcome("", receipts[-1].reason or "its turn ended in an error")
    if not finished:
        if session.turn_ended == "limit":
            return None  # it continues by itself
        last = receipts[-1]
        if last.state not in _NOT_TAKEN:
            return None
        is_new = last.state is ReceiptState.LOST and now - last.at < LOST_S
        return None if is_new else TaskOutcome("", f"it did not accept its prompt: {last.reason or last.state}")
    if task.run:
        code = finished[-1].exit_code
        if code is None:
            return TaskOutcome("turn", UNKNOWN_END) if task.check else TaskOutcome("", UNKNOWN_END)
        return (
            TaskOutcome("exit", "its command ended with 0")
            if code == 0
            else TaskOutcome("", f"its command failed (exit {code})")
        )
    if session.turn_ended in ("interrupted", "limit"):
        return None  # a person took over, or it continues by itself
    if session.turn_ended == "error":
        return TaskOutcome("", session.turn_error or "its turn ended in an error")
    return TaskOutcome("turn", session.last_line) if plan.done_by == "turn" else None


_UNDER_WAY: Final = frozenset({ReceiptState.QUEUED, ReceiptState.TYPED, ReceiptState.SUBMITTED, ReceiptState.STARTED})
_NOT_TAKEN: Final = frozenset({ReceiptState.REFUSED, ReceiptState.LOST})


def doubt(plan: Plan, task: Task, session: Session, began_at: float, now: float) -> str:
    """Return why the progress of *task* is unknown though its agent is idle; empty if it is known or may change."""
    receipts = [receipt for receipt in session.receipts if receipt.at >= began_at]
    if session.state is not SessionState.IDLE or session.waits or not receipts:
        return ""
    if any(receipt.state in _UNDER_WAY or _is_carried(task, receipt) for receipt in receipts):
        return ""
    return NO_TURN if word(plan, task, session, began_at, now) is None and receipts[-1].state not in _NOT_TAKEN else ""


def _is_carried(task: Task, receipt: Receipt) -> bool:
    """Whether a turn carried the prompt to its end; for a shell command no turn is visible."""
    return receipt.state is FINISHED and bool(task.run or receipt.carried_by)


def ended_words(session: Session) -> str:
    """Return how *session* ended, as the reason for its task's failure."""
    if session.stopped:
        return "its session was stopped"
    if session.timed_out:
        return f"its sandbox expired: {session.end_why}"
    if session.signal is not None:
        return f"its agent was ended by {session.signal}"
    if session.exit_code is not None:
        why = f": {session.end_why}" if session.end_why else ""
        return f"its agent ended with exit code {session.exit_code}{why}"
    return f"its agent ended: {session.end_why or 'unknown reason'}"
