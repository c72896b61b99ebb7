"""Start the scripted agent in this terminal; the screen is there before the rest of it is imported."""

import sys

from kasmon.scripted.arguments import USAGE, Unusable, read
from kasmon.scripted.tty import Terminal

HUNG_UP = 129
"""The exit code where the terminal went away, as if by SIGHUP."""


def main(argv: list[str]) -> int:
    """Run with *argv*, the program's name left out; return the exit code, or die by the signal that a script names."""
    try:
        wanted = read(argv)
    except Unusable as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if wanted is None:
        sys.stdout.write(USAGE)
        return 0
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        sys.stderr.write("The scripted agent has a screen of its own and needs a terminal; this is none.\n")
        return 2
    with Terminal() as terminal:
        terminal.greet()
        from kasmon.scripted.program import Program  # only now: a person should not wait for it before a screen

        return Program(terminal, wanted).run()
    return HUNG_UP


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
