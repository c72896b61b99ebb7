"""Git worktrees: made, described, and removed only where nothing in them could be lost. Calls block; use a thread."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from kasmon.errors import GitError, KasmonError, RefusedError, UsageError
from kasmon.supervisor.changed import changed
from kasmon.supervisor.git import git, knows
from kasmon.supervisor.unsaved import not_committed, unsaved


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """Where a task works."""

    path: str
    branch: str = ""
    """Empty in a folder that is no worktree of ours."""
    base: str = ""
    """The commit that it began from; empty where there is none."""


def make(repo: Path, path: Path, branch: str) -> Tree:
    """A worktree of *repo* at *path* on a new *branch* that begins at its HEAD; the same one again where it is there.

    Raises:
        RefusedError: if the branch is there already, and not in *path*.
        GitError: if the repository has no commit yet, or git says no.
    """
    recorded = path / ".git"
    if recorded.exists():
        here = git(path, "rev-parse", "--abbrev-ref", "HEAD").strip()
        if here != branch:
            raise RefusedError(f"the worktree {str(path)!r} is on {here!r}, not on {branch!r}.")
        return Tree(path=str(path), branch=branch, base=_began_at(path, branch))
    if knows(repo, f"refs/heads/{branch}"):
        raise RefusedError(
            f"the branch {branch!r} exists already in {str(repo)!r}.",
            hint=f"Rename it (`git branch -m {branch} ...`), delete it, or give the plan another name.",
        )
    if not knows(repo, "HEAD"):
        raise no_commit(repo)
    base = git(repo, "rev-parse", "HEAD").strip()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        git(repo, "worktree", "add", "--quiet", "-b", branch, "--", str(path), base)
    except KasmonError:  # git makes the branch first; ours, as long as nobody committed to it
        git(repo, "update-ref", "-d", f"refs/heads/{branch}", base, fails=True)
        raise
    return Tree(path=str(path), branch=branch, base=base)


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
    git(repo, "worktree", "remove", "--", str(path))


def remarks(repo: Path) -> tuple[str, ...]:
    """What a person should know before worktrees of *repo* are made: what they will not hold."""
    told = []
    if dirty := changed(repo, "HEAD") if knows(repo, "HEAD") else ():
        told.append(f"{not_committed(len(dirty), f'of {str(repo)!r}')}, so no worktree has them")
    if not git(repo, "symbolic-ref", "--quiet", "--short", "HEAD", fails=True).strip():
        told.append("HEAD is detached: worktrees begin at its commit")
    if (repo / ".gitmodules").exists():
        told.append("submodules are not checked out in worktrees (`git submodule update --init` does it)")
    return tuple(told)


def no_commit(repo: Path) -> GitError:
    """Why no worktree can be made of *repo*."""
    return GitError("make a worktree", f"{str(repo)!r} has no commit yet", hint="Commit something first.")


def no_repository(task: str, folder: Path) -> UsageError:
    """Why *task*, which works in *folder*, gets no worktree."""
    return UsageError(
        f"task {task!r} wants a worktree, and {str(folder)!r} is in no git repository.",
        hint='Say `git init` and commit, or give the plan `worktree = "folder"`.',
    )


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


def _began_at(path: Path, branch: str) -> str:
    """Where *branch* was made, by its reflog; where that is gone, its commit now."""
    said = git(path, "reflog", "show", "--format=%H", branch, fails=True).split()
    return said[-1] if said else git(path, "rev-parse", "HEAD").strip()
