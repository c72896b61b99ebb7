"""An agent in a sandbox rests only where it is known to be idle; what runs, is asked or is on its way is not cut."""

import math

import msgspec
import pytest

from kasmon.host.sandboxed.lifecycle import RESTING, alike, as_of, is_at_work, rests_at, used_at
from kasmon.model.commands import Mode, Receipt, ReceiptId, ReceiptState
from kasmon.model.evidence import Signal
from kasmon.model.permission import Request, RequestId, RequestKind, SessionId
from kasmon.model.sandbox.policy import SandboxPhase
from kasmon.model.sandbox.state import SandboxState
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState

ME = SessionId("abcdefgh")
RUNS = SandboxState(phase=SandboxPhase.RUNNING, is_intended=False, used_at=50.0)
IDLE = Session(id=ME, state=SessionState.IDLE, since=100.0, generation=1, sandbox_state=RUNS)
ASKED = Request(id=RequestId("abcdefgh-1"), session=ME, kind=RequestKind.QUESTION)


def receipt(state: ReceiptState) -> tuple[Receipt, ...]:
    return (Receipt(id=ReceiptId("abcdefgh-r1"), session=ME, state=state, text="go", at=200.0),)


def but(session: Session = IDLE, **fields: object) -> Session:
    return msgspec.structs.replace(session, **fields)


@pytest.mark.parametrize("state", sorted(set(SessionState) - RESTING))
def test_only_an_idle_or_paused_agent_rests(state: SessionState) -> None:
    """Not what nobody can tell, nor what is at its limit: a turn of it may go on."""
    assert math.inf == rests_at(but(state=state))
    assert {SessionState.IDLE, SessionState.STANDBY, SessionState.PAUSED} == RESTING
    assert {0.0} == {rests_at(but(state=each)) for each in RESTING}


def test_an_agent_in_a_turn_or_with_a_request_does_not_rest() -> None:
    assert math.inf == rests_at(but(in_turn=True))
    assert math.inf == rests_at(but(requests=(ASKED,)))


@pytest.mark.parametrize(
    ("state", "rests"),
    [
        (ReceiptState.QUEUED, math.inf),
        (ReceiptState.TYPED, math.inf),
        (ReceiptState.SUBMITTED, 210.0),
        (ReceiptState.STARTED, 210.0),
        (ReceiptState.FINISHED, 0.0),
        (ReceiptState.LOST, 0.0),
    ],
)
def test_a_prompt_being_delivered_is_not_cut(state: ReceiptState, rests: float) -> None:
    assert rests == rests_at(but(receipts=receipt(state)))


def test_it_was_last_used_when_it_became_idle_or_its_facts_say_and_moments_are_alike_as_people_count() -> None:
    assert 100.0 == used_at(IDLE)
    assert 50.0 == used_at(but(state=SessionState.STANDBY, since=120.0))  # that it was put to sleep is no use
    assert 130.0 == used_at(but(sandbox_state=msgspec.structs.replace(RUNS, used_at=130.0)))

    assert alike(10.0, 10.9)
    assert not alike(10.0, 11.1)
    assert alike(None, None)
    assert not alike(None, 10.0)


def test_in_a_terminal_the_time_alone_may_end_its_work() -> None:
    """As everybody else sees it, so does its host."""
    prints = Signal(source="output", value="printing", at=100.0)
    quiet = Signal(source="screen", value="idle", at=99.0)
    busy = but(mode=Mode.TMUX, state=SessionState.WORKING, signals=(quiet, prints), recheck_at=102.0)

    assert busy is as_of(busy, 101.0)
    assert SessionState.WORKING is not as_of(busy, 103.0).state


def test_a_turn_started_at_the_moment_of_the_stop_counts_as_work() -> None:
    working = Signal(source="program", value="working", at=100.0)
    asleep = but(mode=Mode.TMUX, state=SessionState.STANDBY)

    assert is_at_work(but(asleep, signals=(working,)), 101.0)
    assert not is_at_work(but(asleep, signals=(msgspec.structs.replace(working, value="idle"),)), 101.0)
    assert is_at_work(but(mode=Mode.SDK, state=SessionState.WORKING), 101.0)
    assert not is_at_work(but(mode=Mode.SDK, state=SessionState.STANDBY), 101.0)
