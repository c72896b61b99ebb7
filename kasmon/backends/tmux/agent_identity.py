"""In which version a command line runs an agent."""

import contextlib
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Final

from kasmon.backends.common.agent_version import TRIED, VERSION, advice, answer
from kasmon.backends.common.environment import program_of
from kasmon.launch import base_environment
from kasmon.model.agent_program import RUNNERS
from kasmon.sanitize import clean_line

VERSION_S: Final = 10.0
"""How long a program may take to print its version, in seconds."""


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
