"""The progress of a plan, reduced from its events: a `TaskRun` for each task that began or was decided on. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal

import msgspec

from kasmon.model.events import UnknownEvent
from kasmon.model.plan.events import (
    PeerMessageDelivered,
    PlacementEnded,
    PlanBegan,
    PlanChanged,
    PlanDecisionMade,
    PlanEnded,
    PlanFact,
    TaskBegan,
    TaskChecked,
    TaskCheckEnded,
    TaskChecking,
    TaskClaimed,
    TaskDone,
    TaskFailed,
    TaskPlaced,
)
from kasmon.model.plan.plan import LOCAL, Plan, Task, agent_of


class TaskState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    CLAIMED = "claimed"
    """Its agent reported it as done; neither a check nor a person has confirmed that."""
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


T = TaskState
SETTLED: Final = frozenset({T.DONE, T.SKIPPED})
"""States after which dependent tasks may start."""
ACTIVE: Final = frozenset({T.RUNNING, T.CLAIMED})
"""States of a task that has a session."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt on a registered machine."""

    attempt: int
    machine: str
    epoch: int
    """Its number among the placements of its task, counted from 1."""
    number: int = 0
    """As `TaskPlaced` has it."""


class TaskRun(msgspec.Struct, frozen=True, kw_only=True):
    """One task according to its plan's events."""

    state: TaskState = T.WAITING
    attempt: int = 0
    session: str = ""
    """The session of its last attempt."""
    name: str = ""
    earlier: tuple[str, ...] = ()
    """The sessions of earlier attempts, oldest first."""
    since: float = 0.0
    began_at: float = 0.0
    """When its last attempt began."""
    duration_s: float | None = None
    """How long that took, once it ended."""
    why: str = ""
    """Why it counts as done, or why it failed."""
    claim: str = ""
    """How it was reported as done: `said`, `turn`, `exit`."""
    is_checked: bool = False
    failures: tuple[str, ...] = ()
    """Why each attempt failed, oldest first; part of the next attempt's prompt."""
    check: TaskChecked | None = None
    """The last check of this attempt."""
    checking: TaskChecking | None = None
    """The running check; None before and after."""
    changed: int | None = None
    workdir: str = ""
    branch: str = ""
    base: str = ""
    initial_state: str = ""
    """The state of the worktree at the start of its last attempt."""
    machine: str = ""
    """The machine of its last attempt, or of the next one once that is placed: a registered one, or `LOCAL` where this
    one was chosen. Empty if no machine is chosen for it: it runs here, or is not placed yet."""
    placement: TaskPlaced | None = None
    """Where its next attempt starts, or why it starts nowhere; None until that is known, and once it began."""
    placements: tuple[Placement, ...] = ()
    """Its attempts on registered machines that these have not reported as ended, oldest first."""
    last_placement: Placement | None = None
    """The last of them, also once that was reported as ended."""
    epoch: int = 0
    """How often it was placed on a machine."""
    agent: str = ""
    """The agent that replaces the plan's from the next attempt on; empty is the plan's."""
    ran: TaskBegan | None = None
    """The start of its last attempt: the agent, the mode and the program that really ran."""
    conflicts: tuple[str, ...] = ()
    """The conflicting files of the branches that its last attempt should start from."""
    tries: int = 0
    """The number of attempts that failed by themselves, compared with `retries`. Retries by a person do not count."""

    @property
    def prompts_since(self) -> float:
        """Since when the prompts of its session are its own."""
        return self.began_at if self.ran is None or self.ran.since is None else self.ran.since

    def agent_for(self, plan: Plan, task: Task) -> str:
        """Return the agent that ran *task*, or will run it if it waits. Empty if only the config decides."""
        if self.ran is not None and self.ran.agent and self.state is not T.WAITING:
            return self.ran.agent
        return agent_of(plan, task, self.agent)


