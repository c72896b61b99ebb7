"""Scanners of what a pane prints: reports of the Program Status Protocol (OSC 7501), and window titles. Sans-IO.

Agents show their state in both, titles some ten times a second. So both are read at once, without asking tmux.
`ESC ] 7501 ; state=… [:kind=…] [:msg=base64] … BEL`, keys and values after the number separated by `:` or `;`.
All other output is ignored.
"""

import base64
import binascii
from typing import Final

import msgspec

from kasmon.terminal_text.sequences import Grammar, SequenceScanner

_REPORTS: Final = Grammar((b"]7501;",), longest_bytes=4096)
STATES: Final = frozenset({"idle", "working", "done", "blocked", "error", "clear"})

_TITLES: Final = Grammar((b"]0;", b"]2;", b"k"), longest_bytes=1024)


class TitleScanner:
    """Finds titles (OSC 0 and 2, tmux's own ESC k) in a pane's output, however it is cut into pieces."""

    def __init__(self) -> None:
        self._scanner = SequenceScanner(_TITLES)

    def feed(self, data: bytes) -> bytes | None:
        """Return the last title that *data* completes, as foreign bytes; None if it completes none."""
        if not self._scanner.rest and b"\x1b" not in data:
            return None
        found = None
        for _, title in self._scanner.feed(data):
            found = found if title is None else title
        return found


class ProgramStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One report. `message` is untrusted text: sanitize it before display."""

    state: str
    kind: str = ""
    """With `blocked`: `permission`, `question` or `auth`."""
    message: str = ""


class StatusScanner:
    """Finds reports in a pane's output, which may be cut anywhere."""

    def __init__(self) -> None:
        self._scanner = SequenceScanner(_REPORTS)

    def feed(self, data: bytes) -> list[ProgramStatus]:
        """Return the reports that *data* completes, in order."""
        if not self._scanner.rest and b"\x1b" not in data:
            return []
        bodies = [body for _, body in self._scanner.feed(data) if body is not None]
        return [status for body in bodies if (status := _read(body)) is not None]


def _read(body: bytes) -> ProgramStatus | None:
    fields: dict[str, str] = {}
    for pair in body.decode("ascii", "replace").replace(";", ":").split(":"):
        key, equals, value = pair.partition("=")
        if equals:
            fields[key.strip()] = value
    state = fields.get("state", "")
    if state not in STATES:
        return None
    return ProgramStatus(state=state, kind=fields.get("kind", ""), message=_text(fields.get("msg", "")))


def _text(encoded: str) -> str:
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""
