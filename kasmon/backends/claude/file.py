"""What a file holds that an agent wants to change: read only where that is safe and short."""

import os
import stat
from pathlib import Path
from typing import Final

LONGEST_BYTES: Final = 1 << 20


def held(path: str, workdir: str) -> str | None:
    """The text of the file at *path*, seen from *workdir*; empty where there is none.

    None where it is no text, too long, or not ours to read. Never waits: what is no plain file, such as a pipe, is not
    read.
    """
    if not path or "\0" in path:
        return None
    try:
        handle = os.open(Path(workdir) / path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return ""
    except OSError:
        return None
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > LONGEST_BYTES:
            return None
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(LONGEST_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        return None
    finally:
        os.close(handle)
