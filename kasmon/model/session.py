"""One session at one moment: `Session`, what its facts add up to (`fold.fact.apply` adds one more)."""

from typing import Literal

import msgspec

from kasmon.model.command import Launch, Mode, Receipt, ReceiptId, ReceiptState
from kasmon.model.evidence import Signal
from kasmon.model.housing import Housing
from kasmon.model.permission import AskKind, Closed, Request, RequestId, SessionId
from kasmon.model.progress import Progress
from kasmon.model.state import ALIVE, ATTENTION, SessionState


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
    housing: Housing | None = None
    """Its sandbox; None where it has none, or nobody knows of it yet."""
    created_at: float = 0.0

    state: SessionState = SessionState.STARTING
    since: float = 0.0
    """Since when it is in this state, in seconds since the epoch."""
    source: str = ""
    """On whose word: `protocol`, `program`, `output`, `launch`, `exit`, `host`, `fleet`."""
    unsure_why: str | None = None
    asking: AskKind | None = None
    limited_until: float | None = None
    recheck_at: float | None = None
    """In a terminal: when the state may be another one without any new fact, in seconds since the epoch."""
    stuck: bool = False
    stuck_why: str = ""
    progress: Progress = Progress()
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
    timed_out: bool = False
    """It ended because its sandbox's time was over; nor is that a crash."""

    asks: tuple[Request, ...] = ()
    """Open requests, oldest first."""
    closed: tuple[Closed, ...] = ()
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
    def crashed(self) -> bool:
        """Whether it ended in a way that a person may want to look at: not by exit code 0, not by our own stop."""
        badly = self.signal is not None or self.exit_code not in (0, None)
        unexplained = self.exit_code is None and bool(self.end_why)
        is_wanted = self.stopped or self.timed_out
        return self.state is SessionState.ENDED and not is_wanted and (badly or unexplained)

    @property
    def attention(self) -> int:
        """Its place in the list: the smaller, the sooner it needs a person."""
        if self.stuck and self.state is SessionState.WORKING:
            return ATTENTION[SessionState.UNSURE]
        return 2 if self.crashed else ATTENTION[self.state]

    @property
    def queue(self) -> int:
        """How many prompts wait."""
        return sum(receipt.state is ReceiptState.QUEUED for receipt in self.receipts)

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
