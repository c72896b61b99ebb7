"""Claim a new session's id and folder; on an error while its files are written, the folder is removed again."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Final

from kasmon.errors import UnavailableError
from kasmon.model.permission import SessionId
from kasmon.paths import Paths

FIRST_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
LETTERS: Final = f"{FIRST_LETTERS}234567"
ID_LENGTH: Final = 8


@contextlib.contextmanager
def claim_id(places: Paths) -> Iterator[SessionId]:
    """Claim a new session id with an empty folder; if the context raises, the folder is removed.

    Raises:
        UnavailableError: if the state folder is not writable.
    """
    try:
        places.make()
        session = claim(places)
        try:
            yield session
        except BaseException:
            shutil.rmtree(places.folder(session), ignore_errors=True)
            raise
    except OSError as error:
        is_file = isinstance(error, FileExistsError)
        why = "a file is in the way" if is_file else error.strerror or error
        folder = error.filename if is_file else places.state
        raise UnavailableError(
            f"cannot write into {str(folder)!r}: {why}.", hint="Run `kasmon doctor` for a diagnosis."
        ) from error


def claim(places: Paths) -> SessionId:
    """Return a new session id, claimed by creating its folder."""
    while True:
        first, *others = os.urandom(ID_LENGTH)  # `secrets` would take 9 ms to load
        letters = (LETTERS[other % len(LETTERS)] for other in others)
        session = SessionId(FIRST_LETTERS[first % len(FIRST_LETTERS)] + "".join(letters))
        with contextlib.suppress(FileExistsError):
            places.folder(session).mkdir(mode=0o700)
            return session
