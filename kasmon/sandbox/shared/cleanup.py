"""What is cleared away of a sandbox: all that was begun of one that could not be made, and what one leaves behind."""

import contextlib
from collections.abc import Callable, Iterator

from kasmon.errors import KasmonError, SandboxError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.paths import Paths
from kasmon.sandbox.shared.host_folders import HostFolders


@contextlib.contextmanager
def or_nothing(clear: Callable[[], object], what: str) -> Iterator[None]:
    """Let *clear* remove what was begun where something raises; an error of the system becomes ours: *what*."""
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(KasmonError):
            clear()
        if isinstance(error, OSError | ValueError):
            raise SandboxError(what, str(error)) from error
        raise


@contextlib.contextmanager
def clearing(whose: str) -> Iterator[None]:
    """Something of *whose* is left, where what is removed meanwhile cannot be: an error of the system becomes ours."""
    try:
        yield
    except OSError as error:
        raise SandboxError(f"{whose} was not removed completely", str(error)) from error


def forgotten(ground: HostFolders, session: SessionId, source: str, whose: str) -> str:
    """Remove the home of *session*, whose sandbox is destroyed, and a workspace of our own. Idempotent.

    Args:
        ground: what it stands on.
        session: whose it was.
        source: the folder that it was given, of which it may have had a copy.
        whose: what it was, in words.

    Returns:
        Where that copy lies, which stays, since something in it is otherwise than in *source*; else "".

    Raises:
        SandboxError: if something of it is left.
    """
    kept = ground.kept_copy(session, source)
    with clearing(whose):
        ground.clear(session, ("workspace",) if kept else ())
    return str(kept) if kept else ""


def forget_removed_tier(places: Paths, policy: SandboxPolicy) -> str:
    """Remove the files of a sandbox that an earlier version made in the tier `gvisor`, its memory on disk too.

    Idempotent. Only files are removed: no process of such a sandbox is ended.

    Returns:
        Where the copy of its folder lies, which stays, since something in it is otherwise than there; else "".

    Raises:
        SandboxError: if something of it is left.
    """
    ground = HostFolders(places)
    ground.base = ground.base.with_name(f"{ground.base.name}-{policy.tier}")
    return forgotten(ground, policy.session, policy.workspace, f"the sandbox of {policy.session!r}")
