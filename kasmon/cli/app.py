"""The commands as cyclopts shows, checks and completes them: for help, errors and what `arguments` does not parse.

`--help` changes nothing and starts nothing. What a command needs is imported when it is called.
"""

import io
import sys
import textwrap
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter, validators
from cyclopts.help.formatters import PlainFormatter

from kasmon import __version__
from kasmon.cli.arguments import Arg
from kasmon.cli.commands import COMMANDS, DEFAULT, GROUPS, HELP, load
from kasmon.errors import UsageError

ZSH_USE: Final = """
if [[ $funcstack[1] == _kasmon ]]; then
  _cyclopts_kasmon "$@"
else
  compdef _cyclopts_kasmon kasmon
fi
"""
"""Calls the function that the zsh script only defines: as `_kasmon` in a folder of `fpath`, or when sourced."""
UNWRAPPED: Final = 10_000
"""A width that no help text has."""


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


def build(verb: str = "") -> App:
    """Return the application with all commands, or with only those that begin with *verb*, which loads less."""
    app = App(
        name="kasmon",
        help=HELP,
        help_formatter=HelpFormatter(),
        version=f"kasmon {__version__}",
        version_flags=["--version"],
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        help_on_error=False,
    )
    app.default(_for_cyclopts(load(DEFAULT)))
    groups = {"": app}
    for name, text in GROUPS.items():
        if not verb or name.partition(" ")[0] == verb:
            above, _, last = name.rpartition(" ")
            groups[name] = App(name=last, help=text or None)
            groups[above].command(groups[name])
    for name, function in COMMANDS.items():
        if not verb or name.partition(" ")[0] == verb:
            above, _, last = name.rpartition(" ")
            if name in groups:
                groups[name].default(_for_cyclopts(load(function)))
            else:
                groups[above].command(_for_cyclopts(load(function)), name=last)
    return app


def _for_cyclopts(command: FunctionType) -> Callable[..., int | None]:
    """Return a copy of *command* that describes its arguments in cyclopts' own terms."""
    copy = FunctionType(command.__code__, command.__globals__, command.__name__, command.__defaults__)
    copy.__kwdefaults__, copy.__doc__, copy.__module__ = command.__kwdefaults__, command.__doc__, command.__module__
    copy.__annotations__ = {name: _hint(hint) for name, hint in command.__annotations__.items()}
    return copy


def _hint(hint: Any) -> Any:
    arg = hint.__metadata__[0] if get_origin(hint) is Annotated else Arg()
    number = validators.Number(gte=arg.at_least, lte=arg.at_most, gt=arg.above)
    parameter = Parameter(
        name=arg.flags or None,
        help=arg.help or None,
        negative=(),
        completer=(lambda context: ()) if arg.completer else None,  # `completion` answers instead
        allow_leading_hyphen=arg.hyphen,
        show=arg.is_shown,
        validator=number if (arg.at_least, arg.at_most, arg.above) != (None, None, None) else None,
    )
    return Annotated[get_args(hint)[0] if get_origin(hint) is Annotated else hint, parameter]


def run(arguments: Sequence[str], verb: str) -> int | None:
    """Execute *arguments*, whose command begins with *verb*. Raises `UsageError` if they are invalid."""
    try:
        code: int | None = build(verb)(list(arguments))
    except CycloptsError as error:
        command = " ".join(["kasmon", *(error.command_chain or ())])
        raise UsageError(_describe(error, command), hint=f"See `{command} --help`.") from error
    return code


def _describe(error: CycloptsError, command: str) -> str:
    if isinstance(error, MissingArgumentError) and error.argument:
        return f"{error.keyword} requires a value." if error.keyword else f"`{command}` requires {error.argument.name}."
    return " ".join(str(error).split())


def completion(shell: Annotated[Literal["bash", "zsh", "fish"], Arg("Shell that reads the script.")], /) -> None:
    """Print the completion script of a shell: bash, zsh or fish."""
    sys.stdout.write(build().generate_completion(prog_name="kasmon", shell=shell) + (ZSH_USE if shell == "zsh" else ""))
