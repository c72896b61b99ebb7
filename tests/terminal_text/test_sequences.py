"""The sequences that a reader asks for are found however the output is cut, and nothing else is."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kasmon.terminal_text.sequences import EscapeSequence, Grammar, SequenceScanner

GRAMMAR = Grammar((b"]0;", b"]52;", b"k"), rb"\[\?\d{1,4}[hl]|\[\d? q|c", longest_bytes=6)
PIECES = (
    b"\x1b", b"\x1b\\", b"\x07", b"]0;", b"]52;", b"]5", b"k", b"[?25h", b"[?2", b"[4 q", b"[1m", b"c", b"\\", b"abc",
    b"ab", b"\x1b]0;", b"\x1bk", b"\x1b[",
)  # fmt: skip


def sequences(*pieces: bytes) -> list[EscapeSequence]:
    scanner = SequenceScanner(GRAMMAR)
    return [sequence for piece in pieces for sequence in scanner.feed(piece)]


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        (b"a\x1b]0;title\x07b", [(b"]0;", b"title")]),
        (b"\x1b]0;title\x1b\\", [(b"]0;", b"title")]),
        (b"\x1bPtmux;\x1b\x1b]52;YQ\x1b\x1b\\\x1b\\", [(b"]52;", b"YQ")]),
        (b"\x1bktitle\x1b\\", [(b"k", b"title")]),
        (b"\x1bktitle\x07\x1b\\", []),
        (b"\x1b[?25h\x1b[1m\x1b[ q\x1bc", [(b"[?25h", b""), (b"[ q", b""), (b"c", b"")]),
        (b"\x1b]0;cut off\x1bc", [(b"]0;", None), (b"c", b"")]),
        (b"\x1b]0;cut\x1bc", [(b"c", b"")]),
        (b"\x1b]8;;x\x1b\\\x1b]1;x\x07\x1b[?25", []),
    ],
)
def test_the_parts_of_each_grammar_are_found(printed: bytes, found: list[EscapeSequence]) -> None:
    assert found == sequences(printed)


def test_an_oversized_string_is_found_once_without_its_text_and_takes_no_memory() -> None:
    scanner = SequenceScanner(GRAMMAR)
    found = scanner.feed(b"\x1b]0;")
    for _ in range(9):
        found += scanner.feed(b"x" * 1000)
        assert len(scanner.rest) <= len(b"\x1b]0;") + 6
    found += scanner.feed(b"\x07\x1b]0;next\x07")

    assert [(b"]0;", None), (b"]0;", b"next")] == found


def test_many_escapes_take_no_memory() -> None:
    scanner = SequenceScanner(GRAMMAR)
    for _ in range(100):
        scanner.feed(b"\x1b\x1b\x1b")

    assert (b"\x1b", [(b"]0;", b"x")]) == (scanner.rest, scanner.feed(b"]0;x\x07"))


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join), st.lists(st.integers(0, 60), max_size=9))
@example(b"\x1b]0;abc\x1b\x1b\\", [8, 9])
@example(b"\x1b]0;abcabc\x07", [10])
def test_output_cut_at_any_point_gives_the_same_sequences(printed: bytes, cuts: list[int]) -> None:
    paths = sorted({0, len(printed), *(cut for cut in cuts if cut < len(printed))})

    assert sequences(printed) == sequences(*(printed[a:b] for a, b in pairwise(paths)))
    assert sequences(printed) == sequences(*(bytes([byte]) for byte in printed))


@given(st.binary(max_size=300))
def test_no_output_hides_text_printed_after_it(noise: bytes) -> None:
    scanner = SequenceScanner(GRAMMAR)
    scanner.feed(noise)

    assert (b"]0;", b"title") == scanner.feed(b"\x07\x1b\\\x1b]0;title\x07")[-1]
