"""Discard a session's worktree and its branch: what is nowhere else is first stored in a git bundle. Calls block.

A bundle is one file that git fetches from (git-bundle(1)). It has the branch, the files and the index as they were, and
the commits that only the worktree's log has. Files are stored byte by byte. Functions raise `GitError` if git fails.
"""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from kasmon.config import load
from kasmon.errors import RefusedError
from kasmon.model.commands import SessionWorktree
from kasmon.model.fleet import Fleet
from kasmon.model.session import Session
from kasmon.paths import Paths, private_folder, write_private
from kasmon.repository.git import current_branch, git, git_folders, knows, list_names
from kasmon.repository.own_git import call_git
from kasmon.repository.turn_trees import RAW, is_file
from kasmon.supervisor.sessions.folder_config import in_folder
from kasmon.supervisor.worktrees.inventory import check_unused, copies
from kasmon.supervisor.worktrees.session_worktree import slug
from kasmon.supervisor.worktrees.setup import run_command
from kasmon.supervisor.worktrees.unsaved_files import ignored, list_files, logged_commits, nested_work
from kasmon.supervisor.worktrees.worktree import check_worktree, delete_branch, repository_of

OF: Final = "discarded work"


def check_discardable(tree: SessionWorktree, fleet: Fleet, patterns: Sequence[str]) -> None:
    """Raise `RefusedError` unless *tree* is unused by *fleet* and processes, and all that is in it can be stored.

    *patterns*: the git-ignored files that may be deleted. Other repositories in it cannot be stored.
    """
    path = Path(tree.path)
    check_unused(path, fleet)
    check_worktree(repository_of(tree), path)
    allowed = {*copies(tree), *(ignored(path, patterns) if patterns else ())}
    if remaining := [name for name in ignored(path) if name not in allowed]:
        raise RefusedError(
            f"git ignores {list_files(remaining)}, which would be deleted.",
            hint="Move what you need, and name the others: `--ignored PATTERN`.",
        )
    if why := nested_work(path):
        raise RefusedError(f"the worktree cannot be stored: {why}.", hint="Move it, or remove the worktree with git.")


def discard(
    paths: Paths,
    session: Session,
    tree: SessionWorktree,
    read_fleet: Callable[[], Fleet],
    patterns: Sequence[str],
) -> tuple[str, str]:
    """Remove *tree* and its new branch; return the bundle with what is nowhere else, if anything, and what was done.

    Raises:
        RefusedError: as `check_discardable`.
        LaunchError: if the teardown fails.
    """
    path, repo = Path(tree.path), repository_of(tree)
    config = in_folder(paths, load(paths), tree.source).config.worktree
    if config.teardown:
        run_command(config.teardown, path, config.setup_s, "teardown", lambda text: None)
    check_discardable(tree, read_fleet(), patterns)
    branch, tip = current_branch(path), git(path, "rev-parse", "HEAD").strip()
    goes = tree.is_new_branch and branch == tree.branch
    bundle, files = _store(paths, session, path, branch if goes else "", tip)
    git(repo, "worktree", "remove", "--force", "--", tree.path)
    if goes:
        delete_branch(repo, branch, tip)
    what = f"the worktree {tree.path!r}" + (f" and the branch {branch}" if goes else "")
    kept = (
        f" Commits {tip[:12]} and {files[:12]} (its files) are in {bundle!r}."
        if files
        else f" Commit {tip[:12]} is in {bundle!r}."
    )
    return bundle, f"removed {what}.{kept if bundle else f' Commit {tip[:12]} is on other branches.'}"


def _store(paths: Paths, session: Session, path: Path, branch: str, tip: str) -> tuple[str, str]:
    """Store what only the worktree at *path* and *branch* have; return the bundle and the commit with its files.

    Both are empty if there is nothing; the commit also if no file differs from *tip*.
    """
    shared = git_folders(path)[1]
    with tempfile.TemporaryDirectory(prefix="kasmon-discard-") as folder:
        store = Path(folder) / "store.git"
        kind = git(path, "rev-parse", "--show-object-format").strip()
        _run(store, "init", "--quiet", "--bare", "--template=", f"--object-format={kind}")
        (store / "info").mkdir(mode=0o700, exist_ok=True)
        write_private(store / "info" / "attributes", RAW)
        write_private(store / "objects" / "info" / "alternates", os.fsencode(shared / "objects") + b"\n")
        files = _store_files(store, path, shared, tip)
        refs = {f"refs/heads/{branch}" if branch else "refs/kasmon/head": tip}
        refs |= {"refs/kasmon/files": files} if files else {}
        logged = (commit for commit in logged_commits(path, branch) if knows(path, f"{commit}^{{commit}}"))
        refs |= {f"refs/kasmon/log/{commit}": commit for commit in logged}
        created = "".join(f"create {name} {commit}\n" for name, commit in refs.items())
        _run(store, "update-ref", "--stdin", given=created)
        form = "--format=%(refname) %(objecttype) %(objectname) %(*objecttype)"
        others = git(path, "for-each-ref", form, "refs/heads", "refs/remotes", "refs/tags").splitlines()
        exclude = ""
        for name, of, commit, peeled in (line.split(" ") for line in others):
            exclude += f"^{commit}\n" if name != f"refs/heads/{branch}" and "commit" in (of, peeled) else ""
        if not _run(store, "rev-list", "--max-count=1", "--all", "--stdin", given=exclude):
            return "", ""
        name = f"{slug(session.name)}-{session.id}-{time.strftime('%Y%m%d-%H%M%S')}-{tip[:12]}.bundle"
        bundle = private_folder(paths.discarded) / name
        _run(store, "bundle", "create", "--quiet", str(bundle), "--all", "--stdin", given=exclude)
        _run(store, "bundle", "verify", "--quiet", str(bundle))
    return str(bundle), files


def _store_files(store: Path, path: Path, shared: Path, tip: str) -> str:
    """Return a commit with the files, whose second parent has the index; empty if both are as in *tip*."""
    listed = list_names(path, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    folders = dict[str, bool]()  # none of the files is a folder now
    files = (name for name in dict.fromkeys(listed) if is_file(path, name, folders, is_stored=True))
    given = "".join(f"{name}\0" for name in files)
    _run(store, "update-index", "-z", "--add", "--remove", "--stdin", given=given, work_tree=path)
    tree = _run(store, "write-tree")
    index = git(path, "write-tree", fails=True, new_objects=(store / "objects", shared / "objects")).strip()
    of_tip = git(path, "rev-parse", f"{tip}^{{tree}}").strip()
    if tree == index == of_tip:
        return ""
    parents = ["-p", tip]
    if index:
        parents += ["-p", _run(store, "commit-tree", "-p", tip, "-m", "index", index)]
    return _run(store, "commit-tree", *parents, "-m", "files", tree)


def _run(store: Path, *arguments: str, given: str = "", work_tree: Path | None = None) -> str:
    output = call_git(store, *arguments, given=given.encode("utf-8", "surrogateescape"), work_tree=work_tree, of=OF)
    return output.decode("utf-8", "replace").strip()
