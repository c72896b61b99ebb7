"""What the facts of one session add up to: `Session`, and `apply`, which adds one more fact.

How a state comes about:

| agent | state after a fact |
|---|---|
| any | SessionEnded -> ended; LineLost -> lost until LineFound or the next SessionStarted |
| with a protocol | by `NEXT`; asking while a request is open, limited until the limit is lifted |
| in a terminal | by `evidence.judge` over the last word of each source |
| interpreters in a sandbox | as with a protocol, and by the phase of their sandbox (`housing.state_of`) |

Facts are folded, never refused: a fact that fits no row changes nothing.
"""

from collections.abc import Collection
from typing import Final, Literal

import msgspec

from kasmon.model.command import Launch, Mode, Receipt, ReceiptId, ReceiptState
from kasmon.model.event import (
    Checkpointed,
    ConfinementSeen,
    ContextSaid,
    Event,
    Fact,
    ForeignSeen,
    LimitLifted,
    LimitReached,
    LineFound,
    LineLost,
    MessageSaid,
    NoticeRaised,
    Opened,
    PlanUpdated,
    QueueOrdered,
    ReceiptMoved,
    RequestAnswered,
    RequestOpened,
    RequestSetAside,
    RequestWithdrawn,
    SandboxMeasured,
    SandboxMoved,
    SessionCreated,
    SessionEnded,
    SessionForgotten,
    SessionRenamed,
    SessionStarted,
    SettingsChanged,
    SignalSeen,
    StuckSeen,
    ThoughtSaid,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Unknown,
    UsageReported,
)
from kasmon.model.evidence import Signal, heard, judge
from kasmon.model.housing import Housing, housed, state_of
from kasmon.model.permission import AskKind, Closed, Request, RequestId, SessionId
from kasmon.model.sandbox import Phase
from kasmon.model.state import ALIVE, ATTENTION, SessionState
from kasmon.model.stuck import Progress, progressed

KEPT_RECEIPTS: Final = 20
KEPT_CLOSED: Final = 50

S = SessionState
NEXT: dict[SessionState, dict[type[Fact], SessionState]] = {
    S.STARTING: {SessionStarted: S.IDLE, TurnStarted: S.WORKING},
    S.IDLE: {SessionStarted: S.IDLE, TurnStarted: S.WORKING, LimitReached: S.LIMITED},
    S.WORKING: {SessionStarted: S.IDLE, TurnEnded: S.IDLE, LimitReached: S.LIMITED},
    S.ASKING: {SessionStarted: S.IDLE, TurnStarted: S.WORKING, TurnEnded: S.IDLE, LimitReached: S.LIMITED},
    S.LIMITED: {SessionStarted: S.IDLE, LimitLifted: S.WORKING, TurnStarted: S.WORKING, TurnEnded: S.IDLE},
    S.PAUSED: {SessionStarted: S.IDLE, TurnStarted: S.WORKING},
    S.STANDBY: {SessionStarted: S.IDLE, TurnStarted: S.WORKING},
    S.UNSURE: {SessionStarted: S.IDLE, TurnStarted: S.WORKING, TurnEnded: S.IDLE},
    S.LOST: {SessionStarted: S.IDLE, LineFound: S.UNSURE},
    S.ENDED: {SessionStarted: S.IDLE},
}
"""Agents with a protocol: state -> fact -> state. SessionEnded ends every state, LineLost loses every one but ENDED; an
open request makes STARTING, IDLE, WORKING and UNSURE ASKING."""

