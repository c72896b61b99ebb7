"""The entry point of `kasmon` and `python -m kasmon`: fast paths first, the command-line library for the rest."""

import os
import sys
from collections.abc import MutableMapping, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` takes time to import, and the fastest paths do without it
    from kasmon.model.sandbox.policy import Interpreter

KEPT = ("TEXTUAL_THEME", "TEXTUAL_ANIMATIONS")
"""Textual's variables that may take effect; the others press keys, import code or open connections."""

DIGITS = 10
"""A number with this many digits is not meant seriously."""


def main() -> int:
    """Execute the command line and return the exit code."""
    forget_textual(os.environ)
    arguments = sys.argv[1:]
    open_standard_streams()
    if sys.stdout is None:
        from kasmon.cli.output.console import note

        note("cannot print: standard output is closed. Nothing was done; redirect it to a file or to /dev/null.")
        return 1
    if arguments[:1] == ["host"]:
        return host(arguments[1:])
    if arguments[:1] == ["ls"] and (wanted := plain_ls(arguments[1:])) is not None:
        from kasmon.cli.ls import ls
        from kasmon.cli.output.console import guarded

        states, wave, wants_json = wanted
        return guarded(lambda: ls(states, wave, wants_json=wants_json), wants_json=wants_json)
    if arguments[:1] == ["grep"] and (sought := plain_grep(arguments[1:])) is not None:
        from kasmon.cli.grep import grep
        from kasmon.cli.output.console import guarded

        words, most, ignores_case, wants_json = sought
        return guarded(
            lambda: grep(
                words,
                only=(),
                ignores_case=ignores_case,
                is_regex=False,
                context=1,
                most=most,
                wants_json=wants_json,
            ),
            wants_json=wants_json,
        )
    if arguments[:2] == ["sandbox", "run"] and (meant := plain_run(arguments[2:])) is not None:
        from kasmon.cli.output.console import guarded
        from kasmon.cli.sandbox.run import run as run_code

        name, code, interpreter, wants_json = meant
        return guarded(lambda: run_code(name, code, interpreter, None, wants_json=wants_json), wants_json=wants_json)
    if arguments[:1] == ["__complete"]:  # the shell waits for this on a key press
        from kasmon.cli.completion import answer

        if answer(arguments[1:]):
            return 0
    if arguments == ["mcp"]:  # an agent waits for this when it starts
        from kasmon.cli.mcp import mcp
        from kasmon.cli.output.console import guarded

        return guarded(mcp, wants_json=False)
    if not arguments:
        from kasmon.cli.dashboard import dashboard
        from kasmon.cli.output.console import guarded

        return guarded(dashboard, wants_json=False)
    from kasmon.cli.app import run

    return run(arguments)


def open_standard_streams() -> None:
    """Open /dev/null where stdin, stdout or stderr is closed, so that no file that kasmon opens gets its number.

    `sys.stdout` stays None where it is closed, so that no output is reported as printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")


def host(arguments: Sequence[str]) -> int:
    """Run a host process: for one structured session, for all tmux sessions, or for a plan."""
    if arguments[:1] == ["--plan"]:
        from kasmon.supervisor.plans import process as runner

        return runner.main(list(arguments[1:]))
    if list(arguments) == ["--tmux"]:
        from kasmon.host.terminal import host as terminals

        return terminals.main() or 0
    from kasmon.host.structured import host as process

    return process.main(list(arguments)) or 0


def plain_ls(arguments: Sequence[str]) -> tuple[str | None, int | None, bool] | None:
    """Return the states, wave and `--json` of a plainly written `ls`; None if the library has to parse it."""
    states: str | None = None
    wave: int | None = None
    wants_json = False
    rest = iter(arguments)
    for argument in rest:
        name, has_value, value = argument.partition("=")
        if argument == "--json":
            wants_json = True
            continue
        if name not in ("--state", "--wave"):
            return None
        value = value if has_value else next(rest, "")
        if name == "--state" and value and not value.startswith("-"):
            states = value
        elif name == "--wave" and value.isascii() and value.isdigit():
            wave = int(value)
        else:
            return None
    return states, wave, wants_json


def plain_grep(arguments: Sequence[str]) -> tuple[str, int | None, bool, bool] | None:
    """Return the text, `--max`, `-i` and `--json` of a plainly written `grep`; None if the library has to parse it."""
    words: list[str] = []
    most: int | None = None
    ignores_case = wants_json = False
    rest = iter(arguments)
    for argument in rest:
        name, has_value, value = argument.partition("=")
        if argument == "--json":
            wants_json = True
        elif argument in ("--ignore-case", "-i"):
            ignores_case = True
        elif name == "--max" or argument == "-m":
            value = value if has_value else next(rest, "")
            if most is not None or not (value.isascii() and value.isdigit() and len(value) < DIGITS):
                return None
            most = int(value)
        elif argument.startswith("-"):
            return None
        else:
            words.append(argument)
    return (words[0], most, ignores_case, wants_json) if len(words) == 1 else None


def plain_run(arguments: Sequence[str]) -> tuple[str, str, "Interpreter", bool] | None:
    """Return the arguments of a plainly written `sandbox run`; None if the library has to parse it."""
    words: list[str] = []
    interpreter: Interpreter = "bash"
    option = ""
    wants_json = False
    rest = iter(arguments)
    for argument in rest:
        name, has_value, value = argument.partition("=")
        if argument == "--json":
            wants_json = True
        elif name in ("--lang", "--env") and option in ("", name):  # `--env` is the old name
            option = name
            match value if has_value else next(rest, ""):
                case ("python" | "bash" | "node") as wanted:
                    interpreter = wanted
                case _:
                    return None
        elif argument and (argument == "-" or not argument.startswith("-")):
            words.append(argument)
        else:
            return None
    return (words[0], words[1], interpreter, wants_json) if len(words) == 2 and words[0] != "-" else None


def forget_textual(environment: MutableMapping[str, str]) -> None:
    """Drop Textual's variables, unless kasmon itself is being developed (`KASMON_DEV=1`)."""
    if environment.get("KASMON_DEV") != "1":
        for name in [name for name in environment if name.startswith("TEXTUAL_") or name == "TEXTUAL"]:
            if name not in KEPT:
                del environment[name]


if __name__ == "__main__":
    sys.exit(main())
