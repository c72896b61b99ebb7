"""Finds escape sequences in a terminal's output, however the output is cut into pieces. Sans-IO.

A reader names the sequences that it wants in a `Grammar`, once; each pane has a `SequenceScanner` of its own. One
compiled pattern passes over all others: a pane under load prints thousands of them a second.
"""

import re
from typing import Final

PARAMETER_BYTES: Final = 32
"""A control sequence whose parameters are longer is no sequence that any reader wants."""
EscapeSequence = tuple[bytes, bytes | None]
"""One sequence without its ESC: a string's introducer (`]52;`, `k`) and its text, None where that is longer than its
grammar allows; or all of a control sequence and an empty text."""


class Grammar:
    r"""The sequences that a reader wants.

    A string ends with `ESC \`, or with BEL where it begins with `]`. Inside tmux's pass-through that ESC is doubled.
    """

    def __init__(self, strings: tuple[bytes, ...] = (), controls: bytes = b"", longest_bytes: int = 0) -> None:
        """*strings* are introducers, *controls* is a pattern of sequences without a text; both as they are behind ESC.

        *controls* has no groups. The text of a string is *longest_bytes* long at most.
        """
        # Each alternative begins with a character of its own: what is not wanted is passed over at its second byte.
        wanted = [controls] if controls else []
        begun = [rb"\[[0-?]{0,%d}[ -/]?" % PARAMETER_BYTES] if controls else []
        for each in strings:
            end = rb"\x07|\x1b{1,2}\\" if each.startswith(b"]") else rb"\x1b{1,2}\\"
            text = rb"([^\x07\x1b]{0,%d}+)(?:%b)|[^\x07\x1b]{%d}()" % (longest_bytes, end, longest_bytes + 1)
            wanted.append(rb"%b(?:%b)" % (re.escape(each), text))
            begun.append(_beginning(each))
        self.wanted = re.compile(rb"\x1b(?:%b)" % rb"|".join(wanted)).search
        self.begun = re.compile(rb"\x1b(?:%b)?\Z" % rb"|".join(begun)).match
        self.literal = b"\x1b" + strings[0] if len(strings) == 1 and not controls else b""
        """What is in every output that completes a wanted sequence."""
        self.strings = strings


class SequenceScanner:
    """Finds the sequences of one grammar in one terminal's output.

    Most output holds no ESC: where each microsecond counts, look for one, and into `rest`, before the call of `feed`.
    """

    __slots__ = ("_grammar", "rest")

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self.rest = b""
        """The end of the output so far, if it may be the beginning of a sequence."""

    def feed(self, data: bytes) -> list[EscapeSequence]:
        """The sequences that *data* completes, in order."""
        grammar = self._grammar
        if self.rest:
            data = self.rest + data
        found: list[EscapeSequence] = []
        end = 0
        match = grammar.wanted(data) if grammar.literal in data else None
        while match is not None:
            end = match.end()
            group = match.lastindex  # each string has two: its text, and nothing where that is too long
            if group is None:
                found.append((match[0][1:], b""))
            else:
                found.append((grammar.strings[(group - 1) // 2], match[group] if group % 2 else None))
            match = grammar.wanted(data, end)
        start, without_start = data.rfind(b"\x1b", end), b""
        if start >= 0 and start + 1 == len(data):  # it may begin the `ESC \` of a string before it
            start, without_start = data.rfind(b"\x1b", end, len(data.rstrip(b"\x1b"))), b"\x1b"
        self.rest = data[start:] if start >= 0 and grammar.begun(data, start) else without_start
        return found


def _beginning(introducer: bytes) -> bytes:
    """The pattern of what may become a string: a part of its *introducer*, or all of it and a part of its text."""
    pattern = rb"[^\x07\x1b]*+\x1b{0,2}"
    for at in reversed(range(len(introducer))):
        pattern = rb"%b(?:%b)?" % (re.escape(introducer[at : at + 1]), pattern)
    return pattern
