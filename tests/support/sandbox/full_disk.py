"""A disk that is full: files of this process do not grow; what it started before, and what is removed, is as ever."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def full_disk(left_bytes: int = 0) -> Iterator[None]:
    """No file may have more than *left_bytes* meanwhile: whoever writes more gets `OSError`."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
