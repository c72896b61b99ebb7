"""Events: the union of all event types, and their encoding.

Fields are only added, with defaults; a changed meaning is a new kind. A line that a reader does not know becomes
`UnknownEvent`, which keeps the line. One encoded event is at most `EVENT_BYTES` long; longer output goes to a blob
that the event names.
"""

import re
from typing import Any, Literal, TypeAlias

import msgspec

from kasmon.model.commands import ActingAgent, ContextPart, Launch, Mode, Receipt, ReceiptId, Sender, TerminalLogIn
from kasmon.model.limits.window import LimitWindow
from kasmon.model.permission import Decision, Request, RequestId, RequestKind, SessionId
from kasmon.model.prompts.image import PromptImage
from kasmon.model.sandbox.policy import LoggedTier, SandboxPhase, SandboxRuntime

SCHEMA = 1
EVENT_BYTES = 256 * 1024
"""The longest line of a log, in bytes."""


class BaseEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """An event of a session: one line of its log."""

    at: float
    """When it happened, in seconds since the epoch (UTC)."""


class LogOpened(BaseEvent, frozen=True, kw_only=True, tag="log.opened"):
    """The first line of every log."""

    session: SessionId
    schema: int = SCHEMA
    kasmon: str = ""


class SessionCreated(BaseEvent, frozen=True, kw_only=True, tag="session.created"):
    """In the fleet's log: the session was requested; its folder exists from now on."""

    launch: Launch
    machine: str = ""
    via: str = ""
    """The registered machine whose session it is: its log here is a copy. Empty for a session of this kasmon."""


class SessionRenamed(BaseEvent, frozen=True, kw_only=True, tag="session.renamed"):
    """In the fleet's log: the user renamed it."""

    session: SessionId
    name: str


class SessionTagged(BaseEvent, frozen=True, kw_only=True, tag="session.tagged"):
    """In the fleet's log: the user tagged it, or removed tags."""

    session: SessionId
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class SessionViewed(BaseEvent, frozen=True, kw_only=True, tag="session.viewed"):
    """In the fleet's log: the user opened it, or marked it as viewed."""

    session: SessionId


class SessionForgotten(BaseEvent, frozen=True, kw_only=True, tag="session.forgotten"):
    """In the fleet's log: it was removed from all lists. Its own log stays."""

    session: SessionId


class SessionStarted(BaseEvent, frozen=True, kw_only=True, tag="session.started"):
    """The agent is running. A restart and a move write it again, with the next generation."""

    generation: int = 1
    backend: str = ""
    mode: Mode = Mode.SDK
    workdir: str = ""
    pid: int | None = None
    """The agent's process id, if it has a process of its own."""
    pid_started: float | None = None
    """The process's start time by the system's clock, to distinguish it from a later process with the same id."""
    pid_boot: str = ""
    """The machine's boot at that time, by `kasmon.boot_id`; empty where the clock does not restart with it."""
    host_pid: int | None = None
    resume_id: str | None = None
    """The agent's own id of the conversation."""
    model: str = ""
    proof: str = ""
    """In a later generation: evidence that this is the same conversation; empty for a new one."""
    abilities: tuple[str, ...] = ()
    """What it supports, by the names of `backends.base.Abilities`: what its backend does, set by the host, and what the
    agent said itself."""
    account: str | None = None
    """As `Launch.account`, set by the host; None in logs of earlier versions."""


class TurnStarted(BaseEvent, frozen=True, kw_only=True, tag="turn.started"):
    """A turn began, or the running one took in another prompt."""

    prompt: str = ""
    digest: str = ""
    """The `prompt_digest` of the prompt as it was sent, if *prompt* is another text to show for it; else empty."""
    by: Sender | Literal["agent"] = "user"
    """What started it; `agent`: the agent itself."""


class MessageWritten(BaseEvent, frozen=True, kw_only=True, tag="message.said"):
    """One complete message of the agent, as Markdown."""

    text: str
    blob: str = ""
    """The SHA-256 of the whole text when `text` is only its beginning."""
    within: str = ""
    """The call of the sub-agent that wrote it; empty for the agent itself."""


