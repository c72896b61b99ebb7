"""Events: the union of all event types, and how they are written down.

Fields are only added, with defaults; a changed meaning is a new kind. A line that a reader does not know becomes
`UnknownEvent`, which keeps the line. One encoded event is at most `EVENT_BYTES` long; longer output goes to a blob
that the event names.
"""

import re
from typing import Any, Literal, TypeAlias

import msgspec

from kasmon.model.commands import Launch, Mode, Receipt, ReceiptId, Sender
from kasmon.model.permission import Decision, Request, RequestId, RequestKind, SessionId
from kasmon.model.sandbox.policy import LoggedTier, SandboxPhase, SandboxRuntime

SCHEMA = 1
EVENT_BYTES = 256 * 1024
"""The longest line of a log, in bytes."""


class BaseEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What happened to a session: a line of its log."""

    at: float
    """When it happened, in seconds since the epoch (UTC)."""


class LogOpened(BaseEvent, frozen=True, kw_only=True, tag="log.opened"):
    """The first line of every log."""

    session: SessionId
    schema: int = SCHEMA
    kasmon: str = ""


class SessionCreated(BaseEvent, frozen=True, kw_only=True, tag="session.created"):
    """In the fleet's log: somebody wanted this session; its folder exists from now on."""

    launch: Launch
    machine: str = ""


class SessionRenamed(BaseEvent, frozen=True, kw_only=True, tag="session.renamed"):
    """A person gave it another name; in the fleet's log."""

    session: SessionId
    name: str


class SessionViewed(BaseEvent, frozen=True, kw_only=True, tag="session.viewed"):
    """A person opened it, or marked it as viewed; in the fleet's log."""

    session: SessionId


class SessionForgotten(BaseEvent, frozen=True, kw_only=True, tag="session.forgotten"):
    """It is on no list any more; in the fleet's log. Its own log stays."""

    session: SessionId


class SessionStarted(BaseEvent, frozen=True, kw_only=True, tag="session.started"):
    """The agent runs. A restart and a move write it again, with the next generation."""

    generation: int = 1
    backend: str = ""
    mode: Mode = Mode.SDK
    workdir: str = ""
    pid: int | None = None
    """The agent's process id, where it has a process of its own."""
    pid_started: float | None = None
    """When that process started, by the system's clock, to tell it from a later one of the same id."""
    pid_boot: str = ""
    """The machine's boot in which that was, by `kasmon.boot_id`; empty where the clock does not begin anew with it."""
    host_pid: int | None = None
    resume_id: str | None = None
    """The agent's own name of the conversation."""
    model: str = ""
    proof: str = ""
    """In a later generation: how it is known that this is the conversation of before; empty where it is a new one."""
    abilities: tuple[str, ...] = ()
    """What it can do, by the names of `backends.base.Abilities`; filled in by the host."""


class TurnStarted(BaseEvent, frozen=True, kw_only=True, tag="turn.started"):
    """A turn begins, or the one that runs has taken in another prompt."""

    prompt: str = ""
    by: Sender | Literal["agent"] = "user"
    """Who began it; `agent`: it goes on by itself."""


class MessageWritten(BaseEvent, frozen=True, kw_only=True, tag="message.said"):
    """One finished message of the agent, as Markdown."""

    text: str
    blob: str = ""
    """The SHA-256 of the whole text when `text` is only its beginning."""
    within: str = ""
    """The call of the sub-agent that said it; empty for the agent itself."""


class ThoughtWritten(BaseEvent, frozen=True, kw_only=True, tag="thought.said"):
    """What the agent thought, where it shows that."""

    text: str
    within: str = ""


class PartialTextWritten(BaseEvent, frozen=True, kw_only=True, tag="part.written"):
    """The next piece of a text that the agent is still writing; the whole block's own event supersedes its parts.

    Which parts that is, and which stay because no whole block came, tells `model.partial_text`.
    """

    text: str
    """What follows on the part before, secrets hidden."""
    thinking: bool = False


class ToolStarted(BaseEvent, frozen=True, kw_only=True, tag="tool.started"):
    """The agent uses a tool."""

    call: str
    """The agent's id of this call."""
    tool: str
    title: str = ""
    """One line: the command, the file, the pattern."""
    input: str = ""
    """The tool's input as JSON."""
    within: str = ""
    """The call of the sub-agent that makes it; empty for the agent itself."""


