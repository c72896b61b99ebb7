"""The terminal's reply about the picture in its clipboard, cut into pieces of any size, among keys."""

from base64 import b64encode

import pytest

from kasmon.model.prompts.image import IMAGE_BYTES
from kasmon.tui.terminal.clipboard import HOLD_S, NO_PICTURE, STALL_S, TOO_LONG, ClipboardReply
from tests.model.prompts.test_image import png

PNG, GIF = b"image/png", b"image/gif"


def packet(status: bytes, mime: bytes = b"", data: bytes = b"", end: bytes = b"\x1b\\") -> bytes:
    """A piece of a reply as kitty sends it."""
    named = b":mime=" + b64encode(mime) if mime else b""
    return b"\x1b]5522;type=read:status=" + status + named + (b";" + b64encode(data) if data else b"") + end


def reply(data: bytes, mime: bytes = PNG, end: bytes = b"\x1b\\") -> bytes:
    pieces = [data[at : at + 4096] for at in range(0, len(data), 4096)]
    return b"".join((packet(b"OK", end=end), *(packet(b"DATA", mime, piece, end) for piece in pieces), packet(b"DONE")))


def asked() -> ClipboardReply:
    found = ClipboardReply()
    found.expect()
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 4096, 1 << 20])
@pytest.mark.parametrize("end", [b"\x1b\\", b"\x07"])
def test_a_picture_comes_whole_and_the_keys_around_it_stay(size: int, end: bytes) -> None:
    picture, found = png(40, 20) + bytes(range(256)) * 40, asked()
    sent = b"a" + reply(picture, end=end) + b"b\x1b[A"
    kept = b"".join(found.feed(sent[at : at + size]) for at in range(0, len(sent), size))

    assert (b"ab\x1b[A", True, picture, "") == (kept + found.settle(), found.is_over, found.picture, found.problem)


def test_of_several_kinds_the_first_that_agents_accept_is_taken() -> None:
    found = asked()
    found.feed(packet(b"DATA", GIF, b"GIF89a") + packet(b"DATA", PNG, b"png") + packet(b"DATA", b"text/plain", b"x"))
    found.feed(packet(b"DONE"))

    assert b"png" == found.picture


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (packet(b"OK") + packet(b"DONE"), NO_PICTURE),
        (packet(b"EPERM"), "the terminal was not permitted to read its clipboard"),
        (packet(b"EWHAT"), "the terminal answered 'EWHAT'"),
        (reply(bytes(IMAGE_BYTES + 1)), TOO_LONG),
        (packet(b"DATA", PNG, b"x").replace(b64encode(b"x"), b"!") + packet(b"DONE"), NO_PICTURE),
    ],
    ids=["none", "refused", "other", "too-long", "broken"],
)
def test_a_reply_without_a_picture_says_why(sent: bytes, why: str) -> None:
    found = asked()

    assert (b"", b"", why, True) == (found.feed(sent), found.picture, found.problem, found.is_over)


def test_nothing_changes_before_a_picture_was_asked_for() -> None:
    found = ClipboardReply()

    assert (b"\x1b", None) == (found.feed(b"\x1b"), found.hold_s)


def test_a_lone_esc_is_a_key_soon_and_an_unfinished_reply_is_dropped() -> None:
    found = asked()
    assert (b"a", HOLD_S, b"\x1b") == (found.feed(b"a\x1b"), found.hold_s, found.settle())

    begun = packet(b"DATA", PNG, b"x" * 60)[:-2]
    assert (b"", STALL_S, b"", None) == (found.feed(begun), found.hold_s, found.settle(), found.hold_s)


def test_a_second_question_gets_its_own_answer() -> None:
    found = asked()
    found.feed(reply(b"one"))
    found.expect()
    assert (False, b"") == (found.is_over, found.picture)

    found.feed(reply(b"two"))
    assert b"two" == found.picture