class ThoughtWritten(BaseEvent, frozen=True, kw_only=True, tag="thought.said"):
    """The agent's thinking, where it shows that."""

    text: str
    within: str = ""


class PartialTextWritten(BaseEvent, frozen=True, kw_only=True, tag="part.written"):
    """The next part of a text that the agent is still writing; the event of the whole block replaces its parts.

    `model.partial_text` computes which parts are replaced, and which stay because the whole block never arrived.
    """

    text: str
    """The text that follows the previous part, with secrets hidden."""
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
    """The call of the sub-agent that made it; empty for the agent itself."""


class ToolFinished(BaseEvent, frozen=True, kw_only=True, tag="tool.finished"):
    """The tool finished; *call* is that of its `ToolStarted`."""

    call: str
    ok: bool = True
    output: str = ""
    diff: str = ""
    """A unified diff, where the tool changed a file."""
    blob: str = ""
    """The SHA-256 of the whole output when `output` is only its beginning."""
    exit_code: int | None = None
    """The exit code of the program or code, if it has one."""


class SubtaskChanged(BaseEvent, frozen=True, kw_only=True, tag="subtask.changed"):
    """A sub-agent or a background command of the agent changed: all of it as known now."""

    id: str
    """The agent's own id of it."""
    call: str = ""
    """The call that began it; empty if unknown."""
    title: str = ""
    job: Literal["agent", "command"] = "command"
    state: Literal["running", "done", "failed", "stopped"] = "running"
    in_background: bool = False
    """The agent does not wait for it."""
    text: str = ""
    """What it does now; at the end, its result in a sentence."""
    output: str = ""
    """At the end: the last part of its output, where that is known."""
    tokens: int = 0
    """Used so far, if known."""
    tools: int = 0
    """How many tools it has used, if known."""
    duration_s: float = 0.0


class PlanItem(msgspec.Struct, frozen=True, kw_only=True):
    """A line of an agent's own to-do list."""

    text: str
    state: Literal["open", "doing", "done"] = "open"


class PlanUpdated(BaseEvent, frozen=True, kw_only=True, tag="plan.updated"):
    """The agent's own to-do list as a whole; it replaces the previous one."""

    items: tuple[PlanItem, ...] = ()


class RequestOpened(BaseEvent, frozen=True, kw_only=True, tag="request.opened"):
    """The agent waits for an answer."""

    request: Request


class RequestAnswered(BaseEvent, frozen=True, kw_only=True, tag="request.answered"):
    request: RequestId
    decision: Decision
    by: str = "user"
    """`user`, or `policy` for a rule."""
    who: str = ""
    """The terminal at which the person answered; empty if unknown."""
    rule: str = ""
    """The id of the rule that this answer created, or that answered."""
    reason: str = ""
    labels: tuple[str, ...] = ()
    """The chosen labels; the user's custom text comes last."""
    input: dict[str, Any] | None = None
    """The edited input that the agent got, with secrets hidden; None if it was not edited."""
    diff: str = ""
    """The edit: the original input against `input`, as a unified diff of both as text."""


class RequestSetAside(BaseEvent, frozen=True, kw_only=True, tag="request.set-aside"):
    """A person set it aside: it stays open, but no longer pops up."""

    request: RequestId


class RequestWithdrawn(BaseEvent, frozen=True, kw_only=True, tag="request.withdrawn"):
    """The agent no longer waits for it, or waits for something else."""

    request: RequestId
    why: str = ""


class UsageReported(BaseEvent, frozen=True, kw_only=True, tag="usage.reported"):
    """Totals of the session so far, never increments."""

    input: int = 0
    output: int = 0
    context: int = 0
    """Tokens in the context window now."""
    limit: int = 0
    """The context window's size; 0 where unknown."""
    cost_usd: float | None = None
    filled_by: tuple[ContextPart, ...] = ()
    """What fills the context window, the largest part first; empty where unknown, or unchanged."""


