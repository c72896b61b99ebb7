"""The line of a front to its process inside: what is told goes in once, what is said comes out once, lines may break.

Both are counted in bytes. What the process has not taken is sent again on the next line, from where that says it is.
"""

import base64
import contextlib
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kasmon.sandbox.guest_client.line import LIMIT_BYTES, packed

PIECE_BYTES: Final = 1 << 15
MOST_BYTES: Final = 1 << 20
"""So much that was not taken inside yet, and no more is read for it."""
HAS_BYTES: Final = 1 << 15
"""After so much it is said that we have it."""
CONNECT_S: Final = 5.0


class StreamFrame(msgspec.Struct):
    """A frame of the agent inside; only its shape is sure."""

    id: str = ""
    type: str = ""
    name: str = ""
    at: int = 0
    data: str = ""
    taken: int = 0
    code: int = 0
    pid: int = 0
    why: str = ""
    stderr: str = ""
    started: bool = False


class NoSuchRunError(Exception):
    """Who answers does not know the process: it is gone, with its sandbox."""


class ProcessStream:
    """Carries for the process *run*. Each of *said* gets a stream's name and bytes, each once and in order."""

    def __init__(self, run: str, said: Callable[[str, bytes], None], has: Mapping[str, int] = {}) -> None:
        self.run = run
        self.code: int | None = None
        """How the process ended; None while it runs."""
        self.has = dict(has)
        """How much of each stream we have."""
        self._said = said
        self._told_to_have: dict[str, int] = {}
        self._waiting = bytearray()
        self._taken: int | None = None
        """How many bytes the process was ever told; None: nobody has said that yet."""
        self._is_under_way = False
        self._is_closed = self._is_close_sent = False
        self._line: socket.socket | None = None
        self._held = bytearray()
        self._is_joined = False

    @property
    def is_joined(self) -> bool:
        """Whether the process is known to be at the other end of the line."""
        return self._is_joined

    @property
    def has_room(self) -> bool:
        """Whether more may be told; else it is to wait until some was taken."""
        return len(self._waiting) < MOST_BYTES

    def fileno(self) -> int:
        """The line's, for `poll`; -1 where there is none."""
        return -1 if self._line is None else self._line.fileno()

    def connect(self, path: str) -> bool:
        """Ask whoever listens at *path* for the process; whether somebody listens."""
        self.part()
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(CONNECT_S)
        try:
            line.connect(path)
        except OSError:
            line.close()
            return False
        line.settimeout(None)
        self._line, self._held = line, bytearray()
        self.ask("process_join", has=self.has)
        return self._line is not None

    def part(self) -> None:
        """Let the line go. Idempotent."""
        if self._line is not None:
            self._line.close()
        self._line, self._is_joined, self._is_under_way, self._is_close_sent = None, False, False, False

    def ask(self, what: str, **words: Any) -> None:
        """Say it, where there is a line; what comes of it is not waited for."""
        if self._line is None:
            return
        try:
            self._line.sendall(packed({"id": what, "type": what, "run": self.run, **words}))
        except OSError:
            self.part()

    def tell(self, data: bytes) -> None:
        """Tell the process *data*, now or when it can take it."""
        self._waiting += data
        self._go_on()

    def close(self) -> None:
        """Its stdin ends behind what it was told."""
        self._is_closed = True
        self._go_on()

    def hear(self) -> None:
        """Take what has come on the line; to be called when something has.

        Raises:
            NoSuchRunError: if the process is not known there.
        """
        assert self._line is not None
        try:
            data = self._line.recv(1 << 18)
        except OSError:
            data = b""
        if not data:
            self.part()
            return
        self._held += data
        while len(self._held) >= 4:
            size = int.from_bytes(self._held[:4], "big")
            if size > LIMIT_BYTES:
                self.part()
                return
            if len(self._held) < 4 + size:
                return
            frame = bytes(self._held[4 : 4 + size])
            del self._held[: 4 + size]
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                self._take(msgspec.json.decode(frame, type=StreamFrame))
            if self.fileno() < 0:  # what came made us part
                return

    def _take(self, answer: StreamFrame) -> None:
        if answer.id == "process_join":
            if answer.type != "answer":
                raise NoSuchRunError(answer.stderr)
            self._is_joined = True
            self._took(answer.taken)
        elif answer.id == "process_tell" and answer.type == "answer":
            self._took(answer.taken)
        elif answer.type == "stream":
            self._heard(answer)
        elif answer.type == "rest":
            self._tell_to_have(1)
        elif answer.type == "ended":
            self.code = answer.code

    def _heard(self, answer: StreamFrame) -> None:
        has = self.has.get(answer.name, 0)
        with contextlib.suppress(ValueError):
            data = base64.b64decode(answer.data, validate=True)[max(0, has - answer.at) :]
            if data:
                self.has[answer.name] = max(has, answer.at) + len(data)
                self._said(answer.name, data)
        self._tell_to_have(HAS_BYTES)

    def _tell_to_have(self, least: int) -> None:
        for name, has in self.has.items():
            if has - self._told_to_have.get(name, 0) >= least:
                self._told_to_have[name] = has
                self.ask("process_has", stream=name, to=has)

    def _took(self, taken: int) -> None:
        self._is_under_way = False
        before = taken if self._taken is None else self._taken  # an earlier front may have told it something
        del self._waiting[: max(0, taken - before)]
        self._taken = max(taken, before)
        self._go_on()

    def _go_on(self) -> None:
        if self._line is None or not self._is_joined or self._is_under_way:
            return
        if self._waiting:
            self._is_under_way = True
            data = base64.b64encode(bytes(self._waiting[:PIECE_BYTES])).decode("ascii")
            self.ask("process_tell", at=self._taken, data=data)
        elif self._is_closed and not self._is_close_sent:
            self._is_close_sent = True
            self.ask("process_close")
