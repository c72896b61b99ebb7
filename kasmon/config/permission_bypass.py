"""The arguments that make an agent skip permission requests, so that kasmon can mark its session."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kasmon.agents.catalog import find

BYPASSING: Final = (
    ("--dangerously-skip-permissions",),
    ("--dangerously-bypass-approvals-and-sandbox",),
    ("--dangerously-allow-all",),
    ("--yolo",),
    ("--permission-mode", "bypassPermissions"),
    ("--approval-mode", "yolo"),
    ("--ask-for-approval", "never"),
    ("-a", "never"),
)
"""Arguments that make some agent skip permissions; a pair may also be written with `=`."""


def is_bypassing(argv: Sequence[str]) -> bool:
    """Whether *argv*, a program and its arguments, makes an agent skip permissions."""
    program, arguments = Path(argv[0]).name if argv else "", tuple(argv[1:])
    start = find(program).start

    def has(flag: Sequence[str]) -> bool:
        return "=".join(flag) in arguments or any(
            arguments[at : at + len(flag)] == tuple(flag) for at in range(len(arguments))
        )

    if any(map(has, BYPASSING)) or any(has(line.split()) for line in start.bypass):
        return True
    return start.bypass_without is not None and not any(has(line.split()) for line in start.bypass_without)
