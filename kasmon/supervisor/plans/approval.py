"""The lines that the user approves before a plan runs, and which decisions are valid while it runs."""

import shlex
from pathlib import Path

from kasmon.config import Config, ResolvedProfile, resolve
from kasmon.errors import KasmonError
from kasmon.model.plan.events import PlanAction
from kasmon.model.plan.plan import NEEDS, Plan, host_of, predecessors
from kasmon.model.plan.progress import SETTLED, PlanRun, TaskState
from kasmon.model.plan.shared_terminal import root_of
from kasmon.repository.git import head, repository
from kasmon.supervisor.plans.sandboxes import sandboxes
from kasmon.supervisor.plans.task_folder import branch_of
from kasmon.supervisor.worktrees.worktree import check_branches, commit_of, no_commit, no_repository, remarks

SHELL = "shell"


def describe_plan(plan: Plan, config: Config, folder: Path) -> list[str]:
    """Return every command that *plan* would run in *folder*, and the agents it starts, as lines for the user."""
    lines = [f"Plan {plan.name!r}: {len(plan.tasks)} tasks in {plan.waves} waves, in {folder}"]
    agents: dict[str, list[str]] = {}
    for task in plan.tasks:
        agent = task.agent or (SHELL if task.run else plan.agent or config.default_agent)
        agent = plan.agent + agent if agent.startswith("@") else agent
        agents.setdefault(agent, []).append(task.id)
    for agent, tasks in agents.items():
        lines.append(f"  starts {_command(config, agent)} for {_named(tasks)}")
    lines += [f"  confines {_named(tasks)} by a sandbox {tier!r}" for tier, tasks in sandboxes(config, plan).items()]
    lines += [f"  passes on {', '.join(plan.env)}"] if plan.env else []
    lines += [f"  runs in the shell of task {task.id}: {task.run}" for task in plan.tasks if task.run]
    lines += [f"  checks task {task.id} by: {task.check}" for task in plan.tasks if task.check]
    return lines


def _named(tasks: list[str]) -> str:
    return f"{'task' if len(tasks) == 1 else 'tasks'} {', '.join(tasks)}"


def _command(config: Config, agent: str) -> str:
    try:
        resolved = resolve(config, agent)
    except KasmonError as error:
        return f"{agent!r} (which cannot be started now: {error.message})"
    skips = ", which skips permissions," if resolved.bypassing else ""
    return f"{agent!r}{skips} ({_program(resolved)})"


def _program(resolved: ResolvedProfile) -> str:
    if resolved.machine:
        return f"{shlex.join(resolved.argv) or 'a login shell'} on {resolved.machine}"
    return shlex.join(resolved.argv) or "the scripted agent"


def check_repository(plan: Plan, folder: Path, plan_id: str, run: PlanRun | None = None) -> list[str]:
    """Check the git repository of *folder* before *plan* runs there; return remarks for the user. Blocks.

    Args:
        plan, folder: what is to run, and where.
        plan_id: the id that it has or will get; its branches are named by it.
        run: its progress, if it already runs.

    Raises:
        UsageError: if a task requires a worktree and there is no repository; or if a `base` names no commit.
        RefusedError: if a name of the plan's branches conflicts with an existing branch.
        GitError: if git cannot create a worktree of the repository.
    """
    kinds = {task.worktree or plan.worktree: task.id for task in plan.tasks if not task.inherits}
    if kinds.keys() <= {"folder"}:
        return []
    repo = repository(folder)
    if repo is None:
        for kind in ("own", "shared"):
            if kind in kinds:
                raise no_repository(kinds[kind], folder)
        return []
    if not head(repo):
        raise no_commit(repo)
    here = [task for task in plan.tasks if (root_of(plan, task).worktree or plan.worktree) != "folder"]
    branches = {branch_of(plan_id, plan, task): task.id for task in here if not host_of(plan, task)}
    made = set() if run is None else {at.branch for at in run.tasks.values()}
    check_branches(repo, [branch for branch in branches if branch not in made])
    for base in dict.fromkeys((plan.base, *(task.base for task in here))):
        if base not in ("", NEEDS) and base not in branches:
            commit_of(repo, base)
    return [*remarks(repo), *_missing_work(plan)]


def _missing_work(plan: Plan) -> list[str]:
    """Return remarks on tasks that need work on the branch of another, but have no own worktree to merge it in."""
    kinds = {task.id: root_of(plan, task).worktree or plan.worktree for task in plan.tasks}
    notes = []
    for task in plan.tasks:
        own = [need for need in predecessors(plan, task) if kinds[need] == "own" and not host_of(plan, plan.task(need))]
        if own and kinds[task.id] != "own" and not host_of(plan, task):
            where = "the plan's folder" if kinds[task.id] == "folder" else "the shared worktree"
            notes.append(f'task {task.id} works in {where}, without the work of {_named(own)} (worktree = "own")')
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
