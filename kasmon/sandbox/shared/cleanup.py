"""Cleanup of sandboxes: of one that could not be created, and of what a destroyed one leaves behind."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from kasmon.errors import KasmonError, SandboxError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.paths import Paths
from kasmon.sandbox.shared.host_folders import HostFolders
from kasmon.sandbox.shared.safe_tree import is_same


@contextlib.contextmanager
def or_nothing(clear: Callable[[], object], what: str) -> Iterator[None]:
    """If the block raises, call *clear* to remove what was begun; a system error becomes a `SandboxError`."""
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(KasmonError):
            clear()
        if isinstance(error, OSError | ValueError):
            raise SandboxError(what, str(error)) from error
        raise


@contextlib.contextmanager
def clearing(label: str) -> Iterator[None]:
    """Turn a system error while removing *label* into a `SandboxError` that its removal is incomplete."""
    try:
        yield
    except OSError as error:
        raise SandboxError(f"{label} was not removed completely", str(error)) from error


def remove_session_files(host_folders: HostFolders, session: SessionId, source: str, label: str) -> str:
    """Remove the home of *session*, whose sandbox is destroyed, and a workspace that kasmon made. Idempotent.

    Args:
        source: the folder that the sandbox was given, of which it may have had a copy.
        label: the sandbox, as text for errors.

    Returns:
        The path of that copy, if it is kept since it differs from *source*; else "".

    Raises:
        SandboxError: if something is left.
    """
    own = host_folders.of(session) / "workspace"
    is_kept = bool(source) and own.is_dir() and not is_same(own, Path(source))
    with clearing(label):
        host_folders.clear(session, ("workspace",) if is_kept else ())
    return str(own) if is_kept else ""


def forget_removed_tier(paths: Paths, policy: SandboxPolicy) -> str:
    """Remove the files of a sandbox that an earlier version made in the tier `gvisor`, with its snapshots on disk.

    Idempotent. Only files are removed: no process of such a sandbox is ended.

    Returns:
        The path of the copy of its folder, if that is kept since it differs from the original; else "".

    Raises:
        SandboxError: if something is left.
    """
    host_folders = HostFolders(paths)
    host_folders.base = host_folders.base.with_name(f"{host_folders.base.name}-{policy.tier}")
    return remove_session_files(host_folders, policy.session, policy.workspace, f"the sandbox of {policy.session!r}")
