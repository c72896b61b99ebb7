"""The lines that the user approves before a plan runs, and which decisions are valid while it runs."""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kasmon.config import Config, resolve
from kasmon.errors import KasmonError, RefusedError
from kasmon.model.plan.events import PlanAction
from kasmon.model.plan.machine_choice import MachineChoice
from kasmon.model.plan.placement import describe_requirement, machine_requirement, worktree_of
from kasmon.model.plan.plan import NEEDS, Plan, host_of, predecessors
from kasmon.model.plan.progress import SETTLED, PlanRun, TaskState
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.repository.git import git, head, repository
from kasmon.supervisor.plans.sandboxes import sandboxes
from kasmon.supervisor.plans.start_limits import describe_accounts
from kasmon.supervisor.plans.task_folder import branch_of
from kasmon.supervisor.worktrees.worktree import check_branches, commit_of, no_commit, no_repository, remarks

SHELL = "shell"


class MachinePreview(NamedTuple):
    """What is known before a plan starts of the machines that its tasks would get."""

    choices: Mapping[str, MachineChoice]
    """Task -> the machine that it would get now, for tasks that are placed."""
    remarks: Sequence[str]
    """On machines that get none of them."""


def ask_machines(paths: Paths, config: Config, plan: Plan, folder: Path) -> MachinePreview:
    """Ask the machines what they offer to *plan* in *folder*, if one of its tasks is placed. Blocks.

    Raises `RefusedError` if a task may only run on a machine whose kasmon is too old for that.
    """
    if all(machine_requirement(plan, task) is None for task in plan.tasks):
        return MachinePreview({}, ())
    from kasmon.supervisor.plans.machines.placement import check_versions, find_offers, propose  # not for other plans

    offers = find_offers(paths, config, plan, folder)
    return MachinePreview(propose(paths, plan, offers), check_versions(paths, plan, offers))


def describe_plan(
    plan: Plan,
    config: Config,
    folder: Path,
    choices: Mapping[str, MachineChoice] | None = None,
    own_names: Collection[str] = (),
    sessions: Iterable[Session] = (),
) -> list[str]:
    """Return every command that *plan* would run in *folder*, the agents it starts, and where, as lines for the user.

    Args:
        choices: task -> the machine that it would get now, for tasks that are placed; empty if that is unknown.
        sessions: all sessions, whose reports decide which accounts are used first.
    """
    lines = [f"Plan {plan.name!r}: {len(plan.tasks)} tasks in {plan.waves} waves, in {folder}"]
    agents: dict[str, list[str]] = {}
    elsewhere: dict[str, list[str]] = {}
    maybe_here: dict[str, list[str]] = {}
    for task in plan.tasks:
        agent = task.agent or (SHELL if task.run else plan.agent or config.default_agent)
        agent = plan.agent + agent if agent.startswith("@") else agent
        wanted = machine_requirement(plan, task)
        (agents if wanted is None else elsewhere).setdefault(agent, []).append(task.id)
        fits = wanted is not None and set(wanted.labels) <= set(config.machine.labels)
        if wanted is not None and fits and wanted.machine in ("", *own_names):
            maybe_here.setdefault(agent, []).append(task.id)
    lines += [f"  starts {_command(config, agent)} for {_format_names(tasks)}" for agent, tasks in agents.items()]
    for agent, tasks in elsewhere.items():
        lines.append(f"  starts {agent!r}, as the config of its machine has it, for {_format_names(tasks)}")
    for agent, tasks in maybe_here.items():
        run = "runs" if len(tasks) == 1 else "run"
        lines.append(f"  starts {_command(config, agent)} if {_format_names(tasks)} {run} here")
    lines += describe_accounts(config, plan, sessions)
    lines += _describe_machines(plan, choices or {})
    lines += [
        f"  confines {_format_names(tasks)} by a sandbox {tier!r}" for tier, tasks in sandboxes(config, plan).items()
    ]
    lines += [f"  passes on {', '.join(plan.env)}"] if plan.env else []
    lines += [f"  runs in the shell of task {task.id}: {task.run}" for task in plan.tasks if task.run]
    lines += [f"  checks task {task.id} by: {task.check}" for task in plan.tasks if task.check]
    return lines


def _describe_machines(plan: Plan, choices: Mapping[str, MachineChoice]) -> list[str]:
    """Return which tasks are placed on machines, with their checks, and which machine each would get now."""
    groups: dict[tuple[str, str], list[str]] = {}
    for task in plan.tasks:
        if (wanted := machine_requirement(plan, task)) is not None:
            now = ""
            if (choice := choices.get(task.id)) is not None:
                now = f"now on {choice.machine}" if choice.machine else f"on none now ({choice.why})"
            groups.setdefault((describe_requirement(wanted), now), []).append(task.id)
    if not groups:
        return []
    return [
        *(
            f"  runs {_format_names(tasks)} on {where}{f': {now}' if now else ''}"
            for (where, now), tasks in groups.items()
        ),
        "  there, their agents, commands and checks run with your account, in a git worktree",
        f"  runs at most {plan.per_machine} tasks on each machine",
    ]


