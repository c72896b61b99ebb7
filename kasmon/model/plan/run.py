"""How far a plan is: its facts folded, one `TaskRun` for each task that began or was decided on. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal

import msgspec

from kasmon.model.event import Unknown
from kasmon.model.plan.fact import (
    PlanBegan,
    PlanChanged,
    PlanEnded,
    PlanFact,
    PlanSteered,
    TaskBegan,
    TaskChecked,
    TaskChecking,
    TaskClaimed,
    TaskDone,
    TaskFailed,
)


class TaskState(StrEnum):
    """How far a task is."""

    WAITING = "waiting"
    RUNNING = "running"
    CLAIMED = "claimed"
    """Its agent calls it done; a check, or a person, has not."""
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


T = TaskState
SETTLED: Final = frozenset({T.DONE, T.SKIPPED})
"""What lets others go on."""


class TaskRun(msgspec.Struct, frozen=True, kw_only=True):
    """One task as its plan's facts have it."""

    state: TaskState = T.WAITING
    attempt: int = 0
    session: str = ""
    """The session of its last attempt."""
    name: str = ""
    earlier: tuple[str, ...] = ()
    """Those of the attempts before it, oldest first."""
    since: float = 0.0
    began_at: float = 0.0
    """When its last attempt began."""
    took_s: float | None = None
    """How long that took, once it ended."""
    why: str = ""
    """How it is known to be done, or why it failed."""
    claim: str = ""
    """On whose word it counts as done: `said`, `turn`, `exit`."""
    is_checked: bool = False
    """Whether a check found it done."""
    failures: tuple[str, ...] = ()
    """Why each attempt failed, oldest first; what the next one is told."""
    check: TaskChecked | None = None
    """The last check of this attempt."""
    checking: TaskChecking | None = None
    """A check that began, and of whose end nobody has told yet."""
    changed: int | None = None
    workdir: str = ""
    branch: str = ""
    base: str = ""
    found: str = ""
    """The state of the worktree in which its last attempt began."""
    agent: str = ""
    """Who takes its place from the next attempt on; empty is the plan's."""
    tries: int = 0
    """How many attempts failed by themselves: what `retries` is held against. What a person wants is not counted."""


class PlanRun(msgspec.Struct, frozen=True, kw_only=True):
    """One plan's run."""

    plan: str = ""
    name: str = ""
    file: str = ""
    folder: str = ""
    digest: str = ""
    headless: bool = False
    began_at: float = 0.0
    state: Literal["running", "paused", "ended"] = "running"
    outcome: str = ""
    why: str = ""
    ended_at: float | None = None
    is_aborted: bool = False
    """A person gave it up; its sessions are being ended."""
    gate: int = 1
    """The last wave that may begin, by what a person decided."""
    tasks: Mapping[str, TaskRun] = {}

    def of(self, task: str) -> TaskRun:
        """How far *task*, an id, is; one that never began waits."""
        return self.tasks.get(task, WAITING)


WAITING: Final = TaskRun()


def apply(run: PlanRun, fact: PlanFact) -> PlanRun:
    """*run* after *fact*. A fact that fits nothing changes nothing: one about an attempt that is over, for example."""
    put = msgspec.structs.replace
    match fact:
        case PlanBegan():
            return put(
                run,
                plan=fact.plan,
                name=fact.name,
                file=fact.file,
                folder=fact.folder,
                digest=fact.digest,
                headless=fact.headless,
                began_at=fact.at,
            )
        case PlanChanged():
            return put(run, digest=fact.digest)
        case PlanEnded():
            return put(run, state="ended", outcome=fact.outcome, why=fact.why, ended_at=fact.at)
        case PlanSteered():
            return _steered(run, fact)
        case TaskBegan():
            return _began(run, fact)
        case TaskClaimed() | TaskChecking() | TaskChecked() | TaskDone() | TaskFailed():
            return _moved(run, fact)
        case Unknown():
            return run


def _steered(run: PlanRun, fact: PlanSteered) -> PlanRun:
    put = msgspec.structs.replace
    if run.state == "ended":
        return run
    match fact.deed:
        case "pause" | "resume":
            return put(run, state="paused" if fact.deed == "pause" else "running")
        case "advance":
            return put(run, gate=run.gate + 1)
        case "abort":
            return put(run, is_aborted=True)
    task = run.of(fact.task)
    if fact.deed == "accept" and task.state is T.CLAIMED:
        return _with(run, fact.task, put(task, state=T.DONE, since=fact.at, why="a person took it for done"))
    if fact.deed == "skip" and task.state not in SETTLED:
        return _with(run, fact.task, put(task, state=T.SKIPPED, since=fact.at, why="a person skipped it"))
    if fact.deed in ("retry", "replace") and task.state is not T.WAITING:
        failures = task.failures
        if task.state in (T.RUNNING, T.CLAIMED, T.DONE):
            failures = (*failures, "a person wanted it done again")
        again = put(
            task,
            state=T.WAITING,
            since=fact.at,
            failures=failures,
            agent=fact.agent or task.agent,
        )
        return _with(run, fact.task, again)
    return run


def _began(run: PlanRun, fact: TaskBegan) -> PlanRun:
    task = run.of(fact.task)
    if fact.attempt != task.attempt + 1:
        return run
    begun = TaskRun(
        state=T.RUNNING,
        attempt=fact.attempt,
        session=fact.session,
        name=fact.name,
        earlier=(*task.earlier, task.session) if task.session else (),
        since=fact.at,
        began_at=fact.at,
        failures=task.failures,
        tries=task.tries,
        workdir=fact.workdir,
        branch=fact.branch,
        base=fact.base,
        found=fact.state,
        agent=task.agent,
    )
    return _with(run, fact.task, begun)


def _moved(run: PlanRun, fact: TaskClaimed | TaskChecking | TaskChecked | TaskDone | TaskFailed) -> PlanRun:
    put = msgspec.structs.replace
    task = run.of(fact.task)
    if fact.attempt != task.attempt or task.state not in (T.RUNNING, T.CLAIMED):
        return run
    took_s = max(0.0, fact.at - task.began_at)
    match fact:
        case TaskClaimed():
            moved = put(task, state=T.CLAIMED, since=fact.at, claim=fact.by, why=fact.text, changed=fact.changed)
        case TaskChecking():
            moved = put(task, checking=fact)
        case TaskChecked():
            moved = put(task, check=fact, is_checked=fact.ok, checking=None)
        case TaskDone():
            moved = put(task, state=T.DONE, since=fact.at, why=fact.why, took_s=took_s)
        case TaskFailed():
            failures, tries = (*task.failures, fact.why), task.tries + 1
            moved = put(
                task, state=T.FAILED, since=fact.at, why=fact.why, failures=failures, tries=tries, took_s=took_s
            )
    return _with(run, fact.task, moved)


def _with(run: PlanRun, id_: str, task: TaskRun) -> PlanRun:
    return msgspec.structs.replace(run, tasks={**run.tasks, id_: task})
