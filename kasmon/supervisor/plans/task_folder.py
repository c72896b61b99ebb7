"""The folder where a task works: the plan's folder or one worktree, the task's own worktree, or another task's.

Functions raise `GitError` if git fails.
"""

import shlex
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.errors import KasmonError, RefusedError
from kasmon.model.plan.placement import is_elsewhere, machine_requirement, worktree_of
from kasmon.model.plan.plan import NEEDS, Plan, Task, host_of
from kasmon.model.plan.progress import PlanRun, TaskState
from kasmon.model.plan.shared_terminal import root_of
from kasmon.model.session import Session
from kasmon.paths import Paths, private_folder, write_private
from kasmon.repository.git import git, head, repository, where
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.plans.view import approved_plan, is_of_other_plan
from kasmon.supervisor.plans.worktree_base import begin_branch, begin_placed_worktree, begin_worktree
from kasmon.supervisor.worktrees.changes import state_digest
from kasmon.supervisor.worktrees.worktree import (
    TaskWorktree,
    check_worktree,
    commit_of,
    create,
    no_repository,
    proper_branch,
)

OWN_FOLDER: Final = ".kasmon"
"""In a task's folder, the files that kasmon and its agents exchange; ignored by git."""
NOTHING_OF_OURS: Final = b"*\n"
"""The content of the `.gitignore` in that folder."""
LONGEST_RESULT: Final = 65_536


class _OwnWorktree(NamedTuple):
    """The worktree that belongs to a task, whether it exists or not."""

    repo: Path
    """The top folder of the plan's own checkout."""
    tree: Path
    branch: str
    folder: Path
    """The task's folder in it, corresponding to the plan's folder in the checkout."""
    is_own: bool
    """Whether it is the task's own, not the one of the whole plan."""


class TaskBranch(NamedTuple):
    """The branch of a task that works on another machine."""

    repo: Path
    name: str
    commit: str
    """Where it is."""
    base: str
    """The commit that the task's work begins at."""
    folder: str
    """The plan's folder within the repository."""


