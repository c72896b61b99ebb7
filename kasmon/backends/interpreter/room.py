"""Room on a sandbox's disk while code runs in it: what fills the disk further than it may is interrupted.

A folder of this machine has no quota that needs no root: so it is looked how much lies there, every few seconds. In
between more can be written. Where there is no turn nobody looks; what is full then lets nothing but bash run (`Runs`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from kasmon.backends.interpreter.life import Life
from kasmon.model.sandbox import MIB
from kasmon.sandbox.box import Box

LOOK_S: Final = 3.0
"""How often it is looked, in seconds; a look takes half a second at most."""


class Room:
    """The disk of one session's sandbox."""

    def __init__(self, box: Box, life: Life, interrupt: Callable[[], Awaitable[None]]) -> None:
        """*interrupt*: ends what runs, and keeps what can be kept."""
        self._box = box
        self._life = life
        self._interrupt = interrupt

    async def watch(self) -> None:
        """Look until the session ends. Bash that makes room is left alone: only what takes more is interrupted."""
        before: int | None = None
        while True:
            await asyncio.sleep(LOOK_S)
            if self._life.is_ending:
                return
            if not self._life.turns.is_running:
                before = None
                continue
            await self._life.measure()
            usage = self._box.journal.housing.usage
            if usage is None:
                continue
            is_growing, before = before is not None and usage.disk_bytes > before, usage.disk_bytes
            if usage.is_full and is_growing:
                before = None  # what is run next is not to blame for this
                of = f"{usage.disk_bytes // MIB} MiB of {usage.disk_allowed // MIB} MiB"
                self._box.journal.tell(
                    f"The disk of the sandbox is full, {of}: what ran was interrupted. Bash still runs, so that files"
                    " can be removed."
                )
                await self._interrupt()
