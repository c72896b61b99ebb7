"""One writer at a time: a lock beside a file that every change replaces whole."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else who asks for the lock of *path*, a file beside it, has it meanwhile; waits until it is free.

    Raises:
        OSError: if the lock's file cannot be made or opened; its folder has to be there.
    """
    handle = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
