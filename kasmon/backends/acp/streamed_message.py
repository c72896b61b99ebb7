"""A message or thought of an agent while it is being written. Pure."""

from kasmon.backends.base import Chunk
from kasmon.model import events


class StreamedMessage:
    """The message or thought that is being written: chunks as they come, and the whole at its end.

    ACP marks no end of a message. One ends where something else begins: a thought, another message's id, a tool, a
    plan, the end of the turn.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._is_thought = False
        self._message = ""

    @property
    def is_open(self) -> bool:
        return bool(self._pieces)

    def add(self, text: str, at: float, *, thinking: bool, message: str = "") -> list[events.Event | Chunk]:
        """Add a piece of *text*; *message* is its message's id, if the agent sends one."""
        if not text:
            return []
        is_other = thinking is not self._is_thought or (message and self._message and message != self._message)
        ended = self.finish(at) if is_other else []
        self._is_thought = thinking
        self._message = message or self._message
        self._pieces.append(text)
        return [*ended, Chunk(text=text, thinking=thinking)]

    def finish(self, at: float) -> list[events.Event | Chunk]:
        """Return the finished message, if one was being written."""
        text = "".join(self._pieces)
        self._pieces.clear()
        self._message = ""
        if not text.strip():
            return []
        return [
            events.ThoughtWritten(at=at, text=text) if self._is_thought else events.MessageWritten(at=at, text=text)
        ]
