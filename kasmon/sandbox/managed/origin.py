"""What the sandbox of a forked session is a copy of, as its folder says it: not whole until the copy is."""

from typing import Final

import msgspec

from kasmon.model.permission import SessionId
from kasmon.model.sandbox.snapshot import ForkOrigin
from kasmon.paths import Paths, write_private

UNKNOWN: Final = SessionId("")


def origin_of(here: Paths, session: str) -> ForkOrigin | None:
    """What the sandbox of *session* began as; None where it is no copy. One that cannot be read is not whole."""
    try:
        return msgspec.json.decode(here.origin(session).read_bytes(), type=ForkOrigin)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return ForkOrigin(source=UNKNOWN, name="another one", at=0.0)


def keep_origin(here: Paths, session: str, origin: ForkOrigin) -> None:
    """Write down that the sandbox of *session* began as *origin* says.

    Raises:
        OSError: if that cannot be written.
    """
    write_private(here.origin(session), msgspec.json.encode(origin))
