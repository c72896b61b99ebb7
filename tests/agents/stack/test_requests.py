"""What real agents ask outlives the dashboard that shows it, is answered once, and is void when its agent is gone."""

import os
import signal
from typing import cast

import pytest

from kasmon.model.events import RequestAnswered
from kasmon.model.session_state import SessionState
from tests.support.agents.full_stack import LIMIT_S, Stack, beside, killed, stacked
from tests.support.tui.dashboard import Dashboard, Home
from tests.support.wait import until

pytestmark = pytest.mark.agents
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)

NAMES = ("ash", "birch", "cedar", "elder", "fir")


@pytest.mark.parametrize("name", ["claude"])
def test_five_requests_outlive_a_dashboard_and_each_is_answered_once(stack: Stack) -> None:
    sessions = [stack.new(name, f"go %% bash touch {name}.txt %% say done") for name in NAMES]
    until(lambda: 5 == len(stack.json("inbox")["requests"]), LIMIT_S, "five requests")
    before = stack.json("inbox")["requests"]
    home = cast(Home, stack)
    with Dashboard(home) as dashboard:
        dashboard.shows(*NAMES, "asking")
        os.kill(dashboard.process.pid, signal.SIGKILL)
        dashboard.ended()
    assert before == stack.json("inbox")["requests"]

    with Dashboard(home) as dashboard:
        dashboard.shows(*NAMES, "asking")
        first, *others = before
        rivals = [
            stack.begun("answer", first["id"], choice, "--digest", first["digest"]) for choice in ("allow", "deny")
        ]
        told = [rival.communicate(timeout=LIMIT_S)[1] for rival in rivals]
        [winner] = [rival for rival in rivals if rival.returncode == 0]
        [loser] = [words for rival, words in zip(rivals, told, strict=True) if rival is not winner]
        assert f"process {winner.pid}" in loser
        for request in others:
            done = stack.answer(request, "allow")
            assert 0 == done.code, done.err
        for session in sessions:
            stack.turned(session)
        dashboard.shows(*NAMES, "finished")
        dashboard.hides("asking")

    assert (5 if winner is rivals[0] else 4) == len(list(stack.agent.workdir.iterdir()))
    assert [1] * 5 == [len(stack.facts(session, RequestAnswered)) for session in sessions]


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_an_agent_that_has_ended_has_no_open_request(stack: Stack) -> None:
    stack.configure(*stack.asking)
    session = stack.new("worker", "go %% bash touch no.txt %% say done")
    request = stack.asked()
    killed(stack.agent_of(session))
    stack.until_state(session, SessionState.ENDED)
    late = stack.answer(request, "allow")

    assert [] == stack.json("inbox")["requests"]
    assert 0 != late.code
    assert "closed" in late.err, late
