"""The file of a process log. Opening it does not load `logging`, which takes 4 ms."""

import os
from pathlib import Path
from typing import BinaryIO, Final

LOG_BYTES: Final = 1 << 20
"""A process log is restarted once it is longer than this."""


def open_log(path: Path) -> BinaryIO:
    """Open the log at *path* for appending, accessible to this user only; truncated if it was long.

    Raises:
        OSError: if it cannot be opened, or is a link.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if os.fstat(handle).st_size > LOG_BYTES:
        os.ftruncate(handle, 0)
    return os.fdopen(handle, "ab")
