"""Takes the values of credentials out of a memory that was written, in the forms in which values are usually written.

Interpreters were told to forget them before, and have no name for them any more. But memory that a program gave back is
not overwritten, in a sandbox as anywhere: so what is still there in the image is, by zeros.
"""

import mmap
from pathlib import Path
from typing import TypeAlias

from kasmon.sandbox.shared.credentials import SHORTEST, CredentialFindings, forms

Image: TypeAlias = bytearray | mmap.mmap


def scrubbed(image: Image, looked: CredentialFindings) -> int:
    """Overwrite each value of *looked* in *image*, but for those too short to be told from anything; how many were."""
    count = 0
    for form in sorted({form for value in looked.secrets for form in forms(value)}, key=len, reverse=True):
        if len(form) < SHORTEST:
            continue
        at = image.find(form)
        while at >= 0:
            image[at : at + len(form)] = bytes(len(form))
            count += 1
            at = image.find(form, at + len(form))
    return count


def scrubbed_file(path: Path, looked: CredentialFindings) -> int:
    """Likewise in the file at *path*, which is not read as a whole.

    Raises:
        OSError: if it cannot be read and written.
    """
    if not path.stat().st_size:
        return 0
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        return scrubbed(memory, looked)
