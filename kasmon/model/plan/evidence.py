"""What a task's session says of the task: that it is done, on whose word, or that it failed. Pure.

| the session | the task |
|---|---|
| its agent said `kasmon ctx --done`, and its turn is over | claimed, by `said` |
| ended with exit code 0 | claimed, by `exit` |
| ended otherwise, or was stopped | failed, and why |
| idle, its prompt's turn over, where the plan takes that for its word | claimed, by `turn` |
| its turn ended in an error | failed, and which |
| anything else: it asks, is limited, lost, unsure, works, was interrupted | neither |
"""

from typing import Final, Literal, NamedTuple

from kasmon.model.command import ReceiptState
from kasmon.model.plan.spec import Plan, Task
from kasmon.model.session import Session
from kasmon.model.state import SessionState

FINISHED: Final = ReceiptState.FINISHED
UNKNOWN_END: Final = "its command ended, and nobody knows how"
LOST_S: Final = 15.0
"""A prompt that was lost counts as not taken only after so long: whoever resumes the session says it again."""


class Word(NamedTuple):
    """What is known of a task by its session."""

    by: Literal["said", "turn", "exit", ""]
    """On whose word it counts as done; empty where it failed."""
    text: str = ""


def word(plan: Plan, task: Task, session: Session, began_at: float, now: float) -> Word | None:
    """What *session* says of *task*; None while it says nothing that counts.

    Args:
        plan: the plan of it.
        task: what the session is to do.
        session: as it is now.
        began_at: when this attempt began; prompts before that were another task's in the same terminal.
        now: in seconds since the epoch.
    """
    is_own = not (task.run and task.inherits)  # in a terminal that it goes on in, another task may have said so
    if is_own and session.done is not None and session.state not in (SessionState.WORKING, SessionState.ASKING):
        return Word("said", session.done)
    if session.state is SessionState.ENDED:
        if session.exit_code == 0 and not session.stopped and not session.timed_out:
            return Word("exit", "it ended with exit code 0")
        return Word("", ended_words(session))
    if session.state is not SessionState.IDLE or session.queue or session.waits:
        return None
    receipts = [receipt for receipt in session.receipts if receipt.at >= began_at]
    if not receipts or any(receipt.state not in _OVER for receipt in receipts):
        return None
    finished = [receipt for receipt in receipts if receipt.state is FINISHED]
    if not finished:
        last = receipts[-1]
        is_new = last.state is ReceiptState.LOST and now - last.at < LOST_S
        return None if is_new else Word("", f"it did not take its prompt: {last.reason or last.state}")
    if task.run:
        code = finished[-1].exit_code
        if code is None:
            return Word("turn", UNKNOWN_END) if task.check else Word("", UNKNOWN_END)
        return Word("exit", "its command ended with 0") if code == 0 else Word("", f"its command ended with {code}")
    if session.turn_ended in ("interrupted", "limit"):
        return None  # a person took over, or it goes on by itself
    if session.turn_ended == "error":
        return Word("", session.turn_error or "its turn ended in an error")
    return Word("turn", session.last_line) if plan.done_by == "turn" else None


_OVER: Final = frozenset({FINISHED, ReceiptState.REFUSED, ReceiptState.LOST})


def ended_words(session: Session) -> str:
    """How *session* ended, as the reason why its task failed."""
    if session.stopped:
        return "its session was stopped"
    if session.timed_out:
        return f"its sandbox's time was over: {session.end_why}"
    if session.signal is not None:
        return f"its agent was ended by {session.signal}"
    if session.exit_code is not None:
        why = f": {session.end_why}" if session.end_why else ""
        return f"its agent ended with exit code {session.exit_code}{why}"
    return f"its agent ended: {session.end_why or 'nobody knows why'}"
