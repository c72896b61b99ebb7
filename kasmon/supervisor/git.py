"""git, asked about a folder. Calls block; use a thread.

It runs without the repository's hooks and file watchers, so that asking it, or making a worktree, runs nothing of the
repository's own; and no `GIT_` variable of ours leads it elsewhere.
"""

import os
import subprocess
from pathlib import Path
from typing import Final

from kasmon.errors import GitError, TimedOutError

GIT_S: Final = 60.0
"""How long git may take, in seconds."""
SAFE: Final = ("-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
NOT_INSTALLED: Final = "it is not installed"
NO_REPOSITORY: Final = ("not a git repository", "must be run in a work tree", NOT_INSTALLED)


def repository(folder: Path) -> Path | None:
    """The top folder of the git repository that *folder* is in; None where it is in none, or git is missing.

    Raises:
        GitError: if it is in one that git does not open: another user's, a broken one.
    """
    try:
        said = git(folder, "rev-parse", "--show-toplevel")
    except GitError as error:
        if any(word in error.why for word in NO_REPOSITORY):
            return None
        raise
    return Path(said.rstrip("\n"))


def where(folder: Path) -> tuple[str, str]:
    """The top of the worktree that *folder* is in, and the git folder that all worktrees of its repository share.

    Raises:
        GitError: if it is in none.
    """
    top, shared = git(folder, "rev-parse", "--show-toplevel", "--git-common-dir").rstrip("\n").split("\n")
    return top, str((folder / shared).resolve())


def head(repo: Path) -> str:
    """The commit that *repo* stands on; empty before the first one."""
    return git(repo, "rev-parse", "HEAD").strip() if knows(repo, "HEAD") else ""


def knows(repo: Path, name: str) -> bool:
    """Whether *name* says something that *repo* has: a commit, a branch."""
    return bool(git(repo, "rev-parse", "--verify", "--quiet", name, fails=True).strip())


def git(folder: Path, *arguments: str, fails: bool = False) -> str:
    """What git says in *folder*; with *fails*, also where it ends with an error.

    Raises:
        GitError: if it ends with an error, or is not installed.
        TimedOutError: if it takes longer than `GIT_S`.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    variables |= {"LC_ALL": "C.UTF-8", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", *SAFE, *arguments],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise GitError(f"look at {str(folder)!r}", _missing(folder, error)) from error
    except subprocess.TimeoutExpired as error:
        raise TimedOutError(f"git {arguments[0]} took longer than {GIT_S:g} s in {str(folder)!r}.") from error
    if done.returncode and not fails:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise GitError(f"do {arguments[0]!r} in {str(folder)!r}", said[-1].rstrip(".") if said else "it gave no reason")
    return done.stdout.decode("utf-8", "surrogateescape")


def _missing(folder: Path, error: FileNotFoundError) -> str:
    return NOT_INSTALLED if folder.is_dir() else f"{str(folder)!r} is gone ({error.strerror})"
