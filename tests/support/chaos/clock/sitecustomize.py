"""The clock on the wall of a Python that has this folder on its path: as far off as $HOME/clock says, in seconds."""

import os
import time

_true = time.time
_FILE = os.path.join(os.environ.get("HOME", "/"), "clock")  # noqa: PTH118 - each start of Python pays for imports here
_read = (0, 0.0)


def _off() -> float:
    """How far; read anew where the file is another one than before."""
    global _read
    try:
        stamp = os.stat(_FILE).st_mtime_ns  # noqa: PTH116 - likewise
        if stamp != _read[0]:
            with open(_FILE) as file:  # noqa: PTH123 - likewise
                _read = (stamp, float(file.read() or 0))
    except (OSError, ValueError):
        return 0.0
    return _read[1]


def _now() -> float:
    return _true() + _off()


time.time = _now
