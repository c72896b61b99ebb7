"""Whether an agent may run what a folder brings along: its project's hooks, servers and commands.

In a terminal an agent asks that itself, and keeps the answer. By protocol nobody is asked: claude 2.1.330 runs a
project's hooks and MCP servers in any folder, gemini 0.61 leaves them out without a word. So a structured agent does
not start in a folder that its user has not trusted, where the project has something that could run; a folder without
needs no trust. Trust is read where the agent keeps it, and never written.

Codex needs no check: it loads a project's config in trusted folders alone and says so. opencode knows no trust.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from kasmon.backends.common.environment import program_of
from kasmon.backends.project_trust import claude, gemini
from kasmon.errors import UntrustedFolderError
from kasmon.sanitize import clean_line

AGENTS: Final = {"claude": claude.doubt, "gemini": gemini.doubt}
NAMED: Final = 6
"""How many of the things that would run are named; the rest is counted."""
LONGEST: Final = 120
"""Characters of one of them."""


def check(backend: str, argv: Sequence[str], workdir: str, variables: Mapping[str, str]) -> None:
    """Refuse a folder in which an agent would run what its user has not trusted. Reads files; writes nothing.

    Args:
        backend: what speaks with the agent; of one that speaks with many, the program says which it is.
        argv: the agent's program and its flags, with those of its protocol.
        workdir: the folder that it is to work in.
        variables: the agent's whole environment, or at least HOME and its own variables.

    Raises:
        UntrustedFolderError: it names the folder, what could run, and how to trust it.
    """
    agent = backend if backend in AGENTS else program_of(argv)
    doubt = AGENTS[agent](argv[1:], workdir, variables) if agent in AGENTS else None
    if doubt is not None:
        things = [clean_line(thing)[:LONGEST] for thing in doubt.things[:NAMED]]
        more = len(doubt.things) - len(things)
        what = ", ".join(things) + (f" and {more} more" if more else "")
        raise UntrustedFolderError(agent, doubt.folder, what, doubt.fix)
