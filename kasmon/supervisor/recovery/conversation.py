"""A conversation as its agent stores it, and as our log has it; what both have in common proves a match."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from kasmon.backends.common.json_access import Table
from kasmon.sanitize import HIDDEN, clean_block

CUT = 16 * 1024
"""The log keeps at most this many characters of a text; longer texts are compared by their beginning."""
LATE_S = 5.0
"""How much older than its session a conversation may seem, in seconds."""

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


class RecoveryMatch(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one session."""

    kind: Literal["proven", "ask", "none"]
    why: str
    """What proves the match; or why it is uncertain; or why there is none."""
    conversation: StoredConversation | None = None
    candidates: tuple[StoredConversation, ...] = ()
    """The candidates for the user's choice, newest first."""


def build_conversation(
    id_: str, directory: str, prompts: Sequence[str], last_text: str, at: float
) -> StoredConversation:
    """Build a `StoredConversation` from the untrusted texts of an agent's files."""
    clean = tuple(text for text in (clean_block(prompt).strip() for prompt in prompts) if text)
    return StoredConversation(
        id=id_, directory=directory, prompts=clean, last_message=clean_block(last_text).strip(), at=at
    )


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
    """Yield the JSON objects in the lines of *file* that are wanted; skip lines that contain none. Raises `OSError`."""
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


def find_match(
    logged: LoggedConversation, stored: Iterable[StoredConversation], taken: Iterable[str] = ()
) -> RecoveryMatch:
    """Find the conversation *logged* from our log among those *stored*.

    Args:
        stored: the agent's stored conversations of that folder and, if its id is known, of that id.
        taken: ids of other sessions' conversations, which are excluded.
    """
    stored, taken = list(stored), set(taken) - {logged.id}
    if logged.id:
        by_id = next((each for each in stored if each.id == logged.id), None)
        if by_id is None:
            return RecoveryMatch(kind="none", why=f"its agent no longer has the conversation {logged.id}")
        contradiction = _contradiction(logged, by_id)
        if contradiction:
            return RecoveryMatch(kind="ask", why=f"it has its id, but {contradiction}", candidates=(by_id,))
        return RecoveryMatch(kind="proven", why=_describe_proof(logged, by_id, ("its id",)), conversation=by_id)
    own = [each for each in stored if each.id not in taken and each.at >= logged.since - LATE_S]
    likely = [each for each in own if not _contradiction(logged, each)]
    sent = [text for text in logged.prompts if is_comparable(text)]
    proven = [each for each in likely if any(_contains(each.prompts, text) for text in sent)]
    if len(proven) == 1:
        return RecoveryMatch(kind="proven", why=_describe_proof(logged, proven[0], ()), conversation=proven[0])
    choice = sorted(proven or likely, key=lambda each: each.at, reverse=True)
    if not choice:
        return RecoveryMatch(kind="none", why=f"its agent has no matching conversation of {logged.directory!r}")
    many = f"{len(choice)} conversations of its folder match" if len(choice) > 1 else "no message proves it"
    return RecoveryMatch(kind="ask", why=f"its agent never reported its id, and {many}", candidates=tuple(choice))


def _contradiction(logged: LoggedConversation, kept: StoredConversation) -> str:
    """Return the reason against a match; empty if there is none."""
    if not _is_folder(logged.directory, kept.directory):
        return f"it was held in {kept.directory!r}"
    if (
        logged.is_whole
        and logged.prompts
        and is_comparable(logged.prompts[0])
        and not is_same(logged.prompts[0], kept.first)
    ):
        return "its first prompt differs"
    lacking = [text for text in logged.prompts if is_comparable(text) and not _contains(kept.prompts, text)]
    return f"it lacks {len(lacking)} of our prompts" if len(lacking) == len(logged.prompts) > 0 else ""


def _describe_proof(logged: LoggedConversation, kept: StoredConversation, proofs: tuple[str, ...]) -> str:
    parts = [*proofs, "its folder"]
    if logged.is_whole and logged.prompts and is_comparable(logged.prompts[0]):
        parts.append("its first prompt")
    if (
        logged.last_messages
        and is_comparable(logged.last_messages[-1])
        and is_same(logged.last_messages[-1], kept.last_message)
    ):
        parts.append("its last message")
    elif logged.prompts and is_comparable(logged.prompts[-1]) and _contains(kept.prompts, logged.prompts[-1]):
        is_last = is_same(logged.prompts[-1], kept.prompts[-1])
        parts.append("our last prompt" if is_last else "our last prompt, followed by more")
    return f"matched by {', '.join(parts)}"


def _contains(texts: Sequence[str], text: str) -> bool:
    return any(is_same(text, each) for each in texts)


def _is_folder(one: str, other: str) -> bool:
    """Whether both are the same folder, possibly through a link."""
    return one == other or Path(one).resolve() == Path(other).resolve()