class ToolFinished(BaseEvent, frozen=True, kw_only=True, tag="tool.finished"):
    """The tool is through; *call* is that of its `ToolStarted`."""

    call: str
    ok: bool = True
    output: str = ""
    diff: str = ""
    """A unified diff, where the tool changed a file."""
    blob: str = ""
    """The SHA-256 of the whole output when `output` is only its beginning."""
    exit_code: int | None = None
    """What the program or the code ended with, where it has such a thing."""


class PlanItem(msgspec.Struct, frozen=True, kw_only=True):
    """A line of an agent's own to-do list."""

    text: str
    state: Literal["open", "doing", "done"] = "open"


class PlanUpdated(BaseEvent, frozen=True, kw_only=True, tag="plan.updated"):
    """The agent's own to-do list, whole; it replaces the one before."""

    items: tuple[PlanItem, ...] = ()


class RequestOpened(BaseEvent, frozen=True, kw_only=True, tag="request.opened"):
    """The agent waits for a person."""

    request: Request


class RequestAnswered(BaseEvent, frozen=True, kw_only=True, tag="request.answered"):
    """A person, or a rule, answered it."""

    request: RequestId
    decision: Decision
    by: str = "user"
    """`user`, or `policy` where a rule answered."""
    who: str = ""
    """At which screen the person sat; empty where nobody knows."""
    rule: str = ""
    """The id of the rule that this answer made, or that answered."""
    reason: str = ""
    labels: tuple[str, ...] = ()
    """What was chosen; a person's own words come last."""
    input: dict[str, Any] | None = None
    """The edited input that the agent was told to go on with, secrets hidden; None where it was not edited."""
    diff: str = ""
    """What was edited: the asked input against `input`, as a unified diff of both as text."""


class RequestSetAside(BaseEvent, frozen=True, kw_only=True, tag="request.set-aside"):
    """A person set it aside: it waits on, and no longer rises by itself."""

    request: RequestId


class RequestWithdrawn(BaseEvent, frozen=True, kw_only=True, tag="request.withdrawn"):
    """The agent no longer waits for it, or waits for something else."""

    request: RequestId
    why: str = ""


class UsageReported(BaseEvent, frozen=True, kw_only=True, tag="usage.reported"):
    """Totals of the session so far, never additions."""

    input: int = 0
    output: int = 0
    context: int = 0
    """Tokens in the context window now."""
    limit: int = 0
    """The context window's size; 0 where unknown."""
    cost_usd: float | None = None


class NoticeRaised(BaseEvent, frozen=True, kw_only=True, tag="notice.raised"):
    """Something that people should know; nothing waits for them."""

    text: str
    level: Literal["info", "warning", "error"] = "info"


class SettingsChanged(BaseEvent, frozen=True, kw_only=True, tag="settings.changed"):
    """How the agent runs from now on; an empty field says nothing new."""

    model: str = ""
    models: tuple[str, ...] = ()
    """The models it offers."""
    permission_mode: str = ""
    permission_modes: tuple[str, ...] = ()
    """The modes it offers."""
    resume_id: str = ""
    """The agent's own name of the conversation, where it has another from now on."""


class UnknownMessageSeen(BaseEvent, frozen=True, kw_only=True, tag="foreign.seen"):
    """Something that the agent said and its backend does not know: kept, and nothing else done."""

    what: str
    """Its type, as the protocol names it."""
    raw: str = ""
    """The beginning of it, as it came."""


class LimitReached(BaseEvent, frozen=True, kw_only=True, tag="limit.reached"):
    """The agent waits for its provider; `until` is None where nobody said for how long."""

    until: float | None = None
    text: str = ""


class LimitLifted(BaseEvent, frozen=True, kw_only=True, tag="limit.lifted"):
    """The limit that was reached is over."""


class TurnEnded(BaseEvent, frozen=True, kw_only=True, tag="turn.ended"):
    """The agent rests, until the next prompt."""

    reason: Literal["done", "interrupted", "limit", "error"] = "done"
    error: str = ""
    dropped: tuple[str, ...] = ()
    """How the prompts begin that were said into it, and that the agent let go of without having taken them in."""


class SessionEnded(BaseEvent, frozen=True, kw_only=True, tag="session.ended"):
    """The agent does not run any more. None twice: it ended, and nobody could say how."""

    exit_code: int | None = None
    signal: str | None = None
    """A name such as `SIGKILL`."""
    why: str = ""
    last_words: str = ""
    """The last lines that the agent's process wrote to its stderr."""
    never_began: bool = False
    """It was to be started, and was not: what waited for it waits on."""


