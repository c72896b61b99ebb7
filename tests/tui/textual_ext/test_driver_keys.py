"""Random bytes, and keys by the thousand: nothing is lost, nothing hangs, whatever the reads are cut like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events

from kasmon.tui.terminal.stdin_tap import StdinTap
from kasmon.tui.textual_ext.driver import KeyParser
from tests.tui.textual_ext.test_driver_tap import FOR_TEXTUAL, PLAIN_KEYS, REPLIES, Session

KEYS = [
    key
    for key in PLAIN_KEYS.values()
    if key not in (b"\x1b", b"\x1b\x1b", b"\x1b[", b"\x1b]", b"\x1bO", b"\x1bP", b"\x1b_")
]
"""Those that are whole in themselves; an Escape that other bytes follow at once is Alt with these."""


@given(st.data())
def test_keys_and_replies_are_distinguished_at_any_cut(data: st.DataObject) -> None:
    said = data.draw(st.lists(st.sampled_from([*KEYS, *REPLIES.values(), *FOR_TEXTUAL.values()]), max_size=30))
    whole = b"".join(said)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    session = Session()
    tap = StdinTap(session)
    textual = b""
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        textual += tap.feed(whole[start:end])
    tap.settle()

    assert b"".join(part for part in said if part in KEYS) == session.bytes
    assert b"".join(part for part in said if part in FOR_TEXTUAL.values()) == textual


@given(st.lists(st.binary(max_size=40), max_size=12))
def test_random_bytes_block_nothing(reads: list[bytes]) -> None:
    session = Session()
    tap = StdinTap(session)
    for read in reads:
        tap.feed(read)
    for _ in range(3):
        tap.settle()

    assert tap.hold_s is None
    left = tap.left
    tap.feed(b"\x1d")
    assert left or tap.left


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        ("\r", "enter"),
        ("\n", "ctrl+j"),
        ("\x1b\r", "alt+enter"),
        ("\x1b[13;3u", "alt+enter"),
        ("\x1b[13;2u", "shift+enter"),
        ("\x1b[27;2;13~", "shift+enter"),
        ("\x1b[27;3;13~", "alt+enter"),
        ("\x1bq", "alt+q"),
    ],
)
def test_an_enter_for_a_new_line_is_distinguished_from_one_that_sends(sent: str, key: str) -> None:
    """As terminals send them: the oldest way, kitty's, and xterm's."""
    parser = KeyParser()
    heard = list(parser.feed(sent))
    if parser._timeout_time is not None:
        parser._timeout_time = 0.0  # nothing more came
        heard += parser.tick()

    assert [key] == [event.key for event in heard if isinstance(event, events.Key)]
