"""The file of a gVisor checkpoint: a head, and a stream in packed blocks; as far as is needed to look into the stream.

`gVisorSF`, the length of a text (8 bytes), that text, a digest (32 bytes), the size of a block (4 bytes);
then for each block the length of what follows (4 bytes), and the block, packed by deflate. Numbers begin with the
highest byte.
"""

import struct
import zlib
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.errors import SandboxError
from kasmon.paths import write_private
from kasmon.sandbox.credential import Looked
from kasmon.sandbox.scrub import scrubbed

MARK: Final = b"gVisorSF"
DIGEST_BYTES: Final = 32
LEVEL: Final = 1


class Image(NamedTuple):
    """One checkpoint."""

    head: bytes
    block_bytes: int
    stream: bytearray


def read(path: Path) -> Image:
    """What lies at *path*.

    Raises:
        SandboxError: if it is not of the form that is known.
        OSError: if it cannot be read.
    """
    data = path.read_bytes()
    try:
        if not data.startswith(MARK):
            raise ValueError("it begins otherwise")
        at = 16 + struct.unpack(">Q", data[8:16])[0] + DIGEST_BYTES
        (block_bytes,) = struct.unpack(">I", data[at : at + 4])
        head, at = data[: at + 4], at + 4
        stream = bytearray()
        while at < len(data):
            (length,) = struct.unpack(">I", data[at : at + 4])
            block = zlib.decompress(data[at + 4 : at + 4 + length], -15, block_bytes)
            if len(block) > block_bytes or len(stream) % block_bytes:
                raise ValueError("its blocks are of other sizes")
            stream += block
            at += 4 + length
    except (struct.error, zlib.error, ValueError) as error:
        raise SandboxError("the memory that was written cannot be searched for credentials", str(error)) from error
    return Image(head, block_bytes, stream)


def write(path: Path, image: Image) -> None:
    """Put *image* at *path*, in the place of what is there."""
    content = bytearray(image.head)
    for at in range(0, len(image.stream), image.block_bytes):
        packer = zlib.compressobj(LEVEL, zlib.DEFLATED, -15)
        block = packer.compress(bytes(image.stream[at : at + image.block_bytes])) + packer.flush()
        content += struct.pack(">I", len(block)) + block
    write_private(path, bytes(content))


def clean(path: Path, looked: Looked) -> int:
    """Take the values of *looked* out of the checkpoint at *path*; how many places held one.

    Raises:
        SandboxError, OSError: if that is not certain.
    """
    image = read(path)
    count = scrubbed(image.stream, looked)
    if count:
        write(path, image)
    return count
