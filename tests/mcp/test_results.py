"""What a tool answers has the seed's shape, and says of nothing that it is kept where it is not."""

import pytest

from kasmon.errors import HostUnreachableError, KasmonError, RefusedError, SessionEndedError
from kasmon.mcp.results import lost_before, of_error, of_once, of_run, refused
from kasmon.model.sandbox.policy import RunResult

KNOWN = "mcp-12345678/once-9abc"
LATE = (
    f"Session {KNOWN!r} timed out after 30s. The session state is preserved. Consider: 1) Increasing timeout, "
    f"2) Breaking operation into smaller steps, 3) Using session={KNOWN} to continue where you left off."
)


def test_a_run_answers_with_the_four_required_fields_and_nothing_more_on_success() -> None:
    told = of_run(RunResult(stdout="15\n", turn=3, ms=1.5, cwd="/workspace"), "analysis", KNOWN)

    assert {"stdout": "15\n", "stderr": "", "exit_code": 0, "session_preserved": True, "session": "analysis"} == told


def test_a_session_has_the_name_that_its_client_gave_it() -> None:
    told = of_run(RunResult(stderr=f"half\n{LATE}", exit_code=124, hint=LATE, timed_out=True), "analysis", KNOWN)

    assert told["stderr"].startswith("half\nSession 'analysis' timed out after 30s. The session state is preserved.")
    assert told["stderr"].endswith("3) Using session='analysis' to continue where you left off.")
    assert (124, True, True) == (told["exit_code"], told["session_preserved"], told["timed_out"])
    assert "mcp-" not in str(told)


def test_what_the_code_printed_stays_as_it_is_and_without_a_session_nothing_is_said_to_be_kept() -> None:
    told = of_run(RunResult(stdout=LATE, stderr=LATE, hint=""), "analysis", KNOWN)
    assert (LATE, LATE) == (told["stdout"], told["stderr"])

    told = of_once(RunResult(stderr=f"half\n{LATE}", exit_code=124, hint=LATE, timed_out=True))
    assert told["session_preserved"] is False
    assert told["stderr"].startswith("half\nTimed out. Nothing is kept, because it had no session.")
    assert "preserved" not in told["stderr"]
    assert "session" not in told


def test_a_run_without_a_session_that_ends_its_interpreter_reports_only_its_code() -> None:
    hint = "python ended during this run (exit code 3): its variables are lost."

    assert {"stdout": "", "stderr": "bye", "exit_code": 3, "session_preserved": False} == of_once(
        RunResult(stderr=f"bye\n{hint}", exit_code=3, hint=hint, restarted=True)
    )


def test_a_loss_before_a_run_is_reported_with_it() -> None:
    told = lost_before(
        of_run(RunResult(hint="12 bytes of output were omitted."), "a", KNOWN), "it had ended: all is lost"
    )

    assert told["session_preserved"] is False
    assert "It had ended: all is lost. 12 bytes of output were omitted." == told["hint"]


@pytest.mark.parametrize(
    ("error", "has_session", "preserved"),
    [
        (RefusedError("it sleeps."), True, True),
        (RefusedError("it sleeps."), False, False),
        (HostUnreachableError("lab", "it is gone"), True, False),
        (SessionEndedError("lab"), True, False),
    ],
    ids=["refused", "refused without a session", "nobody knows", "ended meanwhile"],
)
def test_an_error_states_no_more_than_is_known(error: KasmonError, has_session: bool, preserved: bool) -> None:
    told = of_error(error, has_session=has_session)

    assert preserved is told["session_preserved"]
    assert error.message in told["stderr"]
    assert told["exit_code"] == error.exit_code != 0


def test_the_refusal_in_the_specification_is_unchanged() -> None:
    told = refused("Unknown interpreter: ruby", preserved=True)

    assert {"stdout": "", "stderr": "Unknown interpreter: ruby", "exit_code": 1, "session_preserved": True} == told
