"""Buffers of a process's streams, with byte offsets from the stream's start; data stays until it is acknowledged.

So a broken connection neither loses nor repeats data: a client that reconnects sends its offset and gets the rest.
"""


class OutputBuffer:
    """Output: *begin* is the offset of the first byte still stored, *end* that of the next one to come."""

    def __init__(self) -> None:
        self.begin, self._kept = 0, bytearray()
        self.is_over = False
        """The stream has ended."""

    @property
    def end(self) -> int:
        return self.begin + len(self._kept)

    @property
    def held(self) -> int:
        """How many bytes are stored."""
        return len(self._kept)

    def add(self, data: bytes) -> None:
        self._kept += data

    def forget(self, to: int) -> None:
        """Drop all bytes before offset *to*: the client has them."""
        to = min(max(to, self.begin), self.end)
        del self._kept[: to - self.begin]
        self.begin = to

    def since(self, at: int, most: int) -> bytes:
        """Return at most *most* bytes from offset *at*, which must not be before *begin*."""
        return bytes(self._kept[at - self.begin : at - self.begin + most])


class InputBuffer:
    """Input: each byte is accepted once, and stored until the process reads it."""

    def __init__(self) -> None:
        self.end = 0
        """How many bytes were ever accepted."""
        self.waiting = bytearray()
        """Data that the process has not read yet."""
        self.is_over = False
        """No more data follows; the process gets EOF once it has read all."""

    def take(self, at: int, data: bytes) -> None:
        """Accept *data*, which starts at offset *at*; bytes accepted before are skipped.

        Raises:
            ValueError: if bytes before *at* are missing.
        """
        if at > self.end:
            raise ValueError(f"bytes {self.end} to {at} are missing")
        new = data[self.end - at :]
        self.waiting += new
        self.end += len(new)
