"""The conversations that a session's agent stores, in the user's home or in its sandbox's home."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from kasmon.backends.common.environment import given, inherited, own_prefixes, program_of
from kasmon.model.commands import Launch
from kasmon.paths import Paths
from kasmon.supervisor.recovery import claude, codex, gemini, opencode
from kasmon.supervisor.recovery.conversation import StoredConversation
from kasmon.supervisor.sessions.conversation import home_of


def _claude(variables: Mapping[str, str], home: Path) -> Iterator[StoredConversation]:
    return claude.conversations(Path(variables.get("CLAUDE_CONFIG_DIR") or home / ".claude"))


def _codex(variables: Mapping[str, str], home: Path) -> Iterator[StoredConversation]:
    return codex.conversations(Path(variables.get("CODEX_HOME") or home / ".codex"))


def _gemini(variables: Mapping[str, str], home: Path) -> Iterator[StoredConversation]:
    return gemini.conversations(home / ".gemini")


def _opencode(variables: Mapping[str, str], home: Path) -> Iterator[StoredConversation]:
    return opencode.conversations(Path(variables.get("XDG_DATA_HOME") or home / ".local/share") / "opencode")


STORES: Final[Mapping[str, Callable[[Mapping[str, str], Path], Iterator[StoredConversation]]]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
}
"""Program -> its conversations, from its environment variables and home folder."""


def conversations(places: Paths, launch: Launch) -> list[StoredConversation] | None:
    """Return all conversations that the agent of *launch* stores; None if their format is unknown. Blocks."""
    read = STORES.get(program_of(launch.argv)) or STORES.get(launch.agent)
    if read is None:
        return None
    inside = home_of(places, launch)
    variables = given(places, launch.session)
    if inside is None:
        variables = inherited(own_prefixes(launch.argv), os.environ) | variables
    return list(read(variables, inside or Path(variables.get("HOME") or Path.home())))
