"""A plan as values: its tasks, their dependencies, and which decisions need no person."""

from typing import Final, Literal, TypeAlias

import msgspec

Worktree: TypeAlias = Literal["", "shared", "own", "folder"]
"""Where a task works: in the plan's shared git worktree, in its own, or in the plan's folder itself. Empty: shared
if the folder is in a git repository, else the folder."""

CHECK_LIMIT_S: Final = 600.0


GIT_LOCAL: Final = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_CONFIG", "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS",
        "GIT_DIR", "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_INTERNAL_SUPER_PREFIX",
        "GIT_NAMESPACE", "GIT_NO_REPLACE_OBJECTS", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_REPLACE_REF_BASE",
        "GIT_SHALLOW_FILE", "GIT_WORK_TREE",
    }
)  # fmt: skip
"""Variables by which git works in another repository than the one of its folder: those that
`git rev-parse --local-env-vars` lists, and the namespace."""


class PlanFault(msgspec.Struct, frozen=True, kw_only=True):
    line: int
    """Counted from 1; 0 if it concerns the whole file."""
    why: str


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A unit of work for one agent."""

    id: str
    """The name that other tasks use for it; its number unless the plan names it."""
    number: int
    """Counted from 1 through the whole plan; the value of `KASMON_TASK`."""
    title: str = ""
    body: str = ""
    """The agent's instructions, as Markdown."""
    run: str = ""
    """A shell command, instead of an agent and `body`."""
    wave: int = 1
    """Its wave, given by the plan or derived from what it needs."""
    needs: tuple[str, ...] = ()
    """The tasks that must be done first, in addition to earlier waves where the plan gives waves."""
    inherits: str = ""
    """The task in whose terminal (for agents: in whose folder) it continues."""
    agent: str = ""
    """A profile, or `AGENT@HOST`; empty is the plan's."""
    machine: str = ""
    """The machine that it runs on, `ANY`, or `LOCAL`; empty is the plan's, unless it has labels."""
    labels: tuple[str, ...] = ()
    """The labels of the machines that it may run on: one of those that have all of them."""
    accounts: tuple[str, ...] = ()
    """The accounts of the config of which each attempt uses one; empty is the plan's."""
    mode: Literal["", "tmux", "sdk"] = ""
    """Empty is the profile's, else sdk if its program supports it."""
    sandbox: str = ""
    worktree: Worktree = ""
    base: str = ""
    """The commit that its own worktree starts from, by any name; empty is the plan's, `NEEDS` the branches it needs."""
    files: tuple[str, ...] = ()
    """Patterns of the files that it may change; none if the plan does not limit it."""
    check: str = ""
    """A shell command that exits with 0 if the task is done."""
    check_limit_s: float = CHECK_LIMIT_S
    """The check's time limit, in seconds; not part of the task's own time limit."""
    retries: int = 0
    """How many failed attempts are retried automatically."""
    time_limit_s: float | None = None
    line: int = 0
    """Its first line in the plan's file."""
    lines: tuple[tuple[str, int], ...] = ()
    """Each field in the file, with its line."""

    def line_of(self, field: str) -> int:
        """Return the line of *field*, else the task's first line."""
        return dict(self.lines).get(field, self.line)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed and valid plan: its waves are 1, 2, ... and each has a task."""

    name: str
    goal: str = ""
    architecture: str = ""
    tech_stack: str = ""
    agent: str = ""
    """The profile of tasks without one; empty is the config's default."""
    machine: str = ""
    """As for a task; for those that name neither a machine nor labels, nor a host."""
    labels: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    """The accounts of tasks here that name none; those of other agents than a task's are not for that task."""
    spread: Literal["", "least-used", "round-robin"] = ""
    """How the accounts are chosen: the one whose limits are used least (also if empty), or each in turn."""
    mode: Literal["", "tmux", "sdk"] = ""
    worktree: Worktree = ""
    base: str = ""
    """The commit that its worktrees start from, by any name; empty is HEAD, or the branches that a task needs."""
    fetch: Literal["", "remote"] = ""
    """How the repository's commits come to registered machines: sent by kasmon, or fetched there from its remote."""
    gives_waves: bool = True
    """Whether a wave starts when the previous one is done; otherwise each task starts when what it needs is done."""
    advance: Literal["", "ask", "auto"] = ""
    """After a finished wave: ask, or advance. Empty is the config's."""
    without_check: Literal["", "ask", "advance"] = ""
    """For a reported task without a check: ask, or accept it. Empty is the config's."""
    done_by: Literal["turn", "said"] = "turn"
    """Whether the end of an agent's turn reports its task as done, or only `kasmon ctx --done`."""
    limit: int = 0
    """The number of tasks that run at once; 0 is the config's, for each machine."""
    per_machine: int = 0
    """The number of its tasks that run at once on each machine; 0 is the config's `limit`."""
    env: tuple[str, ...] = ()
    """Names of the user's variables that its agents get: a provider's keys, for example."""
    tasks: tuple[Task, ...] = ()
    lines: tuple[tuple[str, int], ...] = ()
    """Each field in the file, with its line."""
    warnings: tuple[PlanFault, ...] = ()
    """Remarks on the file that do not prevent the plan from running."""

    def settled(self, *, agent: str, limit: int, advance: bool, believe: bool) -> "Plan":
        """Return this plan with the config's values for what it leaves open."""
        return msgspec.structs.replace(
            self,
            agent=self.agent or agent,
            limit=self.limit or limit,
            per_machine=self.per_machine or limit,
            advance=self.advance or ("auto" if advance else "ask"),
            without_check=self.without_check or ("advance" if believe else "ask"),
        )

    def task(self, id_: str) -> Task:
        """Return the task with this id. Raises `KeyError` if there is none."""
        for task in self.tasks:
            if task.id == id_:
                return task
        raise KeyError(id_)

    def wave(self, number: int) -> tuple[Task, ...]:
        """Return the tasks of wave *number*, counted from 1, in the plan's order."""
        return tuple(task for task in self.tasks if task.wave == number)

    @property
    def limits_all(self) -> bool:
        """Whether `limit` is the plan's own, for all machines together; else it is for this machine."""
        return any(field == "limit" for field, _ in self.lines)

    @property
    def waves(self) -> int:
        return max((task.wave for task in self.tasks), default=0)


