"""Commands for a user's tmux client: a message after attaching, and the clipboard of its terminal."""

from collections.abc import Sequence
from typing import Final

from kasmon.tmux.quoting import escape_format

COPY_STDIN: Final = ("tmux", "load-buffer", "-w", "-")
"""Makes its stdin the newest tmux buffer, and the clipboard of the terminal that tmux runs in."""
SHOWN_MS: Final = 3000
"""How long the message is shown, in milliseconds. A key ends it earlier, and still reaches the program."""


def attach_with_message(argv: Sequence[str], text: str) -> list[str]:
    """Extend *argv*, which attaches a terminal, so that tmux then shows *text*; *text* is not read as a format."""
    return [*argv, ";", "display-message", "-d", str(SHOWN_MS), escape_format(text)]