REST: Final = frozenset({S.STARTING, S.IDLE, S.STANDBY, S.PAUSED})
"""States out of which work is another turn, in a terminal too."""
ASKABLE: Final = frozenset({S.STARTING, S.IDLE, S.WORKING, S.ASKING, S.UNSURE})
WAITING: Final = (ReceiptState.QUEUED, ReceiptState.TYPED)
ON_THE_WAY: Final = (*WAITING, ReceiptState.SUBMITTED, ReceiptState.STARTED)
LINE_WAS_LOST: Final = "the line to it was lost for a while"


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
    phase: str | None = None
    expires_at: float | None = None
    housing: Housing | None = None
    """Its sandbox; None where it has none, or nobody knows of it yet."""
    created_at: float = 0.0

    state: SessionState = S.STARTING
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
    def exists(self) -> bool:
        """Whether the agent is believed to run."""
        return self.state in ALIVE and self.generation > 0

    @property
    def crashed(self) -> bool:
        """Whether it ended in a way that a person may want to look at: not by exit code 0, not by our own stop."""
        badly = self.signal is not None or self.exit_code not in (0, None)
        unexplained = self.exit_code is None and bool(self.end_why)
        return self.state is S.ENDED and not self.stopped and (badly or unexplained)

    @property
    def attention(self) -> int:
        """Its place in the list: the smaller, the sooner it needs a person."""
        if self.stuck and self.state is S.WORKING:
            return ATTENTION[S.UNSURE]
        return 2 if self.crashed else ATTENTION[self.state]

    @property
    def queue(self) -> int:
        """How many prompts wait."""
        return sum(receipt.state is ReceiptState.QUEUED for receipt in self.receipts)

    def next_request(self) -> RequestId:
        return RequestId(f"{self.id}-{self.requests_counted + 1}")

    def next_receipt(self) -> ReceiptId:
        return ReceiptId(f"{self.id}-r{self.receipts_counted + 1}")

    def open_request(self, request: RequestId) -> Request | None:
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


def apply(session: Session, event: Event) -> Session:
    """*session* after *event*. Pure; a fact that fits no row changes nothing."""
    noted = _noted(session, event)
    if (progress := progressed(session.progress, event)) is not session.progress:
        noted = msgspec.structs.replace(noted, progress=progress)
    if (housing := housed(session.housing, event)) is not session.housing:
        noted = _rehoused(noted, housing)
        if isinstance(event, ConfinementSeen) and event.pid is not None:
            noted = msgspec.structs.replace(noted, pid=event.pid, pid_started=event.pid_started)
        if isinstance(event, SandboxMoved) and noted.mode is Mode.INTERPRETER:
            noted = _outlived(session, noted, event)
    return _settled(session, _restated(session, noted, event), event)


def _settled(before: Session, after: Session, event: Event) -> Session:
    """*after*, with what only holds while it works, or until its next turn."""
    begins = before.state in REST and after.state is S.WORKING
    if after.waits and (begins or isinstance(event, TurnStarted | SessionStarted | SessionEnded)):
        after = msgspec.structs.replace(after, waits="")
    if after.done is not None and isinstance(event, SessionStarted):
        after = msgspec.structs.replace(after, done=None)
    if after.stuck and after.state is not S.WORKING:
        after = msgspec.structs.replace(after, stuck=False, stuck_why="")
    return after


