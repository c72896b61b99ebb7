"""The pictures that a person sends with a prompt: files named by an option, or mentioned in the text. Blocks."""

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kasmon.errors import NotFoundError, UnavailableError, UsageError
from kasmon.model.prompts.image import (
    IMAGE_BYTES,
    SUFFIXES,
    PromptImage,
    build_image,
    check_images,
    mentioned,
    size,
)
from kasmon.model.session import Session
from kasmon.paths import Paths, expanded, open_regular, private_folder, write_private
from kasmon.sanitize import clean_line

KEPT_S: Final = 7 * 86400.0
"""How long a stored picture stays, in seconds."""


def read_images(files: Sequence[str], folder: str = "") -> list[PromptImage]:
    """Return the pictures in *files*, relative to *folder*.

    Raises `NotFoundError` if one cannot be read, `UsageError` if one is no picture, or they exceed the limits.
    """
    images = [_read(file, folder) for file in files]
    check_images(images)
    return images


def find_mentioned(session: Session, text: str) -> list[PromptImage]:
    """Return the pictures that *text* mentions as `@picture.png`, if the session's agent accepts any.

    A mention of a file that does not exist is only text. Raises as `read_images`.
    """
    if "receives_images" not in session.abilities or not session.has_folder_here:
        return []
    names = [name for name in mentioned(text) if _path(name, session.workdir).is_file()]
    return read_images(names, session.workdir)


def store_picture(paths: Paths, data: bytes) -> Path:
    """Write the picture *data* to a file that only the user can read; return its path.

    Those that were stored more than `KEPT_S` ago are removed. Raises `UsageError` if it is no picture that agents
    accept, or too long; `UnavailableError` if it cannot be written.
    """
    image = build_image("clipboard", data)
    try:
        paths.make()
        path = private_folder(paths.pasted) / f"{image.digest[:16]}{SUFFIXES[image.media_type]}"
        _remove_old(path.parent)
        write_private(path, data)
    except OSError as error:
        raise UnavailableError(f"cannot store the picture: {error.strerror or error}.") from error
    return path


def _remove_old(folder: Path) -> None:
    since = time.time() - KEPT_S
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if path.lstat().st_mtime < since:
                path.unlink()


def _path(name: str, folder: str) -> Path:
    return Path(folder) / expanded(name)


def _read(name: str, folder: str) -> PromptImage:
    path = _path(name, folder)
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
            length = os.fstat(file.fileno()).st_size
            data = file.read(IMAGE_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        raise NotFoundError(f"the picture {str(path)!r} cannot be read: {why}.", hint="Check its path.") from error
    if length > IMAGE_BYTES:
        raise UsageError(
            f"the picture {str(path)!r} has {size(length)}; the limit is {size(IMAGE_BYTES)}.",
            hint="Scale it down first.",
        )
    return build_image(clean_line(path.name), data)
