"""Create, verify and remove git worktrees, the last only if nothing in them could be lost. Calls block.

They raise `GitError` if git fails.
"""

import contextlib
import os
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import GitError, KasmonError, RefusedError, UsageError
from kasmon.model.commands import SessionWorktree
from kasmon.repository.git import (
    current_branch,
    git,
    git_as_user,
    git_folders,
    knows,
    repository,
    shared_folder,
    where,
)
from kasmon.supervisor.worktrees.changes import changed_files
from kasmon.supervisor.worktrees.unsaved_files import not_committed, own_folder, unsaved

SUBMODULES: Final = "submodules are not checked out in worktrees (`git submodule update --init` does it)"


class TaskWorktree(msgspec.Struct, frozen=True, kw_only=True):
    """The folder where a task works."""

    path: str
    branch: str = ""
    """Empty if the folder is not a worktree created by kasmon."""
    base: str = ""
    """The commit that it started from; empty if there is none."""


def create(repo: Path, path: Path, branch: str, base: str = "HEAD", *, as_user: bool = False) -> TaskWorktree:
    """Create a worktree of *repo* at *path* on a new *branch* from *base*; return an existing one unchanged.

    *as_user*: the repository's hooks and filters run, as with the user's own git.

    Raises:
        UsageError: if *base* names no commit.
        RefusedError: if the branch already exists outside *path*; or if *path* contains no worktree of *repo*, or one
            on another branch.
        GitError: if the repository has no commit yet, or git fails.
    """
    if os.path.lexists(path / ".git"):
        check_worktree(repo, path, branch)
        return TaskWorktree(path=str(path), branch=branch, base=_began_at(path, branch))
    if knows(repo, f"refs/heads/{branch}"):
        if path.resolve() in list_worktrees(repo):
            raise _worktree_gone_error(repo, path, branch)
        raise _branch_conflict_error(repo, branch, branch)
    if not knows(repo, "HEAD"):
        raise no_commit(repo)
    base = commit_of(repo, base)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        add = git_as_user if as_user else git
        add(repo, "worktree", "add", "--quiet", "-b", branch, "--", str(path), base)
    except KasmonError:  # git creates the branch first; it is ours unless it has new commits
        if not os.path.lexists(path / ".git"):  # else a hook failed behind a complete worktree
            with contextlib.suppress(GitError):
                delete_branch(repo, branch, base)
        raise
    return TaskWorktree(path=str(path), branch=branch, base=base)


def repository_of(tree: SessionWorktree) -> Path:
    """Return the folder that *tree* was requested in; if that is gone, the git folder of its repository."""
    source = Path(tree.source)
    if not source.is_dir():
        with contextlib.suppress(OSError):
            return git_folders(Path(tree.path))[1]
    return source


def source_top(tree: SessionWorktree) -> Path | None:
    """Return the top of the checkout that *tree* was requested in; None if it is gone, or was a bare repository."""
    source = Path(tree.source)
    return repository(source) if source.is_dir() else None


def delete_branch(repo: Path, branch: str, tip: str) -> None:
    """Delete *branch* with its section of the config, as `git branch --delete` does, if it is at the commit *tip*."""
    git(repo, "update-ref", "-d", f"refs/heads/{branch}", tip)
    git(repo, "config", "--remove-section", f"branch.{branch}", fails=True)


def check_worktree(repo: Path, path: Path, branch: str = "", *, or_detached: bool = False) -> None:
    """Raise `RefusedError` unless *path* is a complete worktree of *repo*, not its main one, and on *branch* if given.

    With *or_detached* it may also be on no branch. The message says what it is instead.
    """
    name = str(path)
    if path.is_symlink() or not (path / ".git").is_file():
        raise RefusedError(f"{name!r} is not a worktree.")
    top, shared = where(path)
    if Path(top) != path.resolve() or shared != str(shared_folder(repo)):
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
    current = current_branch(path)
    if branch and current != branch and (current or not or_detached):
        raise RefusedError(
            f"the worktree {name!r} is on {repr(current) if current else 'no branch'}, not on {branch!r}.",
            hint=f"`{shlex.join(('git', '-C', name, 'switch', branch))}` switches it back.",
        )


