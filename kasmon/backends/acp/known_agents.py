"""What is known of some agents beyond the protocol: their variables, how to log in, and their quirks.

An agent that is not in the table gets none of its own variables except those of `--env`, and is expected to follow the
protocol. The quirks were observed with opencode 1.18.33 and gemini 0.61.0.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import PurePath
from typing import Final

import msgspec


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
    own: tuple[str, ...] = ()
    """Name prefixes of its own variables."""
    variables: dict[str, str] = {}
    """Variables that kasmon sets for it."""
    log_in: str = ""
    """How the user logs in, as a sentence."""
    habits: frozenset[Quirk] = frozenset()


PROVIDERS: Final = (
    "ANTHROPIC_", "CEREBRAS_", "DEEPSEEK_", "FIREWORKS_", "GEMINI_", "GOOGLE_", "GROQ_", "MISTRAL_", "MOONSHOT_",
    "OPENAI_", "OPENROUTER_", "TOGETHER_", "XAI_", "ZAI_",
)  # fmt: skip
"""Name prefixes of the variables of model providers, for an agent that supports any of them."""
AGENTS: Final = {
    "opencode": KnownAgent(
        own=("OPENCODE_", *PROVIDERS),
        log_in="Run `opencode auth login` in a terminal, or pass its provider's key with `--env`.",
        habits=frozenset({Quirk.LAST_CALL_ONLY}),
    ),
    "gemini": KnownAgent(
        own=("GEMINI_", "GOOGLE_"),
        variables={"GEMINI_CLI_NO_RELAUNCH": "true"},  # else it runs in a second process, whose end is not visible
        log_in="Run `gemini` in a terminal and log in, or set GEMINI_API_KEY (`--env GEMINI_API_KEY`).",
        habits=frozenset(
            {Quirk.COMMAND_AS_TITLE, Quirk.NAMED_CALLS, Quirk.MODE_IN_TEXT, Quirk.QUOTA, Quirk.TWIN_FILES}
        ),
    ),
}
STRANGER: Final = KnownAgent(log_in="Log in to it in a terminal, or pass its key with `--env`.")
ALIASES: Final = {"gemini-cli": "gemini", "opencode-ai": "opencode"}
RUNNERS: Final = frozenset({"bun", "bunx", "node", "npx"})


def find_agent(argv: Sequence[str]) -> KnownAgent:
    return find_by_name(name_of(argv)) or STRANGER


def find_by_name(name: str) -> KnownAgent | None:
    """Return what is known of the agent called *name*, by its program or its handshake; None if nothing."""
    name = name.lower()
    return AGENTS.get(ALIASES.get(name, name))


def name_of(argv: Sequence[str]) -> str:
    """Return the program's name in *argv*, without folder and extension; behind a runner, that of what it runs."""
    words = [PurePath(word).name for word in argv if not word.startswith("-")]
    names = [word.removesuffix(".exe").removesuffix(".js") for word in words]
    if names and names[0] in RUNNERS:
        names = names[1:]
    return names[0] if names else ""
