"""The terminal's reply about the picture in its clipboard, cut into pieces of any size, among keys."""

from base64 import b64encode

import pytest

from kasmon.model.prompts.image import IMAGE_BYTES
from kasmon.tui.terminal.clipboard import (
    BROKEN,
    DROP_S,
    HOLD_S,
    INNER_HOLD_S,
    NO_PICTURE,
    STALL_S,
    TOO_LONG,
    ClipboardReply,
)
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
        (packet(b"DATA", PNG, b"x").replace(b64encode(b"x"), b"A") + packet(b"DONE"), NO_PICTURE),
    ],
    ids=["none", "refused", "other", "too-long", "broken"],
)
def test_a_reply_without_a_picture_says_why(sent: bytes, why: str) -> None:
    found = asked()

    assert (b"", b"", why, True) == (found.feed(sent), found.picture, found.problem, found.is_over)


def test_nothing_changes_before_a_picture_was_asked_for() -> None:
    found = ClipboardReply()

    assert (b"\x1b", None) == (found.feed(b"\x1b"), found.hold_s)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_lone_esc_is_a_key_soon() -> None:
    found = asked()

    assert (b"a", HOLD_S, b"\x1b") == (found.feed(b"a\x1b"), found.hold_s, found.settle())


def stalled() -> tuple[Clock, ClipboardReply, bytes]:
    """A clock, a reply whose first piece stalls in its middle, and the rest of that piece."""
    clock = Clock()
    found, piece = ClipboardReply(clock), packet(b"DATA", PNG, b"x" * 60)
    found.expect()
    assert (b"", None) == (found.feed(piece[:70]), found.hold_s)
    return clock, found, piece[70:]


def test_the_rest_of_a_reply_that_stalled_is_no_key() -> None:
    clock, found, rest = stalled()
    clock.now += STALL_S
    assert b"ls" == b"".join(map(found.feed, (rest[:5], rest[5:-1], rest[-1:], b"ls")))
    assert b"" == found.feed(packet(b"DONE"))
    assert (b"", BROKEN) == (found.picture, found.problem)


def test_keys_that_are_not_of_a_reply_pass_and_keep_nothing_waiting() -> None:
    clock, found, rest = stalled()
    clock.now += STALL_S / 2
    keys = (b"\x1b[A", b"\x03", b"\x1b[1;5", b"C", b" ", b"\x1bOP", "é".encode())
    assert b"".join(keys) == b"".join(map(found.feed, keys))

    found.feed(rest + packet(b"DONE"))
    assert b"x" * 60 == found.picture


def test_a_reply_without_an_end_takes_letters_for_a_limited_time() -> None:
    clock, found, _ = stalled()
    clock.now += STALL_S
    for _ in range(4):
        assert b"" == found.feed(b"ls")
        clock.now += DROP_S / 4

    assert b"ls" == found.feed(b"ls")


def test_the_wait_for_a_key_gives_no_piece_up() -> None:
    _, found, rest = stalled()
    assert (b"", INNER_HOLD_S, b"\x1b") == (found.feed(b"\x1b"), found.hold_s, found.settle())
    assert b"\x1b[\x1bx" == found.feed(b"\x1b[\x1bx")
    found.feed(rest + packet(b"DONE"))

    assert b"x" * 60 == found.picture


def test_a_second_question_gets_its_own_answer() -> None:
    found = asked()
    found.feed(reply(b"one"))
    found.expect()
    assert (False, b"") == (found.is_over, found.picture)

    found.feed(reply(b"two"))
    assert b"two" == found.picture


def test_a_reply_is_being_read_until_its_end_or_until_it_stalls() -> None:
    clock = Clock()
    found = ClipboardReply(clock)
    found.expect()
    is_reading = [found.is_reading]
    for piece in (packet(b"OK"), b"", packet(b"DATA", PNG, b"x"), packet(b"DONE")):
        clock.now += 0.0 if piece else STALL_S
        found.feed(piece)
        is_reading.append(found.is_reading)

    assert [False, True, False, True, False] == is_reading
