"""A real agent from the command line: `new`, `read`, `inbox`, `answer`, `show`, `rules`, and what it can be told."""

import json

import pytest

from kasmon.model.events import ReceiptChanged, RequestAnswered
from kasmon.model.session_state import SessionState
from tests.support.agents.full_stack import Stack, beside, gone, stacked
from tests.support.agents.real_agent import BACKENDS

pytestmark = pytest.mark.agents
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)
BOTH = pytest.mark.parametrize("name", ["claude", "codex"])


@pytest.mark.short
@pytest.mark.parametrize("name", BACKENDS)
def test_a_session_from_its_beginning_over_a_turn_that_the_provider_refuses_to_its_end(stack: Stack) -> None:
    """The refused turn is a failed receipt with the provider's words, and the next one is done."""
    stack.configure(*stack.agent.flags[1:])
    session = stack.new("worker", "go %% say the answer is 42")
    stack.turned(session)

    assert "the answer is 42" in stack("read", "worker").out
    shown = stack.json("show", "worker")["session"]
    assert (BACKENDS[stack.agent.name], "sdk") == (shown["backend"], shown["mode"])
    assert shown["resume_id"]
    assert any(shown["tokens"].values())
    assert stack.session(session).model
    assert shown["pid"] == stack.agent_of(session).pid != shown["host"]["pid"]

    done = stack("send", "worker", "-", "--wait", "idle", "--timeout", "40", "--json", given="go %% fail 400")
    assert 1 == done.code, done
    receipt = json.loads(done.out)["receipt"]
    assert ("failed", "text", True) == (receipt["state"], receipt["carried_by"], "stub failure" in receipt["reason"])
    assert "stub failure" in stack.session(session).turn_error
    again = stack.json("send", "worker", "go %% say well again", "--wait", "idle", "--timeout", "40")
    assert ("finished", "text") == (again["receipt"]["state"], again["receipt"]["carried_by"])
    assert "" == stack.session(session).turn_error

    family = [stack.agent_of(session), *stack.agent_of(session).children(recursive=True), stack.host_of(session)]

    done = stack("stop", "worker")
    assert 0 == done.code, done.err
    gone(*family)
    assert SessionState.ENDED is stack.session(session).state


@BOTH
def test_a_request_is_answered_from_the_command_line(stack: Stack) -> None:
    stack.configure(*stack.asking)
    session = stack.new("worker", "go %% bash touch yes.txt %% say one")
    work = stack.agent.workdir
    request = stack.asked()
    assert session == request["session"]
    assert "touch yes.txt" in request["shown"]
    assert not (work / "yes.txt").exists()
    assert 0 == stack.answer(request, "allow").code
    stack.turned(session)
    assert (work / "yes.txt").exists()

    stack("send", "worker", "go %% bash touch no.txt %% say two")
    denied = stack.answer(stack.asked(session), "deny", "--reason", "not on a Sunday")
    assert 0 == denied.code, denied.err
    stack.turned(session, 1)
    assert not (work / "no.txt").exists()
    assert stack.agent.name == "codex" or "not on a Sunday" in stack.stub.turns[-1]["results"][-1]

    stack("send", "worker", "go %% bash touch often.txt %% say three")
    request = stack.asked(session)
    assert "touch often.txt" in request["rule"]
    assert 0 == stack.answer(request, "always").code
    stack.turned(session, 2)
    [rule] = stack.json("rules")["rules"]
    (work / "often.txt").unlink()
    stack.turn(session, "go %% bash touch often.txt %% say four")
    assert (work / "often.txt").exists()

    stack("send", "worker", "go %% bash touch never.txt %% say five")
    assert 0 == stack.answer(stack.asked(session), "never").code
    stack.turned(session, 4)
    stack.turn(session, "go %% bash touch never.txt %% say six")
    assert not (work / "never.txt").exists()

    decided = [(fact.decision.value, fact.by) for fact in stack.facts(session, RequestAnswered)]
    by = ["user", "user", "user", "policy", "user", "policy"]
    assert list(zip(["allow", "deny", "always", "allow", "never", "deny"], by, strict=True)) == decided
    assert rule["id"] == stack.facts(session, RequestAnswered)[3].rule

    if stack.agent.name == "claude":  # codex takes no other command
        stack("send", "worker", "go %% bash touch its.txt %% say seven")
        edited = stack.answer(stack.asked(session), "edit", "--input", '{"command": "touch mine.txt"}')
        assert 0 == edited.code, edited.err
        stack.turned(session, 6)
        assert (True, False) == ((work / "mine.txt").exists(), (work / "its.txt").exists())


@BOTH
def test_a_prompt_sent_into_a_running_turn_is_shown_and_its_receipt_advances(stack: Stack) -> None:
    """At a command's end claude takes it in, codex at any time."""
    wait = 'import pathlib, time; [time.sleep(0.05) for _ in iter(pathlib.Path("go").exists, True)]'
    stack.configure(*stack.asking)
    session = stack.new("worker", f"go %% bash python3 -c '{wait}' %% say never")
    assert 0 == stack.answer(stack.asked(), "allow").code
    stack.until_state(session, SessionState.WORKING)
    done = stack("send", "worker", "--when", "now", "no, this %% say this")
    assert 0 == done.code, done.err
    (stack.agent.workdir / "go").touch()
    stack.turned(session, 1)

    text = stack("read", "worker").out
    assert text.index("❯ go") < text.index("❯ no, this %% say this") < text.index("── done")
    steps = [
        str(fact.receipt.state) for fact in stack.facts(session, ReceiptChanged) if "no, this" in fact.receipt.text
    ]
    assert ["typed", "submitted", "started", "finished"] == steps
