"""List the worktrees of plans; remove those of an ended plan without unsaved work, if unused. Calls block."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from kasmon.errors import KasmonError, RefusedError, of_system
from kasmon.model.commands import SessionWorktree
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.repository.git import repository
from kasmon.store.plan_log import PlanLog, plans
from kasmon.supervisor.plans.start import find_plan
from kasmon.supervisor.plans.task_folder import LONGEST_RESULT, NOTHING_OF_OURS, OWN_FOLDER
from kasmon.supervisor.worktrees.inventory import WorktreeEntry, check_unused, size_of
from kasmon.supervisor.worktrees.recognized_worktree import recognize
from kasmon.supervisor.worktrees.unsaved_files import ignored, unsaved
from kasmon.supervisor.worktrees.worktree import remove


class IgnoredFiles(NamedTuple):
    """The files of one worktree that git ignores, by their names within it."""

    listed: tuple[str, ...]
    """All except those that kasmon created and has elsewhere."""
    deletable: frozenset[str]
    """Those that may be deleted with the worktree."""


class CleanResult(NamedTuple):
    removed: tuple[str, ...]
    """Their folders."""
    retained: tuple[str, ...]
    """Why each of the others was kept, and what to do about it."""


def find_ignored(plan_log: PlanLog, patterns: Sequence[str]) -> dict[Path, IgnoredFiles]:
    """Return worktree -> its git-ignored files, for the plan of *plan_log*; omit one that git cannot read.

    *patterns*, in the syntax of `.gitignore`: which of these files may be deleted with their worktree.
    """
    found = {}
    for path in _worktrees(plan_log):
        try:
            if path.is_symlink() or not (path / ".git").is_file():
                continue
            names = ignored(path)
            own = frozenset(name for name in names if _is_stored(plan_log, path, name))
            may_go = frozenset(ignored(path, patterns)) if patterns else frozenset()
        except (KasmonError, OSError):  # its removal is refused with the reason
            continue
        found[path] = IgnoredFiles(tuple(name for name in names if name not in own), own | may_go)
    return found


def clean(plan_log: PlanLog, fleet: Fleet, ignored: Mapping[Path, IgnoredFiles]) -> CleanResult:
    """Remove the worktrees of the plan of *plan_log* in which nothing could be lost; keep the others.

    Args:
        fleet: any session or process in a worktree keeps it.
        ignored: the ignored files that were shown to the user, from `find_ignored`; any other ignored file keeps it.

    Raises:
        RefusedError: if the plan has not ended.
    """
    _check_ended(plan_log)
    removed, kept = [], []
    for path in _worktrees(plan_log):
        try:
            _remove(plan_log, path, fleet, ignored)
            removed.append(str(path))
        except (KasmonError, OSError) as error:
            kept.append(str(of_system(error)))
    return CleanResult(tuple(removed), tuple(kept))


def list_plan_worktrees(paths: Paths, fleet: Fleet) -> tuple[WorktreeEntry, ...]:
    """Return the worktrees of all plans that exist, by plan and name."""
    entries = []
    for id_ in plans(paths):
        plan_log = find_plan(paths, id_)
        found = find_ignored(plan_log, ())
        for path in _worktrees(plan_log):
            if not os.path.lexists(path / ".git"):
                continue
            entry = WorktreeEntry(
                session=SessionId(""),
                name=f"{id_}/{path.name}",
                plan=id_,
                tree=recognize(str(path))
                or SessionWorktree(path=str(path), branch="", base="", source=plan_log.run.folder),
                created_at=plan_log.run.began_at,
                size_bytes=size_of(path),
            )
            try:
                _check_ended(plan_log)
                check_unused(path, fleet)
                if why := unsaved(path, found[path].deletable if path in found else ()):
                    raise RefusedError(f"{why}.", hint="Commit and push or merge it, then try again.")
            except (KasmonError, OSError) as error:
                problem = of_system(error)
                entry = msgspec.structs.replace(entry, keeps=problem.message, hint=problem.hint)
            entries.append(entry)
    return tuple(entries)


def remove_plan_worktree(paths: Paths, entry: WorktreeEntry, fleet: Fleet) -> str:
    """Remove the worktree of *entry*, as `clean`; its branch stays. Describe the result.

    Raises `RefusedError` if the plan has not ended, the worktree is used, or something in it could be lost.
    """
    plan_log = find_plan(paths, entry.plan)
    _check_ended(plan_log)
    _remove(plan_log, Path(entry.tree.path), fleet, find_ignored(plan_log, ()))
    return f"{entry.tree.path}: removed; its branch {entry.tree.branch} stays"


def _check_ended(plan_log: PlanLog) -> None:
    if plan_log.run.state != "ended":
        raise RefusedError(
            f"plan {plan_log.plan!r} has not ended.", hint=f"`kasmon plan abort {plan_log.plan}` aborts it."
        )


def _remove(plan_log: PlanLog, path: Path, fleet: Fleet, ignored: Mapping[Path, IgnoredFiles]) -> None:
    repo = repository(Path(plan_log.run.folder))
    if repo is None:
        raise RefusedError(f"the repository of {str(path)!r} is gone.")
    check_unused(path, fleet)
    remove(repo, path, ignored[path].deletable if path in ignored else ())


def _worktrees(plan_log: PlanLog) -> list[Path]:
    return sorted((plan_log.folder / "trees").glob("*"))


def _is_stored(plan_log: PlanLog, path: Path, name: str) -> bool:
    """Whether kasmon created the file *name* in the worktree at *path*, or stores its content with the plan."""
    file = PurePosixPath(name)
    if file.parts[-2:] == (OWN_FOLDER, ".gitignore"):
        expected = NOTHING_OF_OURS
    elif file.parts[-3:-2] == (OWN_FOLDER,) and file.name == "result.md":
        result = plan_log.folder / "results" / f"{file.parent.name}.md"
        expected = result.read_bytes() if result.is_file() else b""
    else:
        return False
    if (path / name).is_symlink() or not (path / name).is_file():
        return False
    with (path / name).open("rb") as opened:
        return opened.read(LONGEST_RESULT + 1) == expected
