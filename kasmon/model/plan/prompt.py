"""The prompt of a task's agent: the plan's header, its place, earlier results, its body, how to report the end."""

from collections.abc import Mapping, Sequence

from kasmon.model.plan.plan import Plan, Task, predecessors
from kasmon.model.plan.progress import TaskRun

LONGEST_RESULT = 8_000
"""The maximum length of each needed task's result in the prompt, in characters."""


def prompt(
    plan: Plan,
    task: Task,
    at: TaskRun,
    *,
    shares: bool,
    results: Mapping[str, str],
    is_script: bool = False,
    is_elsewhere: bool = False,
) -> str:
    """Return the first prompt of *task*.

    Args:
        at: its progress; failures of earlier attempts are included.
        shares: whether others work in the same folder at the same time.
        results: task id -> its `result.md`, for the tasks that this one needs.
        is_script: it is for the scripted agent, which ignores all but the body as comments.
        is_elsewhere: it runs on another machine, where there is no kasmon to query or report to.
    """
    peers = len(plan.wave(task.wave))
    head = [f"# {plan.name}"]
    head += [
        f"{what}: {value}"
        for what, value in (("Goal", plan.goal), ("Architecture", plan.architecture), ("Tech stack", plan.tech_stack))
        if value
    ]
    parallel = {1: "", 2: " One other task runs in parallel."}.get(peers, f" {peers - 1} other tasks run in parallel.")
    place = f"This is task {task.number} of wave {task.wave}: {task.title}."
    head += ["", place + parallel]
    if shares and (peers > 1 or not plan.gives_waves):
        head.append(
            "Others share this folder with you: change only what your task names, add files to a commit by name, and"
            " never stash, reset or check out what is not yours."
        )
    if not shares and not is_elsewhere and any(task.id in predecessors(plan, other) for other in plan.tasks):
        head.append("Commit your work on the branch of this folder: the tasks after yours begin from its commits.")
    if task.files:
        head.append(f"You may change: {', '.join(task.files)}.")
    for other, result in results.items():
        head += ["", f"## What task {other} left for you", "", result[:LONGEST_RESULT]]
    if at.failures:
        head += ["", "## What went wrong before", "", *(f"- {why}" for why in at.failures)]
        if at.check is not None and at.check.output:
            head += ["", "The check printed:", "", *(f"    {line}" for line in at.check.output.splitlines()[-40:])]
    say_so = 'When the task is done, say so: `kasmon ctx --done "what you did"`. Your peers: `kasmon ctx`.'
    foot = [
        "When the task is done, end your turn." if is_elsewhere else say_so,
        f"What those after you should know goes into `{result_file(task)}`." if _is_needed(plan, task) else "",
        f"It counts as done when this ends with 0: {task.check}" if task.check else "",
    ]
    if is_script:
        remarks = [f"# {line}" for line in "\n".join((*head, *foot)).splitlines() if line]
        return "\n".join((*remarks, task.body))
    return "\n".join((*head, "", "## The task", "", task.body, "", *(line for line in foot if line)))


def result_file(task: Task) -> str:
    """Return the file in which *task* leaves its result for later tasks, relative to its folder."""
    return f".kasmon/task-{task.number}/result.md"


def _is_needed(plan: Plan, task: Task) -> bool:
    return any(task.id in (*other.needs, other.inherits) for other in plan.tasks)


def session_name(plan_id: str, task: Task, attempt: int, taken: Sequence[str] = ()) -> str:
    """Return the session name of an attempt, in the format of kasmos: `<plan>-W<wave>-T<task>`."""
    name = f"{plan_id}-W{task.wave}-T{task.number}" + ("" if attempt == 1 else f"-{attempt}")
    number = 2
    free = name
    while free in taken:
        free, number = f"{name}.{number}", number + 1
    return free
