"""The work of tasks on this machine, for plans that run on other machines: what `kasmon task` does.

Each function answers a repeated request as it did the first time, and raises `RefusedError` for an attempt that lost
its claim.
"""

import hashlib
import os
import time
from pathlib import Path, PurePosixPath

import msgspec

from kasmon.config import Config
from kasmon.errors import KasmonError, RefusedError, SessionEndedError, UsageError, of_system
from kasmon.host.rpc.connect import reach
from kasmon.host.rpc.event_loop import run_in_thread
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Launch, Mode
from kasmon.model.permission import SessionId
from kasmon.model.plan.plan import Task
from kasmon.model.plan.prompt import session_name
from kasmon.paths import Paths, hash_file, private_folder, write_private
from kasmon.repository.git import git, head
from kasmon.repository.packs import build_pack, find_commits, read_pack
from kasmon.store.file_lock import lock
from kasmon.store.session_reader import load_launch
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.plans.machines.check_process import CheckOrder, TaskCheck, build_variables
from kasmon.supervisor.plans.machines.claim import Claim, TaskClaim, folder_of, list_own_files, result_mark
from kasmon.supervisor.plans.machines.task_repository import (
    add_worktree,
    collect_commit,
    continue_worktree,
    list_commits,
    note_fetched,
    open_store,
    retain_commit,
)
from kasmon.supervisor.plans.machines.task_requests import (
    LONGEST_PACK_BYTES,
    LONGEST_PART_BYTES,
    AddCommits,
    AddedCommits,
    AttemptReport,
    CheckState,
    EndTask,
    FetchCommits,
    FetchedCommits,
    Preparation,
    PrepareTask,
    ReadResult,
    RunTaskCheck,
    StartedTask,
    StartTask,
    TaskKey,
    TaskResult,
)
from kasmon.supervisor.plans.sandboxes import fetch_changes, record_folder, usual_mode
from kasmon.supervisor.plans.task_folder import lay_out, result, state_of
from kasmon.supervisor.plans.worktree_base import uncommitted
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.create import prepare as create_session
from kasmon.supervisor.sessions.start import begin
from kasmon.supervisor.worktrees.changes import changed_files
from kasmon.supervisor.worktrees.inventory import check_unused
from kasmon.supervisor.worktrees.unsaved_files import ignored
from kasmon.supervisor.worktrees.worktree import TaskWorktree, remove

put = msgspec.structs.replace


async def prepare(paths: Paths, config: Config, request: PrepareTask) -> Preparation:
    """Claim the task for the attempt, and create its worktree once the commit is here. An older attempt is ended.

    Raises:
        RefusedError: if the task cannot continue in the folder that it inherits.
        KasmonError: if git fails, or the older attempt cannot be ended.
    """
    request.check()
    claimed = TaskClaim(paths, request.key)
    with claimed.hold() as claim:
        claimed.require_not_lost(claim)
        if not claim.is_of(request.key):
            claim = await _replace(paths, claimed, claim)
        if claim.workdir:
            return Preparation(workdir=claim.workdir, branch=request.key.branch)
        private_folder(paths.repositories)
        with lock(paths.repositories / request.root):
            store = open_store(paths, request.root)
            if not collect_commit(paths, config, store, request.root, request.commit, request.remote):
                return Preparation(available=list_commits(store))
            top = _open_worktree(paths, claimed, request, store, claim)
        workdir = _folder_in(top, request.folder)
        claimed.write(put(claim, repository=str(store), top=str(top), workdir=str(workdir), base=request.commit))
        return Preparation(workdir=str(workdir), branch=request.key.branch)


