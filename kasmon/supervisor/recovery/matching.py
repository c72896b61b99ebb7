"""Match a session to a stored conversation: proven, to be chosen by the user, or none. Pure."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from kasmon.supervisor.recovery.conversation import LoggedConversation, StoredConversation, same, telling

LATE_S = 5.0
"""How much older than its session a conversation may seem, in seconds."""


class RecoveryMatch(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one session."""

    kind: Literal["proven", "ask", "none"]
    why: str
    """What proves the match; or why it is uncertain; or why there is none."""
    kept: StoredConversation | None = None
    candidates: tuple[StoredConversation, ...] = ()
    """The candidates for the user's choice, newest first."""


def found(known: LoggedConversation, there: Iterable[StoredConversation], taken: Iterable[str] = ()) -> RecoveryMatch:
    """Find the conversation *known* from our log among those *there*.

    Args:
        known: what our log has of it.
        there: the agent's stored conversations of that folder and, if its id is known, of that id.
        taken: ids of other sessions' conversations, which are excluded.
    """
    there, taken = list(there), set(taken) - {known.id}
    if known.id:
        by_id = next((each for each in there if each.id == known.id), None)
        if by_id is None:
            return RecoveryMatch(kind="none", why=f"its agent no longer has the conversation {known.id}")
        against = _against(known, by_id)
        if against:
            return RecoveryMatch(kind="ask", why=f"it has its id, but {against}", candidates=(by_id,))
        return RecoveryMatch(kind="proven", why=_by(known, by_id, ("its id",)), kept=by_id)
    mine = [each for each in there if each.id not in taken and each.at >= known.since - LATE_S]
    likely = [each for each in mine if not _against(known, each)]
    proven = [each for each in likely if _speaks(known, each)]
    if len(proven) == 1:
        return RecoveryMatch(kind="proven", why=_by(known, proven[0], ()), kept=proven[0])
    choice = sorted(proven or likely, key=lambda each: each.at, reverse=True)
    if not choice:
        return RecoveryMatch(kind="none", why=f"its agent has no matching conversation of {known.directory!r}")
    many = f"{len(choice)} conversations of its folder match" if len(choice) > 1 else "no message proves it"
    return RecoveryMatch(kind="ask", why=f"its agent never reported its id, and {many}", candidates=tuple(choice))


def _against(known: LoggedConversation, kept: StoredConversation) -> str:
    """Return the reason against a match; empty if there is none."""
    if not _is_folder(known.directory, kept.directory):
        return f"it was held in {kept.directory!r}"
    if known.is_whole and known.prompts and telling(known.prompts[0]) and not same(known.prompts[0], kept.first):
        return "its first prompt differs"
    lacking = [text for text in known.prompts if telling(text) and not _has(kept.prompts, text)]
    return f"it lacks {len(lacking)} of our prompts" if len(lacking) == len(known.prompts) > 0 else ""


def _speaks(known: LoggedConversation, kept: StoredConversation) -> bool:
    """Whether a prompt proves the match."""
    return any(telling(text) and _has(kept.prompts, text) for text in known.prompts)


def _by(known: LoggedConversation, kept: StoredConversation, words: tuple[str, ...]) -> str:
    """Return what proves the match, as text."""
    parts = [*words, "its folder"]
    if known.is_whole and known.prompts and telling(known.prompts[0]):
        parts.append("its first prompt")
    if known.said and telling(known.said[-1]) and same(known.said[-1], kept.said):
        parts.append("its last message")
    elif known.prompts and telling(known.prompts[-1]) and _has(kept.prompts, known.prompts[-1]):
        is_last = same(known.prompts[-1], kept.prompts[-1])
        parts.append("our last prompt" if is_last else "our last prompt, followed by more")
    return f"matched by {', '.join(parts)}"


def _has(texts: Sequence[str], text: str) -> bool:
    return any(same(text, each) for each in texts)


def _is_folder(one: str, other: str) -> bool:
    """Whether both are the same folder, possibly through a link."""
    return one == other or Path(one).resolve() == Path(other).resolve()
