"""A plan as values: its tasks, what each needs, and what may be decided without a person."""

from typing import Final, Literal, TypeAlias

import msgspec

Worktree: TypeAlias = Literal["", "shared", "own", "folder"]
"""Where a task works: in the plan's one git worktree, in one of its own, or in the plan's folder itself. Empty: shared
where the folder is in a git repository, else the folder."""

CHECK_LIMIT_S: Final = 600.0
"""How long a check may take where the plan does not say, in seconds."""


class PlanFault(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a plan's file, and where."""

    line: int
    """Counted from 1; 0 where it is about the whole file."""
    why: str


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of work for one agent."""

    id: str
    """By which the plan's other tasks name it; its number unless the plan gives it a name."""
    number: int
    """Counted from 1 through the whole plan: what `KASMON_TASK` says."""
    title: str = ""
    body: str = ""
    """What the agent is told to do, as Markdown."""
    run: str = ""
    """A command for a shell, in the place of an agent and `body`."""
    wave: int = 1
    """The wave that it belongs to, given by the plan or by what it needs."""
    needs: tuple[str, ...] = ()
    """The tasks that are done before it begins, beside those of earlier waves where the plan gives waves."""
    inherits: str = ""
    """The task in whose terminal, or for other agents in whose folder, it goes on."""
    agent: str = ""
    """A profile, or `AGENT@HOST`; empty is the plan's."""
    mode: Literal["", "tmux", "sdk"] = ""
    """Empty is the profile's, else sdk where its program has it."""
    sandbox: str = ""
    worktree: Worktree = ""
    base: str = ""
    """What its own worktree begins from, a commit of any name; empty is the plan's, `NEEDS` the branches it needs."""
    files: tuple[str, ...] = ()
    """Patterns of the files that it may touch; none means that the plan does not say."""
    check: str = ""
    """A shell command that ends with 0 where the task is done."""
    check_limit_s: float = CHECK_LIMIT_S
    """How long that may take, in seconds; the task's own time limit does not count it."""
    retries: int = 0
    """How often it is tried again by itself."""
    time_limit_s: float | None = None
    line: int = 0
    """Where it begins in the plan's file."""
    lines: tuple[tuple[str, int], ...] = ()
    """Each field that the file gives, and its line."""

    def line_of(self, field: str) -> int:
        """The line that gives *field*, else the one on which the task begins."""
        return dict(self.lines).get(field, self.line)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan that was read and holds together: its waves are 1, 2, ... and each has a task."""

    name: str
    goal: str = ""
    architecture: str = ""
    tech_stack: str = ""
    agent: str = ""
    """The profile of tasks that name none; empty is the config's default."""
    mode: Literal["", "tmux", "sdk"] = ""
    worktree: Worktree = ""
    base: str = ""
    """What its worktrees begin from, a commit of any name; empty is HEAD, or the branches that a task needs."""
    gives_waves: bool = True
    """Whether a wave begins when the one before it is done; otherwise each task begins when what it needs is done."""
    advance: Literal["", "ask", "auto"] = ""
    """After a wave in which all is done: ask, or go on. Empty is the config's."""
    without_check: Literal["", "ask", "advance"] = ""
    """A task that its agent calls done and that has no check: ask, or believe it. Likewise."""
    done_by: Literal["turn", "said"] = "turn"
    """Whether the end of an agent's turn is its word that it is done, or only `kasmon ctx --done`."""
    limit: int = 0
    """How many tasks run at once; 0 is the config's."""
    env: tuple[str, ...] = ()
    """Variables of whoever runs it that its agents get, by their names: keys of a provider's own, say."""
    tasks: tuple[Task, ...] = ()
    lines: tuple[tuple[str, int], ...] = ()
    """Each field that the file gives, and its line."""
    warnings: tuple[PlanFault, ...] = ()
    """What a reader should know of the file, and what keeps it from nothing."""

    def settled(self, *, agent: str, limit: int, advance: bool, believe: bool) -> "Plan":
        """This plan, with the config's word where it leaves something open."""
        return msgspec.structs.replace(
            self,
            agent=self.agent or agent,
            limit=self.limit or limit,
            advance=self.advance or ("auto" if advance else "ask"),
            without_check=self.without_check or ("advance" if believe else "ask"),
        )

    def task(self, id_: str) -> Task:
        """
        Raises:
            KeyError: if it has none of that id.
        """
        for task in self.tasks:
            if task.id == id_:
                return task
        raise KeyError(id_)

    def wave(self, number: int) -> tuple[Task, ...]:
        """The tasks of wave *number*, counted from 1, as the plan lists them."""
        return tuple(task for task in self.tasks if task.wave == number)

    @property
    def waves(self) -> int:
        """How many waves it has."""
        return max((task.wave for task in self.tasks), default=0)


SHELL: Final = "shell"
"""The profile of a task that is a command."""
NEEDS: Final = "needs"
"""As `base`: the branches of the tasks that it needs, whatever the plan says."""


def agent_of(plan: Plan, task: Task, instead: str = "") -> str:
    """Who does *task*, where nobody does it *instead*: a profile, or `AGENT@HOST`; empty is the config's default.

    On another machine a command is a program of its own, whose exit code counts.
    """
    agent = instead or task.agent or (SHELL if task.run else plan.agent)
    return plan.agent + agent if agent.startswith("@") else agent


def host_of(plan: Plan, task: Task, instead: str = "") -> str:
    """The machine on which *task* is done; empty for this one."""
    return agent_of(plan, task, instead).partition("@")[2]


def continues(plan: Plan, task: Task) -> tuple[str, ...]:
    """The tasks on whose work *task* builds: those that it names, else, where the plan gives waves, the wave before."""
    if task.needs or task.inherits:
        return (*task.needs, task.inherits) if task.inherits else task.needs
    return tuple(one.id for one in plan.wave(task.wave - 1)) if plan.gives_waves and task.wave > 1 else ()


def placed(file: str, fault: PlanFault) -> str:
    """*fault* of *file* as one line: `FILE:LINE: why.`"""
    return f"{file}:{fault.line}: {fault.why}." if fault.line else f"{file}: {fault.why}."
