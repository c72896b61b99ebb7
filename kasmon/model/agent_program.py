"""Whether a session runs an agent that takes prompts, or a shell, an interpreter or a plain command. Pure.

A shell executes a prompt that is typed into it, so only positive evidence makes a session an agent.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from kasmon.model.commands import Launch, Mode

if TYPE_CHECKING:
    from kasmon.model.session import Session

SHELLS: Final = frozenset({"ash", "bash", "csh", "dash", "elvish", "fish", "ksh", "mksh", "nu", "sh", "tcsh", "zsh"})
INTERPRETERS: Final = frozenset(
    {
        *("bpython", "clisp", "duckdb", "elixir", "erl", "gdb", "ghci", "groovysh", "guile", "iex", "ipython", "irb"),
        *("jshell", "julia", "lua", "mongosh", "mysql", "perl", "php", "pry", "psql", "ptpython", "pwsh", "pypy"),
        *("python", "r", "redis-cli", "ruby", "scala", "sqlite", "tclsh", "xonsh"),
    }
)
RUNNERS: Final = frozenset({"bun", "bunx", "deno", "env", "node", "nodejs", "npx"})
"""Programs that run the program named after them; alone they are interpreters."""
SCRIPTED: Final = "kasmon.scripted"


def program_name(argv: Sequence[str]) -> str:
    """Return the name of the program that *argv* runs, in lower case and without its folder; empty if there is none."""
    if SCRIPTED in argv:
        return "scripted"
    names = [PurePath(word).name.lower() for word in argv if not word.startswith("-") and "=" not in word]
    while names and names[0] in RUNNERS:
        names = names[1:]
    return names[0].removesuffix(".exe").removesuffix(".js") if names else ""


def launched_program(launch: Launch) -> str:
    """Return the name of the program that *launch* runs; the scripted agent needs no program to run structured."""
    return program_name(launch.argv) or ("scripted" if launch.backend == "scripted" else "")


def is_interactive(program: str) -> bool:
    """Whether *program* executes its input: a shell or an interpreter, of any version (`python3.12`)."""
    return bool({program, program.rstrip("0123456789.-")} & (SHELLS | INTERPRETERS | RUNNERS))


def is_agent(session: "Session", profiles: Mapping[str, str]) -> bool:
    """Whether a prompt for *session* reaches an agent.

    A structured session is one. In a terminal, its program must be that of its own profile, or of one of its name.

    Args:
        profiles: profile name -> its program, of kasmon's own profiles too.
    """
    if session.mode is not Mode.TMUX:
        return session.mode is Mode.SDK
    program = session.program
    if not program or is_interactive(program):
        return False
    names = (session.agent.partition("@")[0], program)
    return program in [program_name([profiles.get(name, "")]) for name in names]
