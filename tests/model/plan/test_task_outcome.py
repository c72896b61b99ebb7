"""What a task's session says of the task, row by row of the table in `evidence`."""

from typing import Any

import msgspec
import pytest

from kasmon.model.commands import NO_TURN, Receipt, ReceiptState
from kasmon.model.plan.plan import Plan, Task
from kasmon.model.plan.task_outcome import LOST_S, UNFINISHED, TaskOutcome, explain_uncertainty, find_outcome
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from tests.support.sample_plans import FINISHED, NOW, plan, receipt, session, task, turned

S, R = SessionState, ReceiptState
PLAN = plan(task("a"), task("b", run="make", inherits=""))
SAID = plan(task("a"), done_by="said")


PEERS = receipt(R.FINISHED, carried_by="text", by="peer")
RECOVERED = receipt(R.FINISHED, carried_by="text", by="wave")
"""The turn that `kasmon recover` prompted."""


def said(of: Session, by: Plan = PLAN, what: Task = PLAN.tasks[0], began_at: float = 10.0) -> TaskOutcome | None:
    return find_outcome(by, what, of, began_at, NOW)


def test_the_end_of_its_turn_is_its_word_unless_the_plan_wants_it_said() -> None:
    assert TaskOutcome("turn", "did it") == said(turned("a"))
    assert said(turned("a"), SAID) is None


@pytest.mark.parametrize("state", [S.IDLE, S.ENDED, S.LIMITED, S.UNSURE])
def test_a_done_report_counts_once_its_turn_is_over(state: SessionState) -> None:
    assert TaskOutcome("said", "all green") == said(session("a", state, FINISHED, done="all green"), SAID)


@pytest.mark.parametrize("state", [S.WORKING, S.ASKING])
def test_an_agent_that_reports_done_and_still_works_or_asks_is_waited_for(state: SessionState) -> None:
    assert said(session("a", state, FINISHED, done="all green")) is None


@pytest.mark.parametrize(
    ("more", "counts"),
    [
        ({"receipts": ()}, False),
        ({"receipts": (receipt(R.QUEUED),)}, False),
        ({"receipts": (receipt(R.REFUSED),)}, False),
        ({"receipts": (receipt(R.LOST, at=NOW),)}, False),
        ({"receipts": (PEERS,)}, False),
        ({"receipts": (receipt(R.SUBMITTED),)}, True),
        ({"receipts": (receipt(R.UNSURE, reason=NO_TURN),)}, True),
        ({"receipts": (receipt(R.LOST, carried_by="text"),)}, True),
        ({"receipts": (PEERS,), "receipts_counted": 2}, True),
        ({"receipts": (), "turns": 1}, True),
    ],
    ids=["none", "queued", "refused", "lost", "a peer's", "accepted", "unsure", "lost in its turn", "dropped", "turns"],
)
def test_done_is_no_claim_of_an_agent_that_cannot_receive_its_prompt(more: dict[str, Any], counts: bool) -> None:
    assert counts == (said(session("a", S.UNSURE, done="all green", **more)) is not None)


@pytest.mark.parametrize("state", [S.STARTING, S.WORKING, S.ASKING, S.LIMITED, S.PAUSED, S.STANDBY, S.UNSURE, S.LOST])
def test_no_other_state_is_a_claim(state: SessionState) -> None:
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
        {"receipts": (receipt(R.UNSURE),)},
        {"receipts": (receipt(R.FINISHED),)},
        {"receipts": (PEERS,)},
        {"receipts": (receipt(R.UNSURE, by="wave"), PEERS)},
        {"receipts": (receipt(R.UNSURE, by="wave"), RECOVERED)},
        {"receipts": (receipt(R.LOST, by="wave", at=NOW), RECOVERED)},
        {"receipts": (FINISHED, receipt(R.TYPED, by="peer"))},
        {"receipts": (receipt(R.LOST, at=NOW - LOST_S / 2),)},
        {"receipts": (receipt(R.FINISHED, at=9.0),)},
    ],
    ids=["interrupted", "at its limit", "waits on purpose", "no prompt yet", "one more waits", "one more is typed",
         "taken", "begun", "unsure", "no turn is known to have carried it", "a peer's turn", "unsure and a peer's turn",
         "unsure and recovered", "lost and recovered", "a peer's waits", "lost just now", "of another task"],
)  # fmt: skip
def test_an_idle_agent_has_not_reported(more: dict[str, Any]) -> None:
    """Idle is not done: only the end of a turn that its own prompt began is."""
    assert said(turned("a", **more)) is None