class TaskFolders:
    """The folders where the tasks of one plan work. Worktrees are created one at a time: git has one lock.

    A task's folder follows from the plan alone, never from the logged folder of an earlier attempt. A task with a
    worktree gets that worktree, verified in this call, or an error; never the plan's folder.
    """

    def __init__(self, paths: Paths, plan_id: str, folder: Path) -> None:
        import asyncio  # only in this class: commands of tasks do without

        self._trees = paths.plan(plan_id) / "trees"
        self._id = plan_id
        self._folder = folder
        self._lock = asyncio.Lock()

    async def prepare(self, plan: Plan, task: Task, run: PlanRun) -> TaskWorktree:
        """Return the folder where *task* works from now on; create its worktree if needed.

        Raises:
            UsageError: if it requires a worktree and the plan's folder is in no git repository.
            RefusedError: if what should be its worktree is not, or is not on its branch.
        """
        import asyncio

        async with self._lock:
            return await asyncio.to_thread(self._create, plan, task, run)

    async def branch(self, plan: Plan, task: Task, run: PlanRun) -> TaskBranch:
        """Return the branch of *task*, which works on another machine, at the commit that it starts from; as `of`."""
        import asyncio

        async with self._lock:
            return await asyncio.to_thread(self._create_branch, plan, task, run)

    def check(self, plan: Plan, task: Task, run: PlanRun) -> None:
        """Raise unless *task* has begun and can continue in its folder: its worktree, on its branch or none. Blocks.

        It raises `RefusedError` if its worktree is gone, is not of the plan's repository or is on another branch; or if
        it was begun elsewhere.
        """
        own = self._find_worktree(plan, task, run)
        folder, begun_in = str(self._folder if own is None else own.folder), run.of(task.id).workdir
        if begun_in != folder:
            raise RefusedError(
                f"task {task.id!r} was started in {begun_in!r}, but its folder is now {folder!r}.",
                hint="Retry it to start it there.",
            )
        if own is not None:
            check_worktree(own.repo, own.tree, own.branch, or_detached=True)
            _check_inside(own)

    def check_terminal(self, plan: Plan, task: Task, run: PlanRun, directory: str) -> None:
        """Raise `RefusedError` if a terminal in *directory* is in a checkout of the repository not of *task*. Blocks.

        It may be in the worktree of *task*, or outside of the repository. A task without a worktree passes.
        """
        own = self._find_worktree(plan, task, run)
        if own is None:
            return
        folder = Path(directory)
        if not folder.is_absolute() or not folder.is_dir():
            raise RefusedError(f"the terminal of task {task.inherits!r} is in {directory!r}, which cannot be read.")
        git_folder = git(folder, "rev-parse", "--git-common-dir", fails=True).removesuffix("\n")
        is_of_repository = bool(git_folder) and str((folder / git_folder).resolve()) == where(own.repo)[1]
        if is_of_repository and repository(folder) == own.tree.resolve():
            return
        is_inside = folder.resolve().is_relative_to(own.repo.resolve())
        if is_of_repository or (is_inside and not folder.resolve().is_relative_to(own.tree.resolve())):
            raise RefusedError(
                f"the terminal of task {task.inherits!r} is in {directory!r}, not in its worktree {str(own.tree)!r}.",
                hint=f"Run `cd {shlex.quote(str(own.folder))}` there, then retry.",
            )

    def _create(self, plan: Plan, task: Task, run: PlanRun) -> TaskWorktree:
        own = self._find_worktree(plan, task, run)
        if own is None:
            repo = None if run.repository == "" else repository(self._folder)
            return TaskWorktree(path=str(self._folder), base="" if repo is None else head(repo))
        private_folder(self._trees)
        if own.is_own:
            begin = begin_worktree if machine_requirement(plan, task) is None else begin_placed_worktree
            tree = begin(own.repo, own.tree, own.branch, plan, task, run)
        else:
            base = plan.base if plan.base != NEEDS else ""
            tree = create(own.repo, own.tree, own.branch, base or "HEAD")
        _check_inside(own)
        own.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return TaskWorktree(path=str(own.folder), branch=tree.branch, base=tree.base)

    def _create_branch(self, plan: Plan, task: Task, run: PlanRun) -> TaskBranch:
        own = self._find_worktree(plan, task, run)
        if own is None:
            raise no_repository(task.id, self._folder)
        private_folder(self._trees)
        tree = begin_branch(own.repo, own.tree, own.branch, plan, task, run)
        return TaskBranch(
            repo=Path(where(own.repo)[1]),
            name=own.branch,
            commit=commit_of(own.repo, f"refs/heads/{own.branch}"),
            base=tree.base,
            folder=own.folder.relative_to(own.tree).as_posix(),
        )

    def _find_worktree(self, plan: Plan, task: Task, run: PlanRun) -> _OwnWorktree | None:
        _check_not_remote(plan, task, run)
        root = root_of(plan, task)
        kind = worktree_of(plan, task)
        if not kind and run.repository == "":
            kind = "folder"  # there was no repository when the plan was approved
        repo = None if kind == "folder" else repository(self._folder)
        if repo is None and kind != "folder" and (kind or run.repository):
            raise no_repository(task.id, self._folder)
        if repo is None and task.worktree in ("own", "shared"):
            raise RefusedError(
                f"task {task.id!r} requires a worktree, but continues in the plan's folder, where {root.id!r} works.",
                hint=f"Give {root.id!r} a worktree, or {task.id!r} none.",
            )
        if repo is None:
            return None
        if run.repository and where(repo)[1] != run.repository:
            raise RefusedError(
                f"the plan's folder {str(self._folder)!r} is no longer in the repository {run.repository!r}.",
                hint="Run the plan's file again.",
            )
        name = f"{self._id}.{own_name(root)}" if kind == "own" else "shared"
        branch = branch_of(self._id, plan, task)
        tree = self._trees / name
        folder = tree / self._folder.resolve().relative_to(repo.resolve())
        return _OwnWorktree(repo, tree, branch, folder, kind == "own")