class SignalSeen(BaseEvent, frozen=True, kw_only=True, tag="signal.seen"):
    """One source's word on an agent without a protocol; `evidence.judge` weighs them."""

    source: Literal["process", "program", "registry", "hook", "title", "screen", "fallback", "output", "launch"]
    value: str
    """`idle working done blocked error clear` from a program; `printing quiet` from output; `ready` from launch; `agent
    shell` from the processes; from the others `starting idle working asking limited` (several with `|` between), or
    `unclear`, or `unreadable` from a screen that could not be looked at."""
    asking: RequestKind | None = None
    text: str = ""
    until: float | None = None
    """For `limited`: when the limit ends, in seconds since the epoch, where the source knows it."""
    rule: str = ""
    """What of the source said it: a screen's rule, a hook's event."""
    prompt: str = ""
    """The `prompt_digest` of the prompt that the agent took, where the source names it."""
    failed: bool = False
    """The turn ended in an error, which `text` names."""

    @property
    def tells_failure(self) -> bool:
        """Whether it says that a turn ended in an error."""
        return self.failed or (self.source == "program" and self.value == "error")


class ConnectionLost(BaseEvent, frozen=True, kw_only=True, tag="line.lost"):
    """The host lost what carries the session: its tmux server, or the line to that, or to another machine."""

    what: Literal["tmux server", "line to tmux", "remote line"]
    why: str = ""


class ConnectionRestored(BaseEvent, frozen=True, kw_only=True, tag="line.found"):
    """It is back; what it carries ran on."""

    pid: int | None = None
    """Of the process that is this side of it now, as in `SessionStarted`; None: the same as before."""
    pid_started: float | None = None
    pid_boot: str = ""


class StuckSeen(BaseEvent, frozen=True, kw_only=True, tag="stuck.seen"):
    """Its host judged that nothing comes of the agent's work; or, with no reason, that something does again."""

    why: str = ""


class ContextReported(BaseEvent, frozen=True, kw_only=True, tag="context.said"):
    """The agent said of itself how it stands, by `kasmon ctx`; None says nothing new."""

    waiting: str | None = None
    """What it waits for on purpose, until its next turn; empty: it waits no more."""
    done: str | None = None
    """Its task is done, with a word on it; empty where it gave none."""


class ReceiptMoved(BaseEvent, frozen=True, kw_only=True, tag="receipt.moved"):
    """A prompt came one step further, or no further."""

    receipt: Receipt
    prompt: str = ""
    """The whole prompt, in the first of a receipt's facts and where a person changed it, so that a queue survives
    its host."""
    by: Sender = "user"
    """Whose prompt it is; beside `prompt`."""


class QueueOrdered(BaseEvent, frozen=True, kw_only=True, tag="queue.ordered"):
    """A person put the prompts that wait into another order."""

    receipts: tuple[ReceiptId, ...]
    """All that waited, the next one first."""


class SandboxMoved(BaseEvent, frozen=True, kw_only=True, tag="sandbox.moved"):
    """The session's sandbox goes into another phase: the intent first, then what came of it."""

    phase: SandboxPhase
    step: Literal["intended", "confirmed"] = "confirmed"
    tier: LoggedTier = "jail"
    runtime: SandboxRuntime | None = None
    """Where it lives from now on; None: where it lived before."""
    generation: int = 1
    """Which sandbox of this session it is, the first being 1."""
    turn: int = 0
    """How many turns the session had had then."""
    standby_at: float | None = None
    """When it goes to sleep if nobody uses it, in seconds since the epoch; None: it does not."""
    pause_at: float | None = None
    """When it is paused, its memory on disk, if nobody uses it; None: it is not, or ends before."""
    expires_at: float | None = None
    """When it ends if nobody uses it, or whatever happens; the earlier of the two."""
    used_at: float | None = None
    """When it was last used, where no turn tells, in seconds since the epoch; None: when it was known to be before."""
    held: bool = False
    """With the phases of sleep: its processes hold their memory, or are to."""
    snapshot: str = ""
    """The file that its memory sleeps in."""
    counters: dict[str, int] = {}
    """How many runs each interpreter had had, where somebody asked it."""
    lost: str = ""
    """What was lost by this, as one sentence."""
    why: str = ""


