"""What a person has done with a branch: commit, update, push, merge. Calls block.

The person asked for it, so git runs as their own: with hooks, filters, signatures and credentials. A step that fails
leaves the branch, the index and the files as they were, unless the person asked to keep its conflicts. Functions
raise `GitError` or `TimedOutError` if git or a hook fails, or a remote has other commits.
"""

import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

from kasmon.errors import KasmonError, RefusedError
from kasmon.repository.branch import BranchState
from kasmon.repository.git import git, git_as_user, git_folders, head, knows, list_names
from kasmon.sanitize import clean_line
from kasmon.supervisor.worktrees.branch_state import HEADS, REMOTES, conflicts
from kasmon.supervisor.worktrees.unsaved_files import EVERYTHING, UNFINISHED, find_operation, list_files
from kasmon.supervisor.worktrees.worktree import list_branches

HOOKS: Final = {
    "commit": ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit"),
    "rebase": ("pre-rebase", "post-checkout", "post-rewrite"),
    "merge": ("pre-merge-commit", "prepare-commit-msg", "commit-msg", "post-merge"),
    "push": ("pre-push",),
}
"""The hooks that git may run for what a person asks for."""
EVERY: Final = ("reference-transaction", "post-index-change")
"""The hooks that git runs besides, whenever a ref or an index changes."""
FETCH_S: Final = 120.0
How = Literal["ff", "merge", "squash"]
TEMPORARY: Final = "kasmon-merge-"
"""How the name of the folder begins that a temporary worktree is in."""
IN_USE: Final = ("rebase-merge/head-name", "rebase-merge/update-refs", "rebase-apply/head-name", "BISECT_START")
"""Files in a worktree's own git folder with the branches that an unfinished operation moves or returns to."""
MERGE: Final = ("merge", "--quiet", "--no-autostash")
REBASE: Final = ("rebase", "--no-autostash", "--no-update-refs")
"""Whatever the config has: changes that are not committed stay where they are, and no other branch moves."""


def commit(path: Path, message: str) -> None:
    """Commit all changes in the worktree at *path*, also untracked files. If that fails, the index is as before."""
    index = git_folders(path)[0] / "index"
    with tempfile.TemporaryDirectory(prefix="kasmon-index-") as folder:
        before = shutil.copy2(index, folder) if index.exists() else None
        try:
            git_as_user(path, "add", "--all", "--sparse", "--", ":/")
            git_as_user(path, "commit", "--quiet", "-m", message)
        except KasmonError:
            if before is not None:
                restored = index.with_name("index.kasmon")
                shutil.copy2(before, restored)
                restored.replace(index)
            raise


def update(
    path: Path, base: str, how: Literal["rebase", "merge"], message: str, *, keeps_conflicts: bool
) -> tuple[str, ...]:
    """Bring the commit *base* into the branch of the worktree at *path*; return the files with conflicts.

    With conflicts, the branch and the files are as before, or if *keeps_conflicts*, the operation is unfinished.

    Raises:
        RefusedError: if files that git ignores would be overwritten.
    """
    _check_update(path, base, how)
    arguments = (*REBASE, base) if how == "rebase" else (*MERGE, "-m", message, base)
    try:
        git_as_user(path, *arguments)
    except KasmonError as error:
        files = list_names(path, "diff", "--name-only", "--diff-filter=U", "-z")
        is_unfinished = bool(find_operation(git_folders(path)[0]))
        if is_unfinished and how == "merge" and not files:  # a hook failed
            error.hint = _undo_merge(path, base) or error.hint
        elif is_unfinished and not (files and keeps_conflicts):
            git_as_user(path, how, "--abort")
        if not files:
            raise
        return tuple(map(clean_line, files))
    return ()


def push(path: Path, branch: str, remote: str, target: str, replaces: str = "") -> None:
    """Push *branch* to the branch *target* of *remote*; *replaces* is the commit that it may overwrite there."""
    arguments = ["--quiet", "--no-follow-tags", "--set-upstream"]
    arguments += [f"--force-with-lease={target}:{replaces}"] if replaces else []
    git_as_user(path, "push", *arguments, "--", remote, f"{HEADS}{branch}:{HEADS}{target}")


