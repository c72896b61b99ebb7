"""Parser for the arguments of `python -m kasmon.scripted`; without argparse, whose import takes as long as the rest."""

import math
from typing import NamedTuple

USAGE = """\
Usage: python -m kasmon.scripted [--seed N] [--speed X] [FILE | -c TEXT]

A scripted agent with a screen of its own. It plays FILE or TEXT, then whatever is typed: lines that begin with a verb
(say, think, tool, ask, edit, question, plan, slow, crash, ...) are done, anything else is answered with small talk.

  --seed N    what its pauses and its small talk are drawn from (0)
  --speed X   its pauses are divided by this; 0 means none (1)
"""


class UnusableArguments(Exception):  # noqa: N818 - a message for the user, not an error of the program
    """The command line is invalid."""


class Arguments(NamedTuple):
    """The parsed command line."""

    script: str = ""
    seed: int = 0
    speed: float = 1.0


def read(argv: list[str]) -> Arguments | None:
    """Parse *argv*; return None if it asks for help. Raises `UnusableArguments` with the message for the user."""
    arguments = Arguments()
    rest = list(argv)
    while rest:
        argument = rest.pop(0)
        if argument in ("-h", "--help"):
            return None
        if argument in ("--seed", "--speed", "-c"):
            if not rest:
                raise UnusableArguments(f"{argument!r} needs a value behind it.")
            arguments = _with(arguments, argument, rest.pop(0))
        elif argument.startswith("-"):
            raise UnusableArguments(f"there is no option {argument!r}. See --help.")
        else:
            arguments = arguments._replace(script=_file(argument))
    return arguments


def _with(arguments: Arguments, option: str, value: str) -> Arguments:
    if option == "-c":
        return arguments._replace(script=value)
    try:
        if option == "--seed":
            return arguments._replace(seed=int(value))
        speed = float(value)
    except ValueError:
        raise UnusableArguments(f"{option} {value!r} is not a number.") from None
    if not math.isfinite(speed) or speed < 0:
        raise UnusableArguments(f"--speed {value!r} is not 0 or more.")
    return arguments._replace(speed=speed)


def _file(path: str) -> str:
    from pathlib import Path

    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError as error:
        raise UnusableArguments(f"cannot read {path!r}: {error.strerror}.") from error