def test_a_turn_that_ended_in_an_error_and_a_prompt_that_was_not_taken_failed_with_the_reason() -> None:
    assert TaskOutcome("", "overloaded") == said(turned("a", turn_ended="error", turn_error="overloaded"))
    assert TaskOutcome("", "its turn ended in an error") == said(turned("a", turn_ended="error"))

    refused = receipt(R.REFUSED, reason="it is too long")
    assert TaskOutcome("", "it did not accept its prompt: it is too long") == said(turned("a", receipts=(refused,)))
    assert TaskOutcome("turn", "did it") == said(turned("a", receipts=(refused, FINISHED)))


def test_a_failed_turn_is_no_claim_even_after_an_earlier_done() -> None:
    failed = receipt(R.FAILED, reason="API Error: 400")

    assert TaskOutcome("", "API Error: 400") == said(turned("a", receipts=(FINISHED, failed)))
    assert said(turned("a", receipts=(failed,), turn_ended="limit")) is None


def test_a_turn_is_that_of_a_task_whose_prompt_the_user_sent_again_or_the_agent_had_before_a_crash() -> None:
    unsure, again = receipt(R.UNSURE, by="wave"), receipt(R.FINISHED, carried_by="text", by="user")
    cut = receipt(R.LOST, carried_by="text", by="wave")

    assert TaskOutcome("turn", "did it") == said(turned("a", receipts=(unsure, again)))
    assert TaskOutcome("turn", "did it") == said(turned("a", receipts=(cut, RECOVERED)))
    assert TaskOutcome("turn", "did it") == said(turned("a", receipts=(FINISHED, PEERS)))


NO_RESULT = (
    "GPT-5.5 default · /tmp/work",
    "← for agents · ? for shortcuts",
    "Waiting for startup  · esc cancel",
    "Folder access",
)
"""What stands on a screen of codex before its first turn."""


@pytest.mark.parametrize("footer", NO_RESULT)
@pytest.mark.parametrize("of", [PLAN, SAID])
def test_without_a_turn_for_its_prompt_nothing_is_claimed_and_the_user_is_asked(of: Plan, footer: str) -> None:
    idle = turned("a", last_line=footer, receipts=(receipt(R.UNSURE, reason=NO_TURN),), turn_ended="")

    assert said(idle, of) is None
    assert NO_TURN == explain_uncertainty(of, of.tasks[0], idle, 10.0, NOW)


@pytest.mark.parametrize("other", [PEERS, RECOVERED], ids=["a peer's", "recovered"])
def test_the_user_is_asked_also_after_the_turn_of_another_prompt(other: Receipt) -> None:
    idle = turned("a", receipts=(receipt(R.UNSURE, reason=NO_TURN, by="wave"), other))

    assert said(idle) is None
    assert NO_TURN == explain_uncertainty(PLAN, PLAN.tasks[0], idle, 10.0, NOW)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"receipts": (receipt(R.UNSURE, reason=NO_TURN), FINISHED)},
        {"receipts": (receipt(R.UNSURE, reason=NO_TURN), receipt(R.STARTED))},
        {"receipts": (receipt(R.REFUSED),)},
        {"receipts": ()},
        {"receipts": (receipt(R.UNSURE, at=9.0, reason=NO_TURN),)},
        {"receipts": (receipt(R.UNSURE, reason=NO_TURN),), "waits": "for the build"},
        {"receipts": (receipt(R.UNSURE, reason=NO_TURN),), "state": S.WORKING},
    ],
    ids=["done", "another one came", "another one runs", "refused", "no prompt", "of another task", "waits", "works"],
)
def test_with_a_known_or_running_turn_the_user_is_not_asked(more: dict[str, Any]) -> None:
    assert "" == explain_uncertainty(PLAN, PLAN.tasks[0], msgspec.structs.replace(turned("a"), **more), 10.0, NOW)


