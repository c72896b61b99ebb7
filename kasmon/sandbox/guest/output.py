"""What a process says on one stream, kept until whoever hears it says that he has it; counted in bytes from the first.

So a line that breaks loses nothing and doubles nothing: who comes back says how much he has, and gets what follows.
"""


class OutputBuffer:
    """*begin* is the number of the first byte that is still kept, *end* that of the next one to come."""

    def __init__(self) -> None:
        self.begin, self._kept = 0, bytearray()
        self.is_over = False
        """Nothing comes any more."""

    @property
    def end(self) -> int:
        return self.begin + len(self._kept)

    @property
    def held(self) -> int:
        """How many bytes are kept."""
        return len(self._kept)

    def add(self, data: bytes) -> None:
        self._kept += data

    def forget(self, to: int) -> None:
        """Whoever hears has all before number *to*."""
        to = min(max(to, self.begin), self.end)
        del self._kept[: to - self.begin]
        self.begin = to

    def since(self, at: int, most: int) -> bytes:
        """So many bytes at most from number *at* on, which is none that was forgotten."""
        return bytes(self._kept[at - self.begin : at - self.begin + most])


class InputBuffer:
    """What a process is told, each byte once; kept until it takes it."""

    def __init__(self) -> None:
        self.end = 0
        """How many bytes were ever taken."""
        self.waiting = bytearray()
        """What the process has not taken yet."""
        self.is_over = False
        """Nothing more is to come; it is told so once it has all."""

    def take(self, at: int, data: bytes) -> None:
        """Take *data*, whose first byte has number *at*; what is there already is left out.

        Raises:
            ValueError: if something before it is missing.
        """
        if at > self.end:
            raise ValueError(f"bytes {self.end} to {at} are missing")
        new = data[self.end - at :]
        self.waiting += new
        self.end += len(new)
