"""The files of a gVisor checkpoint: what is taken out of them is in them nowhere, and all else is as it was."""

import json
import struct
import zlib
from pathlib import Path

import pytest

from kasmon.errors import SandboxError
from kasmon.sandbox.credential import Looked
from kasmon.sandbox.gvisor import image
from kasmon.sandbox.gvisor.image import IMAGE, MARK

CANARY = "canary-8f2e61d07b"
LOOKED = Looked({"TOKEN": CANARY}, ())
BLOCK = 1 << 16


def head(**said: str) -> bytes:
    told = json.dumps(said).encode()
    return MARK + struct.pack(">Q", len(told)) + told + bytes(range(32))


def plain(*pieces: bytes) -> bytes:
    return head(compression="none") + b"".join(struct.pack(">I", len(piece)) + piece for piece in pieces)


def packed(stream: bytes, **said: str) -> bytes:
    written = head(**said) + struct.pack(">I", BLOCK)
    for at in range(0, len(stream), BLOCK):
        packer = zlib.compressobj(1, zlib.DEFLATED, -15)
        block = packer.compress(stream[at : at + BLOCK]) + packer.flush()
        written += struct.pack(">I", len(block)) + block
    return written


def test_a_value_goes_from_a_plain_one_also_where_it_is_in_two_pieces_of_it_and_from_the_pages_beside_it(
    tmp_path: Path,
) -> None:
    before, after = CANARY[:5].encode(), CANARY[5:].encode()
    (tmp_path / IMAGE).write_bytes(plain(b"one " + before, after + b" two", b"three"))
    (tmp_path / "pages.img").write_bytes(b"x" * 5000 + CANARY.encode() + b"y")
    (tmp_path / "pages_meta.img").write_bytes(b"")
    assert image.holds(tmp_path, CANARY.encode())

    assert 2 == image.clean(tmp_path, LOOKED)

    assert plain(b"one " + bytes(5), bytes(len(after)) + b" two", b"three") == (tmp_path / IMAGE).read_bytes()
    assert b"x" * 5000 + bytes(len(CANARY)) + b"y" == (tmp_path / "pages.img").read_bytes()
    assert not image.holds(tmp_path, CANARY.encode())


@pytest.mark.parametrize("said", [{}, {"compression": "flate-best-speed"}], ids=["of old", "that says so"])
def test_a_value_goes_from_a_packed_one_also_where_it_is_in_two_blocks_of_it(
    tmp_path: Path, said: dict[str, str]
) -> None:
    stream = bytearray(b"z" * 2 * BLOCK)
    stream[BLOCK - 3 : BLOCK - 3 + len(CANARY)] = CANARY.encode()
    (tmp_path / IMAGE).write_bytes(packed(bytes(stream), **said))
    assert image.holds(tmp_path, CANARY.encode())

    assert 1 == image.clean(tmp_path, LOOKED)

    stream[BLOCK - 3 : BLOCK - 3 + len(CANARY)] = bytes(len(CANARY))
    assert stream == image.read(tmp_path / IMAGE).stream
    assert head(**said) == (tmp_path / IMAGE).read_bytes()[: len(head(**said))]


def test_one_that_holds_none_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / IMAGE).write_bytes(packed(b"nothing"))
    written = (tmp_path / IMAGE).stat().st_ino

    assert 0 == image.clean(tmp_path, LOOKED)

    assert written == (tmp_path / IMAGE).stat().st_ino


@pytest.mark.parametrize(
    "content",
    [
        b"",
        MARK,
        b"another one",
        MARK + bytes(44) + b"\x00\x10\x00\x00\x00\x00\x00\x04abcd",
        head() + b"\x00\x10\x00\x00\x00\x00\x00\x04abcd",
        plain(b"whole", b"cut")[:-1],
        plain(b"whole") + b"\x00",
    ],
    ids=["nothing", "its beginning", "another kind", "no text", "no block", "a cut piece", "a cut length"],
)
def test_one_that_cannot_be_searched_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / IMAGE).write_bytes(content)

    with pytest.raises(SandboxError, match="cannot be searched"):
        image.clean(tmp_path, LOOKED)
