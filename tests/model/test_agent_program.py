"""Which sessions take a prompt as agents, and which would execute it."""

from typing import Any

import pytest

from kasmon.model.agent_program import is_agent, program_name
from kasmon.model.commands import Launch, Mode
from kasmon.model.permission import SessionId
from kasmon.model.session import created

PROFILES = {
    "claude": "claude",
    "scripted": "scripted",
    "shell": "",
    "goose": "/opt/goose",
    "repl": "python3",
    "box": "bash",
}


def runs(agent: str, *argv: str, mode: Mode = Mode.TMUX, **fields: Any) -> bool:
    base: dict[str, Any] = {"session": SessionId("a"), "name": "a", "agent": agent, "mode": mode, "backend": mode.value}
    return is_agent(created(Launch(argv=argv, **{**base, **fields}), 0.0), PROFILES)


@pytest.mark.parametrize(
    ("agent", "argv"),
    [
        ("claude", ("/usr/bin/claude",)),
        ("claude@host", ("claude", "--model", "x")),
        ("mine", ("node", "/opt/claude.js")),
        ("scripted", ("python3", "-P", "-m", "kasmon.scripted")),
        ("goose", ("/opt/goose", "session")),
    ],
)
def test_a_known_agent_and_the_program_of_its_own_profile_take_prompts(agent: str, argv: tuple[str, ...]) -> None:
    assert runs(agent, *argv)


@pytest.mark.parametrize(
    ("agent", "argv"),
    [
        ("shell", ("/bin/bash",)),
        ("shell", ("-zsh",)),
        ("shell@host", ()),
        ("python3.12", ("/usr/bin/python3.12",)),
        ("node", ("node",)),
        ("psql", ("psql", "shop")),
        ("sleep", ("sleep", "100")),
        ("vim", ("vim",)),
        ("claude", ("bash",)),
        ("claude", ("python3", "-i")),
        ("repl", ("/usr/bin/python3",)),
        ("box", ("/bin/bash",)),
        ("goose", ("/opt/other",)),
    ],
)
def test_shells_interpreters_and_plain_commands_do_not(agent: str, argv: tuple[str, ...]) -> None:
    assert not runs(agent, *argv)


def test_a_structured_session_and_the_scripted_agent_are_agents_and_a_sandbox_of_interpreters_is_none() -> None:
    """Its launch as a structured session names no program."""
    assert runs("claude", mode=Mode.SDK)
    assert not runs("interpreters", mode=Mode.INTERPRETER)
    assert runs("scripted", backend="scripted")


def test_a_runner_is_passed_over_for_what_it_runs() -> None:
    assert "claude" == program_name(["env", "A=1", "npx", "-y", "claude.js"])
    assert "" == program_name([])
