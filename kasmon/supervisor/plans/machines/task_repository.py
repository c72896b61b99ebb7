"""The repositories and worktrees of tasks whose plans run on other machines. Calls block.

Each repository is a bare one of kasmon's own, found by the first commit of its history. Commits that it lacks are read
from a repository of this machine's user, whose refs and checkouts never change; else from a remote; else from a pack.
Functions raise `GitError` if git fails.
"""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kasmon.config import Config
from kasmon.errors import GitError, KasmonError, RefusedError
from kasmon.paths import Paths, expanded, private_folder
from kasmon.repository.git import current_branch, git, git_as_user, head, knows, shared_folder
from kasmon.repository.own_git import call_git
from kasmon.repository.packs import build_pack, find_commits, has_history, read_pack
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.plans.machines.task_requests import LONGEST_PACK_BYTES
from kasmon.supervisor.worktrees.worktree import check_worktree

MOST_REPOSITORIES: Final = 200
"""How many of the user's repositories are looked at."""
MOST_COMMITS: Final = 300
"""How many commits are listed, or read from a user's repository."""
KNOWN: Final = "refs/kasmon/*"
"""The refs in a store of commits that are elsewhere too."""
RETAINED: Final = "refs/kasmon/retained"
"""The refs in a store that keep the commits that were read."""
FETCHED: Final = "refs/kasmon/fetched"
"""The refs in a store of the commits that a plan's runner fetched."""


def open_store(paths: Paths, root: str) -> Path:
    """Return the git folder of kasmon's own repository with the first commit *root*; it is created if needed."""
    store = private_folder(paths.repositories) / f"{root}.git"
    if not (store / "HEAD").exists():
        kind = "sha256" if len(root) == 64 else "sha1"
        call_git(store, "init", "--quiet", "--bare", f"--object-format={kind}", of="a repository")
    return store


def has_repository(paths: Paths, config: Config, root: str) -> bool:
    """Whether commits of the repository with the first commit *root* are here already."""
    store = paths.repositories / f"{root}.git"
    return (store / "HEAD").exists() or any(True for _ in find_repositories(paths, config, root))


def find_repositories(paths: Paths, config: Config, root: str) -> Iterator[Path]:
    """Yield the git folders of the user's repositories that have the commit *root*.

    They are in the folders of the config, or sessions worked in worktrees of them.
    """
    folders = [found for name in config.machine.repositories for found in _list_repositories(expanded(name))]
    folders += [Path(each.worktree.source) for each in read_fleet(paths).here if each.worktree]
    for folder in list(dict.fromkeys(folders))[:MOST_REPOSITORIES]:
        with contextlib.suppress(KasmonError, OSError):
            shared = shared_folder(folder)
            if find_commits(shared, (root,)):
                yield shared


def collect_commit(paths: Paths, config: Config, store: Path, root: str, commit: str, remote: str) -> bool:
    """Read *commit* into *store* from the user's repositories or *remote*; return whether the store has it now."""
    if retain_commit(store, commit):
        return True
    for repo in find_repositories(paths, config, root):
        with contextlib.suppress(KasmonError, OSError):
            _copy_commits(repo, store, commit)
        if retain_commit(store, commit):
            return True
    if remote:
        _fetch_from_remote(store, remote, commit)
    return retain_commit(store, commit)


def retain_commit(store: Path, commit: str) -> bool:
    """Whether *store* has *commit* with all its history; a ref keeps it from now on."""
    if knows(store, f"{RETAINED}/{commit}"):
        return True
    if not has_history(store, commit):
        return False
    git(store, "update-ref", f"{RETAINED}/{commit}", commit)
    return True


def note_fetched(store: Path, commit: str) -> None:
    """Record that a plan's runner fetched *commit* with its history."""
    git(store, "update-ref", f"{FETCHED}/{commit}", commit)


def add_worktree(store: Path, top: Path, branch: str, commit: str) -> None:
    """Create the worktree *top* of *store* on the new *branch* at *commit*; complete one that was begun.

    Raises `RefusedError` if it is on another branch.
    """
    with contextlib.suppress(KasmonError):
        check_worktree(store, top, branch)
        return
    with contextlib.suppress(KasmonError):
        git(store, "worktree", "remove", "-ff", "--", str(top))  # killed while it was created: no task worked there
    shutil.rmtree(top, ignore_errors=True)
    git(store, "worktree", "prune")
    new = [] if knows(store, f"refs/heads/{branch}") else ["-b", branch]
    git(store, "worktree", "add", "--quiet", *new, "--", str(top), *([commit] if new else [branch]))


def continue_worktree(store: Path, top: Path, branch: str, commit: str) -> bool:
    """Go on in the worktree *top* on *branch*, with *commit* included; False if its own commits are not in that.

    Files that are not committed stay. Raises `GitError` if they conflict with *commit*.
    """
    check_worktree(store, top)
    current = head(top)
    common = git(top, "merge-base", current, commit, fails=True).strip()
    if common not in (current, commit):
        return False
    if current_branch(top) != branch:
        git(top, "switch", "--quiet", *([] if knows(store, f"refs/heads/{branch}") else ["-c"]), branch)
    if common != commit:
        git(top, "merge", "--quiet", "--ff-only", "--no-stat", "--no-autostash", "--", commit)
    return True


def _list_repositories(folder: Path) -> list[Path]:
    if (folder / ".git").exists() or (folder / "HEAD").is_file():
        return [folder]
    try:
        return sorted(each for each in folder.iterdir() if each.is_dir())
    except OSError:
        return []


def list_commits(repo: Path, *refs: str) -> tuple[str, ...]:
    """Return the commits that *refs*, or all refs, of *repo* lead to, the newest first; a store has their history."""
    options = (f"--count={MOST_COMMITS}", "--sort=-committerdate", "--format=%(objecttype) %(objectname)")
    found = (line.partition(" ") for line in git(repo, "for-each-ref", *options, *refs).splitlines())
    return tuple(dict.fromkeys(name for kind, _, name in found if kind == "commit"))


def _copy_commits(repo: Path, store: Path, commit: str) -> None:
    """Copy *commit* from *repo*, else the newest commits of its branches, so that fewer have to be sent."""
    commits = find_commits(repo, (commit,)) or list_commits(repo, "refs/heads", "refs/remotes")
    pack = store / "kasmon-copy.pack"
    pack.unlink(missing_ok=True)
    try:
        build_pack(repo, commits, list_commits(store), pack)
        read_pack(store, commits, pack, trusted=True, limit_bytes=LONGEST_PACK_BYTES)
    finally:
        pack.unlink(missing_ok=True)
    for each in commits:
        git(store, "update-ref", f"{RETAINED}/{each}", each)


def _fetch_from_remote(store: Path, remote: str, commit: str) -> None:
    """Fetch *commit*, else the branches, of the address *remote* with this user's own credentials."""
    options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-maintenance")
    try:
        git_as_user(store, "fetch", *options, "--", remote, commit)
    except GitError:  # it is not there, or the server gives branches only
        try:
            git_as_user(store, "fetch", *options, "--", remote, "+refs/heads/*:refs/kasmon/remote/*")
        except GitError as error:
            raise RefusedError(f"this machine cannot fetch from {remote!r}: {error.why}.") from error
