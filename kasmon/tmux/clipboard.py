"""The clipboard of the person's own tmux, where kasmon runs inside one."""

from typing import Final

TAKE: Final = ("tmux", "load-buffer", "-w", "-")
"""Makes what stands on its stdin the newest buffer, and the clipboard of the terminal that tmux runs in."""
