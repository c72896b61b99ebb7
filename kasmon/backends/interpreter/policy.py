"""What a session's folder says of its sandbox: what it is, and that it can begin at all."""

import msgspec

from kasmon.errors import LaunchError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.paths import Paths
from kasmon.sandbox.managed.origin import origin_of


def policy_of(here: Paths, session: SessionId) -> SandboxPolicy:
    """What the sandbox of *session* is.

    Raises:
        LaunchError: if nothing says so.
    """
    path = here.sandbox(session)
    try:
        return msgspec.json.decode(path.read_bytes(), type=SandboxPolicy)
    except OSError as error:
        raise LaunchError(f"cannot read {str(path)!r}: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LaunchError(f"{str(path)!r} does not describe the sandbox: {error}.") from error


def must_be_whole(here: Paths, session: SessionId) -> None:
    """
    Raises:
        LaunchError: if it is a copy of another one that was not made to its end: nothing runs on half of one.
    """
    origin = origin_of(here, session)
    if origin is not None and not origin.is_whole:
        raise LaunchError(f"the copy of {origin.name!r} that it starts from is incomplete.")
