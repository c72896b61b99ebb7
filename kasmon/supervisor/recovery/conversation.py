"""A conversation as its agent keeps it on disk, and as our log knows it: what the two have in common proves it."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from kasmon.backends.common.json_access import Table
from kasmon.sanitize import HIDDEN, clean_block

CUT = 16 * 1024
"""The log keeps so many characters of a long text; of two that long, the beginning decides."""

_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200c\u200d\u200e\u200f"), "\ufffd")


class StoredConversation(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent's own files say of one conversation. Foreign text, cleaned."""

    id: str
    directory: str
    """Where its agent ran, as that wrote it down."""
    prompts: tuple[str, ...] = ()
    """What people said, oldest first."""
    said: str = ""
    """What the agent said last."""
    at: float = 0.0
    """When it was last written to, in seconds since the epoch."""

    @property
    def first(self) -> str:
        """The first prompt; empty where nobody said anything."""
        return self.prompts[0] if self.prompts else ""

    @property
    def last(self) -> str:
        """The last message: the agent's, or where it said nothing the person's."""
        return self.said or (self.prompts[-1] if self.prompts else "")


class LoggedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """What our log knows of a session's conversation; a text that is not known, or holds a secret, is not there."""

    directory: str
    id: str = ""
    """The agent's own id of it; empty where it never told."""
    since: float = 0.0
    """The conversation is not older: its session was made then."""
    prompts: tuple[str, ...] = ()
    """What was given to the agent, oldest first."""
    is_whole: bool = True
    """The first of these is the first that the agent was ever given."""
    said: tuple[str, ...] = ()
    """The last messages of the agent, oldest first."""


def kept(id_: str, directory: str, prompts: Sequence[str], said: str, at: float) -> StoredConversation:
    """Of foreign texts, as they stand in an agent's files."""
    clean = tuple(text for text in (clean_block(prompt).strip() for prompt in prompts) if text)
    return StoredConversation(id=id_, directory=directory, prompts=clean, said=clean_block(said).strip(), at=at)


def readable(files: Iterable[Path], read: Callable[[Path], StoredConversation | None]) -> Iterator[StoredConversation]:
    """Yield what *read* finds in each of *files*, by their names; what cannot be read is not there."""
    for file in sorted(files):
        try:
            found = read(file)
        except OSError:
            continue
        if found is not None:
            yield found


def objects(file: Path, is_wanted: Callable[[bytes], bool] = bool) -> Iterator[Table]:
    """Yield the JSON objects in *file*, a line each, of the lines that are wanted; a line that is none is passed over.

    Raises:
        OSError: if it cannot be read.
    """
    with file.open("rb") as lines:
        for line in lines:
            if not is_wanted(line):
                continue
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict):
                yield found


def seconds(stamp: str) -> float:
    """The time that *stamp* says, as `2026-11-23T13:55:46.128Z`, in seconds since the epoch; 0 where it is none."""
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def telling(text: str) -> bool:
    """Whether *text*, of our log, can be compared: it says something, and nothing in it is hidden."""
    return bool(text.strip()) and HIDDEN not in text


def same(ours: str, theirs: str) -> bool:
    """Whether a text of our log and one of an agent's files are the same text.

    Invisible characters that a script writes count as the U+FFFD that earlier versions put in their place.
    """
    ours, theirs = (clean_block(text).translate(_INVISIBLE).strip() for text in (ours, theirs))
    return ours == theirs or (len(ours) >= CUT - 1 and theirs.startswith(ours))
