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
def test_each_agent_goes_on_by_its_own_means(program: str, argv: tuple[str, ...]) -> None:
    assert argv == add_conversation(program, (program, "--model", "opus"), TALK)


def test_for_other_programs_nobody_knows_how() -> None:
    assert add_conversation("vim", ("vim",), TALK) is None


@pytest.mark.parametrize("program", ["claude", "codex", "opencode", "gemini"])
def test_one_that_went_on_before_goes_on_with_the_newest_conversation_alone(program: str) -> None:
    argv = (program, "--model", "opus")
    before = add_conversation(program, argv, OTHER)
    assert before is not None

    assert add_conversation(program, argv, TALK) == add_conversation(
        program, remove_conversation(program, before, OTHER), TALK
    )
