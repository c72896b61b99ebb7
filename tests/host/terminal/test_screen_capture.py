"""What a pane's output asks of its terminal: texts for the clipboard, a shape of the cursor."""

import base64
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.host.terminal.screen_capture import CLIPBOARD_BYTES, ClipboardText, EscapeScanner


def put(text: str, end: bytes = b"\x07", where: bytes = b"c") -> bytes:
    return b"\x1b]52;" + where + b";" + base64.b64encode(text.encode()) + end


@pytest.mark.parametrize(
    "said",
    [
        put("hello\nworld é"),
        put("hello\nworld é", b"\x1b\\"),
        put("hello\nworld é", where=b""),
        put("hello\nworld é", where=b"pc"),
        b"\x1bPtmux;\x1b" + put("hello\nworld é", b"\x1b\x1b\\") + b"\x1b\\",
        b"\x1bPtmux;\x1b" + put("hello\nworld é") + b"\x1b\\",
    ],
)
def test_a_clipboard_text_is_read_in_every_form(said: bytes) -> None:
    assert [ClipboardText("hello\nworld é")] == EscapeScanner().feed(b"before" + said + b"behind")


@given(st.lists(st.integers(0, 200), max_size=9))
def test_a_clipboard_text_may_arrive_in_pieces(cuts: list[int]) -> None:
    said = b"x\x1b[5 q" + put("one") + b"text" + put("two", b"\x1b\\") + b"\x1b[2m end"
    paths = sorted({0, len(said), *(cut % len(said) for cut in cuts)})
    signs = EscapeScanner()

    heard = [clip for a, b in pairwise(paths) for clip in signs.feed(said[a:b])]

    assert ([ClipboardText("one"), ClipboardText("two")], "bar") == (heard, signs.shape)


@pytest.mark.parametrize(
    "said",
    [
        b"\x1b]52;c;?\x07",
        b"\x1b]52;c;\x07",
        b"\x1b]52;c;!!!\x07",
        b"\x1b]52;c;YQ\x07",
        b"\x1b]52;x;YQ==\x07",
        b"]52;c;YQ==\x07",
    ],
)
def test_clipboard_queries_and_invalid_texts_are_ignored(said: bytes) -> None:
    assert [] == EscapeScanner().feed(said)


def test_control_characters_are_removed() -> None:
    assert [ClipboardText("rm -rf x\n")] == EscapeScanner().feed(put("rm\x1b[201~ -rf\x07 x\r\n"))


def test_an_oversized_text_is_reported_once_and_takes_no_memory() -> None:
    signs = EscapeScanner()
    heard = signs.feed(b"\x1b]52;c;")
    for _ in range(40):
        heard += signs.feed(b"YWFh" * 3000)
    heard += signs.feed(b"\x07" + put("next"))

    assert [ClipboardText(None), ClipboardText("next")] == heard
    assert [ClipboardText(None)] == EscapeScanner().feed(put("x" * (CLIPBOARD_BYTES + 1)))


def test_skipped_output_discards_a_partial_sequence() -> None:
    signs = EscapeScanner()
    signs.feed(b"\x1b]52;c;YQ=")
    signs.feed(b"")

    assert [] == signs.feed(b"=\x07")


@pytest.mark.parametrize(
    ("said", "shape"),
    [
        (b"\x1b[4 q", "underline"),
        (b"\x1b[6 q\x1b[2 q", "block"),
        (b"\x1b[6 q\x1b[ q", "block"),
        (b"\x1b[6 q\x1bc", "block"),
        (b"\x1b[5 q", "bar"),
        (b"plain \x1b[1m", ""),
    ],
)
def test_the_last_shape_of_the_cursor_counts(said: bytes, shape: str) -> None:
    signs = EscapeScanner()
    signs.feed(said)

    assert shape == signs.shape