def check_branches(repo: Path, branches: Sequence[str]) -> None:
    """Raise `RefusedError` if one of *branches* exists in *repo*, or conflicts: git cannot have both `a` and `a/b`."""
    if not branches:
        return
    known = git(repo, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").splitlines()
    for branch in branches:
        for other in known:
            if f"{branch}/".startswith(f"{other}/") or other.startswith(f"{branch}/"):
                raise _branch_conflict_error(repo, branch, other)


def _branch_conflict_error(repo: Path, branch: str, other: str) -> RefusedError:
    but = "" if other == branch else f", and git cannot create {branch!r} next to it"
    rename = shlex.join(("git", "branch", "-m", other))
    return RefusedError(
        f"the branch {other!r} already exists in {str(repo)!r}{but}.",
        hint=f"Rename it (`{rename} ...`), delete it, or choose another name.",
    )


def commit_of(repo: Path, name: str) -> str:
    """Return the commit that *name*, a branch, tag or id, is in *repo*. Raises `UsageError` if there is none."""
    found = git(repo, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", fails=True).strip()
    if not found:
        raise UsageError(
            f"the base {name!r} names no commit in {str(repo)!r}.", hint="Name a branch, a tag or a commit."
        )
    return found


def remove(repo: Path, path: Path, deletable: Collection[str] = (), saved: Collection[str] = ()) -> None:
    """Remove the worktree at *path*; its branch stays. Of the git-ignored files only those *deletable* may be deleted.

    Commits up to those *saved* can be had again. Raises `RefusedError` if something in it could be lost.
    """
    if path.is_symlink() or not (path / ".git").is_file():
        raise RefusedError(f"{str(path)!r} is not a worktree: it was not removed.")
    if why := unsaved(path, deletable, saved):
        raise RefusedError(
            f"the worktree {str(path)!r} was not removed: {why}.", hint="Commit and push or merge it, then try again."
        )
    check_worktree(repo, path)
    git(repo, "worktree", "remove", "--", str(path))


def remarks(repo: Path) -> tuple[str, ...]:
    """Return what the user should know before worktrees of *repo* are created: what they will not contain."""
    notes = []
    if dirty := changed_files(repo, "HEAD") if knows(repo, "HEAD") else ():
        notes.append(f"{not_committed(len(dirty), f'of {str(repo)!r}')} and will be missing from the worktrees")
    if not current_branch(repo):
        notes.append("HEAD is detached: worktrees start at its commit")
    if (repo / ".gitmodules").exists():
        notes.append(SUBMODULES)
    return tuple(notes)


def no_commit(repo: Path) -> GitError:
    return GitError("create a worktree", f"{str(repo)!r} has no commit yet", hint="Create a first commit.")


def no_repository(task: str, folder: Path, instead: str = 'give the plan `worktree = "folder"`') -> UsageError:
    """Return the error that *task*, which works in *folder*, gets no worktree; *instead*: what the user may do."""
    return UsageError(
        f"task {task!r} requires a worktree, but {str(folder)!r} is not in a git repository.",
        hint=f"Run `git init` and commit, or {instead}.",
    )


def proper_branch(texts: Sequence[str]) -> str:
    """Return a branch name made of *texts*, which may be any text. Raises `UsageError` if nothing valid is left."""
    safe = "-".join("".join(c if c.isascii() and (c.isalnum() or c in "_-") else "-" for c in text) for text in texts)
    name = "-".join(part for part in safe.split("-") if part)
    if not name:
        raise UsageError(f"{' '.join(texts)!r} is not a valid branch name.")
    return name


def _worktree_gone_error(repo: Path, path: Path, branch: str) -> RefusedError:
    """Return the error that the worktree at *path*, which git still lists, is unusable, with a repair command."""
    if path.exists():
        repair = shlex.join(("git", "-C", str(repo), "worktree", "repair"))
        return RefusedError(f"the worktree {str(path)!r} has lost its `.git` file.", hint=f"`{repair}` repairs it.")
    add = shlex.join(("git", "-C", str(repo), "worktree", "add", "--force", str(path), branch))
    return RefusedError(
        f"the worktree {str(path)!r} is gone, but its branch {branch!r} still exists.",
        hint=f"`{add}` creates it again from the last commit. If you also delete the branch, the task "
        "starts from scratch.",
    )


def list_worktrees(repo: Path) -> tuple[Path, ...]:
    """Return the worktrees that git lists of *repo*, the main one or the bare repository first, also those gone."""
    return tuple(list_branches(repo))


def list_branches(repo: Path) -> dict[Path, str]:
    """Return folder -> branch of the worktrees that git lists of *repo*, as `list_worktrees`; empty if on no branch."""
    branches: dict[Path, str] = {}
    for line in git(repo, "worktree", "list", "--porcelain", "-z").split("\0"):
        key, _, value = line.partition(" ")
        if key == "worktree":
            path = Path(value)
            if not (branches or os.path.lexists(path / ".git")) and path.is_dir():
                path = repository(path) or path  # of a submodule, git lists the git folder
            branches[path] = ""
        elif key == "branch":
            branches[path] = value.removeprefix("refs/heads/")
    return branches


def _began_at(path: Path, branch: str) -> str:
    """Return the commit at which *branch* was created, by its reflog; without reflog, its current commit."""
    commits = git(path, "reflog", "show", "--format=%H", branch, fails=True).split()
    return commits[-1] if commits else git(path, "rev-parse", "HEAD").strip()
