"""Background sessions of the real claude: listed, shown in a terminal in their state, answered, and left running."""

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from tests.support.agents.full_stack import LIMIT_S, Stack, beside, killed, stacked
from tests.support.agents.real_agent import family
from tests.support.wait import until

pytestmark = pytest.mark.agents
stub = pytest.fixture(beside)
S = SessionState


@pytest.fixture
def stack(stack_of_claude: Stack) -> Iterator[Stack]:
    """At the end claude's own service is ended too; it would go on."""
    yield stack_of_claude
    killed(*family(stack_of_claude.agent.home))


stack_of_claude = pytest.fixture(stacked)


def background(stack: Stack, prompt: str) -> str:
    """Start a background session with *prompt*; its id."""
    done = subprocess.run(
        [stack.agent.program, "--bg", "--permission-mode", "default", prompt],
        env={**stack.variables, "IS_SANDBOX": "1"},
        cwd=stack.agent.workdir,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    return next(line.split("·")[1].strip() for line in done.stdout.splitlines() if line.startswith("backgrounded"))


def activity(stack: Stack, id_: str) -> str:
    listed = {each["id"]: each for each in stack.json("ls", "--background")["background"]}
    found = listed.get(id_, {})
    return str(found.get("status") or found.get("state"))


def worker_of(stack: Stack, id_: str) -> int:
    """The process of a background session."""
    listed = stack.json("ls", "--background")["background"]
    return next(int(each["pid"]) for each in listed if each["id"] == id_)


def asked(stack: Stack, session: SessionId, text: str) -> Any:
    """The request of *session*, once it shows *text*; its registry reports it first, without any."""
    request = stack.asked(session)
    return request if text in request["shown"] else None


@pytest.mark.parametrize("name", ["claude"])
def test_a_background_session_is_listed_adopted_answered_and_released(name: str, stack: Stack) -> None:
    id_ = background(stack, "go %% bash touch made.txt %% say done")
    until(lambda: activity(stack, id_) == "waiting", LIMIT_S, "its request in the list")
    assert id_ in stack("ls", "--background").out

    adopted = stack("adopt", "--background", id_, "--name", "mine")
    assert 0 == adopted.code, adopted.err
    session = SessionId(adopted.out.strip())

    stack.until_state(session, S.ASKING)
    request = until(lambda: asked(stack, session, "touch made.txt"), LIMIT_S, "the request as its screen shows it")
    assert {"registry", "screen"} <= {signal.source for signal in stack.session(session).signals}
    assert 0 == stack.answer(request, "allow").code
    stack.until_state(session, S.IDLE)
    assert (stack.agent.workdir / "made.txt").exists()
    assert not stack.session(session).resume_id

    stack.turn_in_terminal(session, "go %% say two")
    stack.until_state(session, S.IDLE)
    worker = worker_of(stack, id_)
    assert 0 == stack("stop", session).code
    stack.until_state(session, S.ENDED)

    assert psutil.pid_exists(worker)
    assert "idle" == activity(stack, id_)
    assert 0 == stack("restart", session).code
    stack.until_state(session, S.IDLE)
    assert 0 == stack("stop", session).code


@pytest.mark.parametrize("name", ["claude"])
def test_a_background_session_whose_process_is_killed_shows_what_the_next_process_does(name: str, stack: Stack) -> None:
    """Claude Code's service starts it again; the killed one left its status."""
    id_ = background(stack, "go %% bash touch made.txt %% say done")
    until(lambda: activity(stack, id_) == "waiting", LIMIT_S, "its request in the list")
    session = SessionId(stack("adopt", "--background", id_).out.strip())
    stack.until_state(session, S.ASKING)

    os.kill(worker_of(stack, id_), signal.SIGKILL)
    stack.until_state(session, S.IDLE)

    assert not stack.session(session).requests
    assert 0 == stack("stop", session).code
