"""All commands: the name of each with its function, and how it is called.

A command loads only the module of its function, and cyclopts only for help, errors and unusual spellings.
"""

import gc
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Final

from kasmon.cli.arguments import parse
from kasmon.cli.output.console import guarded
from kasmon.errors import OtherMachineError, UsageError

COMMANDS: Final = {
    "new": "sessions:new",
    "adopt": "sessions:adopt",
    "restart": "sessions:restart",
    "move": "sessions:move",
    "rename": "sessions:rename",
    "tag": "sessions:tag",
    "mark": "sessions:mark",
    "stop": "sessions:stop",
    "hibernate": "sessions:hibernate",
    "rm": "sessions:rm",
    "ls": "ls:ls",
    "top": "top:top",
    "show": "show:show",
    "read": "show:read",
    "wait": "ls:wait",
    "explain": "agents.explain:explain",
    "grep": "grep:grep",
    "export": "show:export",
    "send": "send:send",
    "diff": "worktree.diff:diff",
    "undo": "worktree.undo:undo",
    "hunks": "worktree.hunks:hunks",
    "comment": "worktree.comments:comment",
    "comments": "worktree.comments:comments",
    "finish": "worktree.finish:finish",
    "merge-plan": "worktree.merge_plan:merge_plan",
    "interrupt": "sessions:interrupt",
    "fg": "sessions:fg",
    "inbox": "show:inbox",
    "answer": "answer:answer",
    "rules": "rules:rules",
    "ctx": "ctx:ctx",
    "tell": "ctx:send_to_peer",
    "attach": "sessions:attach",
    "demo": "dashboard:demo",
    "worktrees": "worktree.worktrees:worktrees",
    "agents ls": "agents.commands:list_all",
    "agents show": "agents.commands:show",
    "agents test": "agents.commands:compare_screens",
    "agents update": "agents.registry:update",
    "agents add": "agents.commands:add",
    "agents record": "agents.record:record",
    "agents conversations": "agents.conversations:list_all",
    "limits ls": "limits.commands:list_all",
    "limits resume": "limits.resume:resume",
    "limits cancel": "limits.resume:cancel",
    "limits check": "limits.commands:check",
    "config": "config:config",
    "trust": "trust:trust",
    "notify test": "notify.commands:send_test",
    "doctor": "doctor.command:doctor",
    "bench": "dashboard:bench",
    "mcp": "mcp:mcp",
    "acp": "acp.command:acp",
    "web": "web.command:web",
    "web links": "web.links:list_all",
    "web links create": "web.links:create",
    "web links login": "web.links:login",
    "web links revoke": "web.links:revoke",
    "recover": "plan.recover:recover_all",
    "plan init": "plan.commands:init",
    "plan check": "plan.commands:check",
    "plan show": "plan.commands:show",
    "plan run": "plan.commands:run",
    "plan ls": "plan.commands:list_all",
    "plan pause": "plan.commands:pause",
    "plan resume": "plan.commands:resume",
    "plan advance": "plan.commands:advance",
    "plan abort": "plan.commands:abort",
    "plan accept": "plan.commands:accept",
    "plan retry": "plan.commands:retry",
    "plan skip": "plan.commands:skip",
    "plan replace": "plan.commands:replace",
    "plan diff": "plan.commands:diff",
    "plan apply": "plan.commands:apply",
    "plan clean": "plan.commands:clean",
    "sandbox create": "sandbox.commands:create",
    "sandbox image build": "sandbox.image:build",
    "sandbox run": "sandbox.run:run",
    "sandbox ls": "sandbox.show:list_all",
    "sandbox show": "sandbox.show:show",
    "sandbox pause": "sandbox.commands:pause",
    "sandbox resume": "sandbox.commands:resume",
    "sandbox checkpoint": "sandbox.commands:checkpoint",
    "sandbox checkpoints": "sandbox.commands:checkpoints",
    "sandbox restore": "sandbox.commands:restore",
    "sandbox fork": "sandbox.commands:fork",
    "sandbox diff": "sandbox.commands:diff",
    "sandbox replay": "sandbox.commands:replay",
    "sandbox allow": "sandbox.commands:allow",
    "sandbox forward": "sandbox.commands:forward",
    "sandbox rm": "sandbox.commands:rm",
    "machines ls": "machines.commands:list_all",
    "machines add": "machines.commands:add",
    "machines show": "machines.commands:show",
    "machines run": "machines.commands:run",
    "machines drain": "machines.commands:drain",
    "machines rm": "machines.commands:rm",
    "machines join": "cluster.commands:join",
    "machines orders": "cluster.commands:orders",
    "cluster init": "cluster.commands:init",
    "cluster up": "cluster.commands:start",
    "cluster leaf": "cluster.commands:leaf",
    "cluster serve": "cluster.commands:serve",
    "cluster down": "cluster.commands:stop",
    "cluster status": "cluster.commands:status",
    "cluster token": "cluster.commands:token",
    "cluster revoke": "cluster.commands:revoke",
    "cluster limit": "cluster.commands:limit",
    "bus": "machines.bus:bus",
    "task offer": "task.commands:offer",
    "task prepare": "task.work:prepare",
    "task add": "task.work:add",
    "task start": "task.work:start",
    "task check": "task.work:check",
    "task result": "task.work:result",
    "task fetch": "task.work:fetch",
    "task context": "task.work:context",
    "task end": "task.work:end",
    "completion": "app:completion",
}
"""The words of a command, and the function in `kasmon.cli` that it calls. The function's docstring is its help."""
HELP: Final = "A live dashboard and runtime for many coding agents. Without a command, opens the dashboard."
GROUPS: Final = {
    "agents": "The agents that kasmon knows: list, show, test, add and record them.",
    "plan": "Check, show and run plans of several tasks, and decide what a plan needs.",
    "cluster": "Run a NATS server that connects the machines of a team.",
    "limits": "Show the usage limits of accounts, and resume the sessions that wait for one.",
    "machines": "Show the sessions of other machines here, over ssh or a cluster.",
    "task": "Run tasks of another machine's plan here. Its kasmon uses these commands.",
    "notify": "Push notifications to services.",
    "sandbox": "Run code in persistent sandboxes that pause when idle.",
    "web": "",
    "web links": "",
    "sandbox image": "The image for virtual machines.",
}
"""The words of commands that have commands of their own, with their help; empty for a command's own."""
LISTED: Final = ("agents", "limits", "machines")
"""The groups that list what they have when they are called without a command."""
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
    return guarded(partial(_run_anywhere, list(arguments)), wants_json="--json" in options)


