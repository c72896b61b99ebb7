"""A session's own worktree: resolve its base, choose its branch and folder, create it, discard it. Calls block.

The user asked for it, so git creates it with the repository's hooks and filters. Of the user's own, nothing changes but
that a branch is added. Functions raise `GitError` if git fails.
"""

import contextlib
import itertools
import os
import shlex
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kasmon.config.schema import WorktreeConfig
from kasmon.errors import GitError, KasmonError, RefusedError, UnavailableError, UsageError
from kasmon.model.commands import SessionWorktree, WorktreeChoices
from kasmon.paths import expanded
from kasmon.repository.git import current_branch, git, git_as_user, hooks_of, knows, repository, shared_folder
from kasmon.supervisor.worktrees.unsaved_files import unsaved
from kasmon.supervisor.worktrees.worktree import (
    SUBMODULES,
    check_branches,
    check_worktree,
    commit_of,
    create,
    delete_branch,
    list_branches,
    list_worktrees,
    no_commit,
    remarks,
)

LONGEST: Final = 60
"""The longest name of a worktree's folder."""
PULL_REQUEST: Final = "pr:"
HOOK: Final = "post-checkout"


class WorktreeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a worktree is requested to be; what is empty comes from the config, or from the folder's checkout."""

    base: str = ""
    """A branch, a tag, a commit, or `pr:NUMBER`."""
    branch: str = ""
    reuses_branch: bool = False
    """Whether `branch` exists already, and is worked on."""


class RepositoryLocation(NamedTuple):
    """The repository that a folder is in, as far as it matters to new worktrees."""

    shared: Path
    """The git folder that all its worktrees share."""
    anchor: Path
    """The folder beside which worktrees are created: the main checkout, or the bare repository."""
    name: str
    subfolder: str
    """The path from the top of the checkout to the folder; empty at the top, and in a bare repository."""
    top: Path | None
    """The top of the checkout that the folder is in; None if it is in none, as in a bare repository."""


def locate(folder: Path) -> RepositoryLocation | None:
    """Return the repository that *folder* is in, also a bare one; None if in none, or git is missing."""
    try:
        shared = shared_folder(folder)
    except GitError as error:
        if "not a git repository" in error.why or "not installed" in error.why:
            return None
        raise
    top = repository(folder)
    subfolder = "" if top is None else git(folder, "rev-parse", "--show-prefix").removesuffix("\n").rstrip("/")
    parts = shared.parts
    if ".git" in parts[:-1]:  # a submodule's: its git folder is in that of the repository around it
        anchor = Path(*parts[: parts.index(".git")])
        name = f"{anchor.name}-{shared.name}"
    else:
        anchor = shared.parent if shared.name.startswith(".") else shared
        name = anchor.name.removesuffix(".git")
    return RepositoryLocation(shared, anchor, name or "repository", subfolder, top)


@contextlib.contextmanager
def new_worktree(
    config: WorktreeConfig, request: WorktreeRequest, folder: Path, session_name: str
) -> Iterator[tuple[SessionWorktree, str]]:
    """Create the requested worktree of the repository that *folder* is in, for a session of this name.

    Yields the worktree, and the folder in it that corresponds to *folder*. If the context raises, the worktree and its
    branch are discarded, unless there is something in it.

    Raises:
        UsageError: if *folder* is in no repository, or a name or the base is invalid.
        RefusedError: if the branch exists and is not to be reused, or the folder would be in the repository.
        UnavailableError: if the pull request cannot be read, or the folder cannot be created.
        GitError: if the repository has no commit, or git fails.
    """
    location = locate(folder)
    if location is None:
        raise UsageError(
            f"a worktree requires a git repository, and {str(folder)!r} is in none.",
            hint="Run `git init` and commit, or leave out --worktree.",
        )
    tree = _reserve(config, request, folder, location, session_name)
    top = Path(tree.path)
    try:
        if request.reuses_branch:
            _check_out(folder, tree)
        else:
            create(folder, top, tree.branch, tree.base, as_user=True)
        workdir = top / location.subfolder
        notes = _list_remarks(location, top, from_checkout=not (request.base or request.reuses_branch))
        if not workdir.is_dir() or not workdir.resolve().is_relative_to(top.resolve()):
            notes.append(f"it has no folder {location.subfolder!r}, so the session starts at its top")
            workdir = top
        yield msgspec.structs.replace(tree, remarks=tuple(notes)), str(workdir)
    except BaseException as error:
        kept = discard(tree)
        if kept and isinstance(error, KasmonError):
            error.hint = f"{error.hint} {kept}".strip()
        raise


