"""Real agents in a jail, in both modes: they reach their model by the jail's own way out, and nothing else."""

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.demo.scratch import clear
from kasmon.model.events import ConfinementSeen, RequestAnswered
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.model.session_state import SessionState
from kasmon.paths import private_folder, write_private
from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.shared.processes import is_inside
from tests.agents.stack.test_dashboard_keys import Person
from tests.support.agents.full_stack import LIMIT_S, PROMPT, Stack, beside, stacked
from tests.support.sandbox.requirements import need_jail
from tests.support.wait import until

pytestmark = pytest.mark.agents
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)
SECRET = "outside-of-every-jail"
ALONE = {"gemini": ("--skip-trust",)}
"""What trusts the folder where the agent's own note of that is not handed over."""
BOX = {"opencode": "Ask anything", "gemini": "Type your message"}
"""What stands in the box of an agent that waits for a first prompt."""

OWN_HOSTS = '"registry.npmjs.org", "github.com", "api.github.com", "chatgpt.com", "models.dev", "opencode.ai"'
"""What agents ask for by themselves; where it is refused, that is a request of its own."""


@pytest.fixture
def jailed(stack: Stack, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """The stack, with an agent whose profile wants a jail; its model is reached by the proxy."""
    need_jail()
    agent, port, name = stack.agent, stack.stub.url.rpartition(":")[2], _name_of_loopback()
    there = f"http://{name}:{port}"
    if agent.name == "claude":
        stack.variables["ANTHROPIC_BASE_URL"] = there
    elif agent.name == "opencode":
        own = stack.variables["OPENCODE_CONFIG_CONTENT"]
        stack.variables["OPENCODE_CONFIG_CONTENT"] = own.replace(stack.stub.url, there)
    elif agent.name == "gemini":
        stack.variables["GOOGLE_GEMINI_BASE_URL"] = there
    else:
        settings = agent.home / ".codex" / "config.toml"
        settings.write_text(settings.read_text().replace(stack.stub.url, there))
    flags = list(ALONE.get(agent.name, ()))
    if agent.name == "codex" and "structured" in request.node.name:
        flags = ["-a untrusted", "--sandbox danger-full-access"]
    private_folder(stack.paths.config)
    profile = f'[agents.{agent.name}]\nsandbox = "jail"\nflags = {json.dumps(flags)}\n'
    profile += f'[agents.{agent.name}.confined]\nnetwork = ["private:{name}:{port}", {OWN_HOSTS}]\n'
    write_private(stack.paths.config_file, profile.encode())
    (agent.home / "secret").write_text(SECRET)
    yield stack
    jail = Jail(stack.paths)
    base = jail.host_folders.base  # as it is while the folders stand
    sessions = [folder.name for folder in stack.paths.sessions.iterdir()]
    clear(stack.path)
    for session in sessions:
        jail.forget(SandboxPolicy(session=SessionId(session)))
    assert not base.exists()


def _name_of_loopback() -> str:
    """A name that leads to where the model listens, and that no agent takes for its own machine's."""
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        if socket.gethostbyname(name) == "127.0.0.1":
            return name
    pytest.skip(f"{name!r}, this machine's name, does not lead to 127.0.0.1, where the model listens")


def confinement(stack: Stack, session: SessionId) -> ConfinementSeen:
    return until(lambda: stack.facts(session, ConfinementSeen), LIMIT_S, "a look at its jail")[-1]


def files_of(stack: Stack, session: SessionId) -> Path:
    """Where the agent's folder really lies: for root it is a copy."""
    ground = Jail(stack.paths).host_folders.of(session)
    return ground / "workspace" if os.geteuid() == 0 else stack.agent.workdir


def _is_over(stack: Stack, session: SessionId) -> bool:
    """Whether the turn is over; whatever is asked in it meanwhile is allowed."""
    now = stack.session(session)
    for request in stack.json("inbox")["requests"]:
        assert 0 == stack.answer(request, "allow").code
    return now.turns > 0 and now.state is SessionState.IDLE


@pytest.mark.short
@pytest.mark.timeout(150)
@pytest.mark.parametrize("name", ["claude", "codex", "opencode", "gemini"])
def test_a_structured_agent_in_a_jail_works_is_allowed_and_resumes_after_a_kill(jailed: Stack) -> None:
    stack = jailed
    if stack.agent.name != "opencode":  # all that it needs comes by its variables
        refused = stack("new", "worker", "--agent", stack.agent.name, "--mode", "sdk")
        assert "which has not been confirmed yet" in refused.err
    session = stack.new("worker", "", "--yes")
    seen = confinement(stack, session)
    assert (True, ()) == (seen.ok, seen.mismatches)
    now = stack.session(session)
    assert now.pid == seen.pid
    assert now.pid is not None
    assert is_inside(now.pid)
    assert 0 != Path(f"/proc/{now.pid}").stat().st_uid

    assert 0 == stack("send", session, f"go %% bash cat {stack.agent.home}/secret; touch made.txt %% say done").code
    until(lambda: _is_over(stack, session), LIMIT_S, "the end of the turn")
    assert stack.facts(session, RequestAnswered)
    assert (files_of(stack, session) / "made.txt").exists()
    assert SECRET not in stack.paths.log(session).read_text()

    os.kill(now.pid, signal.SIGKILL)
    stack.until_state(session, SessionState.ENDED)
    done = stack("restart", "worker")
    assert 0 == done.code, done.err
    stack.turn(session, "go %% say two")

    assert any("made.txt" in said for said in stack.heard("go %% say two"))
    assert 0 == stack("stop", "worker").code


@pytest.mark.timeout(150)
@pytest.mark.parametrize("name", ["claude", "codex"])
def test_an_agent_in_its_terminal_and_in_a_jail_works_and_is_resumed(jailed: Stack) -> None:
    stack = jailed
    session = stack.new("worker", "", "--yes", mode="tmux")
    stack.shows(session, PROMPT[stack.agent.name])
    seen = confinement(stack, session)
    assert (True, ()) == (seen.ok, seen.mismatches)
    stack.turn_in_terminal(session, "go %% slow 4 word %% say one")
    known = until(lambda: stack.session(session).resume_id, LIMIT_S, "its conversation")
    agent = stack.session(session).pid
    assert agent is not None

    os.kill(agent, signal.SIGKILL)
    stack.until_state(session, SessionState.ENDED)
    assert 0 == stack("restart", "worker").code
    stack.shows(session, PROMPT[stack.agent.name])
    stack.turn_in_terminal(session, "go %% slow 4 word %% say two")

    assert "go %% slow 4 word %% say one" in stack.heard("go %% slow 4 word %% say two")
    assert known == stack.session(session).resume_id
    assert {"hook"} <= {signal.source for signal in stack.session(session).signals}
    assert 0 == stack("stop", "worker").code


@pytest.mark.timeout(150)
@pytest.mark.parametrize("name", ["opencode", "gemini"])
def test_an_agent_that_asks_on_its_screen_works_in_its_terminal_and_in_a_jail(jailed: Stack) -> None:
    stack = jailed
    session = stack.new("worker", "", "--yes", mode="tmux")
    stack.shows(session, BOX[stack.agent.name])
    seen = confinement(stack, session)
    assert (True, ()) == (seen.ok, seen.mismatches)

    assert 0 == stack("send", session, "go %% bash touch made.txt %% say done").code
    request = stack.asked(session)
    assert "touch made.txt" in request["shown"]
    assert not (files_of(stack, session) / "made.txt").exists()
    assert 0 == stack.answer(request, "allow").code
    until((files_of(stack, session) / "made.txt").exists, LIMIT_S, "what it was allowed")
    stack.until_state(session, SessionState.IDLE)
    assert 0 == stack("stop", "worker").code


@pytest.mark.timeout(150)
@pytest.mark.parametrize("name", ["claude", "codex"])
def test_the_card_of_a_structured_agent_in_a_jail_is_answered_by_a_key(jailed: Stack) -> None:
    """At the dashboard, whose row says that the agent is confined."""
    stack = jailed
    session = stack.new("worker", "go %% bash touch made.txt %% say done", "--yes")
    assert confinement(stack, session).ok
    with Person(stack) as person:
        person.at_card("touch made.txt")
        assert not (files_of(stack, session) / "made.txt").exists()
        person.press("a", "finished")
        stack.turned(session)

    assert (files_of(stack, session) / "made.txt").exists()
    assert 1 == len(stack.facts(session, RequestAnswered))
    assert 0 == stack("stop", "worker").code


def _proven(stack: Stack, session: SessionId, count: int) -> None:
    """Wait until its jail was looked at *count* times, and found to be one the last time."""
    until(lambda: len(stack.facts(session, ConfinementSeen)) >= count, LIMIT_S, "a look at its jail")
    assert stack.facts(session, ConfinementSeen)[-1].ok


@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_conversation_moves_to_a_terminal_and_back_within_its_jail_also_while_it_is_paused(jailed: Stack) -> None:
    stack = jailed
    first, second, third = "go %% say one", "go %% say two", "go %% say three"
    session = stack.new("worker", "", "--yes")
    stack.turn(session, first)
    _proven(stack, session, 1)
    before, policy = stack.session(session), stack.paths.sandbox(session).read_bytes()
    moved = stack("move", "worker", "--to", "tmux")
    assert 0 == moved.code, moved.err
    _proven(stack, session, 2)
    stack.shows(session, "say one")

    stack.until_state(session, SessionState.IDLE)
    paused = stack("sandbox", "pause", "worker")
    assert 0 == paused.code, paused.err
    assert SessionState.STANDBY is stack.session(session).state
    stack.turn_in_terminal(session, second)  # a prompt is typed; it wakes it first
    assert [first, second] == [said for said in stack.heard(second) if "%%" in said]

    stack.until_state(session, SessionState.IDLE)
    assert 0 == stack("sandbox", "pause", "worker").code
    moved = stack("move", "worker", "--to", "sdk")
    assert 0 == moved.code, moved.err
    _proven(stack, session, 3)
    now = stack.until_state(session, SessionState.IDLE)
    assert (before.resume_id, 3, before.workdir) == (now.resume_id, now.generation, now.workdir)
    assert policy == stack.paths.sandbox(session).read_bytes()
    stack.turn(session, third)
    assert [first, second, third] == [said for said in stack.heard(third) if "%%" in said]