class NoticeRaised(BaseEvent, frozen=True, kw_only=True, tag="notice.raised"):
    """Information for people; nothing waits for an answer."""

    text: str
    level: Literal["info", "warning", "error"] = "info"


class AgentSwitch(msgspec.Struct, frozen=True, kw_only=True):
    """An option of the agent that is on or off."""

    id: str
    """As the agent names it in its protocol."""
    title: str = ""
    text: str = ""
    """What it does, in one line."""
    is_on: bool = False


class SettingsChanged(BaseEvent, frozen=True, kw_only=True, tag="settings.changed"):
    """The agent's settings from now on; an empty field is unchanged."""

    model: str = ""
    models: tuple[str, ...] = ()
    permission_mode: str = ""
    permission_modes: tuple[str, ...] = ()
    switches: tuple[AgentSwitch, ...] | None = None
    """Its options that are on or off, all of them; None: unchanged."""
    resume_id: str = ""
    """The agent's own id of the conversation, if that changed."""


class SlashCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command of the agent, which a prompt that begins with `/` and its name runs."""

    command: str
    """Without the slash; sent as it is, so it has no white space."""
    text: str = ""
    """What it does, in one line."""
    hint: str = ""
    """Its arguments, as the agent describes them."""


class CommandsAnnounced(BaseEvent, frozen=True, kw_only=True, tag="commands.announced"):
    """The agent's slash commands from now on, all of them."""

    slash_commands: tuple[SlashCommand, ...] = ()


class UnknownMessageSeen(BaseEvent, frozen=True, kw_only=True, tag="foreign.seen"):
    """A message of the agent that its backend does not know; it is logged and otherwise ignored."""

    what: str
    """Its type, as the protocol names it."""
    raw: str = ""
    """Its beginning, unchanged."""


class LogInRequired(BaseEvent, frozen=True, kw_only=True, tag="login.required"):
    """The agent requires a log-in, and offers one in a terminal."""

    log_in: TerminalLogIn


class LimitReached(BaseEvent, frozen=True, kw_only=True, tag="limit.reached"):
    """The agent waits for its provider; `until` is None if the duration is unknown."""

    until: float | None = None
    text: str = ""


class LimitLifted(BaseEvent, frozen=True, kw_only=True, tag="limit.lifted"):
    """The limit ended."""


class LimitsReported(BaseEvent, frozen=True, kw_only=True, tag="limits.reported"):
    """How far the limits of the agent's account are used; one that is not named is unchanged."""

    windows: tuple[LimitWindow, ...] = ()


class TurnEnded(BaseEvent, frozen=True, kw_only=True, tag="turn.ended"):
    """The agent is idle until the next prompt."""

    reason: Literal["done", "interrupted", "limit", "error"] = "done"
    error: str = ""
    dropped: tuple[str, ...] = ()
    """The beginnings of prompts that were sent during the turn and that the agent dropped."""


class SessionEnded(BaseEvent, frozen=True, kw_only=True, tag="session.ended"):
    """The agent is no longer running. No exit code and no signal: how it ended is unknown."""

    exit_code: int | None = None
    signal: str | None = None
    """A name such as `SIGKILL`."""
    why: str = ""
    last_words: str = ""
    """The last lines that the agent's process wrote to its stderr."""
    never_began: bool = False
    """The start was requested and failed; its queued prompts stay queued."""


class HibernationBegun(BaseEvent, frozen=True, kw_only=True, tag="session.hibernating"):
    """The agent is being ended to hibernate the session: its next end, however that comes, is no other end."""

    freed_bytes: int = 0
    """The memory of its processes before that."""


