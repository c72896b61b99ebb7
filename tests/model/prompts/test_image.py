"""Pictures of prompts: their kind and size by their first bytes, limits with sizes, and mentions in a text."""

import struct
import zlib

import msgspec
import pytest

from kasmon.errors import UsageError
from kasmon.model.prompts.image import IMAGE_BYTES, MOST, build_image, check_images, describe, mentioned


def png(width: int, height: int, padding: int = 0, pixels: bytes = b"") -> bytes:
    """A grey PNG, or one with these RGB *pixels*, in full or not; *padding* bytes of text make it longer."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2 if pixels else 0, 0, 0, 0))
    text = chunk(b"tEXt", b"Comment\0" + b"x" * padding) if padding else b""
    row = 3 * width
    coloured = (b"\0" + pixels[at : at + row] for at in range(0, len(pixels), row))
    rows = zlib.compress(b"".join(coloured) if pixels else (b"\0" + b"\x80" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + head + text + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF" + b"\0" * 10 + b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", 480, 640) + b"\3" * 9
GIF = b"GIF89a" + struct.pack("<HH", 30, 20) + b"\0"
VP8X = b"RIFF\x20\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + (799).to_bytes(3, "little") + (599).to_bytes(3, "little")


@pytest.mark.parametrize(
    ("data", "kind", "pixels"),
    [
        (png(3, 2), "image/png", (3, 2)),
        (JPEG, "image/jpeg", (640, 480)),
        (GIF, "image/gif", (30, 20)),
        (VP8X, "image/webp", (800, 600)),
    ],
)
def test_kind_and_pixels_are_read_from_the_first_bytes(data: bytes, kind: str, pixels: tuple[int, int]) -> None:
    image = build_image("a", data)

    assert (kind, pixels, len(data)) == (image.media_type, (image.width, image.height), image.size_bytes)


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh", b"\x89PNG\r\n\x1a\n", b"<svg/>", b"RIFF", b"GIF89a"])
def test_an_invalid_picture_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError, match=r"'x\.png' is no PNG, JPEG, GIF or WebP picture"):
        build_image("x.png", data)


def test_a_broken_jpeg_has_no_size_and_a_picture_over_the_limit_is_refused_with_both_sizes() -> None:
    assert 0 == build_image("a", b"\xff\xd8\xff\xe0\x00\x00").width

    with pytest.raises(UsageError, match=r"has 6\.0 MB; the limit is 5\.0 MB"):
        build_image("big.png", png(1, 1, 6_000_000))


def test_too_many_pictures_and_too_much_of_them_are_refused() -> None:
    small = build_image("a", png(1, 1))
    check_images([small] * MOST)
    with pytest.raises(UsageError, match=f"has {MOST + 1} pictures; the limit is {MOST}"):
        check_images([small] * (MOST + 1))
    with pytest.raises(UsageError, match=r"have 15\.0 MB; the limit is 12\.0 MB"):
        check_images([msgspec.structs.replace(small, size_bytes=IMAGE_BYTES)] * 3)


def test_it_is_described_by_kind_size_and_pixels_and_mentions_are_found_each_once() -> None:
    assert "PNG · 4.0 MB · 3×2" == describe(build_image("a", png(3, 2, 4_000_000)))

    text = 'see @a.png, @b.PNG and @"my pic.jpeg" again @b.PNG mail@c.png @notes.txt'
    assert ["b.PNG", "my pic.jpeg"] == mentioned(text)
