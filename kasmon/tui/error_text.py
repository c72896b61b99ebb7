"""What failed, as it stands on the screen: sentences of their own, what to do next on a line below. Pure."""

from typing import Final

from kasmon.errors import KasmonError
from kasmon.sanitize import clean_line

AS_WRITTEN: Final = frozenset(("bash", "bwrap", "claude", "codex", "gemini", "git", "kasmon", "opencode", "tmux"))
"""Names of programs that begin a sentence as they are written."""


def sentence(text: str) -> str:
    """*text*, clean, with a capital first. What is no plain word keeps its own: a quoted value, a file, a program."""
    said = str(clean_line(text))
    word = said.partition(" ")[0].rstrip(",;:.")
    plain = word.isalpha() and word.islower() and word not in AS_WRITTEN
    return f"{said[0].upper()}{said[1:]}" if plain else said


def what_failed(error: KasmonError) -> str:
    """What *error* says: what failed, and on a line of its own what to do next, if it knows."""
    return "\n".join(sentence(part) for part in (error.message, error.hint) if part)
