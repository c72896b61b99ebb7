"""Atomic writing of a file: the old content stays until the new one is complete."""

import contextlib
import os

FLAGS = os.O_WRONLY | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write(path: str, data: bytes, mode: int) -> None:
    """Write *data* to *path* with *mode*; absent folders are created with mode 0700.

    Raises:
        OSError: if that fails; the file at *path* is unchanged then.
    """
    folder = os.path.dirname(path) or "."  # noqa: PTH120
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    new = f"{path}.{os.urandom(4).hex()}"
    try:
        with open(os.open(new, FLAGS | os.O_CREAT, 0o600), "wb") as file:  # noqa: PTH123
            file.write(data)
            os.fchmod(file.fileno(), mode)
        os.replace(new, path)  # noqa: PTH105
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new)  # noqa: PTH108
        raise
