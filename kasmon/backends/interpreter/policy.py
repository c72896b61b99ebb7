"""Load the sandbox policy of a session, and check that the session can start."""

import msgspec

from kasmon.errors import LaunchError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.paths import Paths
from kasmon.sandbox.managed.idle_policy import origin_of


def policy_of(here: Paths, session: SessionId) -> SandboxPolicy:
    """Return the sandbox policy of *session*. Raises `LaunchError` if the policy file is missing or invalid."""
    path = here.sandbox(session)
    try:
        return msgspec.json.decode(path.read_bytes(), type=SandboxPolicy)
    except OSError as error:
        raise LaunchError(f"cannot read {str(path)!r}: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LaunchError(f"{str(path)!r} does not describe the sandbox: {error}.") from error


def must_be_whole(here: Paths, session: SessionId) -> None:
    """Check that *session* can start. Raises `LaunchError` if it is an incomplete copy of another one."""
    origin = origin_of(here, session)
    if origin is not None and not origin.is_whole:
        raise LaunchError(f"the copy of {origin.name!r} that it starts from is incomplete.")
