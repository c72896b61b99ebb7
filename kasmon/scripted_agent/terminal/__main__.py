"""Starts the scripted agent in this terminal; it draws a first screen before it imports the rest."""

import sys

from kasmon.scripted_agent.terminal.arguments import USAGE, UnusableArguments, read
from kasmon.scripted_agent.terminal.tty import RawTerminal

HUNG_UP = 129
"""The exit code after the terminal is gone, as by SIGHUP."""


def main(argv: list[str]) -> int:
    """Run with *argv*, without the program's name; return the exit code, or die by the signal that a script names."""
    try:
        arguments = read(argv)
    except UnusableArguments as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if arguments is None:
        sys.stdout.write(USAGE)
        return 0
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        sys.stderr.write("The scripted agent draws a screen: its stdin and stdout must be a terminal.\n")
        return 2
    with RawTerminal() as terminal:
        terminal.greet()
        from kasmon.scripted_agent.terminal.program import (
            Program,  # a late import, so that the first screen appears without delay
        )

        return Program(terminal, arguments).run()
    return HUNG_UP


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