def _run_anywhere(arguments: list[str]) -> int | None:
    try:
        return call(arguments)
    except OtherMachineError as error:  # raised before anything was done
        from kasmon.cli.machines.delegation import run_there

        return run_there(arguments, error)


def call(arguments: list[str]) -> int | None:
    """Execute *arguments*, and return the exit code. Raises what the command raises."""
    if arguments == ["--version"]:
        from kasmon import __version__

        print(f"kasmon {__version__}")
        return 0
    if arguments in (["--version", "--json"], ["--json", "--version"]):
        from kasmon.cli.doctor.version import print_report

        return print_report()
    if arguments in (["--help"], ["-h"]):
        return _print_help()
    if arguments[:1] == ["ctx"]:
        from kasmon.cli.ctx import with_subcommand

        arguments = with_subcommand(arguments)
    if arguments and arguments[0] in LISTED and arguments[1:] in ([], ["--json"]):
        arguments.insert(1, "ls")
    name, command_arguments = find(arguments)
    if name or not arguments:
        command = load(COMMANDS[name] if name else DEFAULT)
        if (parsed := parse(command, command_arguments)) is not None:
            _enable_collector()
            code: int | None = command(*parsed[0], **parsed[1])
            return code
    verb = next((word for word in arguments[:1] if not word.startswith("-")), "")
    if verb and verb not in (verbs := {name.partition(" ")[0] for name in COMMANDS}):
        from difflib import get_close_matches  # only for mistyped commands: the import is slow

        near = get_close_matches(verb, verbs, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else "See `kasmon --help`."
        raise UsageError(f"unknown command {verb!r}.", hint=hint)
    from kasmon.cli import app

    _enable_collector()
    return app.run(arguments, verb)


def _enable_collector() -> None:
    """Enable the garbage collector, which is off while a command is loaded; it need not look at what was imported."""
    gc.freeze()
    gc.enable()


def _print_help() -> int:
    """Print the list of commands; `make pages` writes it as cyclopts would, and a test compares the two."""
    from shutil import get_terminal_size
    from textwrap import fill

    width = get_terminal_size().columns
    for line in Path(__file__).with_name("help.txt").read_text("utf-8").splitlines():
        print(fill(line, width, subsequent_indent=line[:2].isspace() * " " * 4, break_on_hyphens=False))
    return 0
