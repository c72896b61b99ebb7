"""The tasks of a plan on registered machines, for the plan's runner: worktrees, sessions, checks and commits there.

Each request can be repeated, so one whose reply was lost is sent again. Of what a machine sends, only the objects of
one commit are taken, once git has checked them, and only the task's own branch moves to it. Calls block; use a thread.
"""

import asyncio
import contextlib
import os
import re
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec

from kasmon.errors import KasmonError, RefusedError, RemoteUnreachableError, UnavailableError
from kasmon.model.permission import SessionId
from kasmon.model.plan.events import PlacementEnded, TaskChecked, TaskChecking
from kasmon.model.plan.plan import Plan, Task
from kasmon.model.plan.progress import Placement, PlanRun, TaskState
from kasmon.model.plan.shared_terminal import root_of
from kasmon.paths import Paths, hash_file, private_folder, write_private
from kasmon.repository.git import git, shared_folder
from kasmon.repository.packs import build_pack, has_history, read_pack
from kasmon.sanitize import clean_block, clean_line
from kasmon.store.machines import read_machine
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.machines.link_client import QueuedOrder, error_of, run
from kasmon.supervisor.machines.registration import start_link
from kasmon.supervisor.plans.check import KEPT_BYTES
from kasmon.supervisor.plans.machines.task_requests import (
    FIRST_PART_BYTES,
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
    is_commit,
    next_part_bytes,
)
from kasmon.supervisor.plans.task_folder import LONGEST_RESULT, TaskBranch, own_name
from kasmon.supervisor.worktrees.worktree import list_branches

