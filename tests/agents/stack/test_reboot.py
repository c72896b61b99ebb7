"""After a reboot: the log names processes of another boot, nothing of kasmon runs, and its runtime folder is empty."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Final

import pytest

from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.process_identity import started_at
from tests.support.agents.full_stack import Stack, beside, killed, stacked

pytestmark = pytest.mark.agents
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)

OTHER_BOOT: Final = "00000000-1111-2222-3333-444444444444"


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with all this."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_after_a_reboot_the_agent_resumes_the_same_conversation(
    stack: Stack, bystander: subprocess.Popen[bytes]
) -> None:
    """What it asked is void, what it was told is remembered, and who has its process id now is left alone."""
    stack.configure(*stack.asking)
    first, asking, last = "go %% say one", "go %% bash touch no.txt %% say two", "go %% say three"
    session = stack.new("worker", first)
    before = stack.turned(session)
    stack("send", "worker", asking)
    request = stack.asked(session)
    reboot(stack, session, bystander)

    stack.until_state(session, SessionState.LOST)
    assert [] == stack.json("inbox")["requests"]
    late = stack.answer(request, "allow")
    assert 0 != late.code
    done = stack("restart", "worker")
    assert 0 == done.code, done.err
    now = stack.until_state(session, SessionState.IDLE)
    assert (before.resume_id, 2) == (now.resume_id, now.generation)
    assert " id" in now.proof
    stack.turn(session, last)
    assert [first, asking, last] == [said for said in stack.heard(last) if "%%" in said]
    assert [] == list(stack.agent.workdir.iterdir())
    assert bystander.poll() is None


def reboot(stack: Stack, session: SessionId, bystander: subprocess.Popen[bytes]) -> None:
    """All is as after a reboot in which *bystander* got the process id of the session's agent."""
    killed(stack.host_of(session), stack.agent_of(session))
    log = stack.paths.log(session)
    facts = [json.loads(line) for line in log.read_text().splitlines()]
    [started] = [fact for fact in facts if "pid_boot" in fact]
    started |= {"pid": bystander.pid, "pid_started": started_at(bystander.pid), "pid_boot": OTHER_BOOT}
    log.write_text("".join(f"{json.dumps(fact)}\n" for fact in facts))
    shutil.rmtree(stack.paths.runtime)