def check_session(paths: Paths, session: Session) -> None:
    """Raise unless *session* may restart: one of a plan's task needs the worktree of that task, verified. Blocks.

    A session without a plan passes, as does one of a deleted plan, or of a plan or a task of another machine.

    Raises:
        RefusedError: if no task of its plan has this session, or as `TaskFolders.check` raises.
        PlanNotFoundError, PlanFaultyError: if the plan's approved text is gone, or can no longer be read.
    """
    if not session.plan or is_of_other_plan(paths, session):
        return
    plan_log = PlanLog(paths, session.plan)
    plan_log.more()
    run = plan_log.run
    if not run.began_at:
        return
    plan = approved_plan(plan_log)
    for task in plan.tasks:
        at = run.of(task.id)
        if session.id in (at.session, *at.earlier):
            if not host_of(plan, task, at.agent) and not is_elsewhere(plan, task, run):
                TaskFolders(paths, plan_log.plan, Path(run.folder)).check(plan, task, run)
            return
    raise RefusedError(
        f"session {session.name!r} belongs to plan {plan_log.plan!r}, but to none of its tasks now.",
        hint=f"`kasmon plan show {plan_log.plan}` lists the sessions of its tasks.",
    )


def _check_not_remote(plan: Plan, task: Task, run: PlanRun) -> None:
    """Raise if *task* inherits from one that the user moved to another machine."""
    before = task
    while before.inherits:
        before = plan.task(before.inherits)
        if run.of(before.id).state is TaskState.SKIPPED:
            continue
        if host := host_of(plan, before, run.of(before.id).agent):
            raise RefusedError(f"task {task.id!r} continues where {before.id!r} worked, and that was on {host!r}.")
        return


def _check_inside(own: _OwnWorktree) -> None:
    """Raise `RefusedError` if a link or another repository in the worktree leads the task's folder out of it."""
    folder = own.folder
    while not folder.exists() and not folder.is_symlink():
        folder = folder.parent
    top = Path(where(folder)[0]) if folder.is_dir() else folder
    if top != own.tree.resolve():
        raise RefusedError(
            f"the folder {str(own.folder)!r}, where the task should work, resolves to {str(top)!r}, not "
            f"to its worktree {str(own.tree)!r}."
        )


def branch_of(plan_id: str, plan: Plan, task: Task) -> str:
    """Return the branch on which *task* works, if it has a worktree."""
    is_own = worktree_of(plan, task) == "own"
    return f"plan/{plan_id}.{own_name(root_of(plan, task))}" if is_own else f"plan/{plan_id}"


def own_name(task: Task) -> str:
    """Return the suffix of the worktree name of *task*, behind the plan's id and a dot; unique, as ids have no dot."""
    return proper_branch(tuple(dict.fromkeys((str(task.number), task.id))))[:60].rstrip("-")


def lay_out(folder: Path, task: Task) -> None:
    """Create the folder for the result of *task*, ignored by git. Raises `RefusedError` if a link is in its place."""
    own = folder / OWN_FOLDER
    if own.is_symlink() or (own / ".gitignore").is_symlink():
        raise RefusedError(f"{str(own)!r} is a symbolic link: kasmon does not write through links.")
    (own / f"task-{task.number}").mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (ignore := own / ".gitignore").exists():
        write_private(ignore, NOTHING_OF_OURS)


def state_of(tree: TaskWorktree) -> str:
    """Return the state of a task's worktree, see `changes.state`; empty if unknown. Blocks."""
    try:
        return state_digest(Path(tree.path)) if tree.base else ""
    except (KasmonError, OSError):
        return ""


def result(folder: Path, task: Task, since: float) -> str:
    """Return `result.md` of *task*, in its own folder or the task's, if written after *since*; else empty."""
    for path in (folder / OWN_FOLDER / f"task-{task.number}" / "result.md", folder / "result.md"):
        try:
            if path.is_file() and not path.is_symlink() and path.stat().st_mtime >= since:
                with path.open("rb") as file:
                    return file.read(LONGEST_RESULT).decode("utf-8", "replace")
        except OSError:
            continue
    return ""
