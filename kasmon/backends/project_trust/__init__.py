"""Check whether an agent may run what a project folder contains: its hooks, servers and commands.

In a terminal the agent asks the user itself and stores the answer. Over its protocol the user is not asked: claude
runs a project's hooks and MCP servers in any folder; gemini 0.61 silently omits them. So a structured agent does not
start in a folder that its user has not trusted, if the project has something that could run. A folder without such
things needs no trust. Trust is read from the agent's own files and never written.

Codex needs no check: it loads a project's config only in trusted folders and reports that. opencode has no trust.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kasmon.backends.common.environment import program_of
from kasmon.errors import UntrustedFolderError
from kasmon.sanitize import clean_line

if TYPE_CHECKING:
    from kasmon.backends.project_trust.project_files import UntrustedProject

AGENTS: Final = frozenset({"claude", "gemini"})
"""The agents that need a check."""
NAMED: Final = 6
"""How many of the things that would run are named; the rest are counted."""
LONGEST: Final = 120
"""Maximum characters of each name."""


def check(backend: str, argv: Sequence[str], workdir: str, variables: Mapping[str, str]) -> None:
    """Refuse a folder in which an agent would run what its user has not trusted. Reads files; writes nothing.

    Args:
        backend: the backend of the agent; if it supports several agents, the program identifies the agent.
        variables: the agent's whole environment, or at least HOME and its own variables.

    Raises:
        UntrustedFolderError: it names the folder, what could run, and how to trust it.
    """
    agent = backend if backend in AGENTS else program_of(argv)
    project = _find_untrusted(agent, argv[1:], workdir, variables)
    if project is not None:
        things = [clean_line(thing)[:LONGEST] for thing in project.things[:NAMED]]
        more = len(project.things) - len(things)
        what = ", ".join(things) + (f" and {more} more" if more else "")
        raise UntrustedFolderError(agent, project.folder, what, project.fix)


def _find_untrusted(
    agent: str, flags: Sequence[str], workdir: str, variables: Mapping[str, str]
) -> "UntrustedProject | None":
    """Return what *agent* would run in *workdir* without trust. The module of each agent is loaded for it alone."""
    match agent:
        case "claude":
            from kasmon.backends.project_trust import claude

            return claude.find_untrusted(flags, workdir, variables)
        case "gemini":
            from kasmon.backends.project_trust import gemini

            return gemini.find_untrusted(flags, workdir, variables)
    return None