def _noted(session: Session, event: Event) -> Session:
    """*session* with what *event* says beside the state."""
    put = msgspec.structs.replace
    match event:
        case SessionRenamed():
            return put(session, name=event.name)
        case SessionForgotten():
            return put(session, forgotten=True)
        case SessionStarted():
            return _started(session, event)
        case TurnStarted():
            return put(session, turns=session.turns + 1, in_turn=True, turn_ended="", turn_error="")
        case MessageSaid():
            return put(session, last_line=_last_line(event.text) or session.last_line)
        case ToolStarted():
            return put(session, last_line=f"{event.tool} {event.title}".strip())
        case NoticeRaised():
            return put(session, last_line=_last_line(event.text))
        case RequestOpened():
            return _asked(session, event.request)
        case RequestAnswered():
            closed = Closed(
                id=event.request,
                decision=event.decision,
                by=event.by,
                at=event.at,
                who=event.who,
                rule=event.rule,
            )
            return _closed(session, closed)
        case RequestWithdrawn():
            return _closed(session, Closed(id=event.request, decision=None, by=event.why, at=event.at))
        case RequestSetAside():
            return put(
                session, asks=tuple(put(ask, later=True) if ask.id == event.request else ask for ask in session.asks)
            )
        case UsageReported():
            tokens = Tokens(input=event.input, output=event.output, context=event.context, limit=event.limit)
            return put(session, tokens=tokens, cost_usd=session.cost_usd if event.cost_usd is None else event.cost_usd)
        case SettingsChanged():
            return put(
                session,
                model=event.model or session.model,
                models=event.models or session.models,
                permission_mode=event.permission_mode or session.permission_mode,
                permission_modes=event.permission_modes or session.permission_modes,
                resume_id=event.resume_id or session.resume_id,
            )
        case LimitReached():
            return put(session, limited_until=event.until, last_line=_last_line(event.text) or session.last_line)
        case TurnEnded():
            line = _last_line(event.error) or session.last_line
            over = _all_withdrawn(session, "the turn ended", event.at)
            return put(over, last_line=line, in_turn=False, turn_ended=event.reason, turn_error=event.error)
        case SessionEnded():
            return _ended(session, event)
        case SignalSeen():
            signal = Signal(
                source=event.source,
                value=event.value,
                at=event.at,
                asking=event.asking,
                text=event.text,
                until=event.until,
                rule=event.rule,
            )
            return put(
                session, signals=heard(session.signals, signal), last_line=_last_line(event.text) or session.last_line
            )
        case ReceiptMoved():
            return _receipted(session, event.receipt)
        case QueueOrdered():
            return put(session, receipts=_ordered(session.receipts, event.receipts))
        case StuckSeen():
            return put(session, stuck=bool(event.why), stuck_why=event.why)
        case ContextSaid():
            waits = session.waits if event.waiting is None else event.waiting
            is_stuck = session.stuck and not waits
            return put(
                session,
                waits=waits,
                done=session.done if event.done is None else event.done,
                stuck=is_stuck,
                stuck_why=session.stuck_why if is_stuck else "",
            )
        case LineLost():
            is_news = event.what == "remote line" and session.state is not S.ENDED
            return put(session, end_why=event.why) if is_news else session
        case LineFound():
            return _carried_on(session, event) if event.pid is not None and session.state is S.LOST else session
        case (
            Opened()
            | SessionCreated()
            | ThoughtSaid()
            | ToolFinished()
            | PlanUpdated()
            | ForeignSeen()
            | LimitLifted()
            | SandboxMoved()
            | ConfinementSeen()
            | SandboxMeasured()
            | Checkpointed()
            | Unknown()
        ):
            return session


def _restated(before: Session, noted: Session, event: Event) -> Session:
    """*noted* with the state that follows from *event*."""
    state, source, why, asking = before.state, before.source, before.unsure_why, noted.asking
    if isinstance(event, SessionEnded):
        state, source, why, asking = S.ENDED, "exit", None, None
    elif isinstance(event, LineLost):
        if before.state is S.ENDED:
            return noted
        state, source, why, asking = S.LOST, "host", None, None
    elif isinstance(event, SandboxMoved) and noted.mode is not Mode.INTERPRETER:
        return _dozed(before, noted, event)
    elif isinstance(event, SignalSeen) and before.state is S.STANDBY:
        return noted  # it stands still, whatever its screen says
    elif isinstance(event, SessionStarted | SignalSeen | LineFound) and noted.mode is Mode.TMUX:
        if before.state in _UNMOVED.get(type(event), ()) and before.source != "process":
            return noted
        return judged(noted, event.at, since=event.at if isinstance(event, SessionStarted) else None)
    elif noted.mode is not Mode.TMUX:
        state = _phased(before, noted, event) or _next(before, noted, event)
        source = "protocol" if state is not before.state or isinstance(event, SessionStarted) else before.source
        why = (before.unsure_why or LINE_WAS_LOST) if state is S.UNSURE else None
        asking = noted.asks[0].kind if state is S.ASKING else None
    changed = state is not before.state or isinstance(event, SessionStarted | SessionEnded)
    return msgspec.structs.replace(
        noted,
        state=state,
        source=source,
        unsure_why=why,
        asking=asking,
        since=event.at if changed else before.since,
        in_turn=noted.in_turn and state is not S.ENDED,
        limited_until=noted.limited_until if state is S.LIMITED else None,
    )


def _dozed(before: Session, noted: Session, event: SandboxMoved) -> Session:
    """*noted*, an agent whose sandbox was put to sleep, or goes on."""
    if before.state in (S.ENDED, S.LOST) or event.step == "intended" or noted.housing is None:
        return noted
    if noted.housing.is_asleep:
        since = before.since if before.state is S.STANDBY else event.at
        return msgspec.structs.replace(noted, state=S.STANDBY, source="sandbox", since=since, recheck_at=None)
    if before.state is not S.STANDBY:
        return noted
    if noted.mode is Mode.TMUX:
        return judged(noted, event.at)
    return msgspec.structs.replace(noted, state=S.IDLE, source="protocol", since=event.at)


