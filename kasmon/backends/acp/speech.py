"""What an agent is saying: pieces while they come, and a finished message at each boundary. Sans-IO.

ACP marks no end of a message. One ends where something else begins: a thought, another message's id, a tool, a plan,
the end of the turn.
"""

from kasmon.backends.base import Chunk
from kasmon.model.event import Event, MessageSaid, ThoughtSaid


class Speech:
    """The message, or the thought, that is being written."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._is_thought = False
        self._message = ""

    @property
    def is_open(self) -> bool:
        """Whether pieces of a message came that is not over."""
        return bool(self._pieces)

    def heard(self, text: str, at: float, *, thinking: bool, message: str = "") -> list[Event | Chunk]:
        """What comes of a piece of *text*; *message* is its message's id, where the agent gives one."""
        if not text:
            return []
        is_other = thinking is not self._is_thought or (message and self._message and message != self._message)
        ended = self.ended(at) if is_other else []
        self._is_thought = thinking
        self._message = message or self._message
        self._pieces.append(text)
        return [*ended, Chunk(text=text, thinking=thinking)]

    def ended(self, at: float) -> list[Event | Chunk]:
        """The finished message, if one was being written."""
        text = "".join(self._pieces)
        self._pieces.clear()
        self._message = ""
        if not text.strip():
            return []
        return [ThoughtSaid(at=at, text=text) if self._is_thought else MessageSaid(at=at, text=text)]
