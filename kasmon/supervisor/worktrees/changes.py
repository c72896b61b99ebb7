"""The changes of a worktree: files, lines, diff. Calls block; use a thread."""

import contextlib
import hashlib
import re
from itertools import pairwise
from pathlib import Path
from typing import Final

from kasmon.errors import UnableError
from kasmon.model.collisions import WorktreeChanges, parse_changes
from kasmon.model.session import Session
from kasmon.repository.git import git, head, repository, where
from kasmon.sanitize import clean_lines
from kasmon.supervisor.fleet.lookup import check_here
from kasmon.supervisor.worktrees.new_files import LARGEST, new_file_diffs

LONGEST: Final = 4 << 20
"""A shown diff has at most this many characters of content."""
NOT_SHOWN: Final = "Not shown: these changes are too long.\n"
LIMITED: Final = {"core.bigFileThreshold": str(LARGEST)}
"""git's settings for a diff: it shows larger files as it shows binary ones."""
FILE: Final = "diff --git "
REPLACED: Final = "\ufffd"
"""In a shown name, in the place of what is no UTF-8."""
PLAIN_DIFF: Final = (*("diff", "--no-color", "--no-ext-diff", "--no-textconv"), *("--src-prefix=a/", "--dst-prefix=b/"))
"""A diff that runs nothing configured in the repository, and has the default format regardless of the config."""


def changed_files(path: Path, base: str) -> tuple[str, ...]:
    """Return the files of the worktree at *path* that differ from the commit *base*, including untracked files."""
    tracked = git(path, "diff", "--name-only", "--no-renames", "-z", base, "--").split("\0")
    new = git(path, "ls-files", "--others", "--exclude-standard", "--full-name", "-z", "--", ":/").split("\0")
    return tuple(sorted({name for name in (*tracked, *new) if name}))


def state_digest(path: Path) -> str:
    """Return a digest of the state of the worktree at *path*: its commit and its uncommitted changes.

    Raises:
        GitError: if git fails.
    """
    status = git(path, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
    digest = hashlib.sha256(f"{head(path)}\0{status}".encode("utf-8", "surrogateescape"))
    top = Path(where(path)[0])
    for line in status.split("\0"):
        with contextlib.suppress(OSError):
            facts = (top / line[3:]).lstat()
            digest.update(f"{facts.st_mtime_ns} {facts.st_size}\0".encode())
    return digest.hexdigest()


def fork(path: Path) -> str:
    """Return the commit at which the worktree at *path* diverged from the main worktree's HEAD; empty without commits.

    Raises:
        GitError: if git fails.
    """
    shared = where(path)[1]
    main = git(Path(shared), "--git-dir", shared, "rev-parse", "--verify", "--quiet", "HEAD", fails=True).strip()
    base = git(path, "merge-base", "HEAD", main, fails=True).strip() if main else ""
    return base or head(path)


def touched_since_fork(path: Path) -> WorktreeChanges:
    """Return what the worktree at *path* changed since it diverged from the main worktree's HEAD.

    Raises:
        GitError: if git fails.
    """
    base = fork(path)
    if not base:
        return WorktreeChanges()
    shown = git(path, *PLAIN_DIFF, "-U0", "--no-renames", "--no-prefix", base)
    new = git(path, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    return parse_changes(base, shown, tuple(name for name in new if name))


def diff(path: Path, base: str) -> str:
    """Return the changes of the worktree at *path* since *base* as a unified diff, including untracked files."""
    tracked = git(path, *PLAIN_DIFF, base, "--", settings=LIMITED)
    names = git(path, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    return "".join((tracked, *new_file_diffs(path, filter(None, names))))


def shorten(diff: str) -> str:
    """Return *diff* with each of its files, but without the changes of those for which it would be too long."""
    if len(diff) <= LONGEST:
        return diff
    starts = [0, *(match.end() - len(FILE) for match in re.finditer(f"\n{FILE}", diff)), len(diff)]
    parts: list[str] = []
    left = LONGEST
    for start, end in pairwise(starts):
        hunks = diff.find("\n@@ ", start, end)
        if hunks >= 0 and end - hunks > left:
            parts += (diff[start : hunks + 1], NOT_SHOWN)
        else:
            parts.append(diff[start:end])
            left -= end - hunks if hunks >= 0 else 0
    return "".join(parts)


def top_of(session: Session) -> Path:
    """Return the top of the worktree in which *session* works.

    Raises:
        UnableError: if it works in no git repository.
        OtherMachineError: if that is on another machine.
        GitError: if git fails.
    """
    check_here(session)
    folder = Path(session.workdir)
    if not folder.is_dir() or repository(folder) is None:
        raise UnableError(f"{session.workdir!r} is not in a git repository, so its changes are unknown.")
    return Path(where(folder)[0])


def find_shown_file(top: Path, name: str) -> Path:
    """Return the path of the file that is shown as *name*: cleaned, so that it may not be the file's own name.

    Raises:
        OSError: if its folder cannot be read.
    """
    path = top / name
    if path.is_symlink() or path.exists() or REPLACED not in name:
        return path
    return next((each for each in path.parent.iterdir() if clean_lines(each.name) == path.name), path)


def diff_of(session: Session) -> str:
    """Return the cleaned diff of the worktree in which *session* works, since it diverged.

    Raises:
        UnableError: if it works in no git repository.
        GitError: if git fails.
    """
    top = top_of(session)
    return clean_lines(shorten(diff(top, fork(top))))
