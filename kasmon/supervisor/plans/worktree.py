"""Git worktrees: made, described, and removed only where nothing in them could be lost. Calls block; use a thread.

git runs without the repository's hooks and file watchers: to make a worktree runs nothing of the repository's own.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import GitError, KasmonError, RefusedError, TimedOutError, UsageError
from kasmon.model.radar import Touched, touched

GIT_S: Final = 60.0
"""How long git may take, in seconds."""
EVERYTHING: Final = ("--untracked-files=normal", "--ignore-submodules=none", "--no-renames")
"""A person's config may tell git to look away from new files."""
MOST_NEW: Final = 200
"""Of so many new files a diff shows what is in them."""
PLAIN_DIFF: Final = ("diff", "--no-color", "--no-ext-diff", "--no-textconv")
"""A diff that runs nothing which a repository's config names."""
SAFE: Final = ("-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")


NOT_INSTALLED: Final = "it is not installed"
NO_REPOSITORY: Final = ("not a git repository", "must be run in a work tree", NOT_INSTALLED)
UNFINISHED: Final = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "BISECT_LOG": "a bisection",
}
"""What git keeps in a worktree's own folder while it is in the middle of something."""


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """Where a task works."""

    path: str
    branch: str = ""
    """Empty in a folder that is no worktree of ours."""
    base: str = ""
    """The commit that it began from; empty where there is none."""


def repository(folder: Path) -> Path | None:
    """The top folder of the git repository that *folder* is in; None where it is in none, or git is missing.

    Raises:
        GitError: if it is in one that git does not open: another user's, a broken one.
    """
    try:
        said = _git(folder, "rev-parse", "--show-toplevel")
    except GitError as error:
        if any(word in error.why for word in NO_REPOSITORY):
            return None
        raise
    return Path(said.rstrip("\n"))


def make(repo: Path, path: Path, branch: str) -> Tree:
    """A worktree of *repo* at *path* on a new *branch* that begins at its HEAD; the same one again where it is there.

    Raises:
        RefusedError: if the branch is there already, and not in *path*.
        GitError: if the repository has no commit yet, or git says no.
    """
    recorded = path / ".git"
    if recorded.exists():
        here = _git(path, "rev-parse", "--abbrev-ref", "HEAD").strip()
        if here != branch:
            raise RefusedError(f"the worktree {str(path)!r} is on {here!r}, not on {branch!r}.")
        return Tree(path=str(path), branch=branch, base=_began_at(path, branch))
    if _knows(repo, f"refs/heads/{branch}"):
        raise RefusedError(
            f"the branch {branch!r} exists already in {str(repo)!r}.",
            hint=f"Rename it (`git branch -m {branch} ...`), delete it, or give the plan another name.",
        )
    if not _knows(repo, "HEAD"):
        raise no_commit(repo)
    base = _git(repo, "rev-parse", "HEAD").strip()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        _git(repo, "worktree", "add", "--quiet", "-b", branch, "--", str(path), base)
    except KasmonError:  # git makes the branch first; ours, as long as nobody committed to it
        _git(repo, "update-ref", "-d", f"refs/heads/{branch}", base, fails=True)
        raise
    return Tree(path=str(path), branch=branch, base=base)


def no_commit(repo: Path) -> GitError:
    return GitError("make a worktree", f"{str(repo)!r} has no commit yet", hint="Commit something first.")


def no_repository(task: str, folder: Path) -> UsageError:
    return UsageError(
        f"task {task!r} wants a worktree, and {str(folder)!r} is in no git repository.",
        hint='Say `git init` and commit, or give the plan `worktree = "folder"`.',
    )


def head(repo: Path) -> str:
    """The commit that *repo* stands on; empty before the first one."""
    return _git(repo, "rev-parse", "HEAD").strip() if _knows(repo, "HEAD") else ""


def remarks(repo: Path) -> tuple[str, ...]:
    """What a person should know before worktrees of *repo* are made: what they will not hold."""
    told = []
    if dirty := changed(repo, "HEAD") if _knows(repo, "HEAD") else ():
        told.append(f"{_files(len(dirty))} of {str(repo)!r} {_are(len(dirty))} not committed, so no worktree has them")
    if not _git(repo, "symbolic-ref", "--quiet", "--short", "HEAD", fails=True).strip():
        told.append("HEAD is detached: worktrees begin at its commit")
    if (repo / ".gitmodules").exists():
        told.append("submodules are not checked out in worktrees (`git submodule update --init` does it)")
    return tuple(told)


def changed(path: Path, base: str) -> tuple[str, ...]:
    """The files of the worktree at *path* that differ from the commit *base*, and those that git does not know yet."""
    tracked = _git(path, "diff", "--name-only", "--no-renames", "-z", base, "--").split("\0")
    new = _git(path, "ls-files", "--others", "--exclude-standard", "--full-name", "-z", "--", ":/").split("\0")
    return tuple(sorted({name for name in (*tracked, *new) if name}))


