"""The variables that a host gets from its starter secretly, in an unlinked file in place of its stdin.

Every process of the same user, agents among them, can read the environment that a process was started with, as long as
it lives. So a host starts only with what it needs itself; its agent's variables are only in its memory.
"""

import contextlib
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from kasmon.backends.common.environment import decoded, encoded
from kasmon.paths import Paths


def handed(paths: Paths, variables: Mapping[str, str]) -> IO[bytes]:
    """Return an unnamed file that contains *variables*, to be the stdin of a host.

    Raises:
        OSError: if it cannot be written.
    """
    file = _open_unnamed_file(paths.runtime)
    file.write(encoded(variables))
    file.seek(0)
    return file


def _open_unnamed_file(folder: Path) -> IO[bytes]:
    if hasattr(os, "O_TMPFILE"):
        with contextlib.suppress(OSError):  # a file system that has none
            return os.fdopen(os.open(folder, os.O_RDWR | os.O_EXCL | os.O_TMPFILE, 0o600), "w+b")
    import tempfile  # rarely needed: it takes 4 ms to load

    return tempfile.TemporaryFile(dir=folder)


def load_environment() -> None:
    """Add the variables on stdin to `os.environ` and make stdin empty. No effect if stdin is no regular file."""
    try:
        if not stat.S_ISREG(os.fstat(0).st_mode):
            return
        with os.fdopen(os.dup(0), "rb") as file:
            os.environ.update(decoded(file.read()))
        nothing = os.open(os.devnull, os.O_RDONLY)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"the secrets for this host cannot be read from stdin: {error}\n")
        return
    os.dup2(nothing, 0)
    os.close(nothing)