def add_commits(paths: Paths, request: AddCommits) -> AddedCommits:
    """Add a part of a pack; the last one adds its commits to the store. Raises `GitError` if it cannot be read."""
    PrepareTask(key=request.key, commit=request.commit, root=request.root).check()
    if not 0 < request.size <= LONGEST_PACK_BYTES or len(request.digest) != 64 or not request.digest.isalnum():
        raise UsageError(f"a pack of {request.size} bytes cannot be added.", hint=f"At most {LONGEST_PACK_BYTES} can.")
    claimed = TaskClaim(paths, request.key)
    with claimed.hold() as claim:
        claimed.require_current(claim)
        pack = claimed.folder / f"{request.digest}.pack"
        received = pack.stat().st_size if pack.exists() else 0
        if received == request.offset:
            with pack.open("ab") as file:
                file.write(request.content[: request.size - received])
            received = pack.stat().st_size
        if received < request.size:
            return AddedCommits(received=received)
        try:
            if hash_file(pack) != request.digest:
                raise RefusedError("the pack arrived damaged.", hint="Retry the task.")
            with lock(paths.repositories / request.root):
                store = open_store(paths, request.root)
                if not retain_commit(store, request.commit):
                    read_pack(store, [request.commit], pack, trusted=True, limit_bytes=LONGEST_PACK_BYTES)
                    retain_commit(store, request.commit)
        finally:
            pack.unlink(missing_ok=True)
        return AddedCommits(received=received)


async def start(paths: Paths, config: Config, request: StartTask) -> StartedTask:
    """Start the session of a prepared attempt, once: repeated, it returns the same session.

    A terminal of it that has lost its host gets a new one. Raises `KasmonError` if the session cannot be started.
    """
    claimed = TaskClaim(paths, request.key)
    with claimed.hold() as claim:
        claimed.require_current(claim)
        if not claim.workdir:
            raise RefusedError(f"attempt {request.key.attempt} of {request.key.name!r} has no folder yet.")
        if not claim.session:
            launch = await run_in_thread(_create_session, paths, config, request, claim)
            tree = TaskWorktree(path=claim.workdir, branch=request.key.branch, base=claim.base)
            claim = put(claim, session=launch.session, sandbox=launch.sandbox or "", initial_state=state_of(tree))
            claimed.write(claim)
        launch = load_launch(paths, SessionId(claim.session))
        if not claim.is_started:
            await run_in_thread(record_folder, paths, launch)
            session = read_fleet(paths).get(launch.session)
            if session is None or not session.generation:
                await begin(paths, launch)
            claim = put(claim, is_started=True)
            claimed.write(claim)
        elif launch.mode is Mode.TMUX and lock_holder(paths.tmux_host_lock) is None:
            async with reach(paths, launch.session, Mode.TMUX):
                pass
        return StartedTask(
            session=launch.session,
            name=launch.name,
            agent=launch.agent,
            mode=launch.mode,
            sandbox=launch.sandbox or "",
            argv=launch.argv,
            state=claim.initial_state,
        )


def check(paths: Paths, request: RunTaskCheck) -> CheckState:
    """Start the attempt's check unless it runs or has ended, and return its state. Raises `OSError` if it cannot."""
    claimed = TaskClaim(paths, request.key)
    with claimed.hold() as claim:
        claimed.require_current(claim)
        key = request.key
        order = CheckOrder(
            task=request.task,
            attempt=key.attempt,
            command=request.command,
            workdir=claim.workdir,
            variables=build_variables(key.plan, key.number, request.wave, claim.session),
            limit_s=request.limit_s,
        )
        task_check = _check_of(claimed, key)
        task_check.start(paths, order)
        return task_check.read()


def read_result(paths: Paths, request: ReadResult) -> TaskResult:
    """Return what the attempt left: its result, its last commit, how much it changed.

    Raises:
        RefusedError: if it has no folder.
        GitError: if git fails.
    """
    claimed = TaskClaim(paths, request.key)
    with claimed.hold() as claim:
        claimed.require_current(claim, may_have_ended=True)
        top, workdir = _folders_of(claim)
        problem = fetch_changes(paths, SessionId(claim.session), workdir) if claim.session else ""
        task = Task(id=request.key.name, number=request.key.number)
        found = TaskResult(
            text=result(workdir, task, claim.claimed_at),
            commit=head(top),
            changed=len(changed_files(top, claim.base)),
            uncommitted=uncommitted(top),
            problem=problem,
        )
        write_private(result_mark(claimed.folder, claim), b"")
        return found


