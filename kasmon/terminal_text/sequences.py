"""Finds escape sequences in a terminal's output, which may be cut anywhere. Sans-IO.

A reader names its sequences once, in a `Grammar`; each pane has its own `SequenceScanner`. One compiled pattern skips
all other sequences: a pane under load prints thousands of them a second.
"""

import re
from typing import Final

PARAMETER_BYTES: Final = 32
"""A control sequence with longer parameters is ignored."""
EscapeSequence = tuple[bytes, bytes | None]
"""One sequence without its ESC: a string's introducer (`]52;`, `k`) and its text, None if that is longer than its
grammar allows; or a whole control sequence and an empty text."""


class Grammar:
    r"""The sequences that one reader requests.

    A string ends with `ESC \`, or with BEL if it begins with `]`. Inside tmux's pass-through that ESC is doubled.
    """

    def __init__(self, strings: tuple[bytes, ...] = (), controls: bytes = b"", longest_bytes: int = 0) -> None:
        """*strings* are introducers, *controls* is a pattern of sequences without a text; both without ESC.

        *controls* has no groups. The text of a string is *longest_bytes* long at most.
        """
        # Each alternative begins with a different character: other sequences are skipped at their second byte.
        wanted = [controls] if controls else []
        unfinished = [rb"\[[0-?]{0,%d}[ -/]?" % PARAMETER_BYTES] if controls else []
        for each in strings:
            end = rb"\x07|\x1b{1,2}\\" if each.startswith(b"]") else rb"\x1b{1,2}\\"
            text = rb"([^\x07\x1b]{0,%d}+)(?:%b)|[^\x07\x1b]{%d}()" % (longest_bytes, end, longest_bytes + 1)
            wanted.append(rb"%b(?:%b)" % (re.escape(each), text))
            unfinished.append(_build_unfinished(each))
        self.wanted = re.compile(rb"\x1b(?:%b)" % rb"|".join(wanted)).search
        self.begun = re.compile(rb"\x1b(?:%b)?\Z" % rb"|".join(unfinished)).match
        self.literal = b"\x1b" + strings[0] if len(strings) == 1 and not controls else b""
        """Bytes that every output with a complete requested sequence contains."""
        self.strings = strings


class SequenceScanner:
    """Finds the sequences of one grammar in one terminal's output.

    Most output holds no ESC: in hot code, check for one, and for an empty `rest`, before calling `feed`.
    """

    __slots__ = ("_grammar", "rest")

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self.rest = b""
        """The end of the output so far, if it may begin a sequence."""

    def feed(self, data: bytes) -> list[EscapeSequence]:
        """Return the sequences that *data* completes, in order."""
        grammar = self._grammar
        if self.rest:
            data = self.rest + data
        found: list[EscapeSequence] = []
        end = 0
        match = grammar.wanted(data) if grammar.literal in data else None
        while match is not None:
            end = match.end()
            group = match.lastindex  # each string has two groups: its text, and an empty one where that is too long
            if group is None:
                found.append((match[0][1:], b""))
            else:
                found.append((grammar.strings[(group - 1) // 2], match[group] if group % 2 else None))
            match = grammar.wanted(data, end)
        start, without_start = data.rfind(b"\x1b", end), b""
        if start >= 0 and start + 1 == len(data):  # it may begin the `ESC \` of an earlier string
            start, without_start = data.rfind(b"\x1b", end, len(data.rstrip(b"\x1b"))), b"\x1b"
        self.rest = data[start:] if start >= 0 and grammar.begun(data, start) else without_start
        return found


def _build_unfinished(introducer: bytes) -> bytes:
    """Return the pattern of an unfinished string: part of its *introducer*, or all of it and part of its text."""
    pattern = rb"[^\x07\x1b]*+\x1b{0,2}"
    for at in reversed(range(len(introducer))):
        pattern = rb"%b(?:%b)?" % (re.escape(introducer[at : at + 1]), pattern)
    return pattern
