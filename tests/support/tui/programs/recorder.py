"""Writes every byte that is typed into it to a file; asks for pastes in brackets and, with `mouse`, for the mouse."""

import os
import sys
import tty
from pathlib import Path

if __name__ == "__main__":
    tty.setraw(0)
    with Path(sys.argv[1]).open("ab", buffering=0) as file:
        os.write(1, b"\x1b[?2004h" + (b"\x1b[?1003h\x1b[?1006h" if "mouse" in sys.argv[2:] else b"") + b"it records")
        while data := os.read(0, 65536):
            file.write(data)
