"""What would be lost with a worktree: checks every place where git stores work. Calls block; use a thread.

A branch survives its worktree; still, commits that only this branch has count as unsaved. Functions raise `GitError` if
git fails, and `OSError` if the worktree cannot be read completely, except for `unsaved`.
"""

import os
import re
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from kasmon.errors import GitError
from kasmon.model.formatting import count_text
from kasmon.repository.git import current_branch, git, list_names

EVERYTHING: Final = ("--untracked-files=normal", "--no-renames")
"""Overrides a user's config that makes git skip new files."""
UNFINISHED: Final = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "sequencer": "a row of cherry-picks or reverts",
    "BISECT_LOG": "a bisection",
    "BISECT_START": "a bisection",
}
"""Files in a worktree's own git folder -> the unfinished operation that each shows."""
STASHED: Final = ("rebase-merge/autostash", "rebase-apply/autostash", "MERGE_AUTOSTASH")
"""Files in a worktree's own git folder that name the changes stashed by an unfinished operation."""
MOST_SHOWN: Final = 20
"""At most this many ignored files and folders of a worktree are named."""
SAVED: Final = ("--branches", "--remotes", "--tags")
MOVED: Final = re.compile(r"checkout: moving from (\S+) to (\S+)")
"""The reflog entries of HEAD that show which branches a worktree was on."""


def unsaved(path: Path, deletable: Collection[str] = (), saved: Collection[str] = ()) -> str:
    """Return why the worktree at *path* must stay; empty if nothing in it could be lost.

    What cannot be checked counts as unsaved, and so do ignored files, except those *deletable*, by name within it.
    Commits up to those *saved* can be had again.
    """
    try:
        if remaining := [name for name in ignored(path) if name not in deletable]:
            return f"git ignores {list_files(remaining)}"
        checks = (_dirty, _ignored_changes, _submodules, _others, _find_unfinished, partial(_commits, saved=saved))
        return next((why for check in (*checks, _lost_commits, _stash) if (why := check(path))), "")
    except GitError as error:
        return f"its contents cannot be checked: {error.why}"
    except OSError as error:
        return f"its contents cannot be checked: {error.strerror or error}"