def _check_out(folder: Path, tree: SessionWorktree) -> None:
    """Create *tree*, whose branch exists, as the user's own git; an error names where the branch is checked out."""
    try:
        git_as_user(folder, "worktree", "add", "--quiet", "--", tree.path, tree.branch)
    except GitError as error:
        others = (path for path, branch in list_branches(folder).items() if branch == tree.branch)
        if other := next(others, None):
            error.hint = f"To work there, leave out --reuse-branch and pass `--dir {shlex.quote(str(other))}`."
        raise


def discard(tree: SessionWorktree) -> str:
    """Remove *tree* and its new branch if nothing was done in them; else return one sentence that names what stays."""
    path, repo = Path(tree.path), Path(tree.source)
    try:
        if os.path.lexists(path / ".git"):
            if why := unsaved(path, saved=(tree.base,)):
                return f"The worktree {tree.path!r} stays: {why}."
            check_worktree(repo, path)
            git(repo, "worktree", "remove", "--", tree.path)
        for folder in (path, path.parent):
            with contextlib.suppress(OSError):  # it is not empty, or already gone
                folder.rmdir()
        if tree.is_new_branch and knows(repo, f"refs/heads/{tree.branch}"):
            delete_branch(repo, tree.branch, tree.base)
    except KasmonError as error:
        return f"The worktree {tree.path!r}, or its branch {tree.branch!r}, stays: {error.message}"
    return ""


def create_again(tree: SessionWorktree, *, has_begun: bool) -> None:
    """Create *tree* again at its commit, if it was discarded because its session never began.

    Raises `RefusedError` if the session *has_begun*: git may still have the index of what was deleted by hand.
    """
    if has_begun:
        add = shlex.join(("git", "-C", tree.source, "worktree", "add", "--force", tree.path, tree.branch))
        raise RefusedError(
            f"the worktree {tree.path!r} is gone.", hint=f"`{add}` creates it again from its branch's last commit."
        )
    if tree.is_new_branch:
        create(Path(tree.source), Path(tree.path), tree.branch, tree.base, as_user=True)
    else:
        git_as_user(Path(tree.source), "worktree", "add", "--quiet", "--", tree.path, tree.branch)


def _list_remarks(location: RepositoryLocation, top: Path, *, from_checkout: bool) -> list[str]:
    """Return what the user should know about the new worktree at *top*."""
    notes = [f"the repository's hook {HOOK!r} ran, as with `git worktree add`"] if hooks_of(top, [HOOK]) else []
    if from_checkout and location.top is not None:
        return [*notes, *remarks(location.top)]
    return [*notes, SUBMODULES] if (top / ".gitmodules").exists() else notes


def resolve_base(folder: Path, base: str) -> tuple[str, str]:
    """Return the name of *base* and its commit; empty is the branch that is checked out in *folder*.

    Raises `UsageError` if it names no commit, `UnavailableError` if a pull request cannot be read.
    """
    if base.startswith(PULL_REQUEST):
        from kasmon.supervisor.worktrees.pull_request import fetch_pull_request

        return base, fetch_pull_request(folder, base.removeprefix(PULL_REQUEST))
    if base:
        return base, commit_of(folder, base)
    if not knows(folder, "HEAD"):
        raise no_commit(folder)
    return current_branch(folder) or "HEAD", commit_of(folder, "HEAD")


def list_choices(folder: Path, base: str = "") -> WorktreeChoices | None:
    """Return what a new session in *folder* can work in; None if that is in no git repository with a commit.

    *base*: what a new worktree shall begin at, as `resolve_base` takes it. A pull request is not read.
    """
    location = locate(folder) if folder.is_dir() else None
    if location is None or not knows(folder, "HEAD"):
        return None
    usual, _ = resolve_base(folder, "")
    begins = error = ""
    if base.startswith(PULL_REQUEST):
        begins = f"{base}, which is fetched when the session starts"
    else:
        try:
            name, commit = resolve_base(folder, base)
            begins = f"{name}, {git(folder, 'log', '-1', '--format=%h %s', commit).rstrip()}"
        except UsageError as refusal:
            error = f"{refusal.message} {refusal.hint}"
    others = {
        branch: str(subfolder if (subfolder := path / location.subfolder).is_dir() else path)
        for path, branch in list_branches(folder).items()
        if branch and path != location.top and path.is_dir()
    }
    return WorktreeChoices(base=usual, begins=begins, error=error, others=others)


