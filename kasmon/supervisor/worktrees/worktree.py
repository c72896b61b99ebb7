"""Git worktrees: made, described, and removed only where nothing in them could be lost. Calls block; use a thread."""

import os
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from kasmon.errors import GitError, KasmonError, RefusedError, UsageError
from kasmon.supervisor.worktrees.changes import changed
from kasmon.supervisor.worktrees.git import git, knows, where
from kasmon.supervisor.worktrees.unsaved_files import not_committed, own_folder, unsaved


class TaskWorktree(msgspec.Struct, frozen=True, kw_only=True):
    """Where a task works."""

    path: str
    branch: str = ""
    """Empty in a folder that is no worktree of ours."""
    base: str = ""
    """The commit that it began from; empty where there is none."""


def make(repo: Path, path: Path, branch: str, base: str = "HEAD") -> TaskWorktree:
    """A worktree of *repo* at *path* on a new *branch* that begins at *base*; the same one again where it is there.

    Raises:
        UsageError: if *base* names no commit.
        RefusedError: if the branch is there already, and not in *path*; or if what is in *path* is no worktree of
            *repo*, or is on another branch.
        GitError: if the repository has no commit yet, or git says no.
    """
    if os.path.lexists(path / ".git"):
        check_worktree(repo, path, branch)
        return TaskWorktree(path=str(path), branch=branch, base=_began_at(path, branch))
    if knows(repo, f"refs/heads/{branch}"):
        if _is_registered(repo, path):
            raise _gone(repo, path, branch)
        raise _taken(repo, branch, branch)
    if not knows(repo, "HEAD"):
        raise no_commit(repo)
    base = commit_of(repo, base)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        git(repo, "worktree", "add", "--quiet", "-b", branch, "--", str(path), base)
    except KasmonError:  # git makes the branch first; ours, as long as nobody committed to it
        git(repo, "update-ref", "-d", f"refs/heads/{branch}", base, fails=True)
        raise
    return TaskWorktree(path=str(path), branch=branch, base=base)


def check_worktree(repo: Path, path: Path, branch: str = "") -> None:
    """Raise unless *path* is a whole worktree of *repo*, beside its main one, and is on *branch* where one is given.

    Raises:
        RefusedError: if it is not; the message says what it is instead.
        GitError: if git cannot tell.
    """
    name = str(path)
    if path.is_symlink() or not (path / ".git").is_file():
        raise RefusedError(f"{name!r} is not a worktree.")
    top, shared = where(path)
    if Path(top) != path.resolve() or shared != where(repo)[1]:
        raise RefusedError(f"{name!r} is not a worktree of {str(repo)!r}: git finds {top!r} there, of {shared!r}.")
    own = own_folder(path).resolve()
    if own.parent != Path(shared) / "worktrees":
        raise RefusedError(f"{name!r} is not a separate worktree: its git data is in {str(own)!r}.")
    try:
        recorded = own / os.fsdecode((own / "gitdir").read_bytes()).removesuffix("\n")
        lock = (own / "locked").read_bytes().strip() if (own / "locked").exists() else b""
    except OSError as error:
        raise GitError(f"identify the worktree {name!r}", f"{error.strerror or error}") from error
    if recorded.resolve() != path.resolve() / ".git":
        raise RefusedError(f"{name!r} is a copy of a worktree, which git has at {str(recorded.parent)!r}.")
    if lock == b"initializing":
        remove = shlex.join(("git", "-C", str(repo), "worktree", "remove", "-ff", name))
        raise RefusedError(
            f"the worktree {name!r} is incomplete: git is still creating it, or was killed meanwhile.",
            hint=f"Try again in a moment; or remove it (`{remove}`) and its branch.",
        )
    here = git(path, "symbolic-ref", "--quiet", "HEAD", fails=True).strip().removeprefix("refs/heads/")
    if branch and here != branch:
        raise RefusedError(
            f"the worktree {name!r} is on {repr(here) if here else 'no branch'}, not on {branch!r}.",
            hint=f"`{shlex.join(('git', '-C', name, 'switch', branch))}` switches it back.",
        )


