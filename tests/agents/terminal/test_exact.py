"""In focus a real agent's screen is shown, cell by cell, as tmux has it: at rest, with a prompt, and when it asks."""

import json
from typing import Final

import pytest

from tests.agents.terminal.test_evidence import CODEX
from tests.support.agents.full_stack import beside
from tests.support.agents.real_agent import RealAgent
from tests.support.wait import until
from tests.tui.terminal.test_exact import Inside, inside

pytestmark = [pytest.mark.agents, pytest.mark.timeout(240)]
stub = pytest.fixture(beside)
LIMIT_S: Final = 90.0
"""A net under an agent that hangs, no expectation."""


def shows(it: Inside, text: str) -> None:
    try:
        until(lambda: text in it.outer.screen, LIMIT_S, text)
    except TimeoutError:
        print(it.outer.screen)
        raise


def asks(it: Inside, ready: str, question: str, prompt: str = "go %% bash touch a.txt %% say done") -> None:
    """It is exact while it rests, with a prompt in its box, and with a question on its screen."""
    shows(it, ready)
    it.is_exact()
    it.outer.send(prompt.encode())
    shows(it, "say done")
    it.is_exact()

    def asked() -> bool:
        it.outer.send(b"\r")  # what has just begun does not hear the first one
        try:
            return until(lambda: question in it.outer.screen, 5.0, question)
        except TimeoutError:
            return False

    until(asked, LIMIT_S, question)
    it.is_exact()


def argv_of(agent: RealAgent, *flags: str) -> tuple[str, ...]:
    own = [f"{name}={value}" for name, value in agent.own.items()]
    return ("/usr/bin/env", *own, str(agent.program), *flags)


def test_claude(claude: RealAgent) -> None:
    argv = argv_of(claude, "--permission-mode", "default")
    with inside(*argv, workdir=str(claude.workdir)) as it:
        asks(it, "manual mode on", "Do you want to proceed?")


def test_codex(codex: RealAgent) -> None:
    command = {"cmd": "touch a.txt", "sandbox_permissions": "require_escalated", "justification": "it needs to"}
    with inside(*argv_of(codex, *CODEX), workdir=str(codex.workdir)) as it:
        asks(it, "Ask Codex", "Would you like to run", f"go %% tool exec_command {json.dumps(command)} %% say done")


def test_opencode(opencode: RealAgent) -> None:
    with inside(*argv_of(opencode), workdir=str(opencode.workdir)) as it:
        asks(it, "Ask anything", "Permission required")