def fetch(paths: Paths, request: FetchCommits) -> FetchedCommits:
    """Return a part of a pack with the commits of the attempt.

    Raises:
        RefusedError: if the commit is none of its own.
        GitError: if git fails.
    """
    claimed = TaskClaim(paths, request.key)
    with claimed.hold() as claim:
        claimed.require_current(claim, may_have_ended=True)
        top, _ = _folders_of(claim)
        name = hashlib.sha256("\n".join((request.commit, *request.excluded)).encode()).hexdigest()
        if (pack := next(claimed.folder.glob(f"{name}-*.result"), None)) is None:
            own = git(top, "rev-list", f"{claim.base}..HEAD").split()  # the agent may have added some meanwhile
            if request.commit not in (head(top), *own):
                raise RefusedError(f"{request.commit!r} is no commit of {request.key.branch!r}.")
            for old in claimed.folder.glob("*.result"):
                old.unlink()
            incomplete = claimed.folder / "incomplete"
            incomplete.unlink(missing_ok=True)
            store = Path(claim.repository)
            build_pack(store, [request.commit], find_commits(store, request.excluded), incomplete)
            pack = incomplete.rename(claimed.folder / f"{name}-{hash_file(incomplete)}.result")
        digest = pack.stem.rpartition("-")[2]
        with pack.open("rb") as file:
            file.seek(request.offset)
            size, content = pack.stat().st_size, file.read(min(request.limit, LONGEST_PART_BYTES))
        if request.offset + len(content) == size:
            note_fetched(Path(claim.repository), request.commit)
        return FetchedCommits(digest=digest, size=size, content=content)


async def end(paths: Paths, request: EndTask) -> AttemptReport:
    """End the attempt, and return what it did; one that lost its claim was ended before.

    One that was not prepared yet cannot be any more. Raises `KasmonError` if its session cannot be ended.
    """
    claimed, key = TaskClaim(paths, request.key), request.key
    with claimed.hold() as claim:
        if request.is_check_only:
            claimed.require_current(claim)
            await run_in_thread(_check_of(claimed, key).end)
            return AttemptReport(attempt=key.attempt, epoch=key.epoch)
        reports = (each for each in claim.reports if (each.attempt, each.epoch) == (key.attempt, key.epoch))
        if (report := next(reports, None)) is None:
            report = AttemptReport(attempt=key.attempt, epoch=key.epoch)
            if claim.is_newer(key):
                return report
            if claim.is_of(key):
                report = await _end(paths, claimed, claim)
            else:
                claim = await _replace(paths, claimed, claim)
            claim = put(claim, is_ended=True, reports=(*claim.reports, report))
            claimed.write(claim)
        if request.removes_worktree and claim.is_of(key):
            report = await run_in_thread(_remove_worktree, paths, request, claim, report)
        return report


def _remove_worktree(paths: Paths, request: EndTask, claim: Claim, report: AttemptReport) -> AttemptReport:
    """Remove the worktree of *claim*, and return *report* with the result."""
    top = Path(claim.top)
    if not claim.workdir or not top.is_dir():
        return report
    try:
        check_unused(top, read_fleet(paths))
        own = list_own_files(top, has_result=request.has_result)
        patterns = ignored(top, request.patterns) if request.patterns else ()
        remove(Path(claim.repository), top, (*own, *patterns), request.saved)
    except (KasmonError, OSError) as error:
        return put(report, retained=str(of_system(error)))
    return put(report, removed=str(top))


async def _replace(paths: Paths, claimed: TaskClaim, claim: Claim) -> Claim:
    """End the attempt that holds *claim*, and return the claim of the key's attempt, which may use its worktree."""
    reports = claim.reports
    if claim.attempt and not claim.is_ended:
        reports = (*reports, await _end(paths, claimed, claim))
    claim = Claim(
        attempt=claimed.key.attempt,
        epoch=claimed.key.epoch,
        claimed_at=time.time(),
        repository=claim.repository,
        top=claim.top,
        reports=reports,
    )
    claimed.write(claim)
    return claim


