"""Pictures that go with a prompt: their kind and size from their first bytes, and the limits. No picture is decoded."""

import re
import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from kasmon.errors import UsageError

IMAGE_BYTES: Final = 5_000_000
"""The longest picture, in bytes; providers accept about as much."""
TOTAL_BYTES: Final = 12_000_000
"""The limit of all pictures of one prompt."""
MOST: Final = 10
"""How many pictures a prompt may have."""
SUFFIXES: Final = {"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp"}
"""The kinds that agents accept -> the suffix of the file."""
MENTION: Final = re.compile(r"""(?:^|(?<=\s))@(?:"([^"\n]+)"|([^\s"@]+))""")
NAMED: Final = re.compile(r"\.(?:png|jpe?g|gif|webp)\Z", re.IGNORECASE)
FRAME_MARKERS: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""The JPEG segments that have the picture's size."""


class PromptImage(msgspec.Struct, frozen=True, kw_only=True):
    """One picture of a prompt."""

    name: str
    """The name of its file, for people and the agent."""
    media_type: str
    digest: str
    """The SHA-256 of its content; the name of the file that holds it in the session's folder."""
    size_bytes: int
    width: int = 0
    """In pixels, 0 if unknown, as `height`."""
    height: int = 0
    data: bytes = b""
    """Its content on the way to the host and to the agent; empty in logs."""
    path: str = ""
    """The file with its content, where the agent gets it; empty in logs."""


def build_image(name: str, data: bytes) -> PromptImage:
    """Return the picture with this content.

    Raises:
        UsageError: if it is none of the kinds that agents accept, or too long.
    """
    if len(data) > IMAGE_BYTES:
        raise UsageError(
            f"the picture {name!r} has {size(len(data))}; the limit is {size(IMAGE_BYTES)}.",
            hint="Scale it down first.",
        )
    media_type, (width, height) = _inspect(data)
    if not media_type:
        raise UsageError(f"{name!r} is no PNG, JPEG, GIF or WebP picture.", hint="Convert it first.")
    import hashlib  # only here: most importers take no digest, and the library takes 4 ms to load

    digest = hashlib.sha256(data).hexdigest()
    return PromptImage(
        name=name, media_type=media_type, digest=digest, size_bytes=len(data), width=width, height=height, data=data
    )


def check_images(images: Sequence[PromptImage]) -> None:
    """Refuse more pictures than a prompt may have.

    Raises:
        UsageError: with the sizes.
    """
    if len(images) > MOST:
        raise UsageError(
            f"the prompt has {len(images)} pictures; the limit is {MOST}.", hint="Send some of them later."
        )
    total = sum(image.size_bytes for image in images)
    if total > TOTAL_BYTES:
        raise UsageError(
            f"the pictures of the prompt have {size(total)}; the limit is {size(TOTAL_BYTES)}.",
            hint="Send some of them later, or scale them down.",
        )


def mentioned(text: str) -> list[str]:
    """Return the files of pictures that *text* mentions as `@picture.png` or `@"my picture.png"`, each once."""
    names = (quoted or bare for quoted, bare in MENTION.findall(text))
    return [*dict.fromkeys(name for name in names if NAMED.search(name))]


def describe(image: PromptImage) -> str:
    """Return kind, size and pixels in words: `PNG · 4.0 MB · 1920×1080`."""
    kind = image.media_type.partition("/")[2].upper()
    pixels = f" · {image.width}×{image.height}" if image.width and image.height else ""
    return f"{kind} · {size(image.size_bytes)}{pixels}"


def size(count: int) -> str:
    """Return *count* bytes in kB or MB."""
    return f"{count / 1_000_000:.1f} MB" if count >= 1_000_000 else f"{max(count, 1) / 1000:.1f} kB"


def _inspect(data: bytes) -> tuple[str, tuple[int, int]]:
    """Return the media type and the size in pixels; an empty type for another kind of file, zeros for a broken size."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            return "image/png", struct.unpack_from(">II", data, 16)
        if data.startswith((b"GIF87a", b"GIF89a")):
            return "image/gif", struct.unpack_from("<HH", data, 6)
        if data.startswith(b"\xff\xd8\xff"):
            return "image/jpeg", _jpeg_size(data)
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return "image/webp", _webp_size(data)
    except struct.error:
        return "", (0, 0)
    return "", (0, 0)


def _jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker, (length,) = data[at + 1], struct.unpack_from(">H", data, at + 2)
        if marker in FRAME_MARKERS:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 2 + length
    return 0, 0


def _webp_size(data: bytes) -> tuple[int, int]:
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        return width, height
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    return 0, 0