def _format_names(tasks: list[str]) -> str:
    return f"{'task' if len(tasks) == 1 else 'tasks'} {', '.join(tasks)}"


def _command(config: Config, agent: str) -> str:
    try:
        resolved = resolve(config, agent)
    except KasmonError as error:
        return f"{agent!r} (which cannot be started now: {error.message})"
    skips = ", which skips permissions," if resolved.bypassing else ""
    program = shlex.join(resolved.argv) or ("a login shell" if resolved.machine else "the scripted agent")
    return f"{agent!r}{skips} ({program}{f' on {resolved.machine}' if resolved.machine else ''})"


def check_repository(plan: Plan, folder: Path, plan_id: str, run: PlanRun | None = None) -> list[str]:
    """Check the git repository of *folder* before *plan* runs there; return remarks for the user. Blocks.

    Args:
        plan_id: the id that it has or will get; its branches are named by it.
        run: its progress, if it already runs.

    Raises:
        UsageError: if a task requires a worktree and there is no repository; or if a `base` names no commit.
        RefusedError: if a name of the plan's branches conflicts with an existing branch; or if a task is for another
            machine and the repository is a shallow clone.
        GitError: if git cannot create a worktree of the repository.
    """
    kinds = {worktree_of(plan, task): task.id for task in plan.tasks if not task.inherits}
    placed = next((task.id for task in plan.tasks if machine_requirement(plan, task) is not None), "")
    if kinds.keys() <= {"folder"}:
        return []
    repo = repository(folder)
    if repo is None:
        if placed:
            raise no_repository(placed, folder, 'run it here with `machine = "local"`')
        for kind in ("own", "shared"):
            if kind in kinds:
                raise no_repository(kinds[kind], folder)
        return []
    if not head(repo):
        raise no_commit(repo)
    if placed and git(repo, "rev-parse", "--is-shallow-repository").strip() == "true":
        raise RefusedError(
            f"task {placed!r} cannot run on another machine: {str(repo)!r} is a shallow clone, without its history.",
            hint='Run `git fetch --unshallow` there, or run the task here with `machine = "local"`.',
        )
    worktree_tasks = [task for task in plan.tasks if worktree_of(plan, task) != "folder"]
    branches = {branch_of(plan_id, plan, task): task.id for task in worktree_tasks if not host_of(plan, task)}
    made = set() if run is None else {at.branch for at in run.tasks.values()}
    check_branches(repo, [branch for branch in branches if branch not in made])
    for base in dict.fromkeys((plan.base, *(task.base for task in worktree_tasks))):
        if base not in ("", NEEDS) and base not in branches:
            commit_of(repo, base)
    return [*remarks(repo), *_missing_work(plan)]


def _missing_work(plan: Plan) -> list[str]:
    """Return remarks on tasks that need work on the branch of another, but have no own worktree to merge it in."""
    kinds = {task.id: worktree_of(plan, task) for task in plan.tasks}
    notes = []
    for task in plan.tasks:
        own = [need for need in predecessors(plan, task) if kinds[need] == "own" and not host_of(plan, plan.task(need))]
        if own and kinds[task.id] != "own" and not host_of(plan, task):
            where = "the plan's folder" if kinds[task.id] == "folder" else "the shared worktree"
            notes.append(
                f'task {task.id} works in {where}, without the work of {_format_names(own)} (worktree = "own")'
            )
    return notes


def refusal(plan: Plan, run: PlanRun, decision: PlanAction, task: str) -> str:
    """Return why *decision* is not possible now; empty if it is."""
    state = run.of(task).state if task else None
    match decision:
        case "pause" if run.state == "paused":
            return "it is already paused"
        case "accept" if state is not TaskState.CLAIMED:
            return f"task {task!r} is {state}, not reported as done"
        case "skip" if state in SETTLED:
            return f"task {task!r} is already {state}"
        case "replace" if plan.task(task).run:
            return f"task {task!r} is a shell command and has no agent"
        case "retry" | "replace" if state is TaskState.WAITING:
            return f"task {task!r} has not started"
        case "advance" if run.gate >= plan.waves:
            return f"wave {plan.waves} is the last one"
        case "advance" if not _is_clean(plan, run):
            return f"wave {run.gate} is not done"
        case _:
            return ""


def _is_clean(plan: Plan, run: PlanRun) -> bool:
    """Whether all tasks are settled up to the last wave that was allowed to begin."""
    return all(run.of(task.id).state in SETTLED for task in plan.tasks if task.wave <= run.gate)
