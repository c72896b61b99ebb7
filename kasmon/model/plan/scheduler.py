"""The next steps of a running plan: a pure function, called after each change. The runner logs a step before it acts.

A step is proposed again until its event is logged; the runner keeps track of those in progress.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

from kasmon.model.permission import SessionId
from kasmon.model.plan.events import TaskChecked, TaskPlaced
from kasmon.model.plan.placement import MachineRequirement, is_elsewhere, next_machine
from kasmon.model.plan.plan import LOCAL, Plan, Task, agent_of
from kasmon.model.plan.progress import ACTIVE, SETTLED, PlanRun, TaskState
from kasmon.model.plan.shared_terminal import is_needed, is_unsent, terminal_of, user_of
from kasmon.model.plan.start_limits import NO_LIMITS, OWN_LOGIN, AccountChoice, AccountSpread, StartLimits
from kasmon.model.plan.task_outcome import TaskOutcome, explain_uncertainty, find_outcome
from kasmon.model.plan.validation import named_needs
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState

T = TaskState
LOST_S: Final = 60.0
"""In headless runs, an agent or its host that is lost for this long does not come back."""
UNPLACED_S: Final = 600.0
"""In headless runs, tasks for which no machine is chosen for this long, with nothing running, do not get one."""


class StartNextAttempt(NamedTuple):
    task: Task
    attempt: int
    account: AccountChoice = OWN_LOGIN


class ChooseMachines(NamedTuple):
    """Choose the machines of next attempts, which start once it is logged."""

    tasks: tuple[StartNextAttempt, ...]
    """In the order in which they get free machines."""
    wanted: MachineRequirement
    agent: str


class StartAttemptSession(NamedTuple):
    """Start the session of an attempt that began but is not known to run: the runner that began it may have died."""

    task: Task
    attempt: int
    session: SessionId


class ClaimTask(NamedTuple):
    """Log that its session reports *task* as done, or that it failed."""

    task: Task
    attempt: int
    outcome: TaskOutcome


class CheckTask(NamedTuple):
    task: Task
    attempt: int


class FinishTask(NamedTuple):
    """Log that *task* is done, or failed."""

    task: Task
    attempt: int
    done: bool
    why: str
    is_lost: bool = False
    """As `TaskFailed` has it."""


class EndTaskSession(NamedTuple):
    """End the session of a task that must not run any more."""

    session: SessionId


class FinishPlan(NamedTuple):
    outcome: Literal["done", "claimed", "failed", "aborted"]
    why: str


Step: TypeAlias = (
    StartNextAttempt
    | ChooseMachines
    | StartAttemptSession
    | ClaimTask
    | CheckTask
    | FinishTask
    | EndTaskSession
    | FinishPlan
)


class NextSteps(NamedTuple):
    """The next steps, and what blocks the others."""

    steps: tuple[Step, ...]
    blocked: Mapping[str, str]
    """Task -> why it does not start, for each that waits or is blocked."""
    question: str = ""
    """The question to a person; empty if there is none."""
    held: str = ""
    """The budget that is used up, so that no further task starts; empty if none could start anyway."""


def next_steps(
    plan: Plan,
    run: PlanRun,
    sessions: Mapping[str, Session],
    limit: int,
    now: float,
    lost_machines: Mapping[str, str] = MappingProxyType({}),
    limits: StartLimits = NO_LIMITS,
) -> NextSteps:
    """Return the next steps.

    Args:
        sessions: the current sessions of its tasks, by id.
        limit: how many tasks may run here at once; elsewhere `Plan.per_machine` and the machines limit them.
        now: in seconds since the epoch.
        lost_machines: registered machine -> why its tasks are tried again on others. Those that may run on no other
            one wait for it, unless no person can decide.
        limits: what of budgets and accounts limits the start of further tasks.
    """
    if run.state == "ended":
        return NextSteps((), {})
    if run.is_aborted:
        return NextSteps(_ends(plan, run, sessions) or (FinishPlan("aborted", "aborted by user"),), {})
    if run.is_stopped:
        blocked = {task.id: "the plan is stopped" for task in plan.tasks if _may_begin(run, task)}
        return NextSteps(_ends(plan, run, sessions), blocked)
    steps: list[Step] = []
    for task in plan.tasks:
        why = lost_machines.get(run.of(task.id).machine, "")
        if why and _is_bound_to_machine(plan, run, task):
            steps.append(FinishTask(task, run.of(task.id).attempt, False, why, is_lost=True))
        else:
            steps += _of_task(plan, run, task, sessions, now)
    blocked = _find_blocked(plan, run)
    running = [is_elsewhere(plan, task, run) for task in plan.tasks if counts_as_running(run, task)]
    local, total = running.count(False), len(running)
    groups: dict[tuple[MachineRequirement, str], list[StartNextAttempt]] = {}
    spread, without_account = AccountSpread(plan, run, limits.accounts), list[Task]()
    for task in plan.tasks:
        if not _may_begin(run, task) or task.id in blocked:
            continue
        at, wanted = run.of(task.id), next_machine(plan, task, run)
        machine = LOCAL if wanted is None else at.placement.machine if at.placement is not None else ""
        if run.state == "paused":
            blocked[task.id] = "the plan is paused"
        elif limits.held:
            blocked[task.id] = limits.held
        elif (last := _find_previous_session(plan, run, task, sessions)) is not None:
            blocked[task.id] = f"its last attempt is stopping ({last.name})"
        elif machine == LOCAL and local >= limit:
            blocked[task.id] = f"{limit} tasks are already running"
        elif plan.limits_all and total >= plan.limit:
            blocked[task.id] = f"{plan.limit} tasks are already running"
        elif wanted is None or machine:
            choice = spread.choose(task) if machine == LOCAL else OWN_LOGIN
            if choice.why and not choice.account:
                blocked[task.id] = choice.why
                without_account.append(task)
                continue
            steps.append(StartNextAttempt(task, at.attempt + 1, choice))
            local, total = local + (machine == LOCAL), total + 1
        else:
            groups.setdefault((wanted, agent_of(plan, task, at.agent)), []).append(
                StartNextAttempt(task, at.attempt + 1)
            )
    for (wanted, agent), attempts in groups.items():
        steps.append(ChooseMachines(tuple(attempts), wanted, agent))
        if (placement := _find_unplaced(run, attempts)) is not None:
            blocked |= {each.task.id: placement.why for each in attempts}
    is_idle = all(isinstance(step, EndTaskSession | ChooseMachines) for step in steps)
    held = limits.held if limits.held in blocked.values() else ""
    asks = _question(plan, run, sessions, now, held) if is_idle else ""
    if not any(limits.accounts.keys() & spread.find_candidates(task) for task in without_account) and not steps:
        steps += filter(None, [_finish(plan, run, asks or next((blocked[task.id] for task in without_account), ""))])
    if run.headless and (why := _explain_unplaced(run, steps, now)):
        steps = [FinishPlan("failed", why)]
    return NextSteps(tuple(steps), blocked, asks, held)


def tries_left(run: PlanRun, task: Task) -> bool:
    """Whether *task*, which failed, is retried automatically; not before a person resolved its conflict."""
    return run.of(task.id).tries <= task.retries and not run.of(task.id).conflicts


def _is_bound_to_machine(plan: Plan, run: PlanRun, task: Task) -> bool:
    """Whether *task* cannot continue without its machine, and is better tried again than waiting for that."""
    if not counts_as_running(run, task) or run.of(task.id).check is not None:
        return False
    wanted = next_machine(plan, task, run)
    return wanted is not None and (run.headless or not wanted.machine)


def _of_task(plan: Plan, run: PlanRun, task: Task, sessions: Mapping[str, Session], now: float) -> list[Step]:
    at = run.of(task.id)
    session = sessions.get(at.session)
    if at.state is T.RUNNING:
        if task.time_limit_s is not None and now - at.began_at > task.time_limit_s:
            return [FinishTask(task, at.attempt, False, f"its time limit of {task.time_limit_s:g} s is over")]
        if not at.session:
            return [FinishTask(task, at.attempt, False, "its session could not be created")]
        if session is None:
            return []
        if (outcome := find_outcome(plan, task, session, at.prompts_since, now)) is not None:
            return [ClaimTask(task, at.attempt, outcome)]
        if run.headless and session.state is SessionState.LOST and now - session.since > LOST_S:
            return [FinishTask(task, at.attempt, False, f"its agent is lost for {LOST_S:g} s")]
        if run.headless and _has_no_host(session) and now - session.since > LOST_S:
            return [FinishTask(task, at.attempt, False, f"its host is gone for {LOST_S:g} s and did not come back")]
        doubtful = explain_uncertainty(plan, task, session, at.prompts_since, now)
        if run.headless and doubtful and now - session.since > LOST_S:
            return [FinishTask(task, at.attempt, False, f"its agent is idle, and its prompt {doubtful}")]
        is_on_its_way = bool(session.generation) and not is_unsent(plan, run, task, session)
        return [] if is_on_its_way else [StartAttemptSession(task, at.attempt, session.id)]
    if at.state is T.CLAIMED:
        if task.check:
            if at.check is None:
                return [CheckTask(task, at.attempt)]
            return [FinishTask(task, at.attempt, at.check.ok, _describe_check(at.check))]
        if plan.without_check == "advance" or run.headless:
            return [FinishTask(task, at.attempt, True, at.why or "reported by its agent")]
        return []
    if session is None or not session.exists or session.is_unreachable or is_needed(plan, run, task):
        return []
    is_over = at.state is not T.DONE or session.state is SessionState.IDLE
    return [EndTaskSession(session.id)] if is_over else []


def _has_no_host(session: Session) -> bool:
    """Whether its agent may still run, but has no host that reports its state."""
    has_host = session.host is None or session.host.alive
    return session.state is SessionState.UNSURE and not has_host and not session.is_unreachable


def _find_unplaced(run: PlanRun, attempts: Sequence[StartNextAttempt]) -> TaskPlaced | None:
    """Return why no machine can be chosen for *attempts*, which are placed together; None if that is not known yet."""
    return next((found for each in attempts if (found := run.of(each.task.id).placement) is not None), None)


def _explain_unplaced(run: PlanRun, steps: Sequence[Step], now: float) -> str:
    """Return why the plan cannot continue: for `UNPLACED_S`, its tasks only waited for machines. Empty if it can."""
    if any(at.state in ACTIVE for at in run.tasks.values()):
        return ""
    whys = []
    for step in steps:
        placement = _find_unplaced(run, step.tasks) if isinstance(step, ChooseMachines) else None
        if placement is None or now - placement.at < UNPLACED_S:
            return ""
        whys.append(f"task {placement.task} found no machine for {UNPLACED_S:g} s: {placement.why}")
    return "; ".join(whys)


def _find_previous_session(plan: Plan, run: PlanRun, task: Task, sessions: Mapping[str, Session]) -> Session | None:
    """Return the session of the last attempt of *task*, which is to start again, as long as it runs."""
    at = run.of(task.id)
    session = sessions.get(at.session)
    if session is None or not session.exists or session.is_unreachable or terminal_of(plan, run, task) == at.session:
        return None
    return session


def _describe_check(check: TaskChecked) -> str:
    if check.ok:
        return "its check passed"
    return f"its check failed: {check.why}" if check.why else f"check failed (exit {check.exit_code})"


def _may_begin(run: PlanRun, task: Task) -> bool:
    at = run.of(task.id)
    return at.state is T.WAITING or (at.state is T.FAILED and tries_left(run, task))


def counts_as_running(run: PlanRun, task: Task) -> bool:
    """Whether *task* counts as running; one that only waits for a person does not."""
    at = run.of(task.id)
    return at.state is T.RUNNING or (at.state is T.CLAIMED and bool(task.check))


def _find_blocked(plan: Plan, run: PlanRun) -> dict[str, str]:
    """Return task -> what it waits for, for the tasks that may not start yet."""
    open_wave = _open_wave(plan, run)

    def is_ready(other: Task) -> bool:
        return _may_begin(run, other) and not _list_missing(run, other) and other.wave <= open_wave

    blocked = {}
    for task in plan.tasks:
        if not _may_begin(run, task):
            continue
        if missing := _list_missing(run, task):
            blocked[task.id] = f"blocked by {', '.join(missing)}"
        elif task.wave > open_wave:
            blocked[task.id] = f"blocked by wave {task.wave - 1}"
        elif task.inherits and (other := user_of(plan, run, task, is_ready)):
            blocked[task.id] = f"{other} uses its terminal"
    return blocked


def _list_missing(run: PlanRun, task: Task) -> list[str]:
    return [need for need in named_needs(task) if run.of(need).state not in SETTLED]


def _open_wave(plan: Plan, run: PlanRun) -> int:
    """Return the last wave whose tasks may start."""
    if not plan.gives_waves and plan.advance == "auto":
        return plan.waves
    wave, advances = 1, plan.advance == "auto" or run.headless
    while wave < plan.waves and _is_clean(plan, run, wave) and (advances or run.gate > wave):
        wave += 1
    return wave


def _is_clean(plan: Plan, run: PlanRun, wave: int) -> bool:
    return all(run.of(task.id).state in SETTLED for task in plan.tasks if task.wave <= wave)


def _question(plan: Plan, run: PlanRun, sessions: Mapping[str, Session], now: float, held: str) -> str:
    """Return the question to a person while nothing else can be done; *held* is why no task that could may start."""
    claimed = [task.id for task in plan.tasks if run.of(task.id).state is T.CLAIMED and not task.check]
    failed = [task.id for task in plan.tasks if run.of(task.id).state is T.FAILED and not tries_left(run, task)]
    if conflict := next((id_ for id_ in failed if run.of(id_).conflicts), ""):
        return f"{_tasks([conflict])} cannot start: {run.of(conflict).why}; then retry, or skip or abort"
    if failed:
        return f"{_tasks(failed)} failed: retry, replace, skip, or abort"
    if claimed:
        idle = [id_ for id_ in claimed if run.of(id_).changed == 0]
        but = f" ({_tasks(idle)} changed no files)" if idle else ""
        return f"{_tasks(claimed)} reported done without a check{but}: accept or retry"
    running = [(task, run.of(task.id)) for task in plan.tasks if run.of(task.id).state is T.RUNNING]
    known = [(task, at, session) for task, at in running if (session := sessions.get(at.session)) is not None]
    if lost := [task.id for task, _, session in known if session.state is SessionState.LOST]:
        return f"the agent of {_tasks(lost)} is lost: run `kasmon recover`, or retry"
    if orphaned := [task.id for task, _, session in known if session.is_orphaned]:
        return f"the host of {_tasks(orphaned)} is gone, and its agent may still run: retry (ends it first) or skip"
    if doubtful := [
        task.id for task, at, session in known if explain_uncertainty(plan, task, session, at.prompts_since, now)
    ]:
        agents = f"the agent of {_tasks(doubtful)}"
        return f"it is unknown whether {agents} accepted its prompt: check it, then retry or skip"
    if any(run.of(task.id).state in ACTIVE for task in plan.tasks):
        return ""
    if held:
        return f"{held}: raise it in the table [budget] of the config"
    wave = _open_wave(plan, run)
    if wave < plan.waves and _is_clean(plan, run, wave):
        return f"wave {wave} is done: start wave {wave + 1}"
    return ""


def _tasks(ids: list[str]) -> str:
    return f"task {ids[0]}" if len(ids) == 1 else f"tasks {', '.join(ids)}"


def _finish(plan: Plan, run: PlanRun, request: str) -> FinishPlan | None:
    ids = [task.id for task in plan.tasks]
    states = [run.of(id_).state for id_ in ids]
    if all(state in SETTLED for state in states):
        skipped = states.count(T.SKIPPED)
        is_claimed = any(at.state is T.DONE and not at.is_checked for at in map(run.of, ids))
        return FinishPlan("claimed" if is_claimed else "done", f"{skipped} skipped" if skipped else "")
    if run.headless and run.state != "paused" and not any(state in ACTIVE for state in states):
        return FinishPlan("failed", request or "no task can start")
    return None


def _ends(plan: Plan, run: PlanRun, sessions: Mapping[str, Session]) -> tuple[Step, ...]:
    """Return steps that end all running sessions of the plan, each once: two tasks may share one.

    Those of an unreachable machine are ended with their placement, once it is back.
    """
    found = map(sessions.get, dict.fromkeys(run.of(task.id).session for task in plan.tasks))
    return tuple(EndTaskSession(one.id) for one in found if one is not None and one.exists and not one.is_unreachable)
