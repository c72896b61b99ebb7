"""Which agent a command line runs, by the name of its detection file, and in which version."""

import contextlib
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Final

from kasmon.backends.common.agent_version import TRIED, VERSION, advice, answer
from kasmon.backends.common.environment import ALIASES, RUNNERS
from kasmon.launch import base_environment
from kasmon.model.agent_program import SHELLS
from kasmon.sanitize import clean_line

VERSION_S: Final = 10.0
"""How long a program may take to print its version, in seconds."""
SCRIPTED: Final = "kasmon.scripted"


def program_of(argv: Sequence[str], agent: str = "") -> str:
    """Return the agent that *argv* runs: its first word that is no runner (`node`, `env`); in a shell, *agent*."""
    if SCRIPTED in argv:
        return "scripted"
    words = [PurePath(word).name for word in argv if not word.startswith("-") and "=" not in word]
    agent = agent.partition("@")[0]  # on another machine the name is the same
    names = [word.removesuffix(".exe").removesuffix(".js").lower() for word in words]
    while names and names[0] in RUNNERS:
        names = names[1:]
    name = ALIASES.get(names[0], names[0]) if names else agent
    return agent if name in SHELLS and agent and agent != "shell" else name


def version_of(argv: Sequence[str]) -> str:
    """Return what the program of *argv* prints for `--version`; empty if it fails or is started by a runner. Blocks.

    A program is run once, and again when its file has changed.
    """
    if not argv or not argv[0].startswith("/") or PurePath(argv[0]).name in RUNNERS:
        return ""
    try:
        return _version(argv[0], Path(argv[0]).stat().st_mtime_ns)
    except OSError:
        return ""


def advised(argv: Sequence[str]) -> str:
    """Return advice on the version of the agent that *argv* runs; empty for an unknown one. Blocks."""
    agent = program_of(argv)
    version = VERSION.search(version_of(argv)) if agent in TRIED else None
    return advice(agent, version[0]) if version else ""


@lru_cache(maxsize=64)
def _version(program: str, _changed: int) -> str:
    with contextlib.suppress(OSError):
        variables = {**base_environment(dict(os.environ)), "TERM": "dumb", "NO_COLOR": "1"}
        output = answer((program, "--version"), "/", variables, VERSION_S)
        return clean_line(output[:400].decode("utf-8", "replace").strip().partition("\n")[0])[:80]
    return ""
