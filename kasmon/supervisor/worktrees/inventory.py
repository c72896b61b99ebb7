"""The worktrees that kasmon created: where they are, who uses them, and which can go. Calls block.

A worktree can go if nothing in it could be lost: its work is merged or pushed, no session and no process uses it.
Functions raise `GitError` if git fails.
"""

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import msgspec

from kasmon import system
from kasmon.config.schema import WorktreeConfig
from kasmon.errors import KasmonError, RefusedError, of_system
from kasmon.model.commands import SessionWorktree
from kasmon.model.events import SessionCreated
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session_state import ALIVE
from kasmon.paths import Paths
from kasmon.repository.git import current_branch, git, knows
from kasmon.store.event_log import EventLog
from kasmon.supervisor.worktrees.setup import run_command
from kasmon.supervisor.worktrees.unsaved_files import ignored, unsaved
from kasmon.supervisor.worktrees.worktree import delete_branch, remove, repository_of, source_top

PULL_REQUEST: Final = "pr:"


class WorktreeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A worktree of a session or a plan that exists, as it is now."""

    session: SessionId
    """Empty for a plan's."""
    name: str
    """The session's name; the name of a plan's is `PLAN/FOLDER`."""
    plan: str = ""
    """The plan that it belongs to; empty for a session's own."""
    tree: SessionWorktree
    created_at: float
    size_bytes: int
    keeps: str = ""
    """Why it must stay; empty if it can go."""
    hint: str = ""
    """What to do about that."""


def list_session_worktrees(paths: Paths, fleet: Fleet) -> tuple[WorktreeEntry, ...]:
    """Return the worktrees of all sessions, also of removed ones, that exist, oldest first."""
    found: dict[str, WorktreeEntry] = {}
    events = EventLog(paths.fleet_log).read() if paths.fleet_log.exists() else ()  # no session was ever started
    for event, _ in events:
        if not isinstance(event, SessionCreated) or (tree := event.launch.worktree) is None:
            continue
        if not os.path.lexists(Path(tree.path) / ".git"):
            continue
        session = fleet.get(event.launch.session)
        entry = WorktreeEntry(
            session=event.launch.session,
            name=session.name if session else event.launch.name,
            tree=tree,
            created_at=event.at,
            size_bytes=size_of(Path(tree.path)),
        )
        try:
            check_removable(tree, fleet)
        except KasmonError as error:
            entry = msgspec.structs.replace(entry, keeps=error.message, hint=error.hint)
        found[tree.path] = entry
    return tuple(found.values())


def check_removable(tree: SessionWorktree, fleet: Fleet) -> None:
    """Raise `RefusedError` unless *tree* is unused by sessions and processes, and nothing in it could be lost."""
    path = Path(tree.path)
    try:
        check_unused(path, fleet)
        why = unsaved(path, copies(tree), _list_saved(tree))
    except OSError as error:
        raise of_system(error) from error
    if why:
        raise RefusedError(f"{why}.", hint="Commit and push or merge it, then try again.")


def remove_session_worktree(
    config: WorktreeConfig, tree: SessionWorktree, fleet: Fleet, report: Callable[[str], None]
) -> str:
    """Remove *tree*, after its teardown, and its new branch if other branches have its commits; describe the result.

    Raises:
        RefusedError: if it is used, or something in it could be lost.
        LaunchError: if the teardown fails.
    """
    check_removable(tree, fleet)
    path = Path(tree.path)
    repo = repository_of(tree)
    if config.teardown:
        run_command(config.teardown, path, config.setup_s, "teardown", report)
        check_removable(tree, fleet)
    tip = git(path, "rev-parse", "HEAD").strip()
    branch = current_branch(path)
    remove(repo, path, copies(tree), _list_saved(tree))
    if not tree.is_new_branch or branch != tree.branch or not knows(repo, f"refs/heads/{branch}"):
        return f"{tree.path}: removed"
    delete_branch(repo, branch, tip)
    return f"{tree.path}: removed, with its branch {branch} at {tip[:12]}"


def check_unused(path: Path, fleet: Fleet) -> None:
    """Raise `RefusedError` while a session or another process works in the worktree at *path*, `OSError` if unreadable.

    A process is found by the identity of its working directory, so one in its own mount namespace counts too. Those of
    other users, which the system does not show, do not count.
    """
    import psutil  # only here: it takes long to load

    top = path.resolve()
    for session in fleet.sessions:
        if session.state not in ALIVE or not (session.has_folder_here and session.workdir):
            continue
        if Path(session.workdir).resolve().is_relative_to(top):
            raise RefusedError(
                f"session {session.name!r} still runs in {str(path)!r}.", hint=f"`kasmon stop {session.id}` stops it."
            )
    folder_ids = {(facts.st_dev, facts.st_ino) for facts in (folder.stat() for folder in _folders(top))}
    for process in psutil.process_iter(["name"]):
        if system.HERE.locate_folder(process.pid) in folder_ids:
            raise RefusedError(
                f"process {process.pid} ({process.info['name']!r}) runs in {str(path)!r}.",
                hint="End it, or change its working directory.",
            )


def size_of(folder: Path) -> int:
    """Return the bytes that the files in *folder* take, as far as they can be read."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            try:
                total += (Path(parent) / name).lstat().st_blocks * 512
            except OSError:
                continue
    return total


def _folders(top: Path) -> list[Path]:
    def stop(error: OSError) -> None:
        raise error

    return [Path(folder) for folder, _, _ in os.walk(top, onerror=stop)]


def _list_saved(tree: SessionWorktree) -> tuple[str, ...]:
    """The commits that can be had again although no branch has them: a pull request stays on its server."""
    return (tree.base,) if tree.base_name.startswith(PULL_REQUEST) else ()


def copies(tree: SessionWorktree) -> Collection[str]:
    """Return the git-ignored files of *tree* that the checkout it came from has with the same bytes."""
    path, source = Path(tree.path), source_top(tree)
    if source is None:
        return ()
    return [name for name in ignored(path) if _is_same(path / name, source / name)]


def _is_same(one: Path, other: Path) -> bool:
    if one.is_symlink():
        return one.resolve() == other.resolve()
    return one.is_file() and other.is_file() and not other.is_symlink() and one.read_bytes() == other.read_bytes()
