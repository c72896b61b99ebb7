"""One session at one moment: `Session`, the state reduced from its events (`reducers.apply.apply` adds one)."""

from typing import Final, Literal

import msgspec

from kasmon.model.agent_program import launched_program
from kasmon.model.commands import (
    ActingAgent,
    ContextPart,
    ConversationUsage,
    Launch,
    Mode,
    Receipt,
    ReceiptId,
    ReceiptState,
    SessionWorktree,
    TerminalLogIn,
)
from kasmon.model.events import AgentSwitch
from kasmon.model.evidence import STOPPED_BY, Signal
from kasmon.model.limits.window import LimitWindow
from kasmon.model.permission import ClosedRequest, Request, RequestId, RequestKind, SessionId
from kasmon.model.sandbox.state import SandboxState
from kasmon.model.session_state import ALIVE, ATTENTION, CRASHED, FINISHED, RESTING, SessionState
from kasmon.model.work_progress import WorkProgress

AWAITED: Final = frozenset({ReceiptState.QUEUED, ReceiptState.TYPED, ReceiptState.SUBMITTED, ReceiptState.STARTED})
"""States of a prompt whose turn has not ended."""


DAY_S: Final = 86400


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Token totals of a session; `context` is what fills its window now, `limit` that window's size (0: unknown)."""

    input: int = 0
    output: int = 0
    context: int = 0
    limit: int = 0
    filled_by: tuple[ContextPart, ...] = ()
    """The parts of the context, as they were last reported."""

    @property
    def used(self) -> int | None:
        """The sum of input and output; None if the agent reports neither."""
        return self.input + self.output or None


