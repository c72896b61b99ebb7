"""The key that ends an agent's turn."""

import asyncio
from typing import Final

from kasmon.backends.tmux.input.pane_writer import PaneWriter
from kasmon.model.commands import Launch

CTRL_C, ESCAPE = b"\x03", b"\x1b"
STOPPED_BY_ESCAPE: Final = frozenset({"claude", "codex", "gemini", "opencode", "amp", "scripted"})
"""Agents that end a turn at Escape; Ctrl+C would end some of them entirely."""
STOPPED_BY_TWO: Final = frozenset({"opencode"})
"""Agents that need the key twice ("esc again to interrupt")."""
AGAIN_S: Final = 0.3


async def interrupt(launch: Launch, pane_writer: PaneWriter) -> None:
    """Press the key that ends the turn of the agent that *launch* describes.

    Raises:
        PaneDeadError, PasteRefusedError: if the pane accepts no key now.
    """
    key = interrupt_key(launch)
    await pane_writer.press(key)
    if key == ESCAPE and _profile(launch) in STOPPED_BY_TWO:
        await asyncio.sleep(AGAIN_S)
        await pane_writer.press(key)


def interrupt_key(launch: Launch) -> bytes:
    """Return the key that ends the agent's turn: its launch's, else the one for agents of this name."""
    named = {"ctrl-c": CTRL_C, "escape": ESCAPE}
    return named.get(launch.interrupt_key) or (ESCAPE if _profile(launch) in STOPPED_BY_ESCAPE else CTRL_C)


def _profile(launch: Launch) -> str:
    """Return the name of its profile, without the machine."""
    return launch.agent.partition("@")[0]
