"""The python interpreter's stdin, stdout and stderr: if code closes them, they are reopened for the next turn."""

import contextlib
import os
import sys
from typing import TextIO

_fstat, _write = os.fstat, os.write
NAMES = ("stdout", "stderr")


class PythonStreams:
    """Holds a duplicate of each output stream, which no child inherits."""

    def __init__(self) -> None:
        self._kept = [os.dup(1), os.dup(2)]
        for out in (sys.stdout, sys.stderr):
            out.reconfigure(errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]

    def mend(self) -> None:
        """Reopen streams that are closed or replaced; an open object that code assigned to `sys.stdout` stays."""
        if getattr(sys.stdin, "closed", True):  # `exit()` closes it
            if (nothing := os.open("/dev/null", os.O_RDONLY)) != 0:
                os.dup2(nothing, 0)
                os.close(nothing)
            sys.stdin = open(0, closefd=False)  # noqa: SIM115
        for number, (name, kept) in enumerate(zip(NAMES, self._kept, strict=True), 1):
            try:
                is_ours = os.path.samestat(_fstat(number), _fstat(kept))
            except OSError:
                is_ours = False
            if not is_ours:
                with contextlib.suppress(OSError):
                    os.dup2(kept, number)
            if getattr(getattr(sys, name, None), "closed", True):
                setattr(sys, name, self._text(number))

    def flush(self) -> None:
        """Flush stdout and stderr."""
        for out in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                out.flush()

    def write_stderr(self, data: bytes) -> None:
        """Write *data* to the original stderr, whatever code replaced it by."""
        with contextlib.suppress(OSError):
            _write(self._kept[1], data)

    def _text(self, number: int) -> TextIO:
        return open(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
