"""Overwrites values of credentials in a memory image, in the forms in which values are usually written.

Interpreters have forgotten the values before. But freed memory is not overwritten, in a sandbox as anywhere, so the
remains in the image are replaced by zeros.
"""

import mmap
from pathlib import Path
from typing import TypeAlias

from kasmon.sandbox.shared.credentials import SHORTEST, CredentialFindings, forms

Image: TypeAlias = bytearray | mmap.mmap


def scrub(image: Image, findings: CredentialFindings) -> int:
    """Overwrite each value of *findings* in *image*, except for those too short to search; return how many."""
    count = 0
    for form in sorted({form for value in findings.secrets for form in forms(value)}, key=len, reverse=True):
        if len(form) < SHORTEST:
            continue
        at = image.find(form)
        while at >= 0:
            image[at : at + len(form)] = bytes(len(form))
            count += 1
            at = image.find(form, at + len(form))
    return count


def scrub_file(path: Path, findings: CredentialFindings) -> int:
    """Do the same in the file at *path*, without reading it as a whole.

    Raises:
        OSError: if it cannot be read and written.
    """
    if not path.stat().st_size:
        return 0
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        return scrub(memory, findings)