class SignalSeen(BaseEvent, frozen=True, kw_only=True, tag="signal.seen"):
    """The report of one source on an agent without a protocol; `evidence.judge` combines them."""

    source: Literal[
        "process", "program", "registry", "hook", "title", "screen", "fallback", "output", "launch", "transcript"
    ]
    value: str
    """`idle working done blocked error clear` from a program; `printing quiet` from output; `ready` from launch; `agent
    shell` from the processes; `prompt` from a transcript; from the others `starting idle working asking limited`
    (several with `|` between), or `unclear`, or `unreadable` for a screen that could not be captured."""
    asking: RequestKind | None = None
    text: str = ""
    until: float | None = None
    """For `limited`: when the limit ends, in seconds since the epoch, where the source knows it."""
    rule: str = ""
    """The part of the source it is from: a screen's rule, a hook's event."""
    prompt: str = ""
    """The `prompt_digest` of the prompt that the agent took, where the source names it."""
    failed: bool = False
    """The turn ended in an error, which `text` names."""

    @property
    def tells_failure(self) -> bool:
        """Whether it reports that a turn ended in an error."""
        return self.failed or (self.source == "program" and self.value == "error")


class ConnectionLost(BaseEvent, frozen=True, kw_only=True, tag="line.lost"):
    """The host lost what carries the session: its tmux server, the connection to that, or to another machine."""

    what: Literal["tmux server", "line to tmux", "remote line"]
    why: str = ""


class ConnectionRestored(BaseEvent, frozen=True, kw_only=True, tag="line.found"):
    """The connection is back; the agent kept running."""

    pid: int | None = None
    """The process that is now the local side of it, as in `SessionStarted`; None: the same as before."""
    pid_started: float | None = None
    pid_boot: str = ""


class StuckSeen(BaseEvent, frozen=True, kw_only=True, tag="stuck.seen"):
    """The host judged that the agent makes no progress; with an empty reason, that it does again."""

    why: str = ""


class ContextReported(BaseEvent, frozen=True, kw_only=True, tag="context.said"):
    """The agent reported its own status by `kasmon ctx`; None is unchanged."""

    waiting: str | None = None
    """What it deliberately waits for, until its next turn; empty: it no longer waits."""
    done: str | None = None
    """Its task is done, with a remark; empty if it gave none."""


class FinishProposed(BaseEvent, frozen=True, kw_only=True, tag="finish.proposed"):
    """An agent proposed to the person to finish this session: nothing happened to its branch."""

    text: str
    """What the session did, for people."""
    actor: ActingAgent
    name: str = ""
    """The name of the actor's session, for people; empty in logs of earlier versions."""


class AgentCommandReceived(BaseEvent, frozen=True, kw_only=True, tag="agent.commanded"):
    """An agent's program stopped this session or interrupted its turn: the host received that before it acts."""

    command: Literal["stop", "interrupt"]
    actor: ActingAgent
    name: str = ""
    """The name of the actor's session, for people; empty if it is not certain which that is."""


class PeerMessageWritten(BaseEvent, frozen=True, kw_only=True, tag="peer.wrote"):
    """The agent wrote to a peer or its starter on another machine, or from there to the notes.

    The plan's runner delivers it, or the link of the machine whose agent started this one.
    """

    to: str
    """The session of the peer; `notes`: the notes of the plan."""
    name: str
    """The peer's, for people."""
    text: str


class ReceiptChanged(BaseEvent, frozen=True, kw_only=True, tag="receipt.moved"):
    """The delivery status of a prompt changed."""

    receipt: Receipt
    prompt: str = ""
    """The whole prompt, in the first event of a receipt and after a user's edit, so that a queue survives its host."""
    by: Sender = "user"
    """The origin of the prompt; set together with `prompt`."""
    login: str = ""
    """As `Prompt.login`; set together with `prompt`."""
    over_budget: bool = False
    """Likewise."""
    images: tuple[PromptImage, ...] = ()
    """Likewise; their content is in the session's folder."""


class QueueOrdered(BaseEvent, frozen=True, kw_only=True, tag="queue.ordered"):
    """The user reordered the queued prompts."""

    receipts: tuple[ReceiptId, ...]
    """All queued prompts, the next one first."""


