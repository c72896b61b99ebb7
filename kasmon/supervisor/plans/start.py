"""Start an approved plan: claim its id, store its text as it was shown, and start (or restart) its runner."""

import contextlib
import hashlib
import itertools
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from kasmon.errors import GitError, PlanNotFoundError, RefusedError, UnavailableError, UsageError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.host.rpc.spawn import spawn_runner
from kasmon.model.plan.events import PlanBegan, PlanChanged
from kasmon.model.plan.parser import is_plan
from kasmon.model.plan.placement import worktree_of
from kasmon.model.plan.plan import Plan
from kasmon.model.plan.progress import is_over
from kasmon.paths import Paths, private_folder, write_private
from kasmon.repository.git import repository, where
from kasmon.store.plan_log import PlanLog, plans
from kasmon.supervisor.limits.agents import check_is_person
from kasmon.supervisor.worktrees.worktree import proper_branch


def store_approved_plan(
    paths: Paths, plan: Plan, text: str, file: Path, folder: Path, *, headless: bool, on: str = ""
) -> PlanLog:
    """Store a plan that the user approved, and return its log; nothing of it runs yet.

    *on*: the machine of tasks that name none, as `with_default_machine` takes it; *plan* has it already.

    Raises:
        RefusedError: if an agent calls this: its tasks would have none of the limits of the table [fleet].
        UnavailableError: if it cannot be written.
        GitError: if its folder is in a repository that git refuses to open.
    """
    check_is_person(paths, "start a plan")
    shared = _find_git_folder(plan, folder)
    try:
        paths.make()
        private_folder(paths.plans)
        id_ = _claim_id(paths, _id_of(plan.name))
        plan_log = PlanLog(paths, id_)
        private_folder(plan_log.folder / "agreed")
        own = file.name if is_plan(file.name) else f"{file.stem}.md"
        write_private(plan_log.folder / "agreed" / own, text.encode(), durable=True)
        write_private(plan_log.notes, b"")
    except OSError as error:
        raise UnavailableError(
            f"cannot write into {str(paths.plans)!r}: {error.strerror or error}.",
            hint="Run `kasmon doctor` for a diagnosis.",
        ) from error
    plan_log.add(
        PlanBegan(
            at=time.time(),
            plan=id_,
            name=plan.name,
            file=str(file),
            folder=str(folder),
            digest=digest(text),
            headless=headless,
            repository=shared,
            on=on,
        )
    )
    plan_log.more()
    return plan_log


def next_id(paths: Paths, plan: Plan) -> str:
    """Return the id that *plan* would get if it were approved now."""
    return next(id_ for id_ in _ids(_id_of(plan.name)) if not paths.plan(id_).exists())


def run(paths: Paths, plan_log: PlanLog) -> None:
    """Start a runner for *plan_log*, unless it has one or is over. Raises `UnavailableError` if that fails."""
    plan_log.more()
    if is_over(plan_log.run) or is_run(plan_log):
        return
    try:
        spawn_runner(paths, plan_log.plan)
    except OSError as error:
        raise UnavailableError(f"cannot run plan {plan_log.plan!r}: {error.strerror or error}.") from error


def is_run(plan_log: PlanLog) -> bool:
    """Whether a runner process runs it now."""
    return lock_holder(plan_log.lock) is not None


def apply_edit(plan_log: PlanLog, text: str) -> None:
    """Replace the plan by *text*, which has no faults and was shown to the user."""
    write_private(plan_log.agreed, text.encode(), durable=True)
    plan_log.add(PlanChanged(at=time.time(), digest=digest(text)))


def find_plan(paths: Paths, requested: str) -> PlanLog:
    """Return the plan with the id *requested*, or the newest run of that file. Raises `PlanNotFoundError`."""
    ids = plans(paths)
    plan_logs = [PlanLog(paths, id_) for id_ in ([requested] if requested in ids else ids)]
    for plan_log in plan_logs:
        plan_log.more()
    path = str(Path(requested).absolute())
    found = [each for each in plan_logs if each.plan == requested or each.run.file == path]
    if not found:
        raise PlanNotFoundError(requested)
    return max(found, key=lambda plan_log: plan_log.run.began_at)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def text_of(file: Path) -> str:
    """Return the text of *file*. Raises `PlanNotFoundError`, or `RefusedError` if it is no text, or over 8 MiB."""
    try:
        seen = file.stat()
        if stat.S_ISFIFO(seen.st_mode):
            raise RefusedError(f"{str(file)!r} is a pipe; a plan must be a file that can be read again.")
        if seen.st_size > 8 << 20:
            raise RefusedError(f"{str(file)!r} is larger than 8 MiB, so it is not a plan.")
        return file.read_text("utf-8-sig")
    except IsADirectoryError as error:
        raise PlanNotFoundError(str(file), "it is a folder, not a file") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise PlanNotFoundError(str(file), "the file does not exist") from error
    except UnicodeDecodeError as error:
        raise RefusedError(f"{str(file)!r} is not UTF-8.") from error
    except OSError as error:
        raise RefusedError(f"{str(file)!r} cannot be read: {error.strerror or error}.") from error


def _find_git_folder(plan: Plan, folder: Path) -> str | None:
    """Return the git folder that all worktrees of *folder* share; empty if it is in no repository.

    If git refuses to open it: None, or `GitError` where a task may require a worktree.
    """
    try:
        return where(folder)[1] if repository(folder) is not None else ""
    except GitError:
        if any(worktree_of(plan, task) != "folder" for task in plan.tasks):
            raise
        return None


def _id_of(name: str) -> str:
    try:
        return proper_branch((name.lower(),))[:40].strip("-") or "plan"
    except UsageError:  # the name has no character that is valid in a branch
        return "plan"


def _claim_id(paths: Paths, name: str) -> str:
    """Return a free id for a plan called *name*, claimed by creating its folder."""
    for id_ in _ids(name):
        with contextlib.suppress(FileExistsError):
            paths.plan(id_).mkdir(mode=0o700)
            break
    return id_


def _ids(name: str) -> Iterator[str]:
    """Yield the ids that a plan called *name* may get, in the order to try them."""
    yield name
    yield from (f"{name}-{number}" for number in itertools.count(2))