def judged(session: Session, now: float, *, since: float | None = None) -> Session:
    """*session*, in a terminal, with the state that its signals add up to at *now*.

    Args:
        since: since when it is in that state; None: as before where it is the same, else *now*.
    """
    verdict = judge(session.signals, now)
    return msgspec.structs.replace(
        session,
        state=verdict.state,
        source=verdict.source,
        unsure_why=verdict.why if verdict.state is S.UNSURE else None,
        end_why=verdict.why if verdict.state is S.ENDED else "" if session.source == "process" else session.end_why,
        asking=verdict.asking,
        limited_until=verdict.until,
        recheck_at=verdict.recheck_at,
        since=since if since is not None else session.since if verdict.state is session.state else now,
        in_turn=session.in_turn and verdict.state is not S.ENDED,
    )


_UNMOVED: Final[dict[type[Fact], frozenset[SessionState]]] = {
    SignalSeen: frozenset({S.ENDED, S.LOST}),
    LineFound: frozenset(SessionState) - {S.LOST},
}
"""What says nothing about a terminal agent in these states."""


def _next(before: Session, noted: Session, event: Event) -> SessionState:
    """The state of an agent with a protocol: by `NEXT`, by its open requests, and by whether a turn runs."""
    if isinstance(event, TurnEnded) and event.reason == "limit" and before.state is S.LIMITED:
        return S.LIMITED
    state = NEXT[before.state].get(type(event), before.state)
    if state in ASKABLE and noted.asks:
        return S.ASKING
    if state is S.ASKING or (state is S.WORKING and isinstance(event, LimitLifted)):
        return S.WORKING if noted.in_turn else S.IDLE if noted.generation else S.STARTING
    return state


def _rehoused(session: Session, housing: Housing | None) -> Session:
    """*session* in the sandbox as it is now; an interpreter session's process is its sandbox's."""
    if housing is None:
        return session
    session = msgspec.structs.replace(
        session,
        housing=housing,
        sandbox=housing.tier,
        phase=housing.phase.value,
        expires_at=housing.expires_at,
    )
    if session.mode is not Mode.INTERPRETER:
        return session
    runtime = housing.runtime
    if runtime is None or (housing.is_asleep and not housing.held):
        return msgspec.structs.replace(session, pid=None, pid_started=None, pid_boot="")
    return msgspec.structs.replace(
        session, pid=runtime.pid or None, pid_started=runtime.started or None, pid_boot=runtime.boot
    )


def _outlived(before: Session, noted: Session, event: SandboxMoved) -> Session:
    """*noted* with why its sandbox is gone, where *event* says that it is; how its session ended follows."""
    if event.phase is not Phase.EXPIRED or event.step == "intended" or before.state is S.ENDED:
        return noted
    was_made = before.housing is not None and before.housing.phase is not Phase.CREATING
    return msgspec.structs.replace(
        noted, end_why=event.why, exit_code=0 if was_made else None, stopped=event.why == "stopped"
    )


def _phased(before: Session, noted: Session, event: Event) -> SessionState | None:
    """The state that the phase of its sandbox gives an interpreter session; None where that says nothing."""
    if noted.mode is not Mode.INTERPRETER or noted.housing is None:
        return None
    if isinstance(event, SessionStarted):
        return state_of(noted.housing, in_turn=False)
    if not isinstance(event, SandboxMoved):
        return None
    if before.state is S.ENDED and event.phase is not Phase.CREATING:
        return S.ENDED
    return state_of(noted.housing, in_turn=noted.in_turn)


def _carried_on(session: Session, event: LineFound) -> Session:
    return msgspec.structs.replace(
        session, pid=event.pid, pid_started=event.pid_started, pid_boot=event.pid_boot, end_why=""
    )


