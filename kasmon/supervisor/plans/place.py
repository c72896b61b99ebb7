"""Where a task works: the plan's folder, its one worktree, a worktree of its own, or where another task worked."""

import asyncio
import os
from pathlib import Path
from typing import Final

from kasmon.errors import KasmonError, RefusedError
from kasmon.model.plan.run import PlanRun
from kasmon.model.plan.spec import Plan, Task, Worktree
from kasmon.paths import Places, private_folder, write_private
from kasmon.supervisor.changed import state
from kasmon.supervisor.git import head, repository
from kasmon.supervisor.worktree import Tree, make, no_repository, proper_branch

OWN_FOLDER: Final = ".kasmon"
"""In a task's folder, what kasmon and its agents leave for each other; git is told to look away."""
LONGEST_RESULT: Final = 65_536
"""So many bytes of a result are kept."""


class Grounds:
    """The grounds on which the tasks of one plan work. Worktrees are made one after the other: git has one lock."""

    def __init__(self, places: Places, plan_id: str, folder: Path) -> None:
        self._trees = places.plan(plan_id) / "trees"
        self._id = plan_id
        self._folder = folder
        self._repo: Path | None = None
        self._is_known = False
        self._making = asyncio.Lock()

    async def of(self, plan: Plan, task: Task, run: PlanRun) -> Tree:
        """Where *task* works from now on; made if it is not there.

        Raises:
            UsageError: if it wants a worktree and the plan's folder is in no git repository.
            KasmonError: why git makes none.
        """
        at = run.of(task.id)
        is_there: bool = await asyncio.to_thread(os.path.isdir, at.workdir) if at.workdir else False
        if is_there:
            return Tree(path=at.workdir, branch=at.branch, base=at.base)
        if task.inherits:
            before = run.of(task.inherits)
            return Tree(path=before.workdir or str(self._folder), branch=before.branch, base=before.base)
        async with self._making:
            return await asyncio.to_thread(self._made, task.worktree or plan.worktree, task)

    def _made(self, wanted: Worktree, task: Task) -> Tree:
        repo = self._repository()
        if wanted == "folder" or (not wanted and repo is None):
            base = "" if repo is None else head(repo)
            return Tree(path=str(self._folder), base=base)
        if repo is None:
            raise no_repository(task.id, self._folder)
        private_folder(self._trees)
        if wanted == "own":
            name = f"{self._id}.{own_name(task)}"
            tree = make(repo, self._trees / name, f"plan/{name}")
        else:
            tree = make(repo, self._trees / "shared", f"plan/{self._id}")
        inside = self._folder.resolve().relative_to(repo.resolve())
        return Tree(path=str(Path(tree.path) / inside), branch=tree.branch, base=tree.base)

    def _repository(self) -> Path | None:
        if not self._is_known:
            self._repo, self._is_known = repository(self._folder), True
        return self._repo


def own_name(task: Task) -> str:
    """What the worktree of *task* is called behind its plan's id and a dot, which no id has: no two are alike."""
    return proper_branch(tuple(dict.fromkeys((str(task.number), task.id))))[:60].rstrip("-")


def lay_out(folder: Path, task: Task) -> None:
    """Make the folder in which *task* may leave its result, where git does not see it.

    Raises:
        RefusedError: if somebody made a link there, which leads elsewhere.
    """
    own = folder / OWN_FOLDER
    if own.is_symlink() or (own / ".gitignore").is_symlink():
        raise RefusedError(f"{str(own)!r} leads elsewhere: nothing is written through a link.")
    (own / f"task-{task.number}").mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (ignore := own / ".gitignore").exists():
        write_private(ignore, b"*\n")


def state_of(tree: Tree) -> str:
    """The state of the worktree in which a task works, see `changed.state`; empty where nobody can tell. Blocks."""
    try:
        return state(Path(tree.path)) if tree.base else ""
    except (KasmonError, OSError):
        return ""


def result(folder: Path, task: Task, since: float) -> str:
    """What *task* left in `result.md`, in its own place or in its folder, written after *since*; may be empty."""
    for path in (folder / OWN_FOLDER / f"task-{task.number}" / "result.md", folder / "result.md"):
        try:
            if path.is_file() and not path.is_symlink() and path.stat().st_mtime >= since:
                with path.open("rb") as file:
                    return file.read(LONGEST_RESULT).decode("utf-8", "replace")
        except OSError:
            continue
    return ""
