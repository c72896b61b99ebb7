"""What is known of some agents beyond the protocol: their variables, how one logs in, and their habits.

An agent that is not in the table gets none of its own variables but those of `--env`, and is taken at the protocol's
word. What the habits are was seen with opencode 1.18.33 and gemini 0.61.0.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import PurePath
from typing import Final

import msgspec


class Quirk(StrEnum):
    """Something that an agent does and the protocol does not say."""

    COMMAND_AS_TITLE = "command as title"
    """A shell call has no input; its title is the whole command, its text the folder and a description."""
    NAMED_CALLS = "named calls"
    """The id of a call begins with its tool's name."""
    MODE_IN_TEXT = "mode in text"
    """A changed mode is told as a message of the agent."""
    QUOTA = "quota"
    """What a turn used stands in the answer's `_meta.quota`."""
    LAST_CALL_ONLY = "last call only"
    """`usage` in an answer is that of the turn's last call of the model, so it adds up to nothing."""
    TWIN_FILES = "twin files"
    """Going on with a conversation endangers it: see `gemini`."""


class KnownAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One agent."""

    own: tuple[str, ...] = ()
    """How the names of its own variables begin."""
    variables: dict[str, str] = {}
    """What it is told beside them."""
    log_in: str = ""
    """How a person logs in, as a sentence."""
    habits: frozenset[Quirk] = frozenset()


PROVIDERS: Final = (
    "ANTHROPIC_", "CEREBRAS_", "DEEPSEEK_", "FIREWORKS_", "GEMINI_", "GOOGLE_", "GROQ_", "MISTRAL_", "MOONSHOT_",
    "OPENAI_", "OPENROUTER_", "TOGETHER_", "XAI_", "ZAI_",
)  # fmt: skip
"""How the variables of model providers begin, for an agent that takes any of them."""
AGENTS: Final = {
    "opencode": KnownAgent(
        own=("OPENCODE_", *PROVIDERS),
        log_in="Run `opencode auth login` in a terminal, or pass its provider's key with `--env`.",
        habits=frozenset({Quirk.LAST_CALL_ONLY}),
    ),
    "gemini": KnownAgent(
        own=("GEMINI_", "GOOGLE_"),
        variables={"GEMINI_CLI_NO_RELAUNCH": "true"},  # else a second process, whose end would not be seen
        log_in="Run `gemini` in a terminal and log in, or set GEMINI_API_KEY (`--env GEMINI_API_KEY`).",
        habits=frozenset(
            {Quirk.COMMAND_AS_TITLE, Quirk.NAMED_CALLS, Quirk.MODE_IN_TEXT, Quirk.QUOTA, Quirk.TWIN_FILES}
        ),
    ),
}
STRANGER: Final = KnownAgent(log_in="Log in to it in a terminal, or pass its key with `--env`.")
ALIASES: Final = {"gemini-cli": "gemini", "opencode-ai": "opencode"}
RUNNERS: Final = frozenset({"bun", "bunx", "node", "npx"})


def known(argv: Sequence[str]) -> KnownAgent:
    """What is known of the agent that *argv* runs."""
    return named(name_of(argv)) or STRANGER


def named(name: str) -> KnownAgent | None:
    """What is known of the agent that is called *name*, by its program or by its own introduction."""
    name = name.lower()
    return AGENTS.get(ALIASES.get(name, name))


def name_of(argv: Sequence[str]) -> str:
    """The program's name in *argv*, without its folder and ending; behind a runner, that of what it runs."""
    words = [PurePath(word).name for word in argv if not word.startswith("-")]
    names = [word.removesuffix(".exe").removesuffix(".js") for word in words]
    if names and names[0] in RUNNERS:
        names = names[1:]
    return names[0] if names else ""
