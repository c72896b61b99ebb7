"""The changes of a session's worktree since it diverged, as a diff for display; blocks, use a thread."""

from pathlib import Path
from typing import Final

from kasmon.errors import UnableError
from kasmon.model.session import Session
from kasmon.sanitize import clean_block
from kasmon.supervisor.worktrees.changes import diff, fork
from kasmon.supervisor.worktrees.git import repository, where

LONGEST: Final = 4 << 20
"""At most this many characters of a diff are returned."""


def diff_of(session: Session) -> str:
    """Return the diff of the worktree in which *session* works, cleaned.

    Raises:
        UnableError: if it works in no git repository.
        GitError: if git fails.
    """
    folder = Path(session.workdir)
    if not folder.is_dir() or repository(folder) is None:
        raise UnableError(f"{session.workdir!r} is not in a git repository, so its changes are unknown.")
    top = Path(where(folder)[0])
    return clean_block(diff(top, fork(top))[:LONGEST])
