"""Truncation of long output: its start and its end are kept, with the exact number of bytes omitted between."""


class TruncatingBuffer:
    """Holds at most *cap* bytes of all data added."""

    def __init__(self, cap: int) -> None:
        self._half = max(1, cap // 2)
        self._head, self._tail = bytearray(), bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data[-self._half :]
            if len(self._tail) > 2 * self._half:
                del self._tail[: -self._half]

    def text(self) -> tuple[str, int]:
        """Return the text, and how many bytes of it are omitted; no character is split."""
        head, tail = bytes(self._head), bytes(self._tail[-self._half :])
        if len(head) + len(tail) == self.total:
            return (head + tail).decode("utf-8", "replace"), 0
        head, tail = _without_begun(head), _without_rest(tail)
        omitted = self.total - len(head) - len(tail)
        gap = f"\n[... {omitted} bytes omitted here ...]\n"
        return head.decode("utf-8", "replace") + gap + tail.decode("utf-8", "replace"), omitted


def _without_begun(data: bytes) -> bytes:
    """Return *data* without an incomplete character at its end."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 != 0x80:  # the first byte of a character
            length = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if length > back else data
    return data


def _without_rest(data: bytes) -> bytes:
    """Return *data* without the rest of a character at its start."""
    cut = 0
    while cut < min(3, len(data)) and data[cut] & 0xC0 == 0x80:
        cut += 1
    return data[cut:]
