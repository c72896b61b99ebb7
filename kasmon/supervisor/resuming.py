"""The command line with which an agent in a terminal goes on with a conversation that it had.

As claude 2.1.330, codex 0.169, opencode 1.18 and gemini 0.61 take it.
"""

from collections.abc import Sequence
from typing import Final

from kasmon.config.profile import ALONE

AFTER_FLAGS: Final = {"claude": "--resume", "opencode": "--session", "gemini": "--resume"}


def resuming(program: str, argv: Sequence[str], conversation: str) -> tuple[str, ...] | None:
    """*argv*, a program and its flags, with what makes it go on with *conversation*; None if it is not known how."""
    if program == "codex":
        alone = () if ALONE[program][1] in argv else ALONE[program]
        return (argv[0], "resume", conversation, *alone, *argv[1:])
    if program in AFTER_FLAGS:
        return (*argv, AFTER_FLAGS[program], conversation)
    return None


def resumed(program: str, argv: Sequence[str], before: str | None, conversation: str) -> tuple[str, ...] | None:
    """Like `resuming`, of an *argv* that may go on with the conversation *before* already."""
    if before and program == "codex" and tuple(argv[1:3]) == ("resume", before):
        argv = (argv[0], *argv[3:])
    elif before and tuple(argv[-2:]) == (AFTER_FLAGS.get(program), before):
        argv = argv[:-2]
    return resuming(program, argv, conversation)
