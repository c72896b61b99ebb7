"""A new session's id and folder: all that belongs into it is there when the fleet is told, or nothing of it is."""

import contextlib
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
def claimed(places: Paths) -> Iterator[SessionId]:
    """A new session id, whose empty folder is ours; where the context ends with an error, the folder is gone again.

    Raises:
        UnavailableError: if the state folder takes no files.
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
        why = "a file is in the way" if isinstance(error, FileExistsError) else error.strerror or error
        raise UnavailableError(
            f"cannot write into {str(places.state)!r}: {why}.", hint="Run `kasmon doctor` for a diagnosis."
        ) from error


def claim(places: Paths) -> SessionId:
    """A new session id; its folder is ours from now on."""
    import secrets  # only here: the dashboard starts with this module, and seldom makes a session in its first frame

    while True:
        session = SessionId(
            secrets.choice(FIRST_LETTERS) + "".join(secrets.choice(LETTERS) for _ in range(ID_LENGTH - 1))
        )
        with contextlib.suppress(FileExistsError):
            places.folder(session).mkdir(mode=0o700)
            return session
