"""Start the scripted agent in this terminal; the screen is there before the rest of it is imported."""

import sys

from kasmon.scripted_agent.terminal.arguments import USAGE, UnusableArguments, read
from kasmon.scripted_agent.terminal.tty import RawTerminal

HUNG_UP = 129
"""The exit code where the terminal went away, as if by SIGHUP."""


def main(argv: list[str]) -> int:
    """Run with *argv*, the program's name left out; return the exit code, or die by the signal that a script names."""
    try:
        wanted = read(argv)
    except UnusableArguments as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if wanted is None:
        sys.stdout.write(USAGE)
        return 0
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        sys.stderr.write("The scripted agent draws a screen: its stdin and stdout must be a terminal.\n")
        return 2
    with RawTerminal() as terminal:
        terminal.greet()
        from kasmon.scripted_agent.terminal.program import (
            Program,  # only now: a person should not wait for it before a screen
        )

        return Program(terminal, wanted).run()
    return HUNG_UP


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
