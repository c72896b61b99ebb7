"""A real agent at a service: it goes on after it slept there, and by its own id after a rebuild."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.demo.scratch import clear
from kasmon.model.session_state import SessionState
from kasmon.paths import private_folder, write_private
from kasmon.sandbox.e2b import service as calls
from kasmon.sandbox.shared.safe_tree import remove_tree
from tests.support.agents.full_stack import Stack, beside, stacked
from tests.support.agents.paused_agents import ONE, THREE, TWO, begun
from tests.support.e2b.local_service import served
from tests.support.sandbox.requirements import need_jail
from tests.support.wait import until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(200)]
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)


@pytest.fixture
def away(stack: Stack) -> Iterator[Stack]:
    """The stack, with an agent whose profile wants a sandbox at the service, whose template has its program."""
    need_jail()
    tools = Path(tempfile.mkdtemp(prefix="ks-", dir="/tmp"))
    tools.chmod(0o755)
    program = stack.agent.program.resolve()
    modules = next(each for each in program.parents if each.name == "node_modules")
    (tools / stack.agent.name).symlink_to(Path("/opt/agents") / program.relative_to(modules))
    private_folder(stack.paths.config)
    write_private(stack.paths.config_file, f'[agents.{stack.agent.name}]\nsandbox = "e2b"\n'.encode())
    with served({"/opt/agents": modules, "/usr/local/bin": tools}) as service:
        stack.variables |= service.access.variables()
        yield stack
        clear(stack.path)
    remove_tree(tools)


@pytest.mark.parametrize("name", ["opencode"])
def test_an_agent_with_a_secret_variable_is_not_paused_at_the_service(away: Stack) -> None:
    session = away.new("worker", "", "--yes")
    away.until_state(session, SessionState.IDLE)
    until(lambda: away.session(session).sandbox_state, 60.0, "its sandbox")
    refused = away("sandbox", "pause", session)

    assert (4, "") == (refused.code, "" if "values of --env" in refused.err else refused.err)
    assert SessionState.IDLE is away.session(session).state


@pytest.mark.parametrize("name", ["opencode"])
def test_a_conversation_continues_at_the_service_after_a_pause_and_after_the_sandbox_is_gone(
    away: Stack,
) -> None:
    stack = away
    session = begun(stack)
    assert 0 == stack("sandbox", "pause", session).code
    assert SessionState.PAUSED is stack.session(session).state
    stack.turn(session, TWO)
    assert ONE in stack.heard(TWO)
    assert 1 == stack.session(session).generation

    assert 0 == stack("sandbox", "pause", session).code
    before = stack.session(session)
    assert before.sandbox_state is not None
    assert before.sandbox_state.runtime is not None
    access = calls.access(stack.variables)
    assert access is not None
    calls.kill(access, before.sandbox_state.runtime.remote)
    assert "the service no longer has it" in stack("sandbox", "resume", session).err
    stack.until_state(session, SessionState.ENDED)
    assert 0 == stack("restart", "worker").code
    stack.turn(session, THREE)

    now = stack.session(session)
    assert (before.resume_id, 2) == (now.resume_id, now.generation)
    assert {ONE, TWO} <= set(stack.heard(THREE))
