"""What the sandbox of a forked session is a copy of, as its folder says it: not whole until the copy is."""

from typing import Final

import msgspec

from kasmon.model.permission import SessionId
from kasmon.model.snapshot import Origin
from kasmon.paths import Places, write_private

UNKNOWN: Final = SessionId("")


def origin_of(here: Places, session: str) -> Origin | None:
    """What the sandbox of *session* began as; None where it is no copy. One that cannot be read is not whole."""
    try:
        return msgspec.json.decode(here.origin(session).read_bytes(), type=Origin)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return Origin(source=UNKNOWN, name="another one", at=0.0)


def keep_origin(here: Places, session: str, origin: Origin) -> None:
    """Write down that the sandbox of *session* began as *origin* says.

    Raises:
        OSError: if that cannot be written.
    """
    write_private(here.origin(session), msgspec.json.encode(origin))