class ConfinementSeen(BaseEvent, frozen=True, kw_only=True, tag="sandbox.confinement"):
    """A probe inside was compared with what the sandbox's policy wants."""

    tier: LoggedTier = "jail"
    ok: bool = False
    mismatches: tuple[str, ...] = ()
    """What is not as it should be, each a few words."""
    is_proven: bool = True
    """False: it is there, and nobody can look how: whoever keeps it answers for that."""
    runtime: SandboxRuntime | None = None
    """Of an agent inside: where its sandbox lives."""
    pid: int | None = None
    """Of an agent inside: its own process, by this machine's numbering."""
    pid_started: float | None = None
    """When that started, as in `SessionStarted`."""


class SandboxMeasured(BaseEvent, frozen=True, kw_only=True, tag="sandbox.measured"):
    """What the sandbox uses, and may use at most; 0 allowed where nothing holds it."""

    memory_bytes: int = 0
    memory_allowed: int = 0
    disk_bytes: int = 0
    disk_allowed: int = 0
    processes: int = 0
    processes_allowed: int = 0


class Checkpointed(BaseEvent, frozen=True, kw_only=True, tag="sandbox.checkpointed"):
    """What can be kept of the sandbox is kept: its files, and of its interpreters what can be told by name."""

    checkpoint: str
    """Its id within the session."""
    turn: int = 0
    """Before or after which turn of the session it was."""
    when: Literal["before", "after", "asked"] = "after"
    commit: str = ""
    """The SHA of the files in kasmon's own history of them."""
    size_bytes: int = 0
    kept: tuple[str, ...] = ()
    """What was kept of the interpreters: `python x`."""
    lost: tuple[str, ...] = ()
    """What could not be, and what it is: `python g (generator)`."""
    what: str = ""
    """One line: what the turn ran."""


TerminalEntry: TypeAlias = TurnStarted | MessageWritten | ThoughtWritten | ToolStarted | ToolFinished | NoticeRaised
"""What an agent's own transcript has, as it would be told by a protocol."""


class EntryImported(BaseEvent, frozen=True, kw_only=True, tag="entry.imported"):
    """One entry of the agent's own transcript, of a time in which it ran in a terminal, where no protocol told it.

    It is written when the session moves back to a protocol. It changes nothing of what the session is: it is past.
    """

    entry: TerminalEntry
    """With the time at which it happened; `at` is when it was imported."""
    program: str = ""
    """Whose transcript it is from: `claude`, `codex`."""


class UnknownEvent(BaseEvent, frozen=True, kw_only=True, tag="unknown"):
    """A line that this version cannot read; kept as it is."""

    raw: str = ""


Event: TypeAlias = (
    LogOpened
    | SessionCreated
    | SessionRenamed
    | SessionForgotten
    | SessionViewed
    | SessionStarted
    | TurnStarted
    | MessageWritten
    | ThoughtWritten
    | PartialTextWritten
    | ToolStarted
    | ToolFinished
    | PlanUpdated
    | RequestOpened
    | RequestAnswered
    | RequestSetAside
    | RequestWithdrawn
    | UsageReported
    | NoticeRaised
    | SettingsChanged
    | UnknownMessageSeen
    | LimitReached
    | LimitLifted
    | TurnEnded
    | SessionEnded
    | SignalSeen
    | ConnectionLost
    | ConnectionRestored
    | StuckSeen
    | ContextReported
    | ReceiptMoved
    | QueueOrdered
    | SandboxMoved
    | ConfinementSeen
    | SandboxMeasured
    | Checkpointed
    | EntryImported
    | UnknownEvent
)

_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_encoder = msgspec.json.Encoder()
_LONE = re.compile("[\ud800-\udfff]")


def encode(event: BaseEvent) -> bytes:
    """*event* as one line of JSON, without its newline. An `UnknownEvent` comes out as it came in."""
    if isinstance(event, UnknownEvent) and event.raw:
        return event.raw.encode("utf-8", "surrogateescape")
    try:
        return _encoder.encode(event)
    except UnicodeEncodeError:
        return _encoder.encode(_whole(msgspec.to_builtins(event)))


def decode(line: bytes) -> Event:
    """The event on *line*; a line this version cannot read comes as `UnknownEvent`. Never raises."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UnknownEvent(at=_time_of(line), raw=line.decode("utf-8", "surrogateescape"))


def _whole(value: object) -> object:
    """*value* with U+FFFD in the place of each half of a surrogate pair, which no file can hold."""
    if isinstance(value, str):
        return _LONE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_whole(key): _whole(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(member) for member in value]
    return value


def _time_of(line: bytes) -> float:
    try:
        at = msgspec.json.decode(line)["at"]
        return float(at)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError, ValueError):
        return 0.0
