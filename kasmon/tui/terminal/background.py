"""Ask the terminal for its background colour, and take the reply out of the input. Sans-IO.

The query is OSC 11 of xterm (https://invisible-island.net/xterm/ctlseqs/ctlseqs.html); a terminal that does not know
it sends nothing.
"""

import re
from typing import Final

QUERY: Final = "\x1b]11;?\x1b\\"
HOLD_S: Final = 0.01
"""How long Alt+] waits for the rest of a possible reply."""
STALL_S: Final = 1.0
"""How long the beginning of a reply waits for its rest, in seconds; it is dropped then."""
LIGHT: Final = 0.5
"""From this luminance on a background is light; 0 is black and 1 is white."""
_CHANNEL: Final = rb"([0-9a-fA-F]{1,4})"
_REPLY: Final = re.compile(rb"\x1b\]11;rgba?:" + b"/".join([_CHANNEL] * 3) + rb"[^\x07\x1b]{0,9}(?:\x07|\x1b\\)")
_BEGINNING: Final = re.compile(rb"\x1b\](?:1(?:1(?:;[rgba:/0-9a-fA-F]{0,32}\x1b?)?)?)?\Z")
_CERTAIN: Final = b"\x1b]11;"
_WEIGHTS: Final = (0.2126, 0.7152, 0.0722)
"""The shares of red, green and blue in the luminance, by ITU-R BT.709."""


class BackgroundReply:
    """Finds replies in input that comes in pieces of any size."""

    def __init__(self) -> None:
        self.is_light: bool | None = None
        """Whether the background was light when the terminal replied last; None before."""
        self._pending = b""

    @property
    def hold_s(self) -> float | None:
        """If nothing comes for this long, call `settle`; None while nothing is pending."""
        return None if not self._pending else STALL_S if self._pending.startswith(_CERTAIN) else HOLD_S

    def feed(self, data: bytes) -> bytes:
        """Return *data*, with what was pending before it, without replies."""
        data, self._pending = self._pending + data, b""
        while match := _REPLY.search(data):
            shares = [int(part, 16) / (16 ** len(part) - 1) for part in match.groups()]
            self.is_light = sum(weight * share for weight, share in zip(_WEIGHTS, shares, strict=True)) >= LIGHT
            data = data[: match.start()] + data[match.end() :]
        if match := _BEGINNING.search(data):
            self._pending = match[0]
            data = data[: match.start()]
        return data

    def settle(self) -> bytes:
        """Return what was pending: it was a key, as nothing followed. A reply without an end is dropped."""
        pending, self._pending = self._pending, b""
        return b"" if pending.startswith(_CERTAIN) else pending
