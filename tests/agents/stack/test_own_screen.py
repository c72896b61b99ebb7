"""Codex's own screen beside a structured session: both show one conversation, whoever prompts it and answers."""

import json

import pytest

from kasmon.model.events import MessageWritten, RequestWithdrawn, TurnStarted
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from tests.support.agents.full_stack import LIMIT_S, Stack, beside, stacked
from tests.support.cli.fork_server import KASMON
from tests.support.tui.outer_tmux import Tmux
from tests.support.wait import until

pytestmark = pytest.mark.agents
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)
CODEX = pytest.mark.parametrize("name", ["codex"])
ASKS = "Would you like to run"


class OwnScreen(Tmux):
    """`kasmon attach` of *session* in a terminal."""

    def __init__(self, stack: Stack, session: SessionId) -> None:
        super().__init__(stack.variables)
        self.start([*KASMON, "attach", session], 110, 34, "-g remain-on-exit on")

    def type(self, text: str) -> None:
        self.shows("Ask Codex")
        self("send-keys", "-t", "main", "-l", text)
        self.shows(text[:40])  # a long one is wrapped
        self("send-keys", "-t", "main", "Enter")

    @property
    def screen(self) -> str:
        return self("capture-pane", "-p", "-t", "main").decode()

    def shows(self, text: str) -> None:
        try:
            until(lambda: text in self.screen, LIMIT_S)
        except TimeoutError:
            raise AssertionError(f"no {text!r} on the screen:\n{self.screen}") from None

    def ended(self) -> None:
        until(lambda: self("display-message", "-p", "-t", "main", "#{pane_dead}").strip() == b"1", LIMIT_S, "its end")

    def gone(self, text: str) -> None:
        until(lambda: text not in self.screen, LIMIT_S, f"the end of {text!r}")


def prompts(stack: Stack, session: SessionId) -> list[tuple[str, str]]:
    return [(fact.prompt, fact.by) for fact in stack.facts(session, TurnStarted)]


def escalated(name: str) -> str:
    """A prompt for a command that asks without permission flags."""
    command = {"cmd": f"touch {name}", "sandbox_permissions": "require_escalated", "justification": "needs to"}
    return f"go %% tool exec_command {json.dumps(command)} %% say done"


@CODEX
def test_text_typed_in_codex_is_shown_in_kasmon_and_the_other_way_round(name: str, stack: Stack) -> None:
    session = stack.new("worker", "go %% say one")
    stack.turned(session)
    with OwnScreen(stack, session) as there:
        there.shows("one")
        stack.turn(session, "go %% say sent from kasmon")
        there.shows("sent from kasmon")
        before = stack.session(session).turns
        there.type("go %% say typed there")
        stack.turned(session, before)

        assert ("go %% say typed there", "user") == prompts(stack, session)[-1]
        assert "typed there" == stack.facts(session, MessageWritten)[-1].text
        there.type("/quit")
        there.ended()
    assert SessionState.IDLE is stack.session(session).state
    stack.turn(session, "go %% say still here")


@CODEX
def test_a_request_is_answered_in_kasmon_or_in_codex(name: str, stack: Stack) -> None:
    session = stack.new("worker", "go %% say one")
    stack.turned(session)
    with OwnScreen(stack, session) as there:
        before = stack.session(session).turns
        there.type(escalated("here.txt"))
        request = stack.asked(session)
        there.shows(ASKS)
        assert 0 == stack.answer(request, "allow").code
        stack.turned(session, before)
        there.gone(ASKS)
        assert (stack.agent.workdir / "here.txt").exists()

        before = stack.session(session).turns
        assert 0 == stack("send", session, escalated("there.txt")).code
        there.shows(ASKS)
        stack.asked(session)
        there("send-keys", "-t", "main", "y")
        stack.turned(session, before)

        assert (stack.agent.workdir / "there.txt").exists()
        assert stack.facts(session, RequestWithdrawn)
        assert () == tuple(stack.session(session).requests)


@CODEX
def test_a_session_with_permission_flags_is_refused(name: str, stack: Stack) -> None:
    """If this codex takes them for its screen (`codex resume --remote`), kasmon can pass them instead."""
    stack.configure(*stack.asking)
    session = stack.new("worker", "go %% say one")
    stack.turned(session)
    done = stack("attach", session)

    assert 4 == done.code
    assert "permission flags" in done.err
