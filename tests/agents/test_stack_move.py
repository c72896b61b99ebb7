"""A real agent's conversation goes on: in the other mode, after its host, after itself; and no turn is lost."""

import re
from typing import Final

import pytest

from kasmon.model.state import SessionState
from tests.agents.stack import LIMIT_S, PROMPT, Stack, beside, gone, killed, stacked
from tests.waiting import until

pytestmark = pytest.mark.agents
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)
ALONE: Final = {"claude": (), "codex": ("-c features.daemon_auto_start=false",)}
"""Without, codex leaves its conversation to a server that outlives it."""
BOTH = pytest.mark.parametrize("name", ["claude", "codex"])


@BOTH
def test_killed_it_goes_on_with_its_conversation(stack: Stack) -> None:
    """Host and agent with -9 while a turn runs, then the agent alone, then its host alone."""
    said = ["go %% say one"]
    session = stack.new("worker", said[0])
    begun = stack.turned(session)
    stack("send", "worker", "go %% say busy %% hang")
    stack.until_state(session, SessionState.WORKING)
    for count, dies in enumerate(("both", "agent", "host"), 2):
        agent, host = stack.agent_of(session), stack.host_of(session)
        killed(*{"both": (host, agent), "agent": (agent,), "host": (host,)}[dies])
        over = stack.until_state(session, SessionState.ENDED if dies == "agent" else SessionState.LOST)
        assert dies != "agent" or "SIGKILL" == over.signal

        done = stack("restart", "worker")
        assert 0 == done.code, done.err
        now = stack.until_state(session, SessionState.IDLE)
        assert (begun.resume_id, count) == (now.resume_id, now.generation)
        assert " id" in now.proof
        if dies != "both":  # a turn that has just begun may not be in the agent's history yet
            assert re.search("our last prompt|the prompt that was given last", now.proof)
        gone(agent)
        said.append(f"go %% say {dies}")
        stack.turn(session, said[-1])
        assert said == [prompt for prompt in stack.heard(said[-1]) if prompt in said]


@BOTH
def test_a_conversation_moves_to_a_terminal_and_back(stack: Stack) -> None:
    """Not while a turn runs, and then without losing one."""
    first, second, third = "go %% say one", "go %% say two", "go %% say three"
    busy, inside = "go %% say busy %% hang", "go %% say inside %% hang"
    session = stack.new("worker", first)
    before = stack.turned(session)
    stack("send", "worker", busy)
    stack.until_state(session, SessionState.WORKING)
    refused = stack("move", "worker", "--to", "tmux")
    assert (True, True) == (refused.code != 0, "working" in refused.err), refused
    stack("interrupt", "worker")
    stack.turned(session, 1)

    moved = stack("move", "worker", "--to", "tmux")
    assert 0 == moved.code, moved.err
    stack.shows(session, "say one")
    stack.turn_in_terminal(session, second)
    assert [first, second] == [said for said in stack.heard(second) if said in (first, second)]

    stack("send", "worker", inside)
    until(lambda: 2 == stack("read", "worker").out.count("inside"), LIMIT_S, "its words behind the prompt")
    refused = stack("move", "worker", "--to", "sdk")
    assert (True, True) == (refused.code != 0, "working" in refused.err), refused
    stack("interrupt", "worker")
    stack.shows(session, "nterrupted")

    moved = stack("move", "worker", "--to", "sdk")
    assert 0 == moved.code, moved.err
    now = stack.until_state(session, SessionState.IDLE)
    assert (before.resume_id, 3, session) == (now.resume_id, now.generation, now.id)
    stack.turn(session, third)
    assert [first, busy, second, inside, third] == [said for said in stack.heard(third) if "%%" in said]


@pytest.mark.parametrize("name", ["codex"])
def test_what_does_not_start_on_the_other_side_goes_back(stack: Stack) -> None:
    """Codex's screen refuses an approval policy that its app-server takes."""
    stack.configure("-a untrusted")
    first, second = "go %% say one", "go %% say two"
    session = stack.new("worker", first)
    stack.turned(session)
    done = stack("move", "worker", "--to", "tmux")

    assert 0 != done.code
    assert "goes on where it was" in done.err
    now = stack.until_state(session, SessionState.IDLE)
    assert ("sdk", 3) == (now.mode, now.generation)
    stack.turn(session, second)
    assert [first, second] == [said for said in stack.heard(second) if "%%" in said]


@BOTH
def test_a_conversation_that_began_in_a_terminal_moves(stack: Stack) -> None:
    stack.configure(*ALONE[stack.agent.name])
    first, second = "go %% say inside %% say done", "go %% say two"
    session = stack.new("worker", mode="tmux")
    stack.shows(session, PROMPT[stack.agent.name])
    stack.turn_in_terminal(session, first)
    until(lambda: 2 == stack("read", "worker").out.count("inside"), LIMIT_S, "its words behind the prompt")
    agent = stack.agent_of(session)
    until(lambda: 0 == stack("move", "worker", "--to", "sdk").code, LIMIT_S, "the move, once the turn is over")

    gone(agent)
    assert " id" in stack.session(session).proof
    stack.turn(session, second)
    assert [first, second] == [said for said in stack.heard(second) if "%%" in said]


@pytest.mark.parametrize("name", ["gemini", "opencode"])
def test_an_acp_agents_conversation_moves_to_a_terminal_and_back(stack: Stack) -> None:
    stack.configure(*stack.agent.flags[1:])
    first, second, third = "go %% say one", "go %% say two", "go %% say three"
    session = stack.new("worker", first)
    before = stack.turned(session)
    moved = stack("move", "worker", "--to", "tmux")
    assert 0 == moved.code, moved.err
    stack.until_state(session, SessionState.IDLE)
    stack.turn_in_terminal(session, second)
    assert [first, second] == [said for said in stack.heard(second) if "%%" in said]

    stack.until_state(session, SessionState.IDLE)
    moved = stack("move", "worker", "--to", "sdk")
    assert 0 == moved.code, moved.err
    now = stack.until_state(session, SessionState.IDLE)
    assert (before.resume_id, 3, " id" in now.proof) == (now.resume_id, now.generation, True)
    stack.turn(session, third)
    assert [first, second, third] == [said for said in stack.heard(third) if "%%" in said]
