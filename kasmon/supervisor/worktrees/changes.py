"""The changes of a worktree: files, lines, diff. Calls block; use a thread. They raise `GitError` if git fails."""

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from kasmon.errors import UnableError
from kasmon.model.collisions import WorktreeChanges, parse_changes
from kasmon.model.session import Session
from kasmon.paths import open_regular
from kasmon.repository.git import git, head, list_names, list_untracked, repository, where
from kasmon.sanitize import clean_lines
from kasmon.supervisor.fleet.lookup import check_here

LONGEST: Final = 4 << 20
"""A shown diff has at most this many characters of content."""
NOT_SHOWN: Final = "Not shown: these changes are too long.\n"
LARGEST: Final = 8 << 20
"""A larger file is not shown, in bytes."""
BINARY_BYTES: Final = 8000
"""Like git, a file with a zero byte among its first bytes is binary."""
NO_NEWLINE: Final = "\\ No newline at end of file\n"
LIMITED: Final = {"core.bigFileThreshold": str(LARGEST)}
"""git's settings for a diff: it shows larger files as it shows binary ones."""
_SPECIAL: Final = re.compile(r'[\x00-\x1f\x7f"\\]')
_ESCAPES: Final = dict(zip('\a\b\t\n\v\f\r"\\', 'abtnvfr"\\', strict=True))
FILE: Final = "diff --git "
REPLACED: Final = "\ufffd"
"""In a shown name, in the place of what is no UTF-8."""
PLAIN_DIFF: Final = (*("diff", "--no-color", "--no-ext-diff", "--no-textconv"), *("--src-prefix=a/", "--dst-prefix=b/"))
"""A diff that runs nothing configured in the repository, and has the default format regardless of the config."""


def changed_files(path: Path, base: str) -> tuple[str, ...]:
    """Return the files of the worktree at *path* that differ from the commit *base*, including untracked files."""
    tracked = list_names(path, "diff", "--name-only", "--no-renames", "-z", base, "--")
    new = list_names(path, "ls-files", "--others", "--exclude-standard", "--full-name", "-z", "--", ":/")
    return tuple(sorted({*tracked, *new}))


def digest_texts(texts: Iterable[str]) -> str:
    """Return the first 16 digits of the SHA-256 of *texts*, which identify what a person confirms."""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def state_digest(path: Path) -> str:
    """Return a digest of the state of the worktree at *path*: its commit and its uncommitted changes."""
    status = git(path, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
    digest = hashlib.sha256(f"{head(path)}\0{status}".encode("utf-8", "surrogateescape"))
    top = Path(where(path)[0])
    for line in status.split("\0"):
        with contextlib.suppress(OSError):
            facts = (top / line[3:]).lstat()
            digest.update(f"{facts.st_mtime_ns} {facts.st_size}\0".encode())
    return digest.hexdigest()


def fork(path: Path) -> str:
    """Return the commit at which the worktree at *path* diverged from the main worktree's HEAD; empty without one."""
    shared = where(path)[1]
    main = git(Path(shared), "--git-dir", shared, "rev-parse", "--verify", "--quiet", "HEAD", fails=True).strip()
    base = git(path, "merge-base", "HEAD", main, fails=True).strip() if main else ""
    return base or head(path)


def touched_since_fork(path: Path) -> WorktreeChanges:
    """Return what the worktree at *path* changed since it diverged from the main worktree's HEAD."""
    if not (base := fork(path)):
        return WorktreeChanges()
    shown = git(path, *PLAIN_DIFF, "-U0", "--no-renames", "--no-prefix", base)
    return parse_changes(base, shown, tuple(list_untracked(path)))


def diff(path: Path, base: str) -> str:
    """Return the changes of the worktree at *path* since *base* as a unified diff, including untracked files."""
    tracked = git(path, *PLAIN_DIFF, base, "--", settings=LIMITED)
    return "".join((tracked, *new_file_diffs(path, list_untracked(path))))


def new_file_diffs(top: Path, names: Iterable[str]) -> Iterator[str]:
    """Yield the diff of each regular file and symbolic link among the untracked *names* in *top*, as git prints it.

    It starts no process for each of thousands.
    """
    for name in names:
        try:
            mode, content = _read_new(top / name)
        except OSError:  # it is gone, or a repository of its own
            continue
        head = f"diff --git {quote(f'a/{name}')} {quote(f'b/{name}')}\nnew file mode {mode}\n"
        if content is None:
            yield f"{head}Binary files /dev/null and {quote(f'b/{name}')} differ\n"
        elif not content:
            yield head
        else:
            lines = content.split("\n")
            end = NO_NEWLINE if lines[-1] else ""
            lines = lines if lines[-1] else lines[:-1]
            count = f",{len(lines)}" if len(lines) > 1 else ""
            shown = "".join(f"+{line}\n" for line in lines)
            tab = "\t" if " " in name else ""
            yield f"{head}--- /dev/null\n+++ {quote(f'b/{name}')}{tab}\n@@ -0,0 +1{count} @@\n{shown}{end}"


def quote(name: str) -> str:
    """Return *name* as git shows it with `core.quotePath=false`: special characters are escaped, within quotes."""
    if _SPECIAL.search(name) is None:
        return name
    return f'"{_SPECIAL.sub(_escape, name)}"'


def _escape(match: re.Match[str]) -> str:
    letter = _ESCAPES.get(match[0])
    return f"\\{letter}" if letter else f"\\{ord(match[0]):03o}"


def _read_new(path: Path) -> tuple[str, str | None]:
    """Return git's mode of the file at *path*, and its text; None if it is binary, or too large. Raises `OSError`."""
    if path.is_symlink():
        return "120000", str(path.readlink())
    handle = open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        mode = "100755" if facts.st_mode & stat.S_IXUSR else "100644"
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST or b"\0" in content[:BINARY_BYTES]:
        return mode, None
    return mode, content.decode("utf-8", "surrogateescape")


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
    """
    check_here(session)
    folder = Path(session.workdir)
    if not folder.is_dir() or repository(folder) is None:
        raise UnableError(f"{session.workdir!r} is not in a git repository, so its changes are unknown.")
    return Path(where(folder)[0])


def find_shown_file(top: Path, name: str) -> Path:
    """Return the path of the file that is shown as *name*: cleaned, so it may not be its own name. Raises `OSError`."""
    path = top / name
    if path.is_symlink() or path.exists() or REPLACED not in name:
        return path
    return next((each for each in path.parent.iterdir() if clean_lines(each.name) == path.name), path)


def diff_of(session: Session) -> str:
    """Return the cleaned diff of the worktree in which *session* works, since it diverged. Raises as `top_of`."""
    top = top_of(session)
    return clean_lines(shorten(diff(top, fork(top))))
