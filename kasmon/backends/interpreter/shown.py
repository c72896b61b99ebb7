"""What of one run's output is shown live, to whoever asked for it and to whoever watches."""

import asyncio
import threading
from collections.abc import Callable
from typing import Final, Self, TypeAlias

from kasmon.backends.base import Chunk
from kasmon.backends.interpreter.diary import Diary

SHOWN: Final = 64 * 1024
"""So many characters of one run's output are shown while it is written."""
SOON_S, LATE_S = 0.05, 0.25
"""How often that is shown, while there is more and while there is not."""

Output: TypeAlias = Callable[[str, str], None]


class Shown:
    """All of it to who asked, its beginning to who watches.

    A run that is over at once is not shown live at all: its end tells the same.
    """

    def __init__(self, diary: Diary, printed: Output | None) -> None:
        self._diary = diary
        self._printed = printed
        self._left = SHOWN
        self._lock = threading.Lock()
        self._waiting = ""
        self._pause_s = SOON_S
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._timer = asyncio.get_running_loop().call_later(SOON_S, self._show)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take(self, name: str, text: str) -> None:
        """*text* was written to the stream called *name*. From any thread."""
        if self._printed is not None:
            self._printed(name, text)
        with self._lock:
            self._waiting += text[: self._left]
            self._left -= min(self._left, len(text))

    def _show(self) -> None:
        with self._lock:
            text, self._waiting = self._waiting, ""
        if text:
            self._diary.show(Chunk(text=text))
        self._pause_s = SOON_S if text else min(self._pause_s * 2, LATE_S)
        self._timer = asyncio.get_running_loop().call_later(self._pause_s, self._show) if self._left else None
