"""All commands: the name of each with its function, and how it is called.

A command loads only the module of its function, and cyclopts only for help, errors and unusual spellings.
"""

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Final

from kasmon.cli.arguments import parse
from kasmon.cli.output.console import guarded
from kasmon.errors import UsageError

COMMANDS: Final = {
    "new": "options.sessions:new",
    "adopt": "options.sessions:adopt",
    "restart": "options.sessions:restart",
    "move": "options.sessions:move",
    "rename": "options.sessions:rename",
    "mark": "options.sessions:mark",
    "stop": "options.sessions:stop",
    "rm": "options.sessions:rm",
    "ls": "options.look:ls",
    "show": "options.look:show",
    "read": "options.look:read",
    "wait": "options.look:wait",
    "explain": "options.look:explain",
    "grep": "options.look:grep",
    "export": "options.look:export",
    "send": "options.talk:send",
    "interrupt": "options.talk:interrupt",
    "fg": "options.talk:fg",
    "inbox": "options.talk:inbox",
    "answer": "options.talk:answer",
    "rules": "options.talk:rules",
    "ctx": "options.talk:ctx",
    "tell": "options.talk:tell_peer",
    "attach": "options.kasmon:attach",
    "demo": "options.kasmon:demo",
    "config": "options.kasmon:config",
    "trust": "options.kasmon:trust",
    "doctor": "options.kasmon:doctor",
    "bench": "options.kasmon:bench",
    "mcp": "options.kasmon:mcp",
    "web": "options.kasmon:web",
    "recover": "options.plan:recover",
    "plan init": "options.plan:init",
    "plan check": "options.plan:check",
    "plan show": "options.plan:show_plan",
    "plan run": "options.plan:run_plan",
    "plan ls": "options.plan:list_plans",
    "plan pause": "options.plan:pause",
    "plan resume": "options.plan:resume",
    "plan advance": "options.plan:advance",
    "plan abort": "options.plan:abort",
    "plan accept": "options.plan:accept",
    "plan retry": "options.plan:retry",
    "plan skip": "options.plan:skip",
    "plan replace": "options.plan:replace",
    "plan diff": "options.plan:diff",
    "plan apply": "options.plan:apply",
    "plan clean": "options.plan:clean",
    "sandbox create": "options.sandbox:create",
    "sandbox image build": "options.sandbox:build",
    "sandbox run": "options.sandbox:run",
    "sandbox ls": "options.sandbox:list_all",
    "sandbox show": "options.sandbox:show",
    "sandbox pause": "options.sandbox:pause",
    "sandbox resume": "options.sandbox:resume",
    "sandbox checkpoint": "options.sandbox:checkpoint",
    "sandbox checkpoints": "options.sandbox:checkpoints",
    "sandbox restore": "options.sandbox:restore",
    "sandbox fork": "options.sandbox:fork",
    "sandbox diff": "options.sandbox:diff",
    "sandbox replay": "options.sandbox:replay",
    "sandbox allow": "options.sandbox:allow",
    "sandbox forward": "options.sandbox:forward",
    "sandbox rm": "options.sandbox:rm",
    "completion": "app:completion",
}
"""The words of a command, and the function in `kasmon.cli` that it calls. The function's docstring is its help."""
HELP: Final = "A live dashboard and runtime for many coding agents. Without a command, opens the dashboard."
GROUPS: Final = {
    "plan": "Check, show and run plans of several tasks, and decide what a plan needs.",
    "sandbox": "Run code in persistent sandboxes that pause when idle.",
    "sandbox image": "The image for virtual machines.",
}
"""The words of commands that have commands of their own, with their help."""
DEFAULT: Final = "dashboard:dashboard"
"""What `kasmon` alone calls."""
DEPTH: Final = max(name.count(" ") for name in COMMANDS) + 1


def load(function: str) -> FunctionType:
    """Return the *function* of `COMMANDS`, as `module:name`."""
    module, _, name = function.partition(":")
    command: FunctionType = getattr(import_module(f"kasmon.cli.{module}"), name)
    return command


def find(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the command that *arguments* begin with, and the arguments after it; an empty name if there is none."""
    for count in range(DEPTH, 0, -1):
        if (name := " ".join(arguments[:count])) in COMMANDS:
            return name, arguments[count:]
    return "", arguments


def run(arguments: Sequence[str]) -> int:
    """Execute *arguments* and return the exit code."""
    if arguments[:1] == ["__complete"]:  # the shell waits for this on a key press
        from kasmon.cli.completion import complete

        return complete(arguments[1:])
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return guarded(partial(_run, list(arguments)), wants_json="--json" in options)


def _run(arguments: list[str]) -> int | None:
    if arguments == ["--version"]:
        from kasmon import __version__

        print(f"kasmon {__version__}")
        return 0
    if arguments in (["--help"], ["-h"]):
        return _print_help()
    if arguments[:1] == ["ctx"]:
        from kasmon.cli.ctx import with_word

        arguments = with_word(arguments)
    name, words = find(arguments)
    if name or not arguments:
        command = load(COMMANDS[name] if name else DEFAULT)
        if (parsed := parse(command, words)) is not None:
            code: int | None = command(*parsed[0], **parsed[1])
            return code
    verb = next((word for word in arguments[:1] if not word.startswith("-")), "")
    if verb and verb not in (verbs := {name.partition(" ")[0] for name in COMMANDS}):
        from difflib import get_close_matches  # only for mistyped commands: the import is slow

        near = get_close_matches(verb, verbs, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else "See `kasmon --help`."
        raise UsageError(f"unknown command {verb!r}.", hint=hint)
    from kasmon.cli import app

    return app.run(arguments, verb)


def _print_help() -> int:
    """Print the list of commands; `make pages` writes it as cyclopts would, and a test compares the two."""
    from shutil import get_terminal_size
    from textwrap import fill

    width = get_terminal_size().columns
    for line in Path(__file__).with_name("help.txt").read_text("utf-8").splitlines():
        print(fill(line, width, subsequent_indent=line[:2].isspace() * " " * 4, break_on_hyphens=False))
    return 0
