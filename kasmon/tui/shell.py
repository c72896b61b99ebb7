"""A shell command in parts for reading. Nothing is interpreted; what is quoted or nested stays whole. Pure."""

import re
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["blank", "sign", "break", "word"]
Part: TypeAlias = tuple[int, str]
"""Depth and text: a simple command begins at depth 0, its arguments are at depth 1."""

BREAK: Final[Part] = (-1, "\n")
"""A line break between two commands."""
LEADING_WORDS: Final = frozenset(["do", "then", "else", "elif", "if", "while", "until", "{", "(", "!"])
"""Words of the shell behind which a command begins."""
_BLANK: Final = re.compile(r"[ \t]+")
_SIGN: Final = re.compile(r"&&|\|\||\|&|;;|[|;&]")


def split_command(text: str) -> list[Part]:
    """*text* in parts, in order; a here-document stays in its lines.

    What is left out is at most one blank between two parts: further ones begin the next part, and blanks at the end end
    the last one.
    """
    if "<<" in text:
        return [part for line in text.split("\n") for part in ((0, line), BREAK)][:-1]
    parts: list[Part] = []
    depth, lead, gap = 0, "", ""
    for kind, raw in _pieces(text):
        if kind == "blank":
            gap = raw
            continue
        if kind == "word":
            part = lead + (gap if lead else _further(gap, parts)) + raw
            if depth == 0 and raw in LEADING_WORDS:
                lead = part
            else:
                parts.append((depth, part))
                depth, lead = 1, ""
        else:
            parts += [(depth, lead)] if lead else []
            depth, lead = 0, _further(gap, parts) + raw if kind == "sign" else ""
            parts += [BREAK] if kind == "break" else []
        gap = ""
    if lead:
        parts.append((depth, lead))
    if gap:
        depth, last = parts.pop() if parts and parts[-1] != BREAK else (0, "")
        parts.append((depth, last + gap))
    return parts


def _further(gap: str, parts: list[Part]) -> str:
    """What of the blanks between two parts is worth seeing."""
    return gap[1:] if gap[:1] == " " and parts else gap


def _pieces(text: str) -> Iterator[tuple[Kind, str]]:
    """*text* without a gap: blanks, signs, line breaks and words."""
    at = 0
    while at < len(text):
        start = at
        if blank := _BLANK.match(text, at):
            at = blank.end()
            yield "blank", blank[0]
        elif text[at] == "\n":
            at += 1
            yield "break", "\n"
        elif _ends_word(text, at) and (sign := _SIGN.match(text, at)):
            at = sign.end()
            yield "sign", sign[0]
        else:
            while (
                at < len(text) and text[at] not in " \t\n" and not (_SIGN.match(text, at) and not _redirects(text, at))
            ):
                at = _word_end(text, at)
            yield "word", text[start:at]


def _ends_word(text: str, at: int) -> bool:
    return text[at] in " \t\n" or (_SIGN.match(text, at) is not None and not _redirects(text, at))


def _redirects(text: str, at: int) -> bool:
    """Whether the `&` at *at* belongs to a redirection: `2>&1`, `&>`."""
    return text[at] == "&" and (text[at - 1 : at] in (">", "<") or text[at + 1 : at + 2] == ">")


def _word_end(text: str, at: int) -> int:
    """Behind the quoted, escaped or nested piece, or the one character, that begins at *at*."""
    character = text[at]
    if character == "\\":
        return min(at + 2, len(text))
    if character in "'\"`":
        return _quote_end(text, at)
    if character in "$<>" and text[at + 1 : at + 2] == "(":
        return _nest_end(text, at + 1)
    return at + 1


def _quote_end(text: str, at: int) -> int:
    quote, at = text[at], at + 1
    while at < len(text) and text[at] != quote:
        at += 2 if text[at] == "\\" and quote != "'" else 1
    return min(at + 1, len(text))


def _nest_end(text: str, at: int) -> int:
    depth = 0
    while at < len(text):
        if text[at] in "'\"":
            at = _quote_end(text, at)
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
        if depth == 0:
            break
    return at
