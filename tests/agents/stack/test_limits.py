"""Real agents that get HTTP 429 wait for their limit, and go on after it in the order of their permission."""

import asyncio
import time

import pytest

from kasmon.model.commands import ReceiptState
from kasmon.model.limits.resume import GRACE_S, UNKNOWN_S
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.limits.permission import allow
from kasmon.supervisor.limits.resumer import Resumer
from tests.support.agents.full_stack import LIMIT_S, Stack, beside, stacked
from tests.support.wait import until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(200)]
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)


@pytest.mark.parametrize("name", ["claude"])
def test_sessions_at_their_limit_are_parked_and_resume_one_after_the_other(stack: Stack) -> None:
    """The clock of what resumes them is the test's own; one that was not allowed stays."""
    names = ("first", "second", "left")
    first, second, left = (stack.new(name, f"go %% fail 429 %% say {name}") for name in names)
    for session in (first, second, left):
        until(lambda session=session: is_parked(stack, session), LIMIT_S, "the limit")  # type: ignore[misc]
    [account] = stack.json("limits")["accounts"]
    assert {first, second, left} == {*account["parked"]}
    for session, name in ((second, "second"), (first, "first")):
        allow(stack.paths, stack.session(session), f"go %% say {name} is back")
    now = time.time()
    resumer = Resumer(stack.paths, lambda: now, lambda: now)

    asyncio.run(resumer.step(read_fleet(stack.paths)))
    assert [1, 1] == [len(stack.session(each).receipts) for each in (first, second)], "its limit has not ended"
    now += UNKNOWN_S + 2 * GRACE_S
    asyncio.run(resumer.step(read_fleet(stack.paths)))
    stack.until_state(second, SessionState.IDLE)
    assert [1, 2] == [len(stack.session(each).receipts) for each in (first, second)], "one tries first"
    now += 1
    asyncio.run(resumer.step(read_fleet(stack.paths)))
    assert [1, 2] == [len(stack.session(each).receipts) for each in (first, second)], "they are spaced"
    now += 60
    asyncio.run(resumer.step(read_fleet(stack.paths)))
    stack.until_state(first, SessionState.IDLE)

    for session, name in ((first, "first"), (second, "second")):
        receipt = stack.session(session).receipts[-1]
        assert (f"go %% say {name} is back", ReceiptState.FINISHED) == (receipt.text, receipt.state)
    assert (SessionState.LIMITED, 1) == (stack.session(left).state, len(stack.session(left).receipts))
    heard = [turn["user"] for turn in stack.stub.turns if "is back" in turn["user"]]
    assert ["go %% say second is back", "go %% say first is back"] == heard


def is_parked(stack: Stack, session: SessionId) -> bool:
    now = stack.session(session)
    return now.state is SessionState.LIMITED and not now.in_turn
