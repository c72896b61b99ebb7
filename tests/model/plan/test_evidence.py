"""What a task's session says of the task, row by row of the table in `evidence`."""

from typing import Any

import pytest

from kasmon.model.command import ReceiptState
from kasmon.model.plan.evidence import LOST_S, Word, word
from kasmon.model.plan.spec import Plan, Task
from kasmon.model.session import Session
from kasmon.model.state import SessionState
from tests.model.plan.plans import FINISHED, NOW, plan, receipt, session, task, turned

S, R = SessionState, ReceiptState
PLAN = plan(task("a"), task("b", run="make", inherits=""))
SAID = plan(task("a"), done_by="said")


def said(of: Session, by: Plan = PLAN, what: Task = PLAN.tasks[0], began_at: float = 10.0) -> Word | None:
    return word(by, what, of, began_at, NOW)


def test_the_end_of_its_turn_is_its_word() -> None:
    assert Word("turn", "did it") == said(turned("a"))


def test_the_end_of_its_turn_is_nothing_where_the_plan_wants_it_said() -> None:
    assert said(turned("a"), SAID) is None


@pytest.mark.parametrize("state", [S.IDLE, S.ENDED, S.LIMITED, S.UNSURE])
def test_done_is_done_once_its_turn_is_over(state: SessionState) -> None:
    assert Word("said", "all green") == said(session("a", state, done="all green"), SAID)


@pytest.mark.parametrize("state", [S.WORKING, S.ASKING])
def test_who_says_done_and_still_works_or_asks_is_waited_for(state: SessionState) -> None:
    assert said(session("a", state, done="all green")) is None


@pytest.mark.parametrize("state", [S.STARTING, S.WORKING, S.ASKING, S.LIMITED, S.PAUSED, S.STANDBY, S.UNSURE, S.LOST])
def test_no_other_state_is_a_word(state: SessionState) -> None:
    assert said(session("a", state, FINISHED, turn_ended="done")) is None


@pytest.mark.parametrize(
    "more",
    [
        {"turn_ended": "interrupted"},
        {"turn_ended": "limit"},
        {"waits": "for the build"},
        {"receipts": ()},
        {"receipts": (FINISHED, receipt(R.QUEUED))},
        {"receipts": (FINISHED, receipt(R.TYPED))},
        {"receipts": (receipt(R.SUBMITTED),)},
        {"receipts": (receipt(R.STARTED),)},
        {"receipts": (receipt(R.LOST, at=NOW - LOST_S / 2),)},
        {"receipts": (receipt(R.FINISHED, at=9.0),)},
    ],
    ids=["interrupted", "at its limit", "waits on purpose", "no prompt yet", "one more waits", "one more is typed",
         "taken", "begun", "lost just now", "of another task"],
)  # fmt: skip
def test_an_idle_agent_has_not_given_its_word(more: dict[str, Any]) -> None:
    """Idle is not done: only the end of a turn that its own prompt began is."""
    assert said(turned("a", **more)) is None


def test_a_turn_that_ended_in_an_error_failed_with_its_words() -> None:
    assert Word("", "overloaded") == said(turned("a", turn_ended="error", turn_error="overloaded"))
    assert Word("", "its turn ended in an error") == said(turned("a", turn_ended="error"))


def test_a_prompt_that_was_not_taken_failed_with_the_reason() -> None:
    refused = receipt(R.REFUSED, reason="it is too long")

    assert Word("", "it did not take its prompt: it is too long") == said(turned("a", receipts=(refused,)))
    assert Word("turn", "did it") == said(turned("a", receipts=(refused, FINISHED)))


def test_a_prompt_that_is_lost_failed_after_a_while() -> None:
    lost = receipt(R.LOST, at=NOW - 2 * LOST_S, reason="its host was gone")

    assert Word("", "it did not take its prompt: its host was gone") == said(turned("a", receipts=(lost,)))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"exit_code": 0}, Word("exit", "it ended with exit code 0")),
        ({"exit_code": 3}, Word("", "its agent ended with exit code 3")),
        (
            {"exit_code": 125, "end_why": "it ended at once: no image"},
            Word("", "its agent ended with exit code 125: it ended at once: no image"),
        ),
        ({"exit_code": 0, "stopped": True}, Word("", "its session was stopped")),
        ({"exit_code": 3, "stopped": True}, Word("", "its session was stopped")),
        ({"exit_code": 0, "timed_out": True, "end_why": "x"}, Word("", "its sandbox's time was over: x")),
        ({"signal": "SIGKILL"}, Word("", "its agent was ended by SIGKILL")),
        ({"end_why": "it never answered"}, Word("", "its agent ended: it never answered")),
        ({}, Word("", "its agent ended: nobody knows why")),
    ],
    ids=str,
)
def test_how_it_ended_is_its_word(more: dict[str, Any], expected: Word) -> None:
    assert expected == said(session("a", S.ENDED, **more))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (0, Word("exit", "its command ended with 0")),
        (2, Word("", "its command ended with 2")),
        (None, Word("", "its command ended, and nobody knows how")),
    ],
)
def test_a_command_is_done_by_its_exit_code_alone(code: int | None, expected: Word) -> None:
    """A shell that is idle again says nothing of how its command ended."""
    assert expected == said(turned("b", receipts=(receipt(R.FINISHED, exit_code=code),)), what=PLAN.tasks[1])


def test_a_command_is_not_done_by_the_one_before_it_in_the_same_terminal() -> None:
    before = receipt(R.FINISHED, at=9.0, exit_code=0)
    own = receipt(R.FINISHED, at=10.5, exit_code=1)

    assert said(turned("b", receipts=(before,)), what=PLAN.tasks[1]) is None
    assert Word("", "its command ended with 1") == said(turned("b", receipts=(before, own)), what=PLAN.tasks[1])


def test_what_the_task_before_said_in_the_same_terminal_is_not_its_word() -> None:
    goes_on = plan(task("a", run="make"), task("b", run="make test", inherits="a"))

    assert said(session("a", S.IDLE, done="made"), goes_on, goes_on.tasks[1]) is None


def test_where_nobody_knows_how_a_command_ended_its_check_decides() -> None:
    of = plan(task("b", run="make", check="test -f out"))

    assert Word("turn", "its command ended, and nobody knows how") == said(
        turned("b", receipts=(receipt(R.FINISHED),)), of, of.tasks[0]
    )
