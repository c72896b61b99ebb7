"""What `cli.md` promises and a later version brings: refused with a sentence, so that nobody takes it for a typo."""

from typing import Final

from kasmon.errors import UnableError

LATER: Final = {
    "grep": "Search in all transcripts",
    "web": "The dashboard in a browser",
    "trust": "Let a folder's own config count",
}
"""Verb -> what it is going to be, in a few words."""
NOT_YET: Final = "It is not in this version of kasmon: it comes with a later one."


def refuse(what: str) -> None:
    """
    Raises:
        UnableError: always.
    """
    raise UnableError(
        f"{what!r} is not in this version of kasmon: it comes with a later one.", hint="See `kasmon --help`."
    )
