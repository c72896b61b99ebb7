"""A file lock for files that each change replaces whole: one writer at a time."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold the exclusive lock of *path*, a file beside it; wait until it is free.

    Raises:
        OSError: if the lock file cannot be created or opened; its folder must exist.
    """
    with _hold_lock(os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)):
        yield


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the exclusive lock of *folder* itself; wait until it is free. Raises `OSError` if there is none."""
    with _hold_lock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)):
        yield


@contextlib.contextmanager
def _hold_lock(handle: int) -> Iterator[None]:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
