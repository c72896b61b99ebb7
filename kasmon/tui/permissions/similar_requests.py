"""Pending requests that differ in a few words only, and how they differ. Pure.

On a card, commands that differ in one word are easily mistaken for each other; the card's head names the words.
"""

import json
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from kasmon.model.permission import Request
from kasmon.sanitize import redact
from kasmon.tui.permissions.queue import PermissionSnapshot, place_in
from kasmon.tui.permissions.request_text import command_of
from kasmon.tui.theme.look import session_label

NEAR: Final = 0.5
"""Two requests are similar if at least this share of the longer one's words is also in the other, in place."""
COMPARED: Final = 20_000
"""Number of characters compared of each request."""
SAME: Final = "same text"
_WORDS: Final = re.compile(r"\s|[^\s\w]|\w+")


class SimilarRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Another pending request that is easily mistaken for the one on the card."""

    place: int
    """Its position among the pending requests, from 1."""
    whose: str
    """The name of its session."""
    difference: str
    """The words that only one of the two has, without secrets."""


def most_similar(request: Request, asked: PermissionSnapshot) -> SimilarRequest | None:
    """Return the pending request most similar to *request* in its words; None if none is similar.

    Only requests of the same kind and tool are compared. Of equally similar ones it is the first in turn.
    """
    nearest: Request | None = None
    best, here, there = 0.0, "", ""
    words = _words(request, asked)
    for other in asked.waiting:
        is_comparable = (other.kind, other.tool) == (request.kind, request.tool) and other.session in asked.known
        if other.id == request.id or not is_comparable:
            continue
        others = _words(other, asked)
        before = _shared(words, others)
        rest, others_rest = words[before:], others[before:]
        after = _shared(rest[::-1], others_rest[::-1])
        share = (before + after) / max(len(words), len(others), 1)
        if share >= NEAR and share > best:
            nearest, best = other, share
            here, there = ("".join(each[: len(each) - after]) for each in (rest, others_rest))
    if nearest is None:
        return None
    name = session_label(asked.sessions.get(nearest.session), nearest.session)
    return SimilarRequest(
        place=place_in(asked.waiting, nearest.id) or 1,
        whose="this session" if nearest.session == request.session else name,
        difference=_difference(here.strip(), there.strip(), _text(request) == _text(nearest)),
    )


def _difference(here: str, there: str, is_same: bool) -> str:
    """The words that only one of two requests has, *here* or *there*, as text."""
    if is_same:
        return SAME
    if here == there:
        return "differs in whitespace, in a secret, or further down"
    shown, other = (text.replace("\n", "␤") for text in (here, there))
    return f"only here: {shown}" if shown else f"not here: {other}"


def _text(request: Request) -> str:
    """All that *request* would do."""
    command = command_of(request)
    key, what = command if command is not None else ("", request.shown)
    rest = {name: value for name, value in request.input.items() if name != key}
    texts = [what if isinstance(what, str) else " ".join(what), json.dumps(rest, sort_keys=True) if rest else ""]
    return "\n".join(text for text in (*texts, *request.options) if text)


def _words(request: Request, asked: PermissionSnapshot) -> list[str]:
    """The start of that as words, blanks and operators; redacted first, as a piece of a secret is not recognisable."""
    return _WORDS.findall(redact(_text(request)[:COMPARED], asked.known.get(request.session, ()))[0])


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of equal words that both begin with."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
