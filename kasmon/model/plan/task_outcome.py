"""The outcome of a task according to its session: done, and by which report, or failed. Pure.

| the session | the task |
|---|---|
| its agent, which got its prompt, called `kasmon ctx --done`, and its turn is over | claimed, by `said` |
| ended with exit code 0, after a command or after the turn that carried its prompt | claimed, by `exit` |
| ended with exit code 0 before that | failed: no turn carried its prompt to the end |
| ended otherwise, or was stopped | failed, and why |
| idle, the turn that carried its prompt is over, and the plan counts that as a report | claimed, by `turn` |
| idle, and no turn is known to have carried its prompt | neither: a person is asked, see `explain_uncertainty` |
| its turn ended in an error | failed, and which |
| anything else: it asks, is limited, lost, unsure, works, was interrupted | neither |

A prompt of a peer is not the task's prompt: its turn reports nothing. Nor does a turn that `kasmon recover` prompted
if the agent may never have got the task's prompt. A person's prompt counts: the person may have sent it again.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from kasmon.model.commands import NO_TURN, Receipt, ReceiptState
from kasmon.model.plan.plan import Plan, Task
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState

FINISHED: Final = ReceiptState.FINISHED
UNFINISHED: Final = "it ended with exit code 0 before a turn carried its prompt to the end"
UNKNOWN_END: Final = "its command ended with an unknown status"
LOST_S: Final = 15.0
"""A lost prompt counts as not taken only after this long: the host that resumes the session sends it again."""


class TaskOutcome(NamedTuple):
    """The outcome of a task according to its session."""

    by: Literal["said", "turn", "exit", ""]
    """How it was reported as done; empty if it failed."""
    text: str = ""


def find_outcome(plan: Plan, task: Task, session: Session, began_at: float, now: float) -> TaskOutcome | None:
    """Return the outcome of *task* according to *session*; None while there is none.

    Args:
        session: its current state.
        began_at: when this attempt began; earlier prompts were another task's in the same terminal.
        now: in seconds since the epoch.
    """
    since = [receipt for receipt in session.receipts if receipt.at >= began_at]
    receipts = _own(since)
    is_own = not (task.run and task.inherits)  # in a shared terminal, another task may have reported this
    is_said = is_own and session.done is not None and _has_prompt(session, receipts)
    if is_said and session.state not in (SessionState.WORKING, SessionState.ASKING):
        return TaskOutcome("said", session.done or "")
    finished = [receipt for receipt in receipts if _is_finished(task, receipt)]
    if session.state is SessionState.ENDED:
        if session.exit_code != 0 or session.stopped or session.timed_out:
            return TaskOutcome("", describe_end(session))
        if task.run or finished:
            return TaskOutcome("exit", "it ended with exit code 0")
        return TaskOutcome("", UNFINISHED)
    if session.state is not SessionState.IDLE or session.queue or session.waits:
        return None
    if not receipts or any(receipt.state in _UNDER_WAY for receipt in since):
        return None
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
_GIVEN: Final = frozenset(
    {ReceiptState.SUBMITTED, ReceiptState.STARTED, ReceiptState.FINISHED, ReceiptState.FAILED, ReceiptState.UNSURE}
)
_NOT_TAKEN: Final = frozenset({ReceiptState.REFUSED, ReceiptState.LOST})


def explain_uncertainty(plan: Plan, task: Task, session: Session, began_at: float, now: float) -> str:
    """Return why the progress of *task* is unknown though its agent is idle; empty if it is known or may change."""
    since = [receipt for receipt in session.receipts if receipt.at >= began_at]
    receipts = _own(since)
    if session.state is not SessionState.IDLE or session.waits or not since:
        return ""
    if any(receipt.state in _UNDER_WAY for receipt in since) or any(_is_finished(task, each) for each in receipts):
        return ""
    is_refused = bool(receipts) and receipts[-1].state in _NOT_TAKEN
    return NO_TURN if find_outcome(plan, task, session, began_at, now) is None and not is_refused else ""


def _own(receipts: Sequence[Receipt]) -> list[Receipt]:
    """Return those of *receipts*, of one attempt, whose turns can report its task."""
    own = [receipt for receipt in receipts if receipt.by != "peer"]
    if own and own[0].state in (ReceiptState.UNSURE, ReceiptState.LOST) and not own[0].carried_by:
        return [own[0], *(receipt for receipt in own[1:] if receipt.by != "wave")]
    return own


def _has_prompt(session: Session, receipts: Sequence[Receipt]) -> bool:
    """Whether the agent can have the prompt of *receipts*: a program whose turns are not visible reports too."""
    is_dropped = session.receipts_counted > len(session.receipts)  # a session keeps the latest receipts
    return bool(session.turns) or is_dropped or any(each.carried_by or each.state in _GIVEN for each in receipts)


def _is_finished(task: Task, receipt: Receipt) -> bool:
    """Whether a turn carried the prompt to its end; for a shell command no turn is visible."""
    return receipt.state is FINISHED and bool(task.run or receipt.carried_by)


def describe_end(session: Session) -> str:
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