class BaseRemote(NamedTuple):
    """The branch of a remote that a base follows."""

    remote: str
    branch: str
    ref: str
    """The ref of the repository that a fetch moves to it."""

    @property
    def name(self) -> str:
        return f"{self.remote}/{self.branch}"


def find_base_remote(path: Path, base_ref: str) -> BaseRemote:
    """Return what is fetched for the base *base_ref*: itself, its upstream, or the branch of its name on the remote.

    Raises `RefusedError` if it follows no branch of a remote.
    """
    form = "--format=%(upstream:remotename)%00%(upstream:remoteref)%00%(upstream)"
    remote, branch, ref = (git(path, "for-each-ref", form, base_ref).removesuffix("\n").split("\0") + [""] * 3)[:3]
    if not (remote and ref.startswith(REMOTES)):
        remote = find_remote(path, base_ref)
        branch = base_ref.removeprefix(HEADS).removeprefix(f"{REMOTES}{remote}/")
        ref = f"{REMOTES}{remote}/{branch}"
        if not (base_ref.startswith((HEADS, f"{REMOTES}{remote}/")) and knows(path, ref)):
            raise RefusedError(
                f"the base {base_ref.removeprefix(HEADS)!r} follows no branch of a remote, so nothing is fetched.",
                hint="`git branch --set-upstream-to REMOTE/BRANCH` in the checkout of the base sets one.",
            )
    return BaseRemote(remote, branch.removeprefix(HEADS), ref)


def fetch(path: Path, source: BaseRemote, limit_s: float = FETCH_S) -> None:
    """Fetch *source* with the user's credentials; only its own ref changes, and nothing if that fails."""
    arguments = ("--quiet", "--no-tags", "--no-prune", "--no-write-fetch-head", "--no-recurse-submodules", "--refmap=")
    refs = f"+{HEADS}{source.branch}:{source.ref}"
    git_as_user(path, "fetch", *arguments, "--no-auto-maintenance", "--", source.remote, refs, limit_s=limit_s)


def fetched_base(path: Path, state: BranchState, source: BaseRemote) -> str:
    """Return the commit of *source*, as fetched; or that of a local base that has all its commits.

    Raises `RefusedError` if a local base and *source* have commits that the other does not have.
    """
    base, fetched = state.base, git(path, "rev-parse", source.ref).strip()
    if source.ref == state.base_ref:
        return fetched
    common = git(path, "merge-base", base, fetched, fails=True).strip()
    if common not in (base, fetched):
        raise RefusedError(
            f"{state.base_name!r} and {source.name!r} each have commits that the other does not have.",
            hint="Merge them with git in the checkout of the base, or update without a fetch.",
        )
    return fetched if common == base else base


def find_remote(path: Path, base_ref: str) -> str:
    """Return the remote that a branch from *base_ref* is pushed to. Raises `RefusedError` if none is clearly meant."""
    remotes = git(path, "remote").split()
    default = git(path, "config", "--get", "remote.pushDefault", fails=True).strip()
    base = base_ref.removeprefix("refs/remotes/") if base_ref.startswith("refs/remotes/") else ""
    of_base = next((name for name in remotes if base.startswith(f"{name}/")), "")
    for name in (default, of_base, "origin", *(remotes if len(remotes) == 1 else [])):
        if name in remotes:
            return name
    what, hint = f"has several remotes: {', '.join(remotes)}", "`git config remote.pushDefault NAME` chooses one."
    if not remotes:
        what, hint = "has no remote", "`git remote add origin URL` adds one."
    raise RefusedError(f"the repository of {str(path)!r} {what}.", hint=hint)


