"""The files of a gVisor checkpoint, as far as is needed to look into them and to take something out.

`checkpoint.img` begins with `gVisorSF`, the length of a text (8 bytes), that text (JSON), and a digest of these (32
bytes). Then, packed: the size of a block (4 bytes), and for each block the length of what follows (4 bytes) and the
block, by deflate. Plain: for each piece its length (4 bytes) and the piece. Numbers begin with the highest byte. Beside
a plain one lie files with the pages of memory as they were.
"""

import struct
import zlib
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from kasmon.errors import SandboxError
from kasmon.paths import write_private
from kasmon.sandbox.credential import Looked
from kasmon.sandbox.scrub import scrubbed, scrubbed_file

IMAGE: Final = "checkpoint.img"
MARK: Final = b"gVisorSF"
DIGEST_BYTES: Final = 32
LEVEL: Final = 1


class Image(NamedTuple):
    """One `checkpoint.img`."""

    head: bytes
    block_bytes: int
    """0 where it is plain."""
    sizes: tuple[int, ...]
    """Of its pieces, where it is plain."""
    stream: bytearray


def read(path: Path) -> Image:
    """What lies at *path*.

    Raises:
        SandboxError: if it is not of a form that is known.
        OSError: if it cannot be read.
    """
    data = path.read_bytes()
    try:
        if not data.startswith(MARK):
            raise ValueError("it begins otherwise")
        at = 16 + struct.unpack(">Q", data[8:16])[0]
        said: dict[str, Any] = msgspec.json.decode(data[16:at], type=dict)
        at += DIGEST_BYTES
        if said.get("compression") == "none":
            return _plain(data, at)
        return _packed(data, at)
    except (struct.error, zlib.error, msgspec.MsgspecError, ValueError) as error:
        raise SandboxError("the memory that was written cannot be searched for credentials", str(error)) from error


def _plain(data: bytes, at: int) -> Image:
    head, sizes, stream = data[:at], [], bytearray()
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        at += 4 + length
        if at > len(data):
            raise ValueError("its last piece is cut")
        sizes.append(length)
        stream += data[at - length : at]
    return Image(head, 0, tuple(sizes), stream)


def _packed(data: bytes, at: int) -> Image:
    (block_bytes,) = struct.unpack_from(">I", data, at)
    head, at = data[: at + 4], at + 4
    stream = bytearray()
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        block = zlib.decompress(data[at + 4 : at + 4 + length], -15, block_bytes)
        if len(block) > block_bytes or len(stream) % block_bytes:
            raise ValueError("its blocks are of other sizes")
        stream += block
        at += 4 + length
    return Image(head, block_bytes, (), stream)


def write(path: Path, image: Image) -> None:
    """Put *image* at *path*, in the place of what is there."""
    content, at = bytearray(image.head), 0
    for size in image.sizes:
        content += struct.pack(">I", size) + image.stream[at : at + size]
        at += size
    for at in range(0, len(image.stream) if image.block_bytes else 0, image.block_bytes or 1):
        packer = zlib.compressobj(LEVEL, zlib.DEFLATED, -15)
        block = packer.compress(bytes(image.stream[at : at + image.block_bytes])) + packer.flush()
        content += struct.pack(">I", len(block)) + block
    write_private(path, bytes(content))


def clean(folder: Path, looked: Looked) -> int:
    """Take the values of *looked* out of the checkpoint in *folder*; how many places held one.

    Raises:
        SandboxError, OSError: if that is not certain.
    """
    image = read(folder / IMAGE)
    count = scrubbed(image.stream, looked)
    if count:
        write(folder / IMAGE, image)
    return count + sum(scrubbed_file(path, looked) for path in sorted(folder.iterdir()) if path.name != IMAGE)


def holds(folder: Path, content: bytes) -> bool:
    """Whether the checkpoint in *folder* has *content* in it."""
    others = (path for path in folder.iterdir() if path.name != IMAGE)
    return content in read(folder / IMAGE).stream or any(content in path.read_bytes() for path in others)