def check_branches(repo: Path, branches: Sequence[str]) -> None:
    """Raise unless each of *branches* can be made in *repo*.

    Raises:
        RefusedError: if one is there, or cannot be: where a branch `a` is git makes no `a/b`, nor the other way round.
    """
    if not branches:
        return
    known = git(repo, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").splitlines()
    for branch in branches:
        for other in known:
            if f"{branch}/".startswith(f"{other}/") or other.startswith(f"{branch}/"):
                raise _taken(repo, branch, other)


def _taken(repo: Path, branch: str, other: str) -> RefusedError:
    """Why there is no room for *branch* beside *other*, which *repo* has."""
    but = "" if other == branch else f", and git cannot create {branch!r} next to it"
    rename = shlex.join(("git", "branch", "-m", other))
    return RefusedError(
        f"the branch {other!r} already exists in {str(repo)!r}{but}.",
        hint=f"Rename it (`{rename} ...`), delete it, or give the plan another name.",
    )


def commit_of(repo: Path, name: str) -> str:
    """The commit that *name* says in *repo*: a branch, a tag, an id.

    Raises:
        UsageError: if it says none.
    """
    found = git(repo, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", fails=True).strip()
    if not found:
        raise UsageError(
            f"the base {name!r} names no commit in {str(repo)!r}.", hint="Name a branch, a tag or a commit."
        )
    return found


def remove(repo: Path, path: Path, known: Collection[str] = ()) -> None:
    """Remove the worktree at *path*; its branch stays. Of the files that git ignores only those *known* go with it.

    Raises:
        RefusedError: if something in it could be lost.
        GitError: if git says no.
    """
    if path.is_symlink() or not (path / ".git").is_file():
        raise RefusedError(f"{str(path)!r} is not a worktree: it was not removed.")
    if why := unsaved(path, known):
        raise RefusedError(
            f"the worktree {str(path)!r} was not removed: {why}.", hint="Commit and push or merge it, then try again."
        )
    check_worktree(repo, path)
    git(repo, "worktree", "remove", "--", str(path))


def remarks(repo: Path) -> tuple[str, ...]:
    """What a person should know before worktrees of *repo* are made: what they will not hold."""
    told = []
    if dirty := changed(repo, "HEAD") if knows(repo, "HEAD") else ():
        told.append(f"{not_committed(len(dirty), f'of {str(repo)!r}')} and will be missing from the worktrees")
    if not git(repo, "symbolic-ref", "--quiet", "--short", "HEAD", fails=True).strip():
        told.append("HEAD is detached: worktrees start at its commit")
    if (repo / ".gitmodules").exists():
        told.append("submodules are not checked out in worktrees (`git submodule update --init` does it)")
    return tuple(told)


def no_commit(repo: Path) -> GitError:
    """Why no worktree can be made of *repo*."""
    return GitError("create a worktree", f"{str(repo)!r} has no commit yet", hint="Create a first commit.")


def no_repository(task: str, folder: Path) -> UsageError:
    """Why *task*, which works in *folder*, gets no worktree."""
    return UsageError(
        f"task {task!r} requires a worktree, but {str(folder)!r} is not in a git repository.",
        hint='Run `git init` and commit, or give the plan `worktree = "folder"`.',
    )


def proper_branch(words: Sequence[str]) -> str:
    """A branch name made of *words*, which may be anything.

    Raises:
        UsageError: if nothing is left of them.
    """
    kept = "-".join("".join(c if c.isascii() and (c.isalnum() or c in "_-") else "-" for c in word) for word in words)
    name = "-".join(part for part in kept.split("-") if part)
    if not name:
        raise UsageError(f"{' '.join(words)!r} is not a valid branch name.")
    return name


def _gone(repo: Path, path: Path, branch: str) -> RefusedError:
    """Why the worktree at *path*, which git still lists, cannot be used, and how a person switches it back."""
    if path.exists():
        repair = shlex.join(("git", "-C", str(repo), "worktree", "repair"))
        return RefusedError(f"the worktree {str(path)!r} has lost its `.git` file.", hint=f"`{repair}` repairs it.")
    add = shlex.join(("git", "-C", str(repo), "worktree", "add", "--force", str(path), branch))
    return RefusedError(
        f"the worktree {str(path)!r} is gone, but its branch {branch!r} still exists.",
        hint=f"`{add}` creates it again from the last commit. If you also delete the branch, the task "
        "starts from scratch.",
    )


def _is_registered(repo: Path, path: Path) -> bool:
    """Whether git lists a worktree of *repo* at *path*, also where that is gone."""
    listed = git(repo, "worktree", "list", "--porcelain").split("\n")
    return f"worktree {path.resolve()}" in listed


def _began_at(path: Path, branch: str) -> str:
    """Where *branch* was made, by its reflog; where that is gone, its commit now."""
    said = git(path, "reflog", "show", "--format=%H", branch, fails=True).split()
    return said[-1] if said else git(path, "rev-parse", "HEAD").strip()
