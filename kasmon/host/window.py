"""The size of one pane's window: that of the client which focused it last, set not more often than makes sense."""

import asyncio
import math
from collections.abc import Callable
from typing import Final

from kasmon.backends.tmux import Line
from kasmon.errors import KasmonError
from kasmon.tmux import request as ask

GAP_S: Final = 0.1
"""A window that is being dragged larger and smaller is resized so often; its last size counts."""
LARGEST: Final = 1000


class Window:
    """The tmux window *window*; *on_resized* is called after each change of its size."""

    def __init__(self, line: Line, window: str, on_resized: Callable[[], None]) -> None:
        self.id = window
        self._line = line
        self._on_resized = on_resized
        self._loop = asyncio.get_running_loop()
        self._resized_at = -math.inf
        self._wanted = (0, 0)
        self._timer: asyncio.TimerHandle | None = None

    def resize(self, columns: int, rows: int) -> None:
        """Give it this size, now or soon. A size of nothing (a client that is hidden) is ignored."""
        if columns <= 0 or rows <= 0:
            return
        self._wanted = min(columns, LARGEST), min(rows, LARGEST)
        if self._timer is None:
            self._timer = self._loop.call_at(max(self._resized_at + GAP_S, self._loop.time()), self._resize)

    def close(self) -> None:
        """Resize it no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()

    def _resize(self) -> None:
        self._timer, self._resized_at = None, self._loop.time()
        self._line.submit(ask.resize(self.id, *self._wanted), self._resized)

    def _resized(self, _: KasmonError | None) -> None:
        self._on_resized()
