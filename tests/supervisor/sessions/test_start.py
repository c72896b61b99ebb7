"""Each agent in a terminal goes on with a conversation by its own means."""

import pytest

from kasmon.agents.catalog import find
from kasmon.supervisor.sessions.start import add_conversation, remove_conversation

TALK = "0a1b2c3d-1111-4222-8333-0123456789ab"
OTHER = "ffffffff-1111-4222-8333-0123456789ab"


@pytest.mark.parametrize(
    ("program", "argv"),
    [
        ("claude", ("claude", "--model", "opus", "--resume", TALK)),
        ("codex", ("codex", "resume", TALK, *find("codex").start.terminal, "--model", "opus")),
        ("opencode", ("opencode", "--model", "opus", "--session", TALK)),
        ("gemini", ("gemini", "--model", "opus", "--resume", TALK)),
    ],
)
def test_each_agent_is_resumed_by_its_own_arguments(program: str, argv: tuple[str, ...]) -> None:
    assert argv == add_conversation(program, (program, "--model", "opus"), TALK)


def test_other_programs_cannot_be_resumed() -> None:
    assert add_conversation("vim", ("vim",), TALK) is None


@pytest.mark.parametrize("program", ["claude", "codex", "opencode", "gemini"])
def test_a_session_that_was_resumed_before_continues_with_the_newest_conversation_alone(program: str) -> None:
    argv = (program, "--model", "opus")
    before = add_conversation(program, argv, OTHER)
    assert before is not None

    assert add_conversation(program, argv, TALK) == add_conversation(
        program, remove_conversation(program, before, OTHER), TALK
    )
