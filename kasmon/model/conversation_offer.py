"""A conversation that an agent stores and a new session can resume. Pure."""

from typing import Final

import msgspec

from kasmon.sanitize import clean_line, has_hidden

LONGEST_ID: Final = 256
LONGEST_TITLE: Final = 200
"""Most characters of a title that are kept."""


class ConversationOffer(msgspec.Struct, frozen=True, kw_only=True):
    """One stored conversation. Its title is the agent's, cleaned; its folder is as the agent reports it."""

    id: str
    """The agent's own id of it."""
    folder: str
    """Where its agent ran."""
    title: str = ""
    """The agent's title for it, else its first prompt, in one line; empty if there is none."""
    used_at: float = 0.0
    """When it was last used, in seconds since the epoch; 0 if unknown."""
    session: str = ""
    """The name of the session that has it; empty if none has."""


class ConversationOffers(msgspec.Struct, frozen=True, kw_only=True):
    """The conversations that an agent stores, the last used one first."""

    conversations: tuple[ConversationOffer, ...] = ()
    is_whole: bool = True
    """Whether these are all of them; very long lists are cut."""


def is_conversation_id(text: str) -> bool:
    """Whether *text* can be the id of a conversation: nothing in it is hidden, and no program takes it as an option."""
    return 0 < len(text) <= LONGEST_ID and text.isprintable() and not has_hidden(text) and not text.startswith("-")


def build_offer(id_: str, folder: str, title: str, used_at: float) -> ConversationOffer | None:
    """Return the offer of a conversation from untrusted texts; None if its id is unusable."""
    if not is_conversation_id(id_):
        return None
    return ConversationOffer(id=id_, folder=folder, title=clean_line(title.strip())[:LONGEST_TITLE], used_at=used_at)
