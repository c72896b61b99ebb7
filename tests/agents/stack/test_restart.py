"""An agent in a terminal that is started again goes on with its conversation."""

import asyncio

import pytest

from kasmon.model.commands import Configure
from kasmon.model.session_state import SessionState
from kasmon.supervisor.sessions import session_operations
from tests.support.agents.full_stack import LIMIT_S, PROMPT, Stack, beside, stacked
from tests.support.wait import until

pytestmark = pytest.mark.agents
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)


@pytest.mark.timeout(150)
@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_terminal_is_restarted_into_the_same_conversation(stack: Stack) -> None:
    session = stack.new("worker", mode="tmux")
    stack.shows(session, PROMPT[stack.agent.name])
    stack.turn_in_terminal(session, "go %% slow 4 word %% say one")
    known = until(lambda: stack.session(session).resume_id, LIMIT_S, "its conversation")

    for again in ("two", "three"):
        assert 0 == stack("stop", "worker").code
        assert SessionState.ENDED is stack.session(session).state
        done = stack("restart", "worker")
        assert 0 == done.code, done.err
        stack.shows(session, PROMPT[stack.agent.name])
        stack.turn_in_terminal(session, f"go %% slow 4 word %% say {again}")

        assert "go %% slow 4 word %% say one" in stack.heard(f"go %% slow 4 word %% say {again}")
        assert known == stack.session(session).resume_id


@pytest.mark.timeout(150)
@pytest.mark.parametrize(("name", "mode"), [("claude", "plan"), ("codex", "plan"), ("gemini", "autoEdit")])
def test_a_mode_that_the_user_chose_is_kept_over_a_restart(stack: Stack, mode: str) -> None:
    if stack.agent.name == "gemini":
        stack.configure(*stack.agent.flags[1:])
    session = stack.new("worker", "go %% say one")
    before = stack.turned(session)
    asyncio.run(session_operations.execute(stack.paths, before, Configure(permission_mode=mode)))
    until(lambda: stack.session(session).permission_mode == mode, LIMIT_S, "its word for the mode")
    assert 0 == stack("stop", "worker").code
    done = stack("restart", "worker")
    assert 0 == done.code, done.err

    until(lambda: stack.session(session).permission_mode == mode, LIMIT_S, "its word after the restart")
    assert before.resume_id == stack.session(session).resume_id
