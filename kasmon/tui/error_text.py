"""Errors as shown on the screen: sentences, with the hint on a line below. Pure."""

from typing import Final

from kasmon.errors import KasmonError
from kasmon.sanitize import clean_line

AS_WRITTEN: Final = frozenset(("bash", "bwrap", "claude", "codex", "gemini", "git", "kasmon", "opencode", "tmux"))
"""Program names that keep their spelling at the start of a sentence."""


def sentence(text: str) -> str:
    """Return *text* clean and capitalised, unless it begins with a quoted value, or a file, program or machine."""
    cleaned = str(clean_line(text))
    word = cleaned.partition(" ")[0].rstrip(",;.")
    plain = word.isalpha() and word.islower() and word not in AS_WRITTEN
    return f"{cleaned[0].upper()}{cleaned[1:]}" if plain else cleaned


def what_failed(error: KasmonError) -> str:
    """Return the text of *error*: what failed and, on a line of its own, the hint if there is one."""
    return "\n".join(sentence(part) for part in (error.message, error.hint) if part)