def test_a_lost_prompt_fails_the_task_after_a_while() -> None:
    lost = receipt(R.LOST, at=NOW - 2 * LOST_S, reason="its host had ended")

    assert TaskOutcome("", "it did not accept its prompt: its host had ended") == said(turned("a", receipts=(lost,)))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"exit_code": 0, "receipts": (FINISHED,)}, TaskOutcome("exit", "it ended with exit code 0")),
        ({"exit_code": 0}, TaskOutcome("", UNFINISHED)),
        ({"exit_code": 0, "receipts": (receipt(R.QUEUED),)}, TaskOutcome("", UNFINISHED)),
        ({"exit_code": 0, "receipts": (receipt(R.LOST),)}, TaskOutcome("", UNFINISHED)),
        ({"exit_code": 0, "receipts": (receipt(R.UNSURE, reason=NO_TURN),)}, TaskOutcome("", UNFINISHED)),
        ({"exit_code": 0, "receipts": (receipt(R.STARTED, carried_by="text"),)}, TaskOutcome("", UNFINISHED)),
        ({"exit_code": 0, "receipts": (receipt(R.FAILED, carried_by="text"),)}, TaskOutcome("", UNFINISHED)),
        ({"exit_code": 0, "receipts": (PEERS,)}, TaskOutcome("", UNFINISHED)),
        ({"exit_code": 3}, TaskOutcome("", "its agent ended with exit code 3")),
        (
            {"exit_code": 125, "end_why": "it exited immediately: no image"},
            TaskOutcome("", "its agent ended with exit code 125: it exited immediately: no image"),
        ),
        ({"exit_code": 0, "stopped": True}, TaskOutcome("", "its session was stopped")),
        ({"exit_code": 3, "stopped": True}, TaskOutcome("", "its session was stopped")),
        ({"exit_code": 0, "timed_out": True, "end_why": "x"}, TaskOutcome("", "its sandbox expired: x")),
        ({"signal": "SIGKILL"}, TaskOutcome("", "its agent was ended by SIGKILL")),
        ({"end_why": "it never answered"}, TaskOutcome("", "its agent ended: it never answered")),
        ({}, TaskOutcome("", "its agent ended: unknown reason")),
    ],
    ids=str,
)
def test_the_end_of_an_agent_is_its_report(more: dict[str, Any], expected: TaskOutcome) -> None:
    assert expected == said(session("a", S.ENDED, **more))


def test_the_exit_code_of_a_command_is_its_report() -> None:
    ended = session("b", S.ENDED, receipt(R.SUBMITTED), exit_code=0)

    assert TaskOutcome("exit", "it ended with exit code 0") == said(ended, what=PLAN.tasks[1])


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (0, TaskOutcome("exit", "its command ended with 0")),
        (2, TaskOutcome("", "its command failed (exit 2)")),
        (None, TaskOutcome("", "its command ended with an unknown status")),
    ],
)
def test_a_command_is_done_by_its_exit_code_alone(code: int | None, expected: TaskOutcome) -> None:
    """A shell that is idle again says nothing of how its command ended."""
    assert expected == said(turned("b", receipts=(receipt(R.FINISHED, exit_code=code),)), what=PLAN.tasks[1])


def test_a_command_is_not_done_by_the_one_before_it_in_the_same_terminal() -> None:
    before = receipt(R.FINISHED, at=9.0, exit_code=0)
    own = receipt(R.FINISHED, at=10.5, exit_code=1)

    assert said(turned("b", receipts=(before,)), what=PLAN.tasks[1]) is None
    assert TaskOutcome("", "its command failed (exit 1)") == said(
        turned("b", receipts=(before, own)), what=PLAN.tasks[1]
    )


def test_a_report_of_the_previous_task_in_the_same_terminal_is_ignored() -> None:
    goes_on = plan(task("a", run="make"), task("b", run="make test", inherits="a"))

    assert said(session("a", S.IDLE, done="made"), goes_on, goes_on.tasks[1]) is None


def test_the_check_decides_if_the_end_of_a_command_is_unknown() -> None:
    of = plan(task("b", run="make", check="test -f out"))

    assert TaskOutcome("turn", "its command ended with an unknown status") == said(
        turned("b", receipts=(receipt(R.FINISHED),)), of, of.tasks[0]
    )
