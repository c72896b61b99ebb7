"""What programs say of themselves in what they print: OSC 7501, the Program Status Protocol. Sans-IO.

`ESC ] 7501 ; state=… [:kind=…] [:msg=base64] … BEL`, keys and values after the number separated by `:` or `;`.
Everything else a program prints is passed over unread.
"""

import base64
import binascii
from typing import Final

import msgspec

INTRODUCER: Final = b"\x1b]7501;"
LONGEST_BYTES: Final = 4096
"""A report that is longer than this is none."""
STATES: Final = frozenset({"idle", "working", "done", "blocked", "error", "clear"})


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """One report. `message` is foreign text: clean it before anybody sees it."""

    state: str
    kind: str = ""
    """With `blocked`: `permission`, `question` or `auth`."""
    message: str = ""


class StatusScanner:
    """Finds reports in a pane's output, however it is cut into pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Status]:
        """The reports that *data* completes, in order."""
        if not self._rest and b"\x1b" not in data:
            return []
        data = self._rest + data
        found: list[Status] = []
        while True:
            start = data.find(INTRODUCER)
            if start < 0:
                self._rest = _beginning(data)
                return found
            body, rest = _cut(data[start + len(INTRODUCER) :])
            if rest is None:
                self._rest = data[start:] if len(data) - start <= LONGEST_BYTES else b""
                return found
            if (status := _read(body)) is not None:
                found.append(status)
            data = rest


def _beginning(data: bytes) -> bytes:
    """The end of *data* that may be the beginning of a report."""
    for size in range(min(len(INTRODUCER) - 1, len(data)), 0, -1):
        if INTRODUCER.startswith(data[-size:]):
            return data[-size:]
    return b""


def _cut(data: bytes) -> tuple[bytes, bytes | None]:
    """The body up to its terminator (BEL or ESC \\) and what follows; None where it is not there yet."""
    ends = [(at, size) for at, size in ((data.find(b"\x07"), 1), (data.find(b"\x1b"), 2)) if at >= 0]
    if not ends:
        return data, None
    at, size = min(ends)
    if size == 2 and at + 1 >= len(data):
        return data, None
    if size == 2 and data[at + 1 : at + 2] != b"\\":
        return b"", data[at:]
    return data[:at], data[at + size :]


def _read(body: bytes) -> Status | None:
    fields: dict[str, str] = {}
    for pair in body.decode("ascii", "replace").replace(";", ":").split(":"):
        key, equals, value = pair.partition("=")
        if equals:
            fields[key.strip()] = value
    state = fields.get("state", "")
    if state not in STATES:
        return None
    return Status(state=state, kind=fields.get("kind", ""), message=_text(fields.get("msg", "")))


def _text(encoded: str) -> str:
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""
