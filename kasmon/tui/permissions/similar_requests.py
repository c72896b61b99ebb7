"""Pending requests that differ in a few words only, and how they differ. Pure.

On a card, commands that differ in one word are easily mistaken for each other; the card's head names the words.
"""

import json
import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import Final

import msgspec

from kasmon.model.formatting import session_label
from kasmon.model.permission import Request
from kasmon.model.transcript.request_text import command_of
from kasmon.sanitize import redact
from kasmon.tui.permissions.queue import PermissionSnapshot, place_in

NEAR: Final = 0.7
"""Two requests are similar if at least this share of their words is also in the other, in the same order.

Measured: 0.73 and more for commands that differ in one or two words, at most 0.5 for unlike commands.
"""
MOST_WORDS: Final = 400
COMPARED: Final = 20_000
"""Number of characters compared of each request."""
SAME: Final = "same text"
_WORDS: Final = re.compile(r"[^\s\w]|\w+")


class SimilarRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Another pending request that is easily mistaken for the one on the card."""

    place: int
    """Its position among the pending requests, from 1."""
    whose: str
    difference: str
    """The words that only one of the two has, without secrets."""


def find_most_similar(request: Request, asked: PermissionSnapshot) -> SimilarRequest | None:
    """Return the pending request most similar to *request* in its words; None if none is similar.

    Only requests of the same kind and tool are compared. One without a text, of which kasmon knows only that its agent
    asks, is similar to none. Of equally similar ones it is the first in turn.
    """
    nearest: Request | None = None
    best, own_differences, other_differences = 0.0, list[str](), list[str]()
    text, pieces_of_words = _split_text(request, asked)
    if not pieces_of_words:
        return None
    matcher = SequenceMatcher[str](None, autojunk=False)
    matcher.set_seq2([word[0] for word in pieces_of_words])
    for other in asked.waiting:
        is_comparable = (other.kind, other.tool) == (request.kind, request.tool) and other.session in asked.cards
        if other.id == request.id or not is_comparable:
            continue
        other_text, other_words = _split_text(other, asked)
        matcher.set_seq1([word[0] for word in other_words])
        if not _may_be_nearer(matcher, best) or (share := matcher.ratio()) < NEAR or share <= best:
            continue
        nearest, best = other, share
        pieces = [
            (_piece(text, pieces_of_words[here_1:here_2]), _piece(other_text, other_words[there_1:there_2]))
            for kind, there_1, there_2, here_1, here_2 in matcher.get_opcodes()
            if kind != "equal"
        ]
        own_differences, other_differences = (
            [piece for piece, _ in pieces if piece],
            [piece for only, piece in pieces if not only],
        )
    if nearest is None:
        return None
    name = session_label(asked.sessions.get(nearest.session), nearest.session)
    return SimilarRequest(
        place=place_in(asked.waiting, nearest.id) or 1,
        whose="this session" if nearest.session == request.session else name,
        difference=_difference(own_differences, other_differences, _text(request) == _text(nearest)),
    )


def _may_be_nearer(matcher: SequenceMatcher[str], best: float) -> bool:
    """Whether the ratio can be one that counts, by its upper bounds, which are cheap."""
    return all(bound() >= NEAR and bound() > best for bound in (matcher.real_quick_ratio, matcher.quick_ratio))


def _piece(text: str, words: Sequence[re.Match[str]]) -> str:
    return text[words[0].start() : words[-1].end()].replace("\n", "␤") if words else ""


def _difference(own: Sequence[str], other: Sequence[str], is_same: bool) -> str:
    """The words that only one of two requests has, *own* or *other*, as text."""
    if is_same:
        return SAME
    parts = [
        *([f"only here: {', '.join(own)}"] if own else []),
        *([f"not here: {', '.join(other)}"] if other else []),
    ]
    return "; ".join(parts) or "differs in whitespace, in a secret, or further down"


def _text(request: Request) -> str:
    command = command_of(request)
    key, what = command if command is not None else ("", request.shown)
    rest = {name: value for name, value in request.input.items() if name != key}
    texts = [what if isinstance(what, str) else " ".join(what), json.dumps(rest, sort_keys=True) if rest else ""]
    return "\n".join(text for text in (*texts, *request.options) if text)


def _split_text(request: Request, asked: PermissionSnapshot) -> tuple[str, list[re.Match[str]]]:
    """The start of that, and its words and operators; redacted first, as a piece of a secret is not recognisable."""
    text = redact(_text(request)[:COMPARED], asked.card_of(request).secrets)[0]
    return text, [*islice(_WORDS.finditer(text), MOST_WORDS)]
