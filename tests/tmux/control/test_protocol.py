"""What `tmux -C` says, and what it must not be able to say."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.tmux.control.protocol import AnswerItem, BrokenItem, ControlParser, Item, NoticeItem, OutputItem, unescape

CONVERSATION = (
    b"%begin 1795300989 275 0\n%end 1795300989 275 0\n%session-changed $0 _km\n"
    b"%output %1 hi\\015\\012\n%extended-output %2 17 : caf\xc3\xa9\\134\n"
    b"%begin 1795300990 286 1\nfirst\n\n%output %9 only text here\n%end 1795300990 286 1\n"
    b"%begin 1795300990 287 1\ncan't find pane: %99\n%error 1795300990 287 1\n"
    b"%pause %2\n%exit\n"
)
MEANING = [
    AnswerItem(275, is_requested=False, failed=False, lines=[]),
    NoticeItem("session-changed", b"$0 _km"),
    OutputItem("%1", b"hi\r\n"),
    OutputItem("%2", b"caf\xc3\xa9\\"),
    AnswerItem(286, is_requested=True, failed=False, lines=[b"first", b"", b"%output %9 only text here"]),
    AnswerItem(287, is_requested=True, failed=True, lines=[b"can't find pane: %99"]),
    NoticeItem("pause", b"%2"),
    NoticeItem("exit", b""),
]


def items(*pieces: bytes) -> list[Item]:
    parser = ControlParser()
    return [item for piece in pieces for item in parser.feed(piece)]


def test_a_conversation_is_read() -> None:
    assert MEANING == items(CONVERSATION)


@given(st.lists(st.integers(0, len(CONVERSATION)), max_size=12))
def test_the_bytes_may_be_cut_anywhere(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(CONVERSATION)]

    assert MEANING == items(*(CONVERSATION[a:b] for a, b in pairwise(edges)))


@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(CONVERSATION.split(b"\n"))), max_size=20))
def test_invalid_input_does_no_harm(lines: list[bytes]) -> None:
    assert isinstance(items(b"\n".join(lines)), list)


@pytest.mark.parametrize(
    "junk",
    [b"\xff\xfe", b"%", b"%begin", b"%begin x y z", b"%output", b"%output nobody text", b"%output %x text", b"words"],
    ids=repr,
)
def test_a_malformed_line_affects_no_other(junk: bytes) -> None:
    assert MEANING == [item for item in items(junk + b"\n" + CONVERSATION) if item in MEANING]


def test_an_answer_ends_only_with_its_own_number() -> None:
    said = items(b"%begin 1 7 1\n%end 1 8 1\n%error 2 7 1\n%end 1 7 0\n%end 1 7 1\n")

    assert [
        AnswerItem(7, is_requested=True, failed=False, lines=[b"%end 1 8 1", b"%error 2 7 1", b"%end 1 7 0"])
    ] == said


def test_a_screen_that_guesses_its_own_end_is_detected() -> None:
    said = items(b"%begin 1 7 1\nrow\n%end 1 7 1\nrow\n%end 1 7 1\n")

    assert [AnswerItem(7, is_requested=True, failed=False, lines=[b"row"]), BrokenItem(b"%end 1 7 1")] == said


@given(st.binary(max_size=200))
def test_any_output_of_a_program_is_preserved_byte_for_byte(printed: bytes) -> None:
    """tmux writes controls and backslashes as three octal digits, and everything else as it is."""
    written = b"".join(b"\\%03o" % byte if byte < 32 or byte == 92 else bytes([byte]) for byte in printed)

    assert printed == unescape(written)


def test_escapes_that_tmux_would_not_write_stay_as_they_are() -> None:
    assert b"end\\" == unescape(b"end\\")
    assert b"\\xZZ" == unescape(b"\\xZZ")
    assert b"\\8" == unescape(b"\\8")  # of which Python warns
    assert b"\\8\\xZZ" == unescape(b"\\8\\xZZ")


def test_an_endless_line_takes_limited_memory() -> None:
    parser = ControlParser(line_bytes=100)
    for _ in range(1000):
        assert [] == list(parser.feed(b"x" * 64))

    assert 100 >= sum(len(piece) for piece in parser._pending)
    assert [NoticeItem("exit", b"")] == list(parser.feed(b"\n%exit\n"))
