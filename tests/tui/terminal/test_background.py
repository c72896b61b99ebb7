"""The terminal's background: what it replies is understood in pieces of any size, and no byte of it becomes a key."""

import pytest

from kasmon.tui.terminal.background import HOLD_S, STALL_S, BackgroundReply

WHITE, BLACK = b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\", b"\x1b]11;rgb:0000/0000/0000\x07"


@pytest.mark.parametrize(
    ("reply", "is_light"),
    [
        (WHITE, True),
        (BLACK, False),
        (b"\x1b]11;rgb:ff/f/fff\x07", True),
        (b"\x1b]11;rgba:fafa/f4f4/eded/ffff\x1b\\", True),
        (b"\x1b]11;rgb:2323/2121/3636\x07", False),
        (b"\x1b]11;rgb:0000/0000/ffff\x07", False),  # blue is dark, and green is light
        (b"\x1b]11;rgb:0000/ffff/0000\x07", True),
    ],
)
def test_a_reply_says_whether_the_background_is_light(reply: bytes, is_light: bool) -> None:
    background = BackgroundReply()

    assert b"ab" == background.feed(b"a" + reply + b"b")
    assert is_light is background.is_light
    assert background.hold_s is None


@pytest.mark.parametrize("at", range(2, len(WHITE)))
def test_a_reply_may_come_in_two_pieces(at: int) -> None:
    background = BackgroundReply()

    assert b"x" == background.feed(b"x" + WHITE[:at])
    assert (HOLD_S if at < 5 else STALL_S) == background.hold_s
    assert b"y" == background.feed(WHITE[at:] + b"y")
    assert background.is_light


def test_two_replies_at_once_leave_the_last_one() -> None:
    background = BackgroundReply()

    assert b"k" == background.feed(WHITE + b"k" + BLACK)
    assert background.is_light is False


def test_a_key_that_begins_like_a_reply_is_a_key() -> None:
    background = BackgroundReply()

    assert b"" == background.feed(b"\x1b]")
    assert b"\x1b]" == background.settle()
    assert b"" == background.feed(b"\x1b]")
    assert b"\x1b]q" == background.feed(b"q")
    assert b"\x1b" == background.feed(b"\x1b")
    assert background.is_light is None


@pytest.mark.parametrize("piece", [b"\x1b]11;", b"\x1b]11;rgb:ff", WHITE[:-1]])
def test_a_reply_without_an_end_is_dropped(piece: bytes) -> None:
    background = BackgroundReply()

    assert b"" == background.feed(piece)
    assert b"" == background.settle()
    assert b"d" == background.feed(b"d")


@pytest.mark.parametrize("other", [b"\x1b]11;?\x07", b"\x1b]10;rgb:ffff/ffff/ffff\x07", b"\x1b]11;rgb:ffff/ffff\x07"])
def test_other_input_passes(other: bytes) -> None:
    background = BackgroundReply()

    assert other + b"." == background.feed(other + b".")
    assert background.is_light is None