async def _end(paths: Paths, claimed: TaskClaim, claim: Claim) -> AttemptReport:
    """End the session and the check of *claim*, and return what the attempt did."""
    key = put(claimed.key, attempt=claim.attempt, epoch=claim.epoch)
    report = AttemptReport(attempt=claim.attempt, epoch=claim.epoch)
    await run_in_thread(_check_of(claimed, key).end)
    if claim.session:
        session = read_fleet(paths).get(SessionId(claim.session))
        is_running = session is not None and session.exists
        if session is not None and is_running:
            try:
                await session_operations.stop(paths, session)
            except SessionEndedError:
                is_running = False
        report = put(report, session=claim.session, state="stopped" if is_running else "ended")
    return await run_in_thread(_add_work, report, claim, key.branch)


def _add_work(report: AttemptReport, claim: Claim, branch: str) -> AttemptReport:
    """Return *report* with what is in the folder of *claim*; unchanged if there is none."""
    top = Path(claim.top)
    if not claim.workdir or not top.is_dir():
        return report
    try:
        count = int(git(top, "rev-list", "--count", f"{claim.base}..HEAD").strip())
        changed = len(changed_files(top, claim.base))
    except KasmonError:
        return report
    return put(report, commits=count, changed=changed, uncommitted=uncommitted(top), branch=branch)


def _open_worktree(paths: Paths, claimed: TaskClaim, request: PrepareTask, store: Path, claim: Claim) -> Path:
    """Return the worktree of the attempt: that of the task it follows, of its last attempt, or a new one."""
    key = request.key
    if request.follows:
        top = folder_of(paths, key, request.follows)
        if not continue_worktree(store, top, key.branch, request.commit):
            raise RefusedError(f"the folder {str(top)!r} has commits that {request.commit!r} does not include.")
        return top
    top = Path(claim.top)
    is_there = claim.repository == str(store) and top.is_dir()
    if is_there and continue_worktree(store, top, key.branch, request.commit):
        return top
    top = claimed.folder / f"a{key.attempt}-{key.epoch}"
    add_worktree(store, top, key.branch, request.commit)
    return top


def _folder_in(top: Path, folder: str) -> Path:
    """Return the plan's *folder* in the worktree *top*; it is created if the commit does not have it.

    Raises `RefusedError` if it leads out of the worktree.
    """
    parts = PurePosixPath(folder)
    path = top / parts
    if parts.is_absolute() or ".." in parts.parts or not path.resolve().is_relative_to(top.resolve()):
        raise RefusedError(f"the plan's folder {folder!r} leads out of the worktree.")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def _create_session(paths: Paths, config: Config, request: StartTask, claim: Claim) -> Launch:
    """Return the launch of the attempt's session: created now, or before this was interrupted."""
    key, workdir = request.key, Path(claim.workdir)
    task = Task(id=key.name, number=key.number, wave=request.wave)
    lay_out(workdir, task)
    fleet = read_fleet(paths)
    for session in fleet.here:
        is_its = (session.plan, session.task, session.workdir) == (key.plan, key.number, claim.workdir)
        if is_its and not session.generation and session.created_at >= claim.claimed_at:
            return load_launch(paths, session.id)
    new = NewSession(
        name=session_name(key.plan, task, key.attempt, [each.name for each in fleet.sessions]),
        agent=request.agent,
        mode=Mode(request.mode) if request.mode else usual_mode(config, request.agent, request.sandbox or None),
        sandbox=request.sandbox or None,
        argv=request.argv,
        workdir=claim.workdir,
        prompt=request.prompt,
        task=key.number,
        wave=request.wave,
        peers=request.peers,
        plan=key.plan,
        environment=request.environment,
    )
    return create_session(paths, config, new, time.time(), os.environ)


def _folders_of(claim: Claim) -> tuple[Path, Path]:
    """Return the worktree and the folder of *claim*. Raises `RefusedError` if they are gone."""
    if not claim.workdir or not Path(claim.workdir).is_dir():
        raise RefusedError(f"the folder {claim.workdir!r} of attempt {claim.attempt} is gone.")
    return Path(claim.top), Path(claim.workdir)


def _check_of(claimed: TaskClaim, key: TaskKey) -> TaskCheck:
    return TaskCheck(claimed.folder / f"check-{key.attempt}-{key.epoch}.json")
