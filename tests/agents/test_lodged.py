"""A real agent in gVisor and at a service: it goes on after it slept there, and by its own id after a rebuild."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.demo.scratch import clear
from kasmon.model.state import SessionState
from kasmon.paths import private_folder, write_private
from kasmon.sandbox.e2b import service as calls
from kasmon.sandbox.jail.tree import raze
from tests.agents.lodgings import ONE, THREE, TWO, begun, goes_on_from_disk, housed, is_rebuilt
from tests.agents.stack import Stack, beside, stacked
from tests.sandbox import gvisors
from tests.sandbox.e2b_stage import served
from tests.sandbox.required import need_gvisor, need_jail

pytestmark = [pytest.mark.agents, pytest.mark.timeout(200)]
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)


@pytest.fixture
def lodged(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """The stack, with an agent whose profile wants a gVisor sandbox."""
    if not (program := gvisors.named()):
        pytest.skip("Debian 13's runsc is not here, and Debian 12's does not run it: `make gvisor` gets it")
    for name, value in program.items():
        monkeypatch.setenv(name, value)
        stack.variables[name] = value
    need_gvisor()
    yield from housed(stack, "gvisor")


@pytest.fixture
def away(stack: Stack) -> Iterator[Stack]:
    """The stack, with an agent whose profile wants a sandbox at the service, whose template has its program."""
    need_jail()
    tools = Path(tempfile.mkdtemp(prefix="ks-", dir="/tmp"))
    tools.chmod(0o755)
    program = stack.agent.program.resolve()
    modules = next(each for each in program.parents if each.name == "node_modules")
    (tools / stack.agent.name).symlink_to(Path("/opt/agents") / program.relative_to(modules))
    private_folder(stack.places.config)
    write_private(stack.places.config_file, f'[agents.{stack.agent.name}]\nsandbox = "e2b"\n'.encode())
    with served({"/opt/agents": modules, "/usr/local/bin": tools}) as service:
        stack.variables |= service.access.variables()
        yield stack
        clear(stack.path)
    raze(tools)


@pytest.mark.parametrize("name", ["codex", "opencode"])
def test_it_goes_on_in_the_same_conversation_after_its_memory_was_on_disk_and_after_a_rebuild(lodged: Stack) -> None:
    session = begun(lodged)
    goes_on_from_disk(lodged, session)
    is_rebuilt(lodged, session)


@pytest.mark.parametrize("name", ["opencode"])
def test_at_a_service_it_goes_on_in_the_same_conversation_after_a_pause_and_once_that_has_it_no_more(
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
    assert before.housing is not None
    assert before.housing.runtime is not None
    access = calls.access(stack.variables)
    assert access is not None
    calls.killed(access, before.housing.runtime.remote)
    assert "the service has it no more" in stack("sandbox", "resume", session).err
    stack.until_state(session, SessionState.ENDED)
    assert 0 == stack("restart", "worker").code
    stack.turn(session, THREE)

    now = stack.session(session)
    assert (before.resume_id, 2) == (now.resume_id, now.generation)
    assert {ONE, TWO} <= set(stack.heard(THREE))


@pytest.mark.parametrize("name", ["claude"])
def test_one_that_was_handed_a_log_in_sleeps_in_memory_alone_and_goes_on_after_a_rebuild(lodged: Stack) -> None:
    stack = lodged
    session = begun(stack)

    refused = stack("sandbox", "pause", session, "--disk")
    assert (4, True) == (refused.code, "where no secret goes" in refused.err)
    assert 0 == stack("sandbox", "pause", session, "--hold").code
    stack.turn(session, TWO)

    assert 1 == stack.session(session).generation
    is_rebuilt(stack, session)
