"""Match a session to a stored conversation: proven, to be chosen by the user, or none. Pure."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from kasmon.supervisor.recovery.conversation import LoggedConversation, StoredConversation, is_comparable, is_same

LATE_S = 5.0
"""How much older than its session a conversation may seem, in seconds."""


class RecoveryMatch(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one session."""

    kind: Literal["proven", "ask", "none"]
    why: str
    """What proves the match; or why it is uncertain; or why there is none."""
    conversation: StoredConversation | None = None
    candidates: tuple[StoredConversation, ...] = ()
    """The candidates for the user's choice, newest first."""


def find_match(
    logged: LoggedConversation, stored: Iterable[StoredConversation], taken: Iterable[str] = ()
) -> RecoveryMatch:
    """Find the conversation *logged* from our log among those *stored*.

    Args:
        logged: what our log has of it.
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
    proven = [each for each in likely if _is_proven(logged, each)]
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


def _is_proven(logged: LoggedConversation, kept: StoredConversation) -> bool:
    return any(is_comparable(text) and _contains(kept.prompts, text) for text in logged.prompts)


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
