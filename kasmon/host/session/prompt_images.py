"""The pictures of a session's prompts, as files in its folder: stored before a prompt is queued, read for the agent."""

from pathlib import PurePath

import msgspec

from kasmon.errors import UnavailableError
from kasmon.model.commands import Prompt
from kasmon.model.permission import SessionId
from kasmon.model.prompts.image import SUFFIXES, PromptImage, build_image, check_images
from kasmon.paths import Paths, write_private


def store_images(paths: Paths, session: SessionId, prompt: Prompt) -> Prompt:
    """Store the pictures of *prompt*; return it without their content. Blocks.

    Raises:
        UsageError: if one is no picture, or they are too long: a client of another version may have sent them.
        UnavailableError: if they cannot be stored.
    """
    images = [build_image(image.name, image.data) for image in prompt.images]
    check_images(images)
    folder = paths.images(session)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for image in images:
            path = folder / _file_name(image)
            if not path.exists():
                write_private(path, image.data)
    except OSError as error:
        raise UnavailableError(f"the pictures cannot be stored in {str(folder)!r}: {error.strerror}.") from error
    return msgspec.structs.replace(prompt, images=tuple(msgspec.structs.replace(each, data=b"") for each in images))


def load_images(paths: Paths, session: SessionId, prompt: Prompt) -> Prompt:
    """Return *prompt* with content and path of its pictures. Blocks.

    Raises:
        UnavailableError: if one no longer exists.
    """
    return msgspec.structs.replace(prompt, images=tuple(load_image(paths, session, each) for each in prompt.images))


def load_image(paths: Paths, session: SessionId, image: PromptImage) -> PromptImage:
    """Return *image*, which was stored before, with its content and its path. Blocks.

    Raises:
        UnavailableError: if it no longer exists, or is on another machine.
    """
    path = paths.images(session) / _file_name(image)
    try:
        return msgspec.structs.replace(image, data=path.read_bytes(), path=str(path))
    except OSError as error:
        raise UnavailableError(f"the picture {image.name!r} cannot be read: {error.strerror}.") from error


def _file_name(image: PromptImage) -> str:
    return f"{PurePath(image.digest).name}{SUFFIXES.get(image.media_type, '')}"
