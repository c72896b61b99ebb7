"""What happens to a plan that runs: the facts in its own log, `plans/<id>/events.jsonl`.

A log of its own, and not the fleet's, so that nobody who lists sessions reads the 10,000 tasks of a plan.
"""

from typing import Literal, TypeAlias

import msgspec

from kasmon.model.events import BaseEvent, UnknownEvent

Deed: TypeAlias = Literal["pause", "resume", "advance", "accept", "retry", "skip", "replace", "abort", "stop"]
"""What a person decides: `stop` ends what runs until a `resume`, `accept` believes a task that was claimed, `replace`
retries it with another agent."""


class PlanBegan(BaseEvent, frozen=True, kw_only=True, tag="plan.began"):
    """A person agreed to exactly this content."""

    plan: str
    """Its id: the name of its folder."""
    name: str
    file: str
    """Where it was read from."""
    folder: str
    """Where it runs."""
    digest: str
    """The SHA-256 of its text."""
    headless: bool = False
    """Nobody can be asked: clean waves go on by themselves, and so do claims that nothing checks."""
    repository: str | None = None
    """The git folder of the repository that its folder is in, which all worktrees share; empty where it is in none, and
    None where nobody looked. Where its tasks work is decided by this, not by what git says of the folder later."""


class PlanChanged(BaseEvent, frozen=True, kw_only=True, tag="plan.changed"):
    """Its file was edited, and a person took the edit over."""

    digest: str


class PlanSteered(BaseEvent, frozen=True, kw_only=True, tag="plan.steered"):
    """A person decided something about it; whoever runs it does it."""

    deed: Deed
    task: str = ""
    agent: str = ""
    """For `replace`."""


class TaskBegan(BaseEvent, frozen=True, kw_only=True, tag="task.began"):
    """A session is about to be started for it; from now on no other one is."""

    task: str
    attempt: int
    session: str
    name: str = ""
    workdir: str = ""
    branch: str = ""
    base: str = ""
    """The commit that its worktree began from."""
    agent: str = ""
    """Who does it: a profile, or `AGENT@HOST`; empty in logs from before this was noted."""
    mode: str = ""
    sandbox: str = ""
    argv: tuple[str, ...] = ()
    """What was started for it; empty where it continues in another task's terminal, or nothing was started."""
    state: str = ""
    """What told the worktree as it was then from every other state of it; empty where nobody could tell."""


class TaskClaimed(BaseEvent, frozen=True, kw_only=True, tag="task.claimed"):
    """It counts as done on somebody's word, not yet by a check."""

    task: str
    attempt: int
    by: Literal["said", "turn", "exit"]
    text: str = ""
    changed: int | None = None
    """How many files differ from where it began; None where nobody can tell."""


class TaskChecking(BaseEvent, frozen=True, kw_only=True, tag="task.checking"):
    """Its check is about to begin: what is known of its process, so that it can be ended by whoever comes after us."""

    task: str
    attempt: int
    pid: int = 0
    """0 where it runs on another machine, in which the one who comes after us finds it by its session."""
    pid_started: float | None = None
    """As `process_identity.started_at` has it."""
    pid_boot: str = ""
    mark: str = ""
    """What all that it starts carries in its environment."""
    machine: str = ""


class TaskChecked(BaseEvent, frozen=True, kw_only=True, tag="task.checked"):
    """Its check ran."""

    task: str
    attempt: int
    ok: bool
    exit_code: int | None = None
    why: str = ""
    """Where it did not end by itself: its time limit, a program that is missing."""
    output: str = ""
    """The end of what it printed."""
    took_s: float = 0.0


class TaskDone(BaseEvent, frozen=True, kw_only=True, tag="task.done"):
    """It is done: by its check, or because somebody took it for done."""

    task: str
    attempt: int
    why: str = ""


class TaskFailed(BaseEvent, frozen=True, kw_only=True, tag="task.failed"):
    """This attempt came to nothing."""

    task: str
    attempt: int
    why: str
    conflicts: tuple[str, ...] = ()
    """The files in which the branches that it was to begin from conflict; a person resolves that."""


class PlanEnded(BaseEvent, frozen=True, kw_only=True, tag="plan.ended"):
    """Nothing of it goes on."""

    outcome: Literal["done", "claimed", "failed", "aborted"]
    """`claimed`: all is done, some of it on an agent's word alone."""
    why: str = ""


PlanFact: TypeAlias = (
    PlanBegan
    | PlanChanged
    | PlanSteered
    | TaskBegan
    | TaskClaimed
    | TaskChecking
    | TaskChecked
    | TaskDone
    | TaskFailed
    | PlanEnded
    | UnknownEvent
)

_decoder: msgspec.json.Decoder[PlanFact] = msgspec.json.Decoder(PlanFact)


def decode(line: bytes) -> PlanFact:
    """The fact on *line*; a line that this version cannot read comes as `UnknownEvent`. Never raises."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UnknownEvent(at=0.0, raw=line.decode("utf-8", "surrogateescape"))