def find_worktree_of(path: Path, ref: str) -> Path | None:
    """Return the worktree of the repository of *path* in which the branch *ref* is checked out.

    Raises `RefusedError` if a rebase or a bisection of it is unfinished: git moves it to its own commit at the end.
    """
    for folder, branch in list_branches(path).items():
        if f"{HEADS}{branch}" == ref and not _is_temporary(folder):
            return folder
    shared = git_folders(path)[1]
    branch = ref.removeprefix(HEADS)
    for own, name in itertools.product((shared, *shared.glob("worktrees/*")), IN_USE):
        with contextlib.suppress(OSError):
            if not {ref, branch}.isdisjoint((own / name).read_text("utf-8", "surrogateescape").split()):
                raise RefusedError(
                    f"{UNFINISHED[name.partition('/')[0]]} of the branch {branch!r} is unfinished in another worktree.",
                    hint="Finish or abort it there. `git worktree list` shows the worktrees.",
                )
    return None


def check_checkout(target: Path, commit: str) -> None:
    """Raise `RefusedError` if the work in the checkout *target* could be touched by a merge of *commit*.

    The checkout is dirty then: something is staged, an operation is unfinished, or a file that the merge changes has
    uncommitted changes.
    """
    where = f"in the checkout {str(target)!r}"
    if operation := find_operation(git_folders(target)[0]):
        raise RefusedError(f"{operation} {where} is unfinished.", hint="Finish or abort it there.")
    lines = list_names(target, "status", "--porcelain", "-z", *EVERYTHING)
    if staged := [line[3:] for line in lines if line[0] not in " ?"]:
        raise RefusedError(f"{where}, {list_files(staged)} staged.", hint="Commit or unstage them there.")
    changed = {line[3:] for line in lines}
    if unsaved := _list_overwritten(target, _list_files(target, "diff", f"HEAD...{commit}"), changed):
        raise RefusedError(
            f"{where}, files with work that is not committed would be overwritten: {list_files(unsaved)}.",
            hint="Commit, stash or move them there, then try again.",
        )


def _check_update(path: Path, base: str, how: Literal["rebase", "merge"]) -> None:
    """Raise `RefusedError` if an update to *base* could overwrite a file of the worktree that git does not show.

    A rebase also writes the files that one of its commits has and a later one removes.
    """
    names = _list_files(path, "diff", f"HEAD...{base}")
    if how == "rebase":
        names += _list_files(path, "log", "--format=", f"{base}..HEAD")
    if unsaved := _list_overwritten(path, names):
        raise RefusedError(
            f"the {how} would overwrite files in {str(path)!r} that are not committed: {list_files(unsaved)}.",
            hint="Move them, then try again.",
        )


def _list_files(path: Path, verb: str, *arguments: str) -> list[str]:
    return sorted({*list_names(path, verb, "--name-only", "--no-renames", "-z", *arguments)})


def _list_overwritten(target: Path, names: Iterable[str], changed: Collection[str] = ()) -> list[str]:
    """Return those of *names* where *target* has a file that is *changed*, or that git does not track or look at."""
    entries = list_names(target, "ls-files", "-v", "-z")
    tracked = {entry[2:] for entry in entries}
    hidden = {entry[2:] for entry in entries if entry[0].islower() or entry[0] == "S"}
    return [
        name
        for name in names
        if name in changed or (name in hidden and os.path.lexists(target / name)) or _hides(target, name, tracked)
    ]


def _hides(target: Path, name: str, tracked: set[str]) -> bool:
    """Whether a file of *target* that git does not track is at *name* or in place of a folder above it."""
    if name in tracked:
        return False
    above = (str(folder) for folder in Path(name).parents if folder.name)
    return os.path.lexists(target / name) or any(
        os.path.lexists(target / folder) and not (target / folder).is_dir() and folder not in tracked
        for folder in above
    )