LONGEST_RESULT_PACK_BYTES: Final = 2 << 30
"""A machine cannot send more commits of one task than this."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
"""How long to wait before a machine is asked again for the state of a check, in seconds; doubling in between."""
SESSION_ID: Final = re.compile(r"[a-z][a-z2-7]{7}")

Reply = TypeVar("Reply", bound=msgspec.Struct)


class RegisteredTasks:
    """The tasks of the plan of *plan_log* on registered machines.

    What asks a machine raises `RemoteUnreachableError` if it is not connected, or the connection ends: repeat it. Any
    other `KasmonError` says why it was not done.
    """

    def __init__(self, paths: Paths, plan_log: PlanLog) -> None:
        self._paths = paths
        self._plan_log = plan_log
        self._folder = plan_log.folder / "machines"
        self._roots: dict[Path, str] = {}
        """The git folder of a repository -> its first commit."""
        self._checking: dict[str, threading.Lock] = defaultdict(threading.Lock)
        """Machine -> the lock of requests about checks there."""

    def key(self, run_: PlanRun, task: Task, attempt: int) -> tuple[str, TaskKey]:
        """Return the machine of *attempt*, and what names it there. Raises `RefusedError` if it is on none now."""
        placement = next((each for each in reversed(run_.of(task.id).placements) if each.attempt == attempt), None)
        if placement is None:
            raise RefusedError(f"attempt {attempt} of task {task.id!r} is on no machine now.", hint="Retry it.")
        return placement.machine, self._key_of(task, placement)

    def prepare(self, plan: Plan, run_: PlanRun, task: Task, attempt: int, branch: TaskBranch) -> str:
        """Have a worktree there at the commit of *branch*, and return the folder where *task* works."""
        machine, key = self.key(run_, task, attempt)
        root = self._root_of(branch)
        remote = _address_of_remote(branch.repo) if plan.fetch == "remote" else ""
        follows = root_of(plan, task).number if task.inherits else 0
        request = PrepareTask(
            key=key, commit=branch.commit, root=root, folder=branch.folder, follows=follows, remote=remote
        )
        prepared = self._ask(machine, "prepare", request, Preparation)
        if not prepared.workdir:
            self._send(machine, request, branch.repo, prepared.available)
            prepared = self._ask(machine, "prepare", request, Preparation)
        if not prepared.workdir:
            raise UnavailableError(f"{machine}: the commit {branch.commit!r} was sent there, but is not found.")
        return clean_line(prepared.workdir)

    def start(self, machine: str, request: StartTask) -> StartedTask:
        """Start the session of a prepared attempt; repeated, it is the same session.

        Where the machine has a work queue, it is an order there, which a lost connection or server does not lose.
        """
        write_private(_start_record(self._plan_log, request.key.number), _start_mark(request.key), durable=True)
        started = self._ask(machine, "start", request, StartedTask, _order_of(request.key))
        if not SESSION_ID.fullmatch(started.session):
            raise UnavailableError(f"{machine}: {clean_line(started.session)!r} is no session.")
        known = read_fleet(self._paths).get(SessionId(started.session))
        if known is not None and known.via != machine:
            raise UnavailableError(f"{machine}: {started.session!r} is not a session of it.")
        return msgspec.structs.replace(
            started,
            **{name: clean_line(getattr(started, name)) for name in ("name", "agent", "mode", "sandbox", "state")},
            argv=tuple(map(clean_line, started.argv)),
        )

    def bring_back_host(self, machine: str, request: StartTask) -> None:
        """Have a session that was started get a new host, if it has lost that."""
        self._ask(machine, "start", request, StartedTask)

    def read_result(self, run_: PlanRun, task: Task, attempt: int) -> TaskResult:
        """Return what *attempt* left there."""
        machine, key = self.key(run_, task, attempt)
        found = self._ask(machine, "result", ReadResult(key=key), TaskResult)
        if not is_commit(found.commit):
            raise UnavailableError(f"{machine}: {clean_line(found.commit)!r} is no commit.")
        return msgspec.structs.replace(
            found,
            text=clean_block(found.text).encode()[:LONGEST_RESULT].decode("utf-8", "ignore"),
            uncommitted=clean_line(found.uncommitted),
            problem=clean_line(found.problem),
        )

    def fetch(self, run_: PlanRun, task: Task, attempt: int, repo: Path, branch: str, commit: str) -> None:
        """Fetch *commit* of *attempt*, and move the task's *branch* in *repo* to it; nothing else changes.

        Raises:
            RefusedError: if the branch has other commits meanwhile, or is checked out.
            GitError: if what the machine sent is damaged, too large, or not what git would check out.
        """
        ref = f"refs/heads/{branch}"
        machine, key = self.key(run_, task, attempt)
        before = _commit_at(repo, ref)
        if before != commit:
            if not has_history(repo, commit):
                self._receive(machine, key, repo, commit, before)
            self._move_branch(task, repo, branch, before, commit)

    async def check(
        self,
        run_: PlanRun,
        task: Task,
        attempt: int,
        begins: Callable[[TaskChecking], Awaitable[None]],
    ) -> TaskChecked:
        """Run the check of *task* there, and return its result; *begins* logs that it begins.

        While the machine is unreachable, the check continues there, and is asked for again.
        """
        machine, key = await asyncio.to_thread(self.key, run_, task, attempt)
        await begins(TaskChecking(at=time.time(), task=task.id, attempt=attempt))
        request = RunTaskCheck(key=key, task=task.id, wave=task.wave, command=task.check, limit_s=task.check_limit_s)
        pause_s = FIRST_PAUSE_S
        while True:
            with contextlib.suppress(RemoteUnreachableError):
                state = await asyncio.to_thread(self._ask_check, machine, request)
                if state.has_ended:
                    break
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        return TaskChecked(
            at=time.time(),
            task=task.id,
            attempt=attempt,
            ok=state.is_passed,
            exit_code=state.exit_code,
            why=clean_line(state.why),
            output=clean_block(state.output).encode()[-KEPT_BYTES:].decode("utf-8", "ignore"),
            took_s=state.took_s,
        )

    def end_check(self, run_: PlanRun, task: Task) -> None:
        """End the check of the task's last attempt; it can be started again."""
        machine, key = self.key(run_, task, run_.of(task.id).attempt)
        with self._checking[machine]:
            self._ask(machine, "end", EndTask(key=key, is_check_only=True), AttemptReport)

    def _ask_check(self, machine: str, request: RunTaskCheck) -> CheckState:
        with self._checking[machine]:  # else a request could start again what `end_check` has ended
            return self._ask(machine, "check", request, CheckState)

    def end(self, task: Task, placement: Placement) -> PlacementEnded:
        """End the attempt of *placement*, which lost its claim, and return what it did.

        *task* needs its id only, and the number if the log has none.
        """
        start_link(self._paths, placement.machine)
        request = EndTask(key=self._key_of(task, placement))
        withdrawn = msgspec.structs.replace(_order_of(request.key), is_withdrawn=True)
        report = self._ask(placement.machine, "end", request, AttemptReport, withdrawn)
        return msgspec.structs.replace(
            build_end(task.id, placement),
            session=report.session if SESSION_ID.fullmatch(report.session) else "",
            state=report.state,
            commits=report.commits,
            changed=report.changed,
            uncommitted=clean_line(report.uncommitted),
            branch=clean_line(report.branch),
        )

    def clean(self, plan: Plan, patterns: Sequence[str]) -> tuple[list[str], list[str]]:
        """Remove the worktrees of the plan's tasks on their machines, where nothing could be lost.

        *patterns*: as for `find_ignored`. Returns the worktrees that were removed, as `MACHINE:PATH`, and why each of
        the others was not.
        """
        removed, retained = list[str](), list[str]()
        current = self._plan_log.run
        for task in plan.tasks:
            at = current.of(task.id)
            if (placement := at.last_placement) is None:
                continue
            repo = shared_folder(Path(current.folder))
            request = EndTask(
                key=self._key_of(task, placement),
                removes_worktree=True,
                has_result=at.state is TaskState.DONE,
                saved=(at.base, _commit_at(repo, f"refs/heads/{at.branch}")),
                patterns=tuple(patterns),
            )
            try:
                report = self._ask(placement.machine, "end", request, AttemptReport)
            except KasmonError as error:
                retained.append(f"the worktree of task {task.id!r} was not removed: {error}")
                continue
            removed += [clean_line(f"{placement.machine}:{report.removed}")] if report.removed else []
            retained += [clean_line(f"{placement.machine}: {report.retained}")] if report.retained else []
        return removed, retained

    def _key_of(self, task: Task, placement: Placement) -> TaskKey:
        placed = Task(id=task.id, number=placement.number or task.number)
        return TaskKey(
            runner=self._identity(),
            plan=self._plan_log.plan,
            number=placed.number,
            name=own_name(placed),
            attempt=placement.attempt,
            epoch=placement.epoch,
        )

    def _identity(self) -> str:
        """Return what identifies this run of the plan on all machines; chosen once."""
        path = private_folder(self._folder) / "identity"
        if not path.exists():
            write_private(path, os.urandom(8).hex().encode(), durable=True)
        return path.read_text("ascii")

    def _ask(
        self, machine: str, verb: str, request: msgspec.Struct, kind: type[Reply], order: QueuedOrder | None = None
    ) -> Reply:
        read_machine(self._paths, machine)
        arguments, content = ["task", verb, "--json"], msgspec.json.encode(request)
        try:
            output = run(self._paths, machine, arguments, content, order=order)
        except RemoteUnreachableError:
            raise
        except KasmonError as error:
            raise _as_elsewhere(error) from error
        if output.exit_code:
            raise _as_elsewhere(error_of(machine, output))
        try:
            fields = msgspec.json.decode(output.stdout, type=dict[str, msgspec.Raw])
            return msgspec.json.decode(fields["reply"], type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
            raise UnavailableError(f"{machine}: its answer to `kasmon task {verb}` cannot be read.") from error

    def _root_of(self, branch: TaskBranch) -> str:
        """Return the first commit of the repository's history. Blocks."""
        if branch.repo not in self._roots:
            self._roots[branch.repo] = git(branch.repo, "rev-list", "--max-parents=0", branch.commit).split()[-1]
        return self._roots[branch.repo]

    def _send(self, machine: str, request: PrepareTask, repo: Path, available: tuple[str, ...]) -> None:
        """Send the commit of *request* without what is *available* there."""
        pack = private_folder(self._folder) / f"{request.key.number}.pack"
        pack.unlink(missing_ok=True)
        try:
            excluded = tuple(each for each in available[:1000] if is_commit(each))
            build_pack(repo, [request.commit], excluded, pack)
            digest, size, received = hash_file(pack), pack.stat().st_size, 0
            part_bytes = FIRST_PART_BYTES
            with pack.open("rb") as file:
                while received < size:
                    asked_at = time.monotonic()
                    file.seek(received)
                    part = AddCommits(
                        key=request.key,
                        commit=request.commit,
                        root=request.root,
                        digest=digest,
                        size=size,
                        offset=received,
                        content=file.read(part_bytes),
                    )
                    received = self._ask(machine, "add", part, AddedCommits).received
                    part_bytes = next_part_bytes(part_bytes, time.monotonic() - asked_at)
        finally:
            pack.unlink(missing_ok=True)

    def _receive(self, machine: str, key: TaskKey, repo: Path, commit: str, before: str) -> None:
        """Add *commit* to *repo*, which has *before*."""
        excluded = (before,) if before else ()
        request = FetchCommits(key=key, commit=commit, excluded=excluded, limit=FIRST_PART_BYTES)
        pack = private_folder(self._folder) / f"{key.number}.result"
        try:
            digest = ""
            with pack.open("wb") as file:
                while True:
                    asked_at = time.monotonic()
                    part = self._ask(machine, "fetch", request, FetchedCommits)
                    digest = digest or part.digest
                    is_valid = part.digest == digest and 0 < part.size <= LONGEST_RESULT_PACK_BYTES
                    if not is_valid or not part.content or request.offset + len(part.content) > part.size:
                        raise UnavailableError(f"{machine}: the commits of task {key.number} cannot be received.")
                    file.write(part.content)
                    part_bytes = next_part_bytes(request.limit, time.monotonic() - asked_at)
                    request = msgspec.structs.replace(
                        request, offset=request.offset + len(part.content), limit=part_bytes
                    )
                    if request.offset == part.size:
                        break
            if hash_file(pack) != digest:
                raise UnavailableError(f"{machine}: the commits of task {key.number} arrived damaged.")
            limit = LONGEST_RESULT_PACK_BYTES
            read_pack(repo, [commit], pack, trusted=False, limit_bytes=limit)
        finally:
            pack.unlink(missing_ok=True)

    def _move_branch(self, task: Task, repo: Path, branch: str, before: str, commit: str) -> None:
        """Move *branch* from *before* to *commit*, unless it was moved otherwise, or is checked out."""
        record = private_folder(self._folder) / f"{task.number}.commit"
        own = record.read_text("ascii") if record.exists() else ""
        is_kept = not before or git(repo, "merge-base", before, commit, fails=True).strip() == before
        if not is_kept and before not in (own, self._plan_log.run.of(task.id).base):
            raise RefusedError(
                f"the branch {branch!r} has commits that are not of task {task.id!r}, so its work was not taken.",
                hint=f"Its commit {commit!r} is in {str(repo)!r}: merge it there.",
            )
        if (folder := next((path for path, name in list_branches(repo).items() if name == branch), None)) is not None:
            raise RefusedError(
                f"the work of task {task.id!r} was not taken: its branch {branch!r} is checked out in {str(folder)!r}.",
                hint="Switch that folder to another branch, then retry the task.",
            )
        message = f"kasmon: task {task.id} of plan {self._plan_log.plan}"
        git(repo, "update-ref", "-m", message, f"refs/heads/{branch}", commit, before)
        write_private(record, commit.encode(), durable=True)


def may_have_started(plan_log: PlanLog, task: Task, placement: Placement) -> bool:
    """Whether a machine was asked to start the attempt of *placement*, with or without a reply. Blocks."""
    try:
        return _start_record(plan_log, task.number).read_bytes() == _start_mark(placement)
    except FileNotFoundError:
        return False


def _order_of(key: TaskKey) -> QueuedOrder:
    """Return the order to start the attempt of *key*: one for each time that the task was placed."""
    return QueuedOrder(plan=f"{key.plan}.{key.runner}", task=key.name, attempt=key.epoch)


def _start_record(plan_log: PlanLog, number: int) -> Path:
    return plan_log.folder / "machines" / f"{number}.start"


def _start_mark(attempt: TaskKey | Placement) -> bytes:
    return f"{attempt.attempt} {attempt.epoch}".encode()


def build_end(task: str, placement: Placement) -> PlacementEnded:
    """Return that *placement* of *task* has ended, as far as is known here."""
    return PlacementEnded(
        at=time.time(),
        task=task,
        attempt=placement.attempt,
        epoch=placement.epoch,
        machine=placement.machine,
    )


def _as_elsewhere(error: KasmonError) -> KasmonError:
    """Return *error*, which a machine reported, of a class that means nothing about this machine."""
    kind = RefusedError if isinstance(error, RefusedError) else UnavailableError
    return kind(clean_block(error.message), hint=clean_block(error.hint))


def _commit_at(repo: Path, ref: str) -> str:
    """Return the commit that *ref* leads to; empty if there is none."""
    return git(repo, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", fails=True).strip()


def _address_of_remote(repo: Path) -> str:
    """Return the address of the repository's remote without a password; empty if it has none, or several."""
    names = git(repo, "remote").split()
    name = "origin" if "origin" in names else names[0] if len(names) == 1 else ""
    address = git(repo, "remote", "get-url", name).removesuffix("\n") if name else ""
    if "://" not in address:
        return address
    parts = urlsplit(address)
    if parts.scheme in ("http", "https"):
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=user.partition(":")[0] + at + host))
