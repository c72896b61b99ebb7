"""Whether a paste is taken as one is known by what the program was heard to ask for, and by nothing else."""

import pytest

from kasmon.tmux.output_scanner import BracketedPasteTracker

ON, OFF = b"\x1b[?2004h", b"\x1b[?2004l"


def heard(*pieces: bytes) -> bool | None:
    brackets = BracketedPasteTracker()
    brackets.begin()
    for piece in pieces:
        brackets.feed(piece)
    return brackets.is_on


@pytest.mark.parametrize(
    ("said", "is_on"),
    [
        (b"", False),
        (b"plain text, 2004h", False),
        (ON, True),
        (ON + OFF, False),
        (OFF + b"x" + ON + b"y" * 100, True),
        (b"\x1b[?1049;2004;25h", True),
        (b"\x1b[?1049h\x1b[?20040h\x1b[?12004h", False),
        (ON + b"\x1bc", False),
        (ON + b"\x1b[!p", False),
        (ON + b"\x1b[?25l" * 20, True),
    ],
)
def test_the_last_sequence_of_the_program_counts(said: bytes, is_on: bool) -> None:
    assert is_on is heard(said)


@pytest.mark.parametrize("cut", range(1, len(ON)))
def test_a_sequence_in_pieces_counts_too(cut: int) -> None:
    assert heard(b"x" + ON[:cut], ON[cut:] + b"y") is True
    assert heard(ON, OFF[:cut], OFF[cut:]) is False
    assert heard(ON, OFF[:cut], b"", OFF[cut:], ON) is True


def test_after_skipped_output_the_mode_is_unknown() -> None:
    brackets = BracketedPasteTracker()
    known = [brackets.is_on]
    for data in (b"something", ON, None, b"something", ON):
        if data is None:
            brackets.handle_missed_output()
        else:
            brackets.feed(data)
        known.append(brackets.is_on)

    assert [None, None, True, None, None, True] == known
