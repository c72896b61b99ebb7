"""The pieces of an answer that every API has: text, reasoning and calls, with the pauses between them."""

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

INPUT_TOKENS, CACHED_TOKENS, OUTPUT_TOKENS, REASONING_TOKENS = 1000, 500, 25, 5
"""What every answer claims to have used; the cached ones are among the input."""


class BrokenOffError(Exception):
    """The answer breaks off here, in the way that *how* names."""

    def __init__(self, how: str) -> None:
        self.how = how
        super().__init__(how)


@dataclass(frozen=True)
class Text:
    """What the model says or thinks, a word at a time."""

    words: tuple[str, ...]
    is_thinking: bool = False
    gap_s: float | None = None
    """The pause after each word; None is the server's own."""

    @property
    def whole(self) -> str:
        return "".join(self.words)


@dataclass(frozen=True)
class Call:
    """A call of the client's tool; *arguments* are a text where the tool takes one."""

    name: str
    arguments: dict[str, Any] | str

    @property
    def json(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class Break:
    how: str


Spoken = Text | Call
Piece = Spoken | Pause | Break


async def played(pieces: Iterable[Piece]) -> AsyncIterator[Spoken]:
    """What of *pieces* is said, after the pauses before it.

    Raises:
        BrokenOffError: where the script says so.
    """
    for piece in pieces:
        match piece:
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Break(how):
                raise BrokenOffError(how)
            case Text() | Call():
                yield piece


def spoken(pieces: Iterable[Piece]) -> list[Spoken]:
    """What of *pieces* is said, for an answer in one piece."""
    return [piece for piece in pieces if isinstance(piece, Spoken)]


async def words(text: Text, gap_s: float) -> AsyncIterator[str]:
    """The words of *text*, each followed by its pause; *gap_s* is the server's own."""
    for word in text.words:
        yield word
        await asyncio.sleep(gap_s if text.gap_s is None else text.gap_s)


def text(plain: str, *, is_thinking: bool = False) -> Text:
    """*plain*, in words that keep the space between them."""
    return Text(tuple(re.findall(r"\s*\S+\s*", plain)) or ("",), is_thinking)


def new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex[:20]}"


def event(data: Any, name: str = "") -> bytes:
    """One server-sent event; *data* as JSON, or as it is where it is a text."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
