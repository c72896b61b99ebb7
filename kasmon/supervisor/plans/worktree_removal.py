"""Remove the worktrees of an ended plan that hold no unsaved work and are not in use."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from kasmon.errors import KasmonError, RefusedError, of_system
from kasmon.model.fleet import Fleet
from kasmon.repository.git import repository
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.plans.task_folder import LONGEST_RESULT, NOTHING_OF_OURS, OWN_FOLDER
from kasmon.supervisor.worktrees.inventory import check_unused
from kasmon.supervisor.worktrees.unsaved_files import ignored
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
    """Return worktree -> its git-ignored files, for the plan of *plan_log*; omit one that git cannot read. Blocks.

    Args:
        plan_log: the plan.
        patterns: in the syntax of `.gitignore`: which of these files may be deleted with their worktree.
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


def clean(plan_log: PlanLog, fleet: Fleet, found: Mapping[Path, IgnoredFiles]) -> CleanResult:
    """Remove the worktrees of the plan of *plan_log* in which nothing could be lost; keep the others. Blocks.

    Args:
        plan_log: the plan.
        fleet: the sessions as they are now; any session or process in a worktree keeps it.
        found: the ignored files that were shown to the user, from `find_ignored`; any other ignored file keeps it.

    Raises:
        RefusedError: if the plan has not ended.
    """
    if plan_log.run.state != "ended":
        raise RefusedError(
            f"plan {plan_log.plan!r} has not ended.", hint=f"`kasmon plan abort {plan_log.plan}` aborts it."
        )
    repo = repository(Path(plan_log.run.folder))
    removed, kept = [], []
    for path in _worktrees(plan_log):
        try:
            if repo is None:
                raise RefusedError(f"the repository of {str(path)!r} is gone.")
            check_unused(path, fleet)
            remove(repo, path, found[path].deletable if path in found else ())
            removed.append(str(path))
        except KasmonError as error:
            kept.append(str(error))
        except OSError as error:
            kept.append(str(of_system(error)))
    return CleanResult(tuple(removed), tuple(kept))


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