def merge(target: Path, commit: str, how: How, message: str) -> None:
    """Merge *commit* into the branch that is checked out in *target*. Raises `RefusedError` if a squash would be empty.

    If git or a hook fails, the branch and the files are as before, or the hint says what is left.
    """
    if how == "ff":
        git_as_user(target, *MERGE, "--ff-only", commit)
        return
    if how == "squash" and _merged_tree(target, commit) == git(target, "rev-parse", "HEAD^{tree}").strip():
        raise RefusedError("the branch changes nothing in its base, so a squash would have nothing to commit.")
    with _undone_on_error(target, commit):
        if how == "merge":
            git_as_user(target, *MERGE, "--no-ff", "-m", message, commit)
        else:
            git_as_user(target, *MERGE, "--squash", commit)
            git_as_user(target, "commit", "--quiet", "-m", message)


def apply_changes(target: Path, commit: str) -> None:
    """Stage the changes of *commit* in the checkout *target*, without a commit. A failure leaves it as `merge` does."""
    with _undone_on_error(target, commit):
        git_as_user(target, *MERGE, "--squash", commit)


@contextlib.contextmanager
def _undone_on_error(target: Path, commit: str) -> Iterator[None]:
    """If the context raises, take the merge of *commit* out of the index and the files of *target*."""
    try:
        yield
    except KasmonError as error:
        error.hint = _undo_merge(target, commit) or error.hint
        raise


def _undo_merge(target: Path, commit: str) -> str:
    """Take the merge of *commit* out of the index and the files of *target*; if that fails, return what is left.

    What was staged or written there in the meantime stays: git's `reset --merge` would delete what is staged, and
    changes that the index hides. If it concerns a file of the merge, all stays.
    """
    try:
        git_as_user(target, "read-tree", "-m", "-u", _merged_tree(target, commit), "HEAD")
        git_as_user(target, "merge", "--quit")
        (git_folders(target)[0] / "SQUASH_MSG").unlink(missing_ok=True)
    except (KasmonError, OSError):
        return (
            f"The merge is unfinished in {str(target)!r}, where its files changed in the meantime. "
            "`git reset --merge` there discards it, with all that is staged."
        )
    return ""


def _merged_tree(target: Path, commit: str) -> str:
    return git(target, "merge-tree", "--write-tree", "HEAD", commit).partition("\n")[0]


@contextlib.contextmanager
def checkout_of(path: Path, ref: str) -> Iterator[Path]:
    """Yield the worktree where the branch *ref* is checked out; if it is nowhere, a temporary one.

    The caller keeps others from doing so: a temporary one that exists is of a process that was killed, and is removed.
    """
    if (target := find_worktree_of(path, ref)) is not None:
        yield target
        return
    for left in filter(_is_temporary, list_branches(path)):
        git(path, "worktree", "remove", "--force", "--", str(left), fails=True)
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as folder:
        target = Path(folder).resolve() / "worktree"
        git_as_user(path, "worktree", "add", "--quiet", "--", str(target), ref.removeprefix(HEADS))
        try:
            yield target
        finally:
            git(path, "worktree", "remove", "--force", "--", str(target))


def _is_temporary(folder: Path) -> bool:
    return folder.parent.name.startswith(TEMPORARY) and folder.parent.parent == Path(tempfile.gettempdir()).resolve()


def check_mergeable(path: Path, into: str, commit: str) -> None:
    """Raise `RefusedError` if *commit* conflicts with the commit *into*, or git cannot merge them."""
    files = conflicts(path, into, commit)
    if files is None:
        raise RefusedError("git cannot merge the branch: its commits have nothing in common with those of the base.")
    if files:
        raise RefusedError(
            f"the branch conflicts in {', '.join(map(repr, files))}.",
            hint="`kasmon finish SESSION --update merge --conflicts keep` lets you resolve that in the worktree.",
        )


def check_target(target: Path, expected: str, commit: str) -> None:
    """Raise `RefusedError` unless *target* is at the commit *expected*, and *commit* merges there and loses nothing."""
    if head(target) != expected:
        raise RefusedError(f"the checkout {str(target)!r} has moved to another commit.", hint="Try again.")
    check_checkout(target, commit)
    check_mergeable(target, expected, commit)
