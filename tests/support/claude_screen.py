"""What Claude Code shows, printed by a shell: a message of its own above the box where a person types."""

from typing import Final

MESSAGE: Final = "\\033[H\\033[2J● {}\\n\\n──────────\\n❯ \\n──────────\\033[1A\\033[3G"
"""A format of `printf` for a screen with one message, the cursor in the box."""


def message(text: str) -> str:
    """The shell's command that shows *text*, which the shell expands, as the agent's last message."""
    return f'printf "{MESSAGE.format("%s")}" "{text}"'