class PlanRun(msgspec.Struct, frozen=True, kw_only=True):
    plan: str = ""
    name: str = ""
    file: str = ""
    folder: str = ""
    digest: str = ""
    headless: bool = False
    repository: str | None = None
    """As `PlanBegan` has it."""
    on: str = ""
    """Likewise."""
    began_at: float = 0.0
    state: Literal["running", "paused", "ended"] = "running"
    outcome: str = ""
    why: str = ""
    ended_at: float | None = None
    is_aborted: bool = False
    """A person aborted it; its sessions are being ended."""
    is_stopped: bool = False
    """It is paused, and its running tasks are ended or being ended; `resume` starts these again."""
    gate: int = 1
    """The last wave that a person has allowed to start."""
    tasks: Mapping[str, TaskRun] = {}
    delivered: Mapping[str, int] = {}
    """Session -> how many of its messages to peers on other machines were delivered."""

    def of(self, task: str) -> TaskRun:
        """Return the progress of *task*, an id; one that never began waits."""
        return self.tasks.get(task, WAITING)


WAITING: Final = TaskRun()


def apply(run: PlanRun, event: PlanFact) -> PlanRun:
    """Return *run* after *event*. An event that does not apply, for example to a past attempt, changes nothing."""
    put = msgspec.structs.replace
    match event:
        case PlanBegan():
            return put(
                run,
                plan=event.plan,
                name=event.name,
                file=event.file,
                folder=event.folder,
                digest=event.digest,
                headless=event.headless,
                repository=event.repository,
                on=event.on,
                began_at=event.at,
            )
        case PlanChanged():
            tasks = {id_: put(task, placement=None) if task.placement else task for id_, task in run.tasks.items()}
            return put(run, digest=event.digest, tasks=tasks)
        case PlanEnded():
            return put(run, state="ended", outcome=event.outcome, why=event.why, ended_at=event.at)
        case PlanDecisionMade():
            return _apply_decision(run, event)
        case TaskPlaced():
            return _place(run, event)
        case PlacementEnded():
            return _end_placement(run, event)
        case TaskBegan():
            return _start_attempt(run, event)
        case TaskClaimed() | TaskChecking() | TaskCheckEnded() | TaskChecked() | TaskDone() | TaskFailed():
            return _apply_progress(run, event)
        case PeerMessageDelivered():
            return put(run, delivered={**run.delivered, event.session: event.number})
        case UnknownEvent():
            return run


def _apply_decision(run: PlanRun, event: PlanDecisionMade) -> PlanRun:
    put = msgspec.structs.replace
    if run.state == "ended":
        return run
    match event.decision:
        case "pause":
            return put(run, state="paused")
        case "resume":
            return put(run, state="running", is_stopped=False)
        case "stop":
            tasks = {
                id_: _interrupt(task, event.at) if task.state is T.RUNNING else task for id_, task in run.tasks.items()
            }
            return put(run, state="paused", is_stopped=True, tasks=tasks)
        case "advance":
            return put(run, gate=run.gate + 1)
        case "abort":
            return put(run, is_aborted=True, is_stopped=False)
    task = run.of(event.task)
    if event.decision == "accept" and task.state is T.CLAIMED:
        return _with(run, event.task, put(task, state=T.DONE, since=event.at, why="accepted by user"))
    if event.decision == "skip" and task.state not in SETTLED:
        return _with(run, event.task, put(task, state=T.SKIPPED, since=event.at, why="skipped by user"))
    if event.decision in ("retry", "replace") and task.state is not T.WAITING:
        failures = task.failures
        if task.state in (T.RUNNING, T.CLAIMED, T.DONE):
            failures = (*failures, "retried by user")
        again = put(task, state=T.WAITING, since=event.at, failures=failures, agent=event.agent or task.agent)
        return _with(run, event.task, again)
    return run


def _place(run: PlanRun, event: TaskPlaced) -> PlanRun:
    task = run.of(event.task)
    if event.attempt != task.attempt + 1 or task.state not in (T.WAITING, T.FAILED):
        return run
    put = msgspec.structs.replace
    placed = put(task, placement=event, machine=event.machine or task.machine)
    last = task.placements[-1] if task.placements else None
    chosen = (event.attempt, event.machine, event.number, task.epoch)
    if event.machine == LOCAL:  # what runs here needs no placement: its session is here
        placed = put(placed, epoch=task.epoch + 1)
    elif event.machine and (last is None or (last.attempt, last.machine, last.number, last.epoch) != chosen):
        placement = Placement(attempt=event.attempt, machine=event.machine, epoch=task.epoch + 1, number=event.number)
        placed = put(placed, placements=(*task.placements, placement), last_placement=placement, epoch=placement.epoch)
    return _with(run, event.task, placed)


