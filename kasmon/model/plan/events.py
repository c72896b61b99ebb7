"""Events of a running plan: the lines of its own log, `plans/<id>/events.jsonl`.

The log is separate from the fleet's, so that listing sessions does not read the 10,000 tasks of a plan.
"""

from typing import Literal, TypeAlias

import msgspec

from kasmon.model.events import BaseEvent, UnknownEvent

PlanAction: TypeAlias = Literal["pause", "resume", "advance", "accept", "retry", "skip", "replace", "abort", "stop"]
"""What a person decides: `stop` ends what runs until a `resume`, `accept` takes a claimed task as done, `replace`
retries it with another agent."""


class PlanBegan(BaseEvent, frozen=True, kw_only=True, tag="plan.began"):
    """A person agreed to exactly this content."""

    plan: str
    """Its id: the name of its folder."""
    name: str
    file: str
    folder: str
    digest: str
    """The SHA-256 of its text."""
    headless: bool = False
    """No person can be asked: clean waves advance by themselves, and claims without a check are accepted."""
    repository: str | None = None
    """The git folder of the repository that its folder is in, which all worktrees share; empty outside of a repository,
    None if it was not determined. It decides where the tasks work; git is not asked about the folder again."""
    on: str = ""
    """The machine of tasks that name none, as `plan run --on` has it; replaces the plan's."""


class PlanChanged(BaseEvent, frozen=True, kw_only=True, tag="plan.changed"):
    """Its file was edited, and a person applied the edit."""

    digest: str


class PlanDecisionMade(BaseEvent, frozen=True, kw_only=True, tag="plan.steered"):
    """A person made a decision about it, which its runner executes."""

    decision: PlanAction = msgspec.field(name="deed")
    task: str = ""
    agent: str = ""
    """For `replace`."""


class TaskPlaced(BaseEvent, frozen=True, kw_only=True, tag="task.placed"):
    """The machine of its next attempt was chosen; it starts there only.

    Before the attempt begins, another one may be chosen: the machine was drained meanwhile, for example.
    """

    task: str
    attempt: int
    machine: str
    """A registered one, or `LOCAL` for this one. Empty if none could be chosen."""
    why: str = ""
    """Why this one; or why none, for each machine."""
    number: int = 0
    """The task's, which an edit of the plan may change; 0 in older logs."""


class PlacementEnded(BaseEvent, frozen=True, kw_only=True, tag="placement.ended"):
    """The machine of an attempt that must not run there any more has ended it, and reports what that did.

    Nothing of that is used: the attempt was placed again, retried elsewhere, or skipped.
    """

    task: str
    attempt: int
    epoch: int
    machine: str
    session: str = ""
    state: str = ""
    """`none`: it never had a session; `ended`: that had ended by itself; `stopped`: it was stopped now."""
    commits: int = 0
    changed: int | None = None
    uncommitted: str = ""
    branch: str = ""
    """Where its work is on that machine; empty if there is none."""


class TaskBegan(BaseEvent, frozen=True, kw_only=True, tag="task.began"):
    """Its session is about to be started; no other one may be started for this attempt."""

    task: str
    attempt: int
    session: str
    name: str = ""
    workdir: str = ""
    branch: str = ""
    base: str = ""
    """The commit that its worktree starts from."""
    agent: str = ""
    """The agent that runs it: a profile, or `AGENT@HOST`; empty in older logs."""
    mode: str = ""
    sandbox: str = ""
    argv: tuple[str, ...] = ()
    """The started command; empty if it continues in another task's terminal, or nothing was started."""
    state: str = ""
    """A digest of the worktree's state at that time; empty if unknown."""
    account: str = ""
    """The account of the config that it uses; empty for the agent's own log-in, and in older logs."""
    account_why: str = ""
    """Why this one was chosen."""
    since: float | None = None
    """Earlier prompts of its session are of other tasks, by the clock of the session's machine; None: by `at`."""


class TaskClaimed(BaseEvent, frozen=True, kw_only=True, tag="task.claimed"):
    """It was reported as done, but no check has verified that yet."""

    task: str
    attempt: int
    by: Literal["said", "turn", "exit"]
    text: str = ""
    changed: int | None = None
    """The number of files that differ from its start; None if unknown."""


class TaskChecking(BaseEvent, frozen=True, kw_only=True, tag="task.checking"):
    """Its check is about to run; identifies its process, so that a later runner can end it."""

    task: str
    attempt: int
    pid: int = 0
    """0 if it runs on another machine, where a later runner finds it by its session."""
    pid_started: float | None = None
    """As from `process_identity.started_at`."""
    pid_boot: str = ""
    mark: str = ""
    """The value that all its processes carry in their environment."""
    machine: str = ""


class TaskCheckEnded(BaseEvent, frozen=True, kw_only=True, tag="task.check-ended"):
    """Its check on a registered machine was ended without a result, because the plan was stopped."""

    task: str
    attempt: int


class TaskChecked(BaseEvent, frozen=True, kw_only=True, tag="task.checked"):
    task: str
    attempt: int
    ok: bool
    exit_code: int | None = None
    why: str = ""
    """Why it did not end by itself: its time limit, a missing program."""
    output: str = ""
    took_s: float = 0.0


class TaskDone(BaseEvent, frozen=True, kw_only=True, tag="task.done"):
    """It is done: by its check, or accepted by a person or the plan's settings."""

    task: str
    attempt: int
    why: str = ""


class TaskFailed(BaseEvent, frozen=True, kw_only=True, tag="task.failed"):
    task: str
    attempt: int
    why: str
    conflicts: tuple[str, ...] = ()
    """The conflicting files of the branches that it should start from; a person has to resolve them."""
    is_lost: bool = False
    """Its machine is unreachable, where it may still run. It is tried again without using up a retry."""


class PeerMessageDelivered(BaseEvent, frozen=True, kw_only=True, tag="peer.delivered"):
    """A message to a peer on another machine was delivered, or never will be."""

    session: str
    """The sender's."""
    number: int
    """The message's, among all that this session wrote, counted from 1."""
    to: str
    """As `PeerMessageWritten` has it."""
    state: str = ""
    """Of its receipt; empty if it was not sent."""
    why: str = ""


class PlanEnded(BaseEvent, frozen=True, kw_only=True, tag="plan.ended"):
    outcome: Literal["done", "claimed", "failed", "aborted"]
    """`claimed`: all is done, some of it only reported by an agent."""
    why: str = ""


PlanFact: TypeAlias = (
    PlanBegan
    | PlanChanged
    | PlanDecisionMade
    | TaskPlaced
    | PlacementEnded
    | TaskBegan
    | TaskClaimed
    | TaskChecking
    | TaskCheckEnded
    | TaskChecked
    | TaskDone
    | TaskFailed
    | PeerMessageDelivered
    | PlanEnded
    | UnknownEvent
)

_decoder: msgspec.json.Decoder[PlanFact] = msgspec.json.Decoder(PlanFact)


def decode(line: bytes) -> PlanFact:
    """Return the event on *line*; a line that this version cannot read becomes `UnknownEvent`. Never raises."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UnknownEvent(at=0.0, raw=line.decode("utf-8", "surrogateescape"))