class ReviewComment(msgspec.Struct, frozen=True, kw_only=True):
    """A person's comment on lines of a file that the session changed."""

    id: str
    """Unique within the session."""
    file: str
    """Relative to the worktree's top."""
    line: int
    """The number of its first line, from 1."""
    last_line: int
    side: Literal["new", "old"] = "new"
    """Whether the numbers are of the changed file, or of the file before: the lines were removed."""
    lines: tuple[str, ...] = ()
    """The lines as they were, cleaned."""
    occurrences: int = 0
    """How often the lines were in the changed file."""
    hunk: str = ""
    """The header of the diff's hunk."""
    text: str


class CommentWritten(BaseEvent, frozen=True, kw_only=True, tag="comment.written"):
    """A person commented on lines, or edited the comment with this id."""

    comment: ReviewComment


class CommentRemoved(BaseEvent, frozen=True, kw_only=True, tag="comment.removed"):
    """A person deleted a comment."""

    comment: str
    """Its id."""


class CommentsSent(BaseEvent, frozen=True, kw_only=True, tag="comment.sent"):
    """Comments were sent to the agent as one prompt."""

    comments: tuple[str, ...]
    receipt: str = ""


class CommentMarked(BaseEvent, frozen=True, kw_only=True, tag="comment.marked"):
    """A person marked a comment as resolved, or reopened it."""

    comment: str
    """Its id."""
    is_resolved: bool


class SandboxPhaseChanged(BaseEvent, frozen=True, kw_only=True, tag="sandbox.moved"):
    """The session's sandbox enters another phase: the intent is logged first, then the outcome."""

    phase: SandboxPhase
    step: Literal["intended", "confirmed"] = "confirmed"
    tier: LoggedTier = "jail"
    runtime: SandboxRuntime | None = None
    """Where it runs from now on; None: unchanged."""
    generation: int = 1
    """Which sandbox of this session it is, the first being 1."""
    turn: int = 0
    """The number of the session's turns at that time."""
    standby_at: float | None = None
    """When it enters standby if it stays unused, in seconds since the epoch; None: never."""
    pause_at: float | None = None
    """When it is paused, its memory on disk, if it stays unused; None: never, or it ends before."""
    expires_at: float | None = None
    """When it ends, because it stays unused or in any case; the earlier of the two."""
    used_at: float | None = None
    """When it was last used, if no turn shows that, in seconds since the epoch; None: unchanged."""
    held: bool = False
    """While it is paused or being paused: its processes hold their memory, or are to."""
    snapshot: str = ""
    """The file with its memory while it is paused."""
    counters: dict[str, int] = {}
    """The number of runs of each interpreter, where it was queried."""
    lost: str = ""
    """What this lost, as one sentence."""
    why: str = ""


class ConfinementSeen(BaseEvent, frozen=True, kw_only=True, tag="sandbox.confinement"):
    """A probe inside was compared with the sandbox's policy."""

    tier: LoggedTier = "jail"
    ok: bool = False
    mismatches: tuple[str, ...] = ()
    """The differences, each a few words."""
    is_proven: bool = True
    """False: the sandbox exists, but kasmon cannot inspect it: its provider is responsible for the confinement."""
    runtime: SandboxRuntime | None = None
    """For a sandboxed agent: where its sandbox runs."""
    pid: int | None = None
    """For a sandboxed agent: its own process, by this machine's numbering."""
    pid_started: float | None = None
    """That process's start time, as in `SessionStarted`."""


class SandboxMeasured(BaseEvent, frozen=True, kw_only=True, tag="sandbox.measured"):
    """What the sandbox uses, and its limits; a limit of 0 means that none is enforced."""

    memory_bytes: int = 0
    memory_allowed: int = 0
    disk_bytes: int = 0
    disk_allowed: int = 0
    processes: int = 0
    processes_allowed: int = 0