def _end_placement(run: PlanRun, event: PlacementEnded) -> PlanRun:
    task = run.of(event.task)
    left = tuple(each for each in task.placements if each.epoch != event.epoch)
    is_next = event.epoch == task.epoch and event.attempt > task.attempt
    next_ = None if is_next else task.placement  # one that was ended before it began is placed again
    return _with(run, event.task, msgspec.structs.replace(task, placements=left, placement=next_))


def find_lost_placements(run: PlanRun, task: str, *, is_removed: bool = False) -> tuple[Placement, ...]:
    """Return the placements of *task* that must not run any more: all but the last.

    Once it is over, runs here, or *is_removed* from the plan, that too; likewise one that was not logged as begun when
    the plan was stopped.
    """
    at = run.of(task)
    is_over = is_removed or at.state is T.SKIPPED or at.machine == LOCAL or run.is_aborted or run.state == "ended"
    last = at.placements[-1:]
    is_unlogged = run.is_stopped and bool(last) and last[0].attempt > at.attempt
    return at.placements if is_over or is_unlogged else at.placements[:-1]


def is_over(run: PlanRun) -> bool:
    """Whether it has ended, and no machine has an attempt of it that may run."""
    return run.state == "ended" and not any(at.placements for at in run.tasks.values())


def _start_attempt(run: PlanRun, event: TaskBegan) -> PlanRun:
    task = run.of(event.task)
    if event.attempt != task.attempt + 1:
        return run
    begun = TaskRun(
        state=T.RUNNING,
        attempt=event.attempt,
        session=event.session,
        name=event.name,
        earlier=(*task.earlier, task.session) if task.session else task.earlier,
        since=event.at,
        began_at=event.at,
        failures=task.failures,
        tries=task.tries,
        workdir=event.workdir,
        branch=event.branch,
        base=event.base or task.base,
        initial_state=event.state,
        machine=task.placement.machine if task.placement is not None else "",
        placements=task.placements,
        last_placement=task.last_placement,
        epoch=task.epoch,
        agent=task.agent,
        ran=event,
    )
    return _with(run, event.task, _interrupt(begun, event.at) if run.is_stopped else begun)


def _interrupt(task: TaskRun, at: float) -> TaskRun:
    """Return *task*, interrupted when its plan was stopped at *at*: it starts again without using up a retry."""
    failures = (*task.failures, "the plan was stopped while running")
    return msgspec.structs.replace(task, state=T.WAITING, since=at, failures=failures)


def _apply_progress(
    run: PlanRun, event: TaskClaimed | TaskChecking | TaskCheckEnded | TaskChecked | TaskDone | TaskFailed
) -> PlanRun:
    put = msgspec.structs.replace
    task = run.of(event.task)
    if event.attempt != task.attempt or task.state not in (T.RUNNING, T.CLAIMED):
        return run
    took_s = max(0.0, event.at - task.began_at)
    match event:
        case TaskClaimed():
            moved = put(task, state=T.CLAIMED, since=event.at, claim=event.by, why=event.text, changed=event.changed)
        case TaskChecking():
            moved = put(task, checking=event)
        case TaskCheckEnded():
            moved = put(task, checking=None)
        case TaskChecked():
            moved = put(task, check=event, is_checked=event.ok, checking=None)
        case TaskDone():
            moved = put(task, state=T.DONE, since=event.at, why=event.why, duration_s=took_s)
        case TaskFailed():
            moved = put(
                task,
                state=T.FAILED,
                since=event.at,
                why=event.why,
                conflicts=event.conflicts,
                failures=task.failures if event.conflicts else (*task.failures, event.why),
                tries=task.tries if event.conflicts or event.is_lost else task.tries + 1,
                duration_s=took_s,
            )
    return _with(run, event.task, moved)


def _with(run: PlanRun, id_: str, task: TaskRun) -> PlanRun:
    return msgspec.structs.replace(run, tasks={**run.tasks, id_: task})
