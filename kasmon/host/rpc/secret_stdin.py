"""What a host gets from its starter that no process list shows: variables, in an unlinked file in place of its stdin.

Anybody of the same user, any agent among them, can read the environment that a process was started with, as long as it
lives. So a host starts with what it needs itself; its agent's variables it only keeps in its memory.
"""

import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from typing import IO

from kasmon.backends.common.environment import decoded, encoded
from kasmon.paths import Paths


def handed(places: Paths, variables: Mapping[str, str]) -> IO[bytes]:
    """A file without a name that holds *variables*, to be the stdin of a host.

    Raises:
        OSError: if it cannot be written.
    """
    file = tempfile.TemporaryFile(dir=places.runtime)  # noqa: SIM115 - the host reads it after us
    file.write(encoded(variables))
    file.seek(0)
    return file


def take() -> None:
    """Make what was handed to this process part of `os.environ`; stdin is empty then. Nothing where nothing was."""
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