def slug(name: str) -> str:
    """Return *name* as a part of a path and of a branch: letters and digits of any script, `-` and `_`.

    Raises `UsageError` if nothing is left of it.
    """
    plain = unicodedata.normalize("NFC", name)
    parts = "".join(c if c.isalnum() or c == "_" else "-" for c in plain).split("-")
    text = "-".join(part for part in parts if part)
    while len(text.encode()) > LONGEST:
        text = text[:-1]
    if not text:
        raise UsageError(
            f"the name {name!r} has no letter and no digit, so it names no branch and no folder.",
            hint="Choose another name.",
        )
    return text.rstrip("-")


def _check_branch(folder: Path, branch: str) -> None:
    """Raise `UsageError` unless git accepts *branch* as the name of a branch."""
    try:
        is_clean = branch.isprintable() and not branch.startswith("-") and branch not in ("HEAD", "@")
        if is_clean and branch.encode():
            git(folder, "check-ref-format", f"refs/heads/{branch}")
            return
    except (GitError, UnicodeEncodeError):
        pass
    raise UsageError(
        f"{branch!r} is not a valid branch name.",
        hint="A branch name has no space, no control character, none of ~^:?*[\\, no `..` and no `-` at its beginning.",
    )


def _root(config: WorktreeConfig, location: RepositoryLocation) -> Path:
    """Return the folder that gets the worktrees of the repository.

    Raises `RefusedError` if it is in the repository's checkout and git does not ignore it there, or in its git folder.
    """
    wanted = (config.folder or "{repository}-worktrees").replace("{repository}", location.name)
    root = Path(os.path.normpath(location.anchor.parent / expanded(wanted)))
    real = root.resolve()
    is_shown = real.is_relative_to(location.anchor)
    if is_shown:
        probe = str(real.relative_to(location.anchor) / "x")
        is_shown = not git(location.anchor, "check-ignore", "--no-index", "--", probe, fails=True).strip()
    if is_shown or real.is_relative_to(location.shared):
        raise RefusedError(
            f"the folder {str(root)!r} for worktrees is in the repository {str(location.anchor)!r}.",
            hint="Set `worktree.folder` to a folder outside of it, or add it to its .gitignore.",
        )
    return root


def _reserve(
    config: WorktreeConfig, request: WorktreeRequest, folder: Path, location: RepositoryLocation, session_name: str
) -> SessionWorktree:
    """Return the requested worktree with a branch and a folder that are unused; only the empty folder is created."""
    label, root = slug(session_name), _root(config, location)
    if request.branch:
        _check_branch(folder, request.branch)
    base = f"refs/heads/{request.branch}" if request.reuses_branch else request.base
    base_name, commit = resolve_base(folder, base)
    known = git(folder, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").splitlines()
    registered = list_worktrees(folder)
    for number in itertools.count(1):
        end = "" if number == 1 else f"-{number}"
        branch, path = request.branch or config.branch.replace("{name}", label) + end, root / f"{label}{end}"
        if request.branch in known and not request.reuses_branch:
            raise RefusedError(
                f"the branch {branch!r} already exists in {str(folder)!r}.",
                hint="Pass --reuse-branch to work on it, or choose another --branch.",
            )
        is_taken = any(f"{name}/".casefold().startswith(f"{branch}/".casefold()) for name in known)
        if os.path.lexists(path) or path in registered or (is_taken and not request.branch):
            continue
        if not request.reuses_branch:
            _check_branch(folder, branch)
            check_branches(folder, [branch])
        if _create_empty(path):
            return SessionWorktree(
                path=str(path),
                branch=branch,
                is_new_branch=not request.reuses_branch,
                base=commit,
                base_name=base_name.removeprefix("refs/heads/"),
                source=str(folder),
                setup_s=config.setup_s if config.setup or config.copy or config.link else 0.0,
            )
    raise AssertionError


def _create_empty(path: Path) -> bool:
    """Create the folder *path*; return False if another session was faster. Raises `UnavailableError`."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    except OSError as error:
        if isinstance(error, FileExistsError) and path.parent.is_dir():
            return False
        raise UnavailableError(
            f"cannot create a worktree in {str(path.parent)!r}: {error.strerror or error}.",
            hint="Set `worktree.folder` to another folder.",
        ) from error
    return True
