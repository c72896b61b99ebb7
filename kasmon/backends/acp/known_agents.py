"""What is known of some agents beyond the protocol: how to log in, and their quirks.

An agent that is not in the table gets none of its own variables except those of `--env`, and is expected to follow the
protocol. The quirks were observed with opencode 1.18.33 and gemini 0.61.0.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from kasmon.backends.common.environment import program_of


class Quirk(StrEnum):
    """A behaviour of an agent that the protocol does not specify."""

    COMMAND_AS_TITLE = "command as title"
    """A shell call has no input; its title is the whole command, its text the folder and a description."""
    NAMED_CALLS = "named calls"
    """The id of a call begins with its tool's name."""
    MODE_IN_TEXT = "mode in text"
    """A mode change is reported as a message of the agent."""
    QUOTA = "quota"
    """The usage of a turn is in the answer's `_meta.quota`."""
    LAST_CALL_ONLY = "last call only"
    """`usage` in an answer is that of the turn's last model call, so it gives no total."""
    TWIN_FILES = "twin files"
    """Resuming a conversation can destroy it: see `gemini_quirks`."""


class KnownAgent(msgspec.Struct, frozen=True, kw_only=True):
    variables: dict[str, str] = {}
    """Variables that kasmon sets for it."""
    log_in: str = ""
    """How the user logs in, as a sentence."""
    habits: frozenset[Quirk] = frozenset()


AGENTS: Final = {
    "opencode": KnownAgent(
        log_in="Run `opencode auth login` in a terminal, or pass its provider's key with `--env`.",
        habits=frozenset({Quirk.LAST_CALL_ONLY}),
    ),
    "gemini": KnownAgent(
        variables={"GEMINI_CLI_NO_RELAUNCH": "true"},  # else it runs in a second process, whose end is not visible
        log_in="Run `gemini` in a terminal and log in, or set GEMINI_API_KEY (`--env GEMINI_API_KEY`).",
        habits=frozenset(
            {Quirk.COMMAND_AS_TITLE, Quirk.NAMED_CALLS, Quirk.MODE_IN_TEXT, Quirk.QUOTA, Quirk.TWIN_FILES}
        ),
    ),
}
STRANGER: Final = KnownAgent(log_in="Log in to it in a terminal, or pass its key with `--env`.")


def find_agent(argv: Sequence[str]) -> KnownAgent:
    return AGENTS.get(program_of(argv), STRANGER)


def find_by_name(name: str) -> KnownAgent | None:
    """Return what is known of the agent that introduces itself as *name*; None if nothing."""
    return AGENTS.get(program_of([name]))
