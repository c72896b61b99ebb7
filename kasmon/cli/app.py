"""The command line application. Each command's docstring is its help and names what it calls.

`--help` changes nothing and starts nothing. What a command needs is imported when it is called.
"""

import io
import sys
import textwrap
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Literal

from cyclopts import App, CycloptsError
from cyclopts.help.formatters import PlainFormatter

from kasmon import __version__
from kasmon.cli.options import kasmon, look, plan, sandbox, sessions, talk
from kasmon.cli.output.console import guarded
from kasmon.errors import UsageError

ZSH_USE: Final = """
if [[ $funcstack[1] == _kasmon ]]; then
  _cyclopts_kasmon "$@"
else
  compdef _cyclopts_kasmon kasmon
fi
"""
"""Calls the function that the zsh script only defines: as `_kasmon` in a folder of `fpath`, or when sourced."""
COMPLETE: Final = "__complete"
"""The command that the completion scripts call; cyclopts implements it."""
UNWRAPPED: Final = 10_000
"""A width that no help text has."""
COMMANDS: Final = (
    *(
        sessions.new,
        sessions.adopt,
        sessions.restart,
        sessions.move,
        sessions.rename,
        sessions.mark,
        sessions.stop,
        sessions.rm,
    ),
    *(look.ls, look.show, look.read, look.wait, look.explain, look.grep, look.export),
    *(talk.send, talk.interrupt, talk.fg, talk.inbox, talk.answer, talk.rules, talk.ctx),
    *(kasmon.attach, kasmon.demo, kasmon.config, kasmon.trust, kasmon.doctor, kasmon.bench, kasmon.mcp, kasmon.web),
    *(plan.app, plan.recover),
    sandbox.app,
)
"""Each command has its function's name; `plan.app` and `sandbox.app` have commands of their own."""


class HelpFormatter(PlainFormatter):
    """Plain help whose entries are wrapped once. cyclopts wraps a description before it puts the name in front."""

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        """Print *panel* at the width of *console*, which is rich's: a library of cyclopts, not of kasmon."""
        wide = type(console)(file=io.StringIO(), width=UNWRAPPED)
        with wide.capture() as capture:
            super().__call__(wide, wide.options, panel)
        for line in capture.get().splitlines():
            text = textwrap.fill(line.rstrip(), console.width, subsequent_indent="    ", break_on_hyphens=False)
            console.print(text, highlight=False, markup=False, soft_wrap=True)


app = App(
    name="kasmon",
    help="A live dashboard and runtime for many coding agents. Without a command, opens the dashboard.",
    help_formatter=HelpFormatter(),
    version=f"kasmon {__version__}",
    version_flags=["--version"],
    result_action="return_value",
    exit_on_error=False,
    print_error=False,
    help_on_error=False,
)
app.default(kasmon.dashboard)
for _command in COMMANDS:
    app.command(_command)
app.command(talk.tell_peer, name="tell")


def run(arguments: Sequence[str]) -> int:
    """Execute *arguments* and return the exit code."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return guarded(partial(_run, list(arguments)), wants_json="--json" in options)


def _run(arguments: list[str]) -> int | None:
    verb = next((word for word in arguments[:1] if not word.startswith("-")), "")
    if verb and verb != COMPLETE and verb not in app:
        from difflib import get_close_matches  # only for mistyped commands: the import is slow

        near = get_close_matches(verb, app, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else "See `kasmon --help`."
        raise UsageError(f"unknown command {verb!r}.", hint=hint)
    if verb == "ctx":
        from kasmon.cli.ctx import with_word

        arguments = with_word(arguments)
    try:
        code: int | None = app(arguments)
    except CycloptsError as error:
        raise UsageError(" ".join(str(error).split()), hint=f"See `{f'kasmon {verb}'.strip()} --help`.") from error
    return code


@app.command
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the completion script of a shell: bash, zsh or fish."""
    sys.stdout.write(app.generate_completion(prog_name="kasmon", shell=shell) + (ZSH_USE if shell == "zsh" else ""))
