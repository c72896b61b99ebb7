"""One session at one moment: `Session`, what its facts add up to (`fold.fact.apply` adds one more)."""

from typing import Final, Literal

import msgspec

from kasmon.model.agent_program import launched_program
from kasmon.model.commands import Launch, Mode, Receipt, ReceiptId, ReceiptState
from kasmon.model.evidence import STOPPED_BY, Signal
from kasmon.model.permission import ClosedRequest, Request, RequestId, RequestKind, SessionId
from kasmon.model.sandbox.state import SandboxState
from kasmon.model.session_state import ALIVE, ATTENTION, CRASHED, FINISHED, RESTING, SessionState
from kasmon.model.work_progress import WorkProgress

AWAITED: Final = frozenset({ReceiptState.QUEUED, ReceiptState.TYPED, ReceiptState.SUBMITTED, ReceiptState.STARTED})
"""How far a prompt came whose turn is still to end."""


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of a session; `context` is what fills its window now, `limit` that window's size (0: unknown)."""

    input: int = 0
    output: int = 0
    context: int = 0
    limit: int = 0

    @property
    def used(self) -> int | None:
        """What came in and went out; None where the agent tells neither."""
        return self.input + self.output or None


class HostSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The host process of a session, as last looked at."""

    pid: int | None
    alive: bool


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One session at one moment: what its facts add up to, and who was seen alive."""

    id: SessionId
    name: str = ""
    agent: str = ""
    mode: Mode = Mode.TMUX
    backend: str = ""
    program: str = ""
    """The name of the program that it was started with; empty where it has none of its own: a login shell."""
    parent: SessionId | None = None
    workdir: str = ""
    machine: str = ""
    fallback: str | None = None
    bypassing: bool = False
    adopted: str = ""
    """The pane of the user's own tmux that it runs in; empty for what kasmon started."""
    task: int | None = None
    wave: int | None = None
    peers: int | None = None
    plan: str | None = None
    sandbox: str | None = None
    housing: SandboxState | None = None
    """Its sandbox; None where it has none, or nobody knows of it yet."""
    created_at: float = 0.0

    state: SessionState = SessionState.STARTING
    since: float = 0.0
    """Since when it is in this state, in seconds since the epoch."""
    source: str = ""
    """On whose word: `protocol`, `program`, `output`, `launch`, `exit`, `host`, `fleet`."""
    unsure_why: str | None = None
    asking: RequestKind | None = None
    limited_until: float | None = None
    recheck_at: float | None = None
    """In a terminal: when the state may be another one without any new fact, in seconds since the epoch."""
    stuck: bool = False
    stuck_why: str = ""
    progress: WorkProgress = WorkProgress()
    """What came of its work, by which it is judged whether it is stuck."""
    waits: str = ""
    """What the agent said that it waits for on purpose; until its next turn."""
    done: str | None = None
    """What the agent said of its task, which is done; empty where it gave no word. None: it did not say so."""
    in_turn: bool = False
    """Whether a turn runs; agents with a protocol only."""
    turn_ended: Literal["", "done", "interrupted", "limit", "error"] = ""
    """How its last turn ended; empty while one runs."""
    turn_error: str = ""
    """And what went wrong in it."""
    finished_at: float = 0.0
    """When its last turn ended that nobody interrupted, in seconds since the epoch; 0 before that."""
    viewed_at: float = 0.0
    """When a person last opened it or marked it as viewed, in seconds since the epoch; 0: never."""
    worked: bool = False
    """Whether it worked since it was last idle; agents in a terminal only."""

    generation: int = 0
    pid: int | None = None
    pid_started: float | None = None
    pid_boot: str = ""
    resume_id: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    end_why: str = ""
    stopped: bool = False
    """It ended because a person asked for it, so its ending is no crash."""
    handed_over: bool = False
    """It ended because its host made room for one of another version of kasmon, which resumes it."""
    timed_out: bool = False
    """It ended because its sandbox's time was over; nor is that a crash."""

    asks: tuple[Request, ...] = ()
    """Open requests, oldest first."""
    closed: tuple[ClosedRequest, ...] = ()
    """The last requests that were answered or withdrawn."""
    signals: tuple[Signal, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    """The receipts of the prompts on their way, and of the last others; oldest first."""
    last_line: str = ""
    tokens: Tokens | None = None
    cost_usd: float | None = None
    model: str = ""
    """What it runs on, as the agent names it; empty where it did not say."""
    models: tuple[str, ...] = ()
    permission_mode: str = ""
    permission_modes: tuple[str, ...] = ()
    abilities: tuple[str, ...] = ()
    """What its agent can do, by the names of `backends.base.Abilities`."""
    proof: str = ""
    """How it is known that the conversation is the one of before."""
    last_words: str = ""
    """The last lines that its agent wrote to stderr before it ended."""
    turns: int = 0
    requests_counted: int = 0
    receipts_counted: int = 0
    forgotten: bool = False
    host: HostSeen | None = None
    """Filled in by whoever looked; None where nobody did."""

    @property
    def phase(self) -> str | None:
        """The phase of its sandbox; None where it has none."""
        return None if self.housing is None else self.housing.phase.value

    @property
    def expires_at(self) -> float | None:
        """When its sandbox is paused or ends if nobody uses it; None where it has none, or it is kept for ever."""
        return None if self.housing is None else self.housing.expires_at

    @property
    def exists(self) -> bool:
        """Whether the agent is believed to run."""
        return self.state in ALIVE and self.generation > 0

    @property
    def is_orphaned(self) -> bool:
        """Whether its agent runs without the host that alone could talk to it: it can be ended, and started again."""
        has_host = self.host is None or self.host.alive
        return self.mode is Mode.SDK and self.state is SessionState.UNSURE and not has_host

    @property
    def is_stopped(self) -> bool:
        """Whether a stop signal (Ctrl-Z) stopped its agent in its terminal: it can be continued."""
        return self.state is SessionState.UNSURE and self.unsure_why in STOPPED_BY.values()

    @property
    def crashed(self) -> bool:
        """Whether it ended in a way that a person may want to look at: not by exit code 0, not by our own stop."""
        badly = self.signal is not None or self.exit_code not in (0, None)
        unexplained = self.exit_code is None and bool(self.end_why)
        is_wanted = self.stopped or self.timed_out or self.handed_over
        return self.state is SessionState.ENDED and not is_wanted and (badly or unexplained)

    @property
    def is_unviewed(self) -> bool:
        """Whether a turn of it ended that no person has looked at yet, and it rests since."""
        return self.finished_at > self.viewed_at and self.state in RESTING and self.mode is not Mode.INTERPRETER

    @property
    def has_host_request(self) -> bool:
        """Whether its host asks for something, such as a refused host, that nobody answered or set aside.

        Its agent does not wait for the answer, so its state is another one.
        """
        return self.state in ALIVE and any(ask.by_host and not ask.later for ask in self.asks)

    @property
    def attention(self) -> int:
        """Its place in the list: the smaller, the sooner it needs a person."""
        if self.has_host_request:
            return ATTENTION[SessionState.ASKING]
        if self.is_unviewed:
            return FINISHED
        if self.stuck and self.state is SessionState.WORKING:
            return ATTENTION[SessionState.UNSURE]
        return CRASHED if self.crashed else ATTENTION[self.state]

    @property
    def queue(self) -> int:
        """How many prompts wait."""
        return sum(receipt.state is ReceiptState.QUEUED for receipt in self.receipts)

    @property
    def awaits_turn(self) -> bool:
        """Whether a prompt was sent whose turn has not begun, or not ended: it is idle only for this moment."""
        return any(receipt.state in AWAITED for receipt in self.receipts)

    def next_request(self) -> RequestId:
        """The id of the request that is opened next; every one that was ever opened counts."""
        return RequestId(f"{self.id}-{self.requests_counted + 1}")

    def next_receipt(self) -> ReceiptId:
        """The id of the receipt that is given next."""
        return ReceiptId(f"{self.id}-r{self.receipts_counted + 1}")

    def open_request(self, request: RequestId) -> Request | None:
        """The request with this id; None where it is not open."""
        return next((ask for ask in self.asks if ask.id == request), None)


def created(launch: Launch, at: float, machine: str = "") -> Session:
    """The session that *launch* describes, before anything happened to it."""
    return Session(
        id=launch.session,
        name=launch.name,
        agent=launch.agent,
        mode=launch.mode,
        backend=launch.backend,
        program=launched_program(launch),
        parent=launch.parent,
        workdir=launch.workdir,
        machine=machine,
        fallback=launch.fallback,
        bypassing=launch.bypassing,
        adopted="" if launch.adopted is None else launch.adopted.target or launch.adopted.pane,
        task=launch.task,
        wave=launch.wave,
        peers=launch.peers,
        plan=launch.plan,
        sandbox=launch.sandbox,
        created_at=at,
        since=at,
        source="fleet",
    )


def number(name: str, otherwise: int) -> int:
    """The number at the end of a request's or receipt's id; *otherwise* where there is none."""
    digits = name.rpartition("-")[2].removeprefix("r")
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else otherwise


def last_line(text: str) -> str:
    """What a list shows of *text*: the last line that is not blank, 200 characters at most."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")[:200]
