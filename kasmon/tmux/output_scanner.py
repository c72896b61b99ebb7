"""Scanners of what a pane prints: status reports (OSC 7501), window titles, the mode of bracketed paste. Sans-IO.

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

_MODE_AND_RESETS: Final = Grammar(controls=rb"\[\?(?:[\d;]{1,20};)?2004(?:;[\d;]{1,20})?[hl]|c|\[!p")
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


class BracketedPasteTracker:
    """Whether a pane's program accepts bracketed paste. tmux reports it itself since 3.7."""

    def __init__(self) -> None:
        self.is_on: bool | None = None
        """None if some of its output was not received."""
        self._scanner = SequenceScanner(_MODE_AND_RESETS)

    def begin(self) -> None:
        """Reset for a new program, all of whose output will be received."""
        self.is_on, self._scanner.rest = False, b""

    def handle_missed_output(self) -> None:
        """Record that some output was not received."""
        self.is_on, self._scanner.rest = None, b""

    def feed(self, data: bytes) -> None:
        """Process *data* that the pane printed."""
        if self._scanner.rest or b"\x1b" in data:
            for control, _ in self._scanner.feed(data):
                self.is_on = control.endswith(b"h")