def ignored(path: Path, patterns: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the files of the worktree at *path* that git ignores; with *patterns* only those that match one.

    *patterns* are in the syntax of `.gitignore`.
    """
    listing = ("ls-files", "--others", "--ignored", "-z")
    found = {*list_names(path, *listing, "--exclude-standard")}
    if patterns:
        found &= {*list_names(path, *listing, *(f"--exclude={pattern}" for pattern in patterns))}
    return tuple(sorted(found))


def list_files(names: Sequence[str]) -> str:
    """Return *names* in one line, grouped by top folder: `3 files: '.env', 'build/' (2 files)`."""
    groups: dict[str, int] = {}
    for name in names:
        top, slash, _ = name.partition("/")
        groups[top + slash] = groups.get(top + slash, 0) + 1
    counts = {top: f" ({count_text(count, 'file')})" if top.endswith("/") else "" for top, count in groups.items()}
    shown = [f"{top!r}{count}" for top, count in counts.items()]
    more = f", and {len(shown) - MOST_SHOWN} more" if len(shown) > MOST_SHOWN else ""
    return f"{count_text(len(names), 'file')}: {', '.join(shown[:MOST_SHOWN])}{more}"


def not_committed(count: int, of: str = "") -> str:
    """Return a phrase that *count* files, *of* something, are not committed."""
    whose = f" {of}" if of else ""
    return f"{count_text(count, 'file')}{whose} {'is' if count == 1 else 'are'} not committed"


def _dirty(path: Path) -> str:
    dirty = list_names(path, "status", "--porcelain", "-z", *EVERYTHING)
    return not_committed(len(dirty)) if dirty else ""


def _ignored_changes(path: Path) -> str:
    """Files whose changes git is set to ignore; a file that is only left out of a sparse checkout does not count."""
    lines = list_names(path, "ls-files", "-v", "-z")
    hidden = [line for line in lines if line[0].islower() or (line[0] == "S" and os.path.lexists(path / line[2:]))]
    return f"git is configured to ignore changes in {count_text(len(hidden), 'file')}" if hidden else ""


def _submodules(path: Path) -> str:
    kept = own_folder(path) / "modules"
    for head in sorted(kept.rglob("HEAD")):
        if not (head.parent / "objects").is_dir():
            continue
        alone = _count(path, "--all", "--reflog", "--not", "--remotes", within=head.parent)
        if alone:
            return f"{_are(alone)} only in its submodule {str(head.parent.relative_to(kept))!r}"
    has_any = any(line.startswith("160000 ") for line in list_names(path, "ls-files", "--stage", "-z"))
    return "it has submodules, and their contents would be removed too" if has_any or kept.is_dir() else ""


def _others(path: Path) -> str:
    """Repositories within it that git does not report because they are ignored."""

    def stop(error: OSError) -> None:
        raise error

    for folder, folders, files in os.walk(path, onerror=stop):
        if folder != str(path) and ".git" in (*folders, *files):
            return f"it contains another repository: {os.path.relpath(folder, path)!r}"
        if ".git" in folders:
            folders.remove(".git")
    return ""


def _find_unfinished(path: Path) -> str:
    operation = find_operation(own_folder(path))
    return f"{operation} in it is unfinished" if operation else ""


def find_operation(own: Path) -> str:
    """Return the unfinished operation of the worktree whose own git folder is *own*; empty if there is none."""
    return next((what for name, what in UNFINISHED.items() if (own / name).exists()), "")


def _commits(path: Path, saved: Collection[str]) -> str:
    branch = current_branch(path)
    others = [f"--exclude={branch}", *SAVED] if branch else SAVED
    alone = _count(path, "HEAD", "--not", *others, *saved)
    return f"{alone} of its commits {'is' if alone == 1 else 'are'} nowhere else" if alone else ""


def _lost_commits(path: Path) -> str:
    """Commits that were once its HEAD and are on no branch: its reflog goes with it. Amended ones do not count."""
    known = _own_refs(path)
    is_replaced = False
    for commit, subject in _log(path):
        known += [] if is_replaced else [commit]
        is_replaced = subject.startswith("commit (amend)")
    alone = _count(path, "--ignore-missing", *dict.fromkeys(known), "--not", *SAVED) if known else 0
    return f"{_are(alone)} only in its log: it left them behind" if alone else ""


def logged_commits(path: Path, branch: str) -> tuple[str, ...]:
    """Return the commits that were once HEAD of the worktree at *path*, or that only its own refs name.

    Those that were once *branch*, if it is given, and the changes that an unfinished operation stashed are among them.
    """
    logs = [*_log(path), *(_log(path, f"refs/heads/{branch}") if branch else ())]
    own = own_folder(path)
    stashed = [(own / name).read_text().strip() for name in STASHED if (own / name).is_file()]
    return tuple(dict.fromkeys((*_own_refs(path), *stashed, *(commit for commit, _ in logs))))


def _own_refs(path: Path) -> list[str]:
    return git(path, "for-each-ref", "--format=%(objectname)", "refs/worktree", "refs/rewritten").split()


def nested_work(path: Path) -> str:
    """Return what is in the worktree at *path* that its repository cannot store; empty if there is nothing."""
    return _submodules(path) or _others(path)


def _stash(path: Path) -> str:
    """All worktrees share the stashes: one belongs to this worktree if made on a branch that this one was on."""
    moves = [match for _, subject in _log(path) if (match := MOVED.match(subject))]
    was_on = {current_branch(path) or "(no branch)", *(name for move in moves for name in move.groups())}
    branches = set(git(path, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").split())
    was_on = {name if name in branches else "(no branch)" for name in was_on}
    stashes = git(path, "stash", "list", "--format=%gs").splitlines()
    prefixes = tuple(f"{how} {name}:" for how in ("On", "on") for name in was_on)
    return "it has a stash" if any(stash.removeprefix("WIP ").startswith(prefixes) for stash in stashes) else ""


def _are(commits: int) -> str:
    return "1 commit is" if commits == 1 else f"{commits} commits are"


def own_folder(path: Path) -> Path:
    """Return the git folder with the data of this worktree alone."""
    return Path(git(path, "rev-parse", "--absolute-git-dir").rstrip("\n"))


def _log(path: Path, ref: str = "HEAD") -> list[tuple[str, str]]:
    """Return the reflog of *ref*, by default the worktree's HEAD, newest first: each commit with its subject."""
    lines = git(path, "log", "--walk-reflogs", "--format=%H %gs", ref).splitlines()
    return [(commit, subject) for commit, _, subject in (line.partition(" ") for line in lines)]


def _count(path: Path, *which: str, within: Path | None = None) -> int:
    """Return how many commits *which* selects, in the repository itself or in the one *within*."""
    options = () if within is None else ("--git-dir", str(within))
    return int(git(path, *options, "rev-list", "--count", *which))
