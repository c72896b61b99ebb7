"""The terminal's reply about the picture in its clipboard, cut into pieces of any size, among keys."""

import re
from base64 import b64encode

import pytest

from kasmon.model.prompts.image import IMAGE_BYTES
from kasmon.tui.terminal.clipboard import (
    BROKEN,
    DROP_S,
    HOLD_S,
    INNER_HOLD_S,
    LONGEST_PACKET,
    NO_PICTURE,
    STALL_S,
    TOO_LONG,
    ClipboardReply,
)
from tests.model.prompts.test_image import png

PNG, GIF = b"image/png", b"image/gif"


def packet(status: bytes, mime: bytes = b"", data: bytes = b"", end: bytes = b"\x1b\\", asked: bytes = b"") -> bytes:
    """A piece of a reply as kitty sends it, to the question with the id *asked*."""
    named = (b":id=" + asked if asked else b"") + (b":mime=" + b64encode(mime) if mime else b"")
    return b"\x1b]5522;type=read:status=" + status + named + (b";" + b64encode(data) if data else b"") + end


def reply(data: bytes, mime: bytes = PNG, end: bytes = b"\x1b\\", asked: bytes = b"") -> bytes:
    pieces = [packet(b"DATA", mime, data[at : at + 4096], end, asked) for at in range(0, len(data), 4096)]
    return b"".join((packet(b"OK", end=end, asked=asked), *pieces, packet(b"DONE", asked=asked)))


def asked() -> ClipboardReply:
    found = ClipboardReply()
    found.expect()
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 4096, 1 << 20])
@pytest.mark.parametrize("end", [b"\x1b\\", b"\x07"])
def test_a_picture_is_read_whole_and_the_keys_around_it_pass(size: int, end: bytes) -> None:
    picture, found = png(40, 20) + bytes(range(256)) * 40, asked()
    sent = b"a" + reply(picture, end=end) + b"b\x1b[A"
    kept = b"".join(found.feed(sent[at : at + size]) for at in range(0, len(sent), size))

    assert (b"ab\x1b[A", True, picture, "") == (kept + found.settle(), found.is_over, found.picture, found.problem)


def test_the_first_of_several_kinds_that_agents_accept_is_used() -> None:
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
        (packet(b"DATA", PNG, b"png") + packet(b"E" * 400), f"the terminal answered {'E' * 20!r}"),
        (reply(bytes(IMAGE_BYTES + 1)), TOO_LONG),
        (packet(b"DATA", PNG, b"x").replace(b64encode(b"x"), b"A") + packet(b"DONE"), NO_PICTURE),
    ],
    ids=["none", "refused", "other", "long", "too-long", "broken"],
)
def test_a_reply_without_a_picture_gives_the_reason(sent: bytes, why: str) -> None:
    found = asked()

    assert (b"", b"", why, True) == (found.feed(sent), found.picture, found.problem, found.is_over)


@pytest.mark.parametrize("is_piece", [True, False], ids=["one-piece", "many"])
def test_no_more_than_the_size_limit_of_a_picture_is_kept(is_piece: bool) -> None:
    found, size = asked(), LONGEST_PACKET // 2
    found.feed(packet(b"DATA", PNG, bytes(LONGEST_PACKET)) if is_piece else b"")
    for _ in range(0 if is_piece else 50):
        found.feed(packet(b"DATA", PNG, bytes(size)))

    assert sum(map(len, found._data.values())) <= IMAGE_BYTES * 4
    found.feed(packet(b"DONE"))
    assert (b"", BROKEN if is_piece else TOO_LONG) == (found.picture, found.problem)


def test_another_reply_or_a_late_one_changes_nothing() -> None:
    found = asked()
    found.feed(packet(b"DONE").replace(b"type=read", b"type=write"))
    assert not found.is_over

    found.feed(reply(b"png") + reply(b"other") + packet(b"EPERM"))
    assert (b"png", "") == (found.picture, found.problem)


def test_without_a_query_nothing_changes() -> None:
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


def test_other_keys_pass_without_delay() -> None:
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


def test_waiting_for_a_key_loses_no_piece() -> None:
    _, found, rest = stalled()
    assert (b"", INNER_HOLD_S, b"\x1b") == (found.feed(b"\x1b"), found.hold_s, found.settle())
    assert b"\x1b[\x1bx" == found.feed(b"\x1b[\x1bx")
    found.feed(rest + packet(b"DONE"))

    assert b"x" * 60 == found.picture


def test_a_second_query_gets_its_own_answer() -> None:
    found = asked()
    found.feed(reply(b"one"))
    found.expect()
    assert (False, b"") == (found.is_over, found.picture)

    found.feed(reply(b"two"))
    assert b"two" == found.picture


def test_each_query_has_a_unique_id() -> None:
    found = ClipboardReply()

    assert [b"1", b"2"] == [
        re.findall(rb"\A\x1b]5522;type=read:id=(\d);", found.expect().encode())[0] for _ in range(2)
    ]


@pytest.mark.parametrize("asked", [b"", b"2"], ids=["without-ids", "with-ids"])
@pytest.mark.parametrize("passed_s", [STALL_S - 0.5, STALL_S, STALL_S + DROP_S])
def test_a_reply_that_stalled_does_not_break_the_next_one(asked: bytes, passed_s: float) -> None:
    clock, found, _ = stalled()
    clock.now += passed_s
    found.expect()

    assert b"" == found.feed(reply(b"two", asked=asked))
    assert (True, b"two", "") == (found.is_over, found.picture, found.problem)


def test_the_late_rest_of_an_earlier_reply_is_not_part_of_the_next_one() -> None:
    found = asked()
    found.feed(packet(b"DATA", PNG, b"one", asked=b"1"))
    found.expect()
    found.feed(packet(b"DATA", PNG, b"1", asked=b"1") + packet(b"DONE", asked=b"1"))
    assert not found.is_over

    found.feed(packet(b"DATA", PNG, b"1" * 60, asked=b"1")[:80] + reply(b"two", asked=b"2"))
    assert (True, b"two", "") == (found.is_over, found.picture, found.problem)


@pytest.mark.parametrize("kept", range(len(b"\x1b]5522;"), 81))
def test_a_reply_with_an_unfinished_piece_has_no_picture(kept: int) -> None:
    """Also if it breaks off within its id."""
    found = ClipboardReply()
    for _ in range(12):
        found.expect()
    found.feed(packet(b"DATA", PNG, b"x" * 60, asked=b"12")[:kept] + reply(b"x", asked=b"12"))

    assert (True, b"", BROKEN) == (found.is_over, found.picture, found.problem)


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