class HostProbe(msgspec.Struct, frozen=True, kw_only=True):
    """The host process of a session, as last probed."""

    pid: int | None
    alive: bool


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One session at one moment: the state reduced from its events, and the last probe of its host."""

    id: SessionId
    name: str = ""
    agent: str = ""
    mode: Mode = Mode.TMUX
    backend: str = ""
    program: str = ""
    """The name of the program that it was started with; empty for a login shell."""
    parent: SessionId | None = None
    """The session whose agent started it, or beside whose window its own was opened."""
    actor: ActingAgent | None = None
    """The agent that started it; None for a person or a plan."""
    tools: tuple[str, ...] = ()
    """What its agent may use of `kasmon mcp --tools`."""
    log_in_of: SessionId | None = None
    """The session whose agent offered its program as a log-in; None for any other program."""
    workdir: str = ""
    worktree: SessionWorktree | None = None
    """The worktree that kasmon created for it; None if it created none."""
    machine: str = ""
    via: str = ""
    """The registered machine whose session it is: its log here is a copy, and its host runs there. Empty for a session
    of this kasmon."""
    fallback: str | None = None
    bypassing: bool = False
    adopted: str = ""
    """The user's own tmux pane that it runs in; empty for sessions that kasmon started."""
    task: int | None = None
    wave: int | None = None
    peers: int | None = None
    plan: str | None = None
    tags: tuple[str, ...] = ()
    """Its tags, sorted."""
    account: str = ""
    """Its account's name in the config, or its config directory; empty for its program's own log-in."""
    sandbox: str | None = None
    sandbox_state: SandboxState | None = msgspec.field(default=None, name="housing")
    """Its sandbox; None if it has none, or none is known yet."""
    created_at: float = 0.0

    state: SessionState = SessionState.STARTING
    since: float = 0.0
    """Since when it is in this state, in seconds since the epoch."""
    source: str = ""
    """The source of the state: `protocol`, `program`, `output`, `launch`, `exit`, `host`, `fleet`, `link`."""
    unsure_why: str | None = None
    asking: RequestKind | None = None
    limited_until: float | None = None
    limit_windows: tuple[LimitWindow, ...] = ()
    """The latest report of each limit of its account."""
    recheck_at: float | None = None
    """In a terminal: when the state may change without a new event, in seconds since the epoch."""
    stuck: bool = False
    stuck_why: str = ""
    progress: WorkProgress = WorkProgress()
    """The progress of its work, by which the host judges whether it is stuck."""
    waits: str = ""
    """What the agent reported that it deliberately waits for, until its next turn."""
    done: str | None = None
    """The agent's remark on its finished task; empty without one. None: it did not report the task as done."""
    finish_proposed: str = ""
    """What another agent wrote when it proposed to the person to finish this session, until its next turn."""
    finish_proposed_by: str = ""
    """The name of that agent's session when it last proposed; empty if unknown."""
    finish_proposed_at: float = 0.0
    """When that was, in seconds since the epoch; 0: never."""
    in_turn: bool = False
    """Whether a turn is running; agents with a protocol only."""
    turn_ended: Literal["", "done", "interrupted", "limit", "error"] = ""
    """How its last turn ended; empty while one runs."""
    turn_error: str = ""
    finished_at: float = 0.0
    """When its last uninterrupted turn ended, in seconds since the epoch; 0 before that."""
    viewed_at: float = 0.0
    """When a person last opened it or marked it as viewed, in seconds since the epoch; 0: never."""
    worked: bool = False
    """Whether it worked since it was last idle; agents in a terminal only."""

    generation: int = 0
    """How often its agent was started; 0: never."""
    pid: int | None = None
    pid_started: float | None = None
    pid_boot: str = ""
    resume_id: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    end_why: str = ""
    stopped: bool = False
    """A person stopped it, so its end is no crash."""
    handed_over: bool = False
    """It ended because its host handed it over to one of another kasmon version, which resumes it."""
    freed_bytes: int | None = None
    """It is hibernated, or is being ended for that: the memory of its processes before. None: neither."""
    timed_out: bool = False
    """It ended because its sandbox expired; this is no crash either."""

    requests: tuple[Request, ...] = msgspec.field(default=(), name="asks")
    """Open requests, oldest first."""
    closed: tuple[ClosedRequest, ...] = ()
    """The latest requests that were answered or withdrawn."""
    signals: tuple[Signal, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    """The receipts of prompts in progress, and of the latest others; oldest first."""
    last_line: str = ""
    tokens: Tokens | None = None
    cost_usd: float | None = None
    usage_day: int = 0
    """The day of its latest usage report, in days since the epoch (UTC)."""
    used_before_day: ConversationUsage = ConversationUsage()
    """What it had used before that day."""
    model: str = ""
    """Its model, as the agent names it; empty if it did not report one."""
    models: tuple[str, ...] = ()
    permission_mode: str = ""
    permission_modes: tuple[str, ...] = ()
    switches: tuple[AgentSwitch, ...] = ()
    """The agent's options that are on or off."""
    log_in: TerminalLogIn | None = None
    """The log-in in a terminal that its agent offers, if it requires one."""
    abilities: tuple[str, ...] = ()
    """What its agent supports, by the names of `backends.base.Abilities`."""
    proof: str = ""
    """Evidence that the conversation is the same as before."""
    last_words: str = ""
    """The last lines that its agent wrote to stderr before it ended."""
    turns: int = 0
    requests_counted: int = 0
    receipts_counted: int = 0
    peer_messages: int = 0
    """How many messages its agent wrote to peers on other machines."""
    forgotten: bool = False
    host: HostProbe | None = None
    """Set by a caller that probed it; None otherwise."""

    @property
    def label(self) -> str:
        """Its name for people, not cleaned: with its machine if that is another, and its id if it has no name."""
        return f"{self.via}:{self.name or self.id}" if self.via else self.name or str(self.id)

    def locate(self, path: str) -> str:
        """Return *path* of its machine for people: with its machine before it if that is another."""
        return f"{self.via}:{path}" if self.via else path

    @property
    def has_folder_here(self) -> bool:
        """Whether its folder is on this machine: neither its kasmon nor its agent is on another one."""
        return not self.via and "@" not in self.agent

    @property
    def is_unreachable(self) -> bool:
        """Whether its machine is unreachable, since `since`; nothing else is known of it then."""
        return self.state is SessionState.UNSURE and self.source == "link"

    @property
    def config_folder(self) -> str:
        """The folder whose `.kasmon.toml` applies to it."""
        return self.worktree.source if self.worktree else self.workdir

    @property
    def has_screen(self) -> bool:
        """Whether it has a terminal, or its agent has a screen of its own on this machine."""
        return self.mode is Mode.TMUX or ("attaches" in self.abilities and not self.via)

    @property
    def deletes_conversation(self) -> bool:
        """Whether its agent said that it can delete the conversation, which is stored outside of any sandbox."""
        return "deletes" in self.abilities and bool(self.resume_id) and not self.sandbox

    @property
    def phase(self) -> str | None:
        """The phase of its sandbox; None if it has none."""
        return None if self.sandbox_state is None else self.sandbox_state.phase.value

    @property
    def expires_at(self) -> float | None:
        """When its sandbox is paused or ends if it stays unused; None if it has none, or it never expires."""
        return None if self.sandbox_state is None else self.sandbox_state.expires_at

    @property
    def exists(self) -> bool:
        """Whether the agent is believed to run."""
        return self.state in ALIVE and self.generation > 0

    @property
    def is_orphaned(self) -> bool:
        """Whether its agent runs without its host, which alone could reach it: it can be ended and restarted."""
        has_host = self.host is None or self.host.alive
        return self.mode is Mode.SDK and self.state is SessionState.UNSURE and not has_host and not self.via

    @property
    def is_stopped(self) -> bool:
        """Whether a stop signal (Ctrl-Z) stopped its agent in its terminal: it can be continued."""
        return self.state is SessionState.UNSURE and self.unsure_why in STOPPED_BY.values()

    @property
    def crashed(self) -> bool:
        """Whether its end may need a person's attention: without exit code 0, and not stopped by kasmon."""
        badly = self.signal is not None or self.exit_code not in (0, None)
        unexplained = self.exit_code is None and bool(self.end_why)
        is_wanted = self.stopped or self.timed_out or self.handed_over
        return self.state is SessionState.ENDED and not is_wanted and (badly or unexplained)

    @property
    def has_failed_to_start(self) -> bool:
        """Whether its creation failed: it ended before its agent, or its sandbox, ran."""
        return self.crashed and not self.generation and self.exit_code is None and self.signal is None

    @property
    def is_unviewed(self) -> bool:
        """Whether its last turn ended, no person has viewed it yet, and nothing happened since but its agent's end.

        A crash, or a stop by a person, is shown as that.
        """
        is_over = self.state is SessionState.ENDED and not (self.stopped or self.crashed)
        is_at_rest = self.state in RESTING or is_over
        return self.finished_at > self.viewed_at and is_at_rest and self.mode is not Mode.INTERPRETER

    @property
    def has_host_request(self) -> bool:
        """Whether its host has an open request, such as for a refused host, that was not set aside.

        Its agent does not wait for the answer, so its state is another one.
        """
        return self.state in ALIVE and any(ask.by_host and not ask.later for ask in self.requests)

    @property
    def attention(self) -> int:
        """Its rank in the list: the smaller, the sooner it needs a person."""
        if self.has_host_request:
            return ATTENTION[SessionState.ASKING]
        if self.is_unviewed:
            return FINISHED
        if self.stuck and self.state is SessionState.WORKING:
            return ATTENTION[SessionState.UNSURE]
        return CRASHED if self.crashed else ATTENTION[self.state]

    @property
    def queue(self) -> int:
        return sum(receipt.state is ReceiptState.QUEUED for receipt in self.receipts)

    @property
    def awaits_turn(self) -> bool:
        """Whether a prompt was sent whose turn has not begun, or not ended: it is idle only for this moment."""
        return any(receipt.state in AWAITED for receipt in self.receipts)

    def next_request(self) -> RequestId:
        """Return the id of the next request; every one that was ever opened counts."""
        return RequestId(f"{self.id}-{self.requests_counted + 1}")

    def next_receipt(self) -> ReceiptId:
        return ReceiptId(f"{self.id}-r{self.receipts_counted + 1}")

    def open_request(self, request: RequestId) -> Request | None:
        return next((ask for ask in self.requests if ask.id == request), None)


def created(launch: Launch, at: float, machine: str = "", via: str = "") -> Session:
    """Return the session that *launch* describes, before its first event; *via* as `Session.via`."""
    return Session(
        id=launch.session,
        name=launch.name,
        agent=launch.agent,
        mode=launch.mode,
        backend=launch.backend,
        program=launched_program(launch),
        parent=launch.parent or _starter(launch),
        actor=launch.actor,
        tools=launch.tools,
        log_in_of=launch.log_in_of,
        workdir=launch.workdir,
        worktree=launch.worktree,
        machine=machine,
        via=via,
        fallback=launch.fallback,
        bypassing=launch.bypassing,
        adopted="" if launch.adopted is None else launch.adopted.target or launch.adopted.pane,
        task=launch.task,
        wave=launch.wave,
        peers=launch.peers,
        plan=launch.plan,
        tags=launch.tags,
        account=launch.account,
        sandbox=launch.sandbox,
        created_at=at,
        since=at,
        source="fleet",
    )


def _starter(launch: Launch) -> SessionId | None:
    """Return the session of this machine whose agent started it; None if there is none."""
    return None if launch.actor is None or launch.actor.machine else launch.actor.session or None


def number(name: str, otherwise: int) -> int:
    """Return the number at the end of a request's or receipt's id; *otherwise* if there is none."""
    digits = name.rpartition("-")[2].removeprefix("r")
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else otherwise


def last_line(text: str) -> str:
    """Return the text for a list: the last line of *text* that is not blank, 200 characters at most."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")[:200]