def where(folder: Path) -> tuple[str, str]:
    """The top of the worktree that *folder* is in, and the git folder that all worktrees of its repository share.

    Raises:
        GitError: if it is in none.
    """
    top, shared = _git(folder, "rev-parse", "--show-toplevel", "--git-common-dir").rstrip("\n").split("\n")
    return top, str((folder / shared).resolve())


def fork(path: Path) -> str:
    """The commit at which the worktree at *path* left the one that the main worktree stands on; empty before any.

    Raises:
        GitError: if git cannot tell.
    """
    shared = where(path)[1]
    main = _git(Path(shared), "--git-dir", shared, "rev-parse", "--verify", "--quiet", "HEAD", fails=True).strip()
    base = _git(path, "merge-base", "HEAD", main, fails=True).strip() if main else ""
    return base or head(path)


def touched_since_fork(path: Path) -> Touched:
    """What the worktree at *path* changed since it left the commit that the main worktree stands on.

    Raises:
        GitError: if git cannot tell.
    """
    base = fork(path)
    if not base:
        return Touched()
    shown = _git(
        path, "diff", "-U0", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-prefix", base
    )
    new = _git(path, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    return touched(base, shown, tuple(name for name in new if name))


def diff(path: Path, base: str) -> str:
    """What the worktree at *path* changed since *base*, as a unified diff, files that git does not know among it."""
    parts = [_git(path, *PLAIN_DIFF, base, "--")]
    names = _git(path, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    for name in names[:MOST_NEW]:
        if name:
            shown = _git(path, *PLAIN_DIFF, "--no-index", "--", os.devnull, name, fails=True)
            parts.append(shown)
    return "".join(parts)


def unsaved(path: Path) -> str:
    """Why the worktree at *path* must stay, in words; empty where nothing in it could be lost.

    What cannot be looked at counts as unsaved.
    """
    try:
        dirty = [line for line in _git(path, "status", "--porcelain", "-z", *EVERYTHING).split("\0") if line]
        if dirty:
            return f"{_files(len(dirty))} {_are(len(dirty))} not committed"
        if (path / ".gitmodules").exists() and _git(path, "submodule", "status", fails=True).strip():
            return "it has submodules, which nobody looked into"
        own = Path(_git(path, "rev-parse", "--absolute-git-dir").rstrip("\n"))
        if begun := next((what for name, what in UNFINISHED.items() if (own / name).exists()), ""):
            return f"{begun} in it is not finished"
        branch = _git(path, "symbolic-ref", "--quiet", "--short", "HEAD", fails=True).strip()
        others = ["--exclude=" + branch, "--branches"] if branch else ["--branches"]
        alone = _git(path, "rev-list", "--count", "HEAD", "--not", *others, "--remotes", "--tags").strip()
        stashes = _git(path, "stash", "list", "--format=%gs").lower().splitlines()
    except GitError as error:
        return f"nobody can tell what is in it: {error.why}"
    if alone != "0":
        return f"{alone} of its commits {'is' if alone == '1' else 'are'} nowhere else"
    here = f"on {branch.lower() or '(no branch)'}:"
    return "it has a stash" if any(stash.removeprefix("wip ").startswith(here) for stash in stashes) else ""


def remove(repo: Path, path: Path) -> None:
    """Remove the worktree at *path*; its branch stays.

    Raises:
        RefusedError: if something in it could be lost.
        GitError: if git says no.
    """
    if path.is_symlink() or not (path / ".git").is_file():
        raise RefusedError(f"{str(path)!r} is no worktree: it is not removed.")
    if why := unsaved(path):
        raise RefusedError(
            f"the worktree {str(path)!r} is not removed: {why}.", hint="Commit and push or merge it, then try again."
        )
    _git(repo, "worktree", "remove", "--", str(path))


def _began_at(path: Path, branch: str) -> str:
    """Where *branch* was made, by its reflog; where that is gone, its commit now."""
    said = _git(path, "reflog", "show", "--format=%H", branch, fails=True).split()
    return said[-1] if said else _git(path, "rev-parse", "HEAD").strip()


def _knows(repo: Path, name: str) -> bool:
    return bool(_git(repo, "rev-parse", "--verify", "--quiet", name, fails=True).strip())


def _git(folder: Path, *arguments: str, fails: bool = False) -> str:
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


def proper_branch(words: Sequence[str]) -> str:
    """A branch name made of *words*, which may be anything.

    Raises:
        UsageError: if nothing is left of them.
    """
    kept = "-".join("".join(c if c.isascii() and (c.isalnum() or c in "_-") else "-" for c in word) for word in words)
    name = "-".join(part for part in kept.split("-") if part)
    if not name:
        raise UsageError(f"no branch can be called {' '.join(words)!r}.")
    return name


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
