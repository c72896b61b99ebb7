"""The origin of a forked session's sandbox, stored in its folder; marked as incomplete until the copy is whole."""

from typing import Final

import msgspec

from kasmon.model.permission import SessionId
from kasmon.model.sandbox.snapshot import ForkOrigin
from kasmon.paths import Paths, write_private

UNKNOWN: Final = SessionId("")


def origin_of(here: Paths, session: str) -> ForkOrigin | None:
    """Return the origin of the sandbox of *session*; None if it is no copy. An unreadable one is incomplete."""
    try:
        return msgspec.json.decode(here.origin(session).read_bytes(), type=ForkOrigin)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return ForkOrigin(source=UNKNOWN, name="another one", at=0.0)


def keep_origin(here: Paths, session: str, origin: ForkOrigin) -> None:
    """Store *origin* as that of the sandbox of *session*.

    Raises:
        OSError: if it cannot be written.
    """
    write_private(here.origin(session), msgspec.json.encode(origin))
