"""A conversation as its agent stores it, and as our log has it; what both have in common proves a match."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from kasmon.backends.common.json_access import Table
from kasmon.sanitize import HIDDEN, clean_block

CUT = 16 * 1024
"""The log keeps at most this many characters of a text; longer texts are compared by their beginning."""

_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200c\u200d\u200e\u200f"), "\ufffd")


class StoredConversation(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation from an agent's own files. Untrusted text, cleaned."""

    id: str
    directory: str
    """The folder where its agent ran, as recorded by the agent."""
    prompts: tuple[str, ...] = ()
    """The user's prompts, oldest first."""
    last_message: str = ""
    at: float = 0.0
    """When the file was last written, in seconds since the epoch."""

    @property
    def first(self) -> str:
        """The first prompt; empty if there is none."""
        return self.prompts[0] if self.prompts else ""

    @property
    def last(self) -> str:
        """The last message: the agent's, or if it has none the last prompt."""
        return self.last_message or (self.prompts[-1] if self.prompts else "")


class LoggedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A session's conversation from our log; texts that are unknown, or contain a secret, are omitted."""

    directory: str
    id: str = ""
    """The agent's own id for it; empty if never reported."""
    since: float = 0.0
    """When its session was created; the conversation is not older."""
    prompts: tuple[str, ...] = ()
    """The prompts sent to the agent, oldest first."""
    is_whole: bool = True
    """Whether the first of these is the first prompt that the agent ever got."""
    last_messages: tuple[str, ...] = ()
    """The last messages of the agent, oldest first."""


def build_conversation(id_: str, directory: str, prompts: Sequence[str], said: str, at: float) -> StoredConversation:
    """Build a `StoredConversation` from the untrusted texts of an agent's files."""
    clean = tuple(text for text in (clean_block(prompt).strip() for prompt in prompts) if text)
    return StoredConversation(id=id_, directory=directory, prompts=clean, last_message=clean_block(said).strip(), at=at)


def read_all(files: Iterable[Path], read: Callable[[Path], StoredConversation | None]) -> Iterator[StoredConversation]:
    """Yield what *read* returns for each of *files*, sorted by name; unreadable files are omitted."""
    for file in sorted(files):
        try:
            found = read(file)
        except OSError:
            continue
        if found is not None:
            yield found


def read_objects(file: Path, is_wanted: Callable[[bytes], bool] = bool) -> Iterator[Table]:
    """Yield the JSON objects in the lines of *file* that are wanted; skip lines that contain none.

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


def is_comparable(text: str) -> bool:
    """Whether *text*, from our log, can be compared: it is not empty, and nothing in it is redacted."""
    return bool(text.strip()) and HIDDEN not in text


def is_same(ours: str, theirs: str) -> bool:
    """Whether a text of our log and one of an agent's files are the same text.

    Invisible characters that some scripts use equal the U+FFFD by which earlier versions replaced them.
    """
    ours, theirs = (clean_block(text).translate(_INVISIBLE).strip() for text in (ours, theirs))
    return ours == theirs or (len(ours) >= CUT - 1 and theirs.startswith(ours))