class Checkpointed(BaseEvent, frozen=True, kw_only=True, tag="sandbox.checkpointed"):
    """A checkpoint was saved: the sandbox's files, and the interpreters' named values that can be saved."""

    checkpoint: str
    """Its id within the session."""
    turn: int = 0
    """The turn of the session before or after which it was saved."""
    when: Literal["before", "after", "asked"] = "after"
    commit: str = ""
    """The SHA of the files in kasmon's own history of them."""
    size_bytes: int = 0
    kept: tuple[str, ...] = ()
    """The saved values of the interpreters: `python x`."""
    lost: tuple[str, ...] = ()
    """The values that could not be saved, with their types: `python g (generator)`."""
    what: str = ""
    """One line: the code that the turn ran."""


TerminalEntry: TypeAlias = TurnStarted | MessageWritten | ThoughtWritten | ToolStarted | ToolFinished | NoticeRaised
"""Entries of an agent's own transcript, as the events that a protocol would produce."""


class EntryImported(BaseEvent, frozen=True, kw_only=True, tag="entry.imported"):
    """One entry of the agent's own transcript, from a time when no protocol reported it to kasmon.

    It is written when the session moves back to a protocol from a terminal, and when a new session resumes an earlier
    conversation. It is history and does not change the session's state.
    """

    entry: TerminalEntry
    """With the time at which it happened, 0 if that is unknown; `at` is when it was imported."""
    program: str = ""
    """The program of the agent whose transcript it is from."""


class UnknownEvent(BaseEvent, frozen=True, kw_only=True, tag="unknown"):
    """A line that this version cannot read, kept unchanged."""

    raw: str = ""


Event: TypeAlias = (
    LogOpened
    | SessionCreated
    | SessionRenamed
    | SessionTagged
    | SessionForgotten
    | SessionViewed
    | SessionStarted
    | TurnStarted
    | MessageWritten
    | ThoughtWritten
    | PartialTextWritten
    | ToolStarted
    | ToolFinished
    | SubtaskChanged
    | PlanUpdated
    | RequestOpened
    | RequestAnswered
    | RequestSetAside
    | RequestWithdrawn
    | UsageReported
    | NoticeRaised
    | SettingsChanged
    | LogInRequired
    | CommandsAnnounced
    | UnknownMessageSeen
    | LimitReached
    | LimitLifted
    | LimitsReported
    | TurnEnded
    | SessionEnded
    | SignalSeen
    | ConnectionLost
    | ConnectionRestored
    | StuckSeen
    | HibernationBegun
    | ContextReported
    | FinishProposed
    | AgentCommandReceived
    | PeerMessageWritten
    | ReceiptChanged
    | QueueOrdered
    | CommentWritten
    | CommentRemoved
    | CommentsSent
    | CommentMarked
    | SandboxPhaseChanged
    | ConfinementSeen
    | SandboxMeasured
    | Checkpointed
    | EntryImported
    | UnknownEvent
)

CommentEvent: TypeAlias = CommentWritten | CommentRemoved | CommentsSent | CommentMarked

_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_encoder = msgspec.json.Encoder()
_LONE = re.compile("[\ud800-\udfff]")


def encode(event: BaseEvent) -> bytes:
    """Return *event* as one line of JSON, without its newline. An `UnknownEvent` is encoded as its original line."""
    if isinstance(event, UnknownEvent) and event.raw:
        return event.raw.encode("utf-8", "surrogateescape")
    try:
        return _encoder.encode(event)
    except UnicodeEncodeError:
        return _encoder.encode(replace_surrogates(msgspec.to_builtins(event)))


def decode(line: bytes) -> Event:
    """Return the event on *line*; a line that this version cannot read becomes `UnknownEvent`. Never raises."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UnknownEvent(at=_time_of(line), raw=line.decode("utf-8", "surrogateescape"))


def replace_surrogates(value: Any) -> Any:
    """Return *value* with U+FFFD in the place of each lone surrogate, which no file can hold."""
    if isinstance(value, str):
        return _LONE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {replace_surrogates(key): replace_surrogates(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [replace_surrogates(member) for member in value]
    return value


def _time_of(line: bytes) -> float:
    try:
        at = msgspec.json.decode(line)["at"]
        return float(at)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError, ValueError):
        return 0.0