def _started(session: Session, event: SessionStarted) -> Session:
    fresh = _all_withdrawn(session, "the agent was started again", event.at)
    return msgspec.structs.replace(
        fresh,
        generation=event.generation,
        backend=event.backend or session.backend,
        mode=event.mode,
        workdir=event.workdir or session.workdir,
        pid=event.pid,
        pid_started=event.pid_started,
        pid_boot=event.pid_boot,
        resume_id=event.resume_id or session.resume_id,
        model=event.model or session.model,
        abilities=event.abilities,
        proof=event.proof,
        last_words="",
        last_line="" if session.end_why and session.last_line == _last_line(session.end_why) else session.last_line,
        exit_code=None,
        signal=None,
        end_why="",
        stopped=False,
        signals=(),
        in_turn=False,
        receipts=_lost(fresh, frozenset(ON_THE_WAY) - {ReceiptState.QUEUED}, "its host was gone", event.at),
    )


def _ended(session: Session, event: SessionEnded) -> Session:
    gone = _all_withdrawn(session, "the agent ended", event.at)
    lost = frozenset(ON_THE_WAY) - ({ReceiptState.QUEUED} if event.never_began else set())
    receipts = _lost(gone, lost, "the agent ended", event.at)
    return msgspec.structs.replace(
        gone,
        exit_code=event.exit_code,
        signal=event.signal,
        end_why=event.why,
        last_words=event.last_words,
        stopped=event.why == "stopped",
        receipts=receipts,
        in_turn=False,
        last_line=_last_line(event.why) if event.why and event.why != "stopped" else gone.last_line,
    )


def _closed(session: Session, closed: Closed) -> Session:
    if session.open_request(closed.id) is None:
        return session
    asks = tuple(ask for ask in session.asks if ask.id != closed.id)
    return msgspec.structs.replace(session, asks=asks, closed=(*session.closed, closed)[-KEPT_CLOSED:])


def _all_withdrawn(session: Session, why: str, at: float) -> Session:
    for ask in session.asks:
        session = _closed(session, Closed(id=ask.id, decision=None, by=why, at=at))
    return session


def _asked(session: Session, request: Request) -> Session:
    """*session* with *request* open; one that comes after the end only counts."""
    counted = max(session.requests_counted, _number(request.id, session.requests_counted + 1))
    known = session.state is S.ENDED or session.open_request(request.id) is not None
    asks = session.asks if known else (*session.asks, request)
    return msgspec.structs.replace(session, asks=asks, requests_counted=counted)


def _ordered(receipts: tuple[Receipt, ...], order: tuple[ReceiptId, ...]) -> tuple[Receipt, ...]:
    """*receipts* with those that wait as *order* says; what it does not name comes after, as before."""
    waiting = [receipt for receipt in receipts if receipt.state is ReceiptState.QUEUED]
    places = {receipt: place for place, receipt in enumerate(order)}
    waiting.sort(key=lambda receipt: places.get(receipt.id, len(places)))
    after = iter(waiting)
    return tuple(next(after) if receipt.state is ReceiptState.QUEUED else receipt for receipt in receipts)


def _receipted(session: Session, receipt: Receipt) -> Session:
    if any(old.id == receipt.id for old in session.receipts):
        receipts = tuple(receipt if old.id == receipt.id else old for old in session.receipts)
    else:
        receipts = (*session.receipts, receipt)
    under_way = WAITING if session.mode is Mode.TMUX else ON_THE_WAY
    settled = [known.id for known in receipts if known.state not in under_way]
    dropped = set(settled[:-KEPT_RECEIPTS])
    return msgspec.structs.replace(
        session,
        receipts=tuple(known for known in receipts if known.id not in dropped),
        receipts_counted=max(session.receipts_counted, _number(receipt.id, session.receipts_counted + 1)),
    )


def _lost(session: Session, states: Collection[ReceiptState], why: str, at: float) -> tuple[Receipt, ...]:
    """The session's receipts, those in *states* lost. A terminal's prompt has arrived once Enter was written."""
    losing = set(states) & set(WAITING) if session.mode is Mode.TMUX else states
    return tuple(
        msgspec.structs.replace(receipt, state=ReceiptState.LOST, reason=why, at=at)
        if receipt.state in losing
        else receipt
        for receipt in session.receipts
    )


def _number(name: str, otherwise: int) -> int:
    """The number at the end of a request's or receipt's id."""
    digits = name.rpartition("-")[2].removeprefix("r")
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else otherwise


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")[:200]
