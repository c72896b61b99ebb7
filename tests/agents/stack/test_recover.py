"""After the end of everything at once, `kasmon recover` brings real agents back, each into its own conversation."""

import shutil
from typing import Final

import psutil
import pytest

from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.tmux.server import TmuxServer
from tests.support.agents.full_stack import LIMIT_S, PROMPT, Stack, beside, killed, stacked
from tests.support.wait import until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(200)]
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)
ALONE: Final = {"claude": (), "codex": ("-c features.daemon_auto_start=false",)}
"""Without, codex leaves its conversation to a server that outlives it."""


def ended(stack: Stack, *sessions: SessionId) -> None:
    """End tmux's server, all hosts and all agents with -9, and empty the runtime folder, as a reboot does."""
    hosts = {stack.session(session).host.pid for session in sessions}  # type: ignore[union-attr]  # they all run
    agents = [stack.agent_of(session) for session in sessions]
    killed(*(psutil.Process(pid) for pid in hosts if pid), *agents)
    TmuxServer(stack.paths.tmux_socket).kill_server()
    shutil.rmtree(stack.paths.runtime)


def conversation(stack: Stack, session: SessionId) -> str:
    """The agent's own id of it, once its terminal's sources have told."""
    return until(lambda: stack.session(session).resume_id, LIMIT_S, "its conversation")


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_three_sessions_in_one_folder_are_each_recovered_in_their_own_conversation(stack: Stack) -> None:
    """Two in terminals and a structured one; what proves each is said before it is started."""
    stack.configure(*ALONE[stack.agent.name])
    kept: dict[SessionId, tuple[str, str | None]] = {}
    for number in ("one", "two"):
        session = stack.new(number, mode="tmux")
        stack.shows(session, PROMPT[stack.agent.name])
        stack.turn_in_terminal(session, f"go %% slow 4 word %% say {number}")
        kept[session] = (number, conversation(stack, session))
    third = stack.new("three", "go %% say three")
    kept[third] = ("three", stack.turned(third).resume_id)
    ended(stack, *kept)

    would = {one["session"]: one for one in stack.json("recover", "--dry-run")["recovered"]}
    done = stack("recover")

    assert {session: id_ for session, (_, id_) in kept.items()} == {
        id_: one["conversation"] for id_, one in would.items()
    }
    assert all("its id, its folder" in one["did"] for one in would.values()), would
    assert "its first prompt, its last message" in would[third]["did"]
    assert 0 == done.code, done
    for session, (number, id_) in kept.items():
        assert id_ == stack.session(session).resume_id
        assert f"{number}: resumed conversation {id_}" in done.out
    for session, (number, _) in kept.items():
        if session == third:
            stack.turn(session, "go %% say again three")
        else:
            stack.shows(session, PROMPT[stack.agent.name])
            stack.turn_in_terminal(session, f"go %% slow 4 word %% say again {number}")
    for number in ("one", "two"):
        heard = stack.heard(f"go %% slow 4 word %% say again {number}")
        assert f"go %% slow 4 word %% say {number}" in heard
        assert not {"go %% slow 4 word %% say one", "go %% slow 4 word %% say two"} <= set(heard)
    assert "go %% say three" in stack.heard("go %% say again three")


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_session_whose_conversation_is_gone_is_not_started_in_another_one(stack: Stack) -> None:
    stack.configure(*ALONE[stack.agent.name])
    session = stack.new("worker", "go %% say one")
    id_ = stack.turned(session).resume_id
    ended(stack, session)
    home = stack.agent.home
    for file in [*home.rglob(f"*{id_}*.jsonl")]:
        file.unlink()

    done = stack("recover")

    assert f"worker: unchanged: its agent no longer has the conversation {id_}" in done.out
    assert SessionState.LOST is stack.session(session).state