ANY: Final = "any"
"""As `machine`: this one, or any registered one."""
LOCAL: Final = "local"
"""As `machine`: this one, whatever the plan sets; also the name of this one where it is chosen."""
SHELL: Final = "shell"
"""The profile of a task that is a shell command."""
NEEDS: Final = "needs"
"""As `base`: the branches of the tasks that it needs, whatever the plan sets."""


def agent_of(plan: Plan, task: Task, instead: str = "") -> str:
    """Return the agent for *task*, or *instead*: a profile, or `AGENT@HOST`; empty is the config's default.

    On another machine a command is a program of its own, whose exit code counts.
    """
    agent = instead or task.agent or (SHELL if task.run else plan.agent)
    return plan.agent + agent if agent.startswith("@") else agent


def host_of(plan: Plan, task: Task, instead: str = "") -> str:
    """Return the machine on which *task* runs; empty for this one."""
    return agent_of(plan, task, instead).partition("@")[2]


def predecessors(plan: Plan, task: Task) -> tuple[str, ...]:
    """Return the tasks that *task* builds on: those it names, else the previous wave where the plan gives waves."""
    if task.needs or task.inherits:
        return (*task.needs, task.inherits) if task.inherits else task.needs
    return tuple(one.id for one in plan.wave(task.wave - 1)) if plan.gives_waves and task.wave > 1 else ()


def describe_fault(file: str, fault: PlanFault) -> str:
    """Return *fault* of *file* as one line: `FILE:LINE: why.`"""
    return f"{file}:{fault.line}: {fault.why}." if fault.line else f"{file}: {fault.why}."
