"""What is written to the terminal: each piece in one call of the system.

Python's own file hands a large piece over in several calls, and after each the writing thread waits up to 5 ms for its
turn behind the one that draws: 15 ms for a whole screen.
"""

import contextlib
import os
import select
from typing import TextIO


class Output:
    """Stands where Textual's writing thread has the file of the terminal. Not for two threads at once."""

    def __init__(self, file: TextIO) -> None:
        """What *file* still holds is written first. A letter that its encoding does not have becomes `?`."""
        file.flush()
        self._handle, self._encoding = file.fileno(), file.encoding

    def write(self, text: str) -> None:
        """Write *text*, all of it.

        Raises:
            OSError: if the terminal is gone.
        """
        left = memoryview(text.encode(self._encoding, "replace"))
        while left:
            written = 0
            with contextlib.suppress(BlockingIOError):  # whoever else has this terminal may have set it so
                written = os.write(self._handle, left)
            left = left[written:]
            if left and not written:
                select.select([], [self._handle], [])

    def flush(self) -> None:
        """Nothing is kept back."""

    def fileno(self) -> int:
        return self._handle

    def isatty(self) -> bool:
        return os.isatty(self._handle)
