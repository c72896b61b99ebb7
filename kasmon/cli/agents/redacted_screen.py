"""Write a screen to a folder without secrets and personal names, as a recorded screen of an agent."""

import getpass
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from kasmon.detection.recorded_screen import write
from kasmon.detection.terminal_screen import TerminalScreen
from kasmon.sanitize import tokens


def write_screen(target: Path, text: str, shot: TerminalScreen, expected: Mapping[str, object]) -> None:
    """Write a recorded screen without secrets to the new folder *target*.

    Raises:
        RefusedError: if *target* has one.
        UnavailableError: if it cannot be written.
    """
    write(target, redacted(text), redacted(shot.title), shot, expected)


def redacted(text: str) -> str:
    """Return *text* without tokens and personal names; a personal name keeps its length, so rows stay aligned."""
    personal = {str(Path.home()), getpass.getuser(), socket.gethostname()}
    for word in sorted(personal, key=len, reverse=True):
        if len(word) > 2:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", "x" * len(word), text)
    return "\n".join(_without_tokens(row) for row in text.split("\n"))


def _without_tokens(row: str) -> str:
    for start, end in tokens(row):
        row = row[:start] + "x" * (end - start) + row[end:]
    return row
