"""What a session's worktree changed since it left the others, as a diff for people; blocks, use a thread."""

from pathlib import Path
from typing import Final

from kasmon.errors import UnableError
from kasmon.model.session import Session
from kasmon.sanitize import clean_block
from kasmon.supervisor.worktrees.changes import diff, fork
from kasmon.supervisor.worktrees.git import repository, where

LONGEST: Final = 4 << 20
"""So many characters of a diff are shown."""


def diff_of(session: Session) -> str:
    """The diff of the worktree in which *session* works, cleaned.

    Raises:
        UnableError: if it works in no git repository.
        GitError: if git cannot tell.
    """
    folder = Path(session.workdir)
    if not folder.is_dir() or repository(folder) is None:
        raise UnableError(f"{session.workdir!r} is not in a git repository, so its changes are unknown.")
    top = Path(where(folder)[0])
    return clean_block(diff(top, fork(top))[:LONGEST])
