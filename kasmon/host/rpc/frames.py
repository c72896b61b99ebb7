"""The frames on a host's socket, as values; `codec` converts them to bytes.

Events are not sent here; they are in the log. A client sends commands and what it views; a host answers each
numbered frame once and pushes what is shown and not stored: rows of a terminal, text as it is written.
"""

from typing import Any, Literal, TypeAlias

import msgspec

from kasmon.model.adoption.pane_candidate import AdoptablePane
from kasmon.model.commands import ActingAgent, AgentCommand, Hibernate, Receipt, Requeue, SandboxCommand
from kasmon.model.events import CommentEvent, PeerMessageWritten
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import RunResult

VERSION = 1
ANSWER_S = 10.0
"""How long an answer may take unless the host's welcome gives another time."""


class NotificationFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="t"):
    """A frame that has no answer."""


class NumberedFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="t"):
    """A frame that is answered, or an answer."""

    n: int
    """Chosen by the client; repeated in the answer."""


Frame: TypeAlias = NotificationFrame | NumberedFrame


class Hello(NumberedFrame, frozen=True, kw_only=True, tag="hello"):
    """The client's first frame; answered by `Welcome`, or by `FailureReply` if the versions do not fit."""

    version: int = VERSION
    as_agent: bool = False


class ExecuteCommand(NumberedFrame, frozen=True, kw_only=True, tag="do"):
    """Send this command to the session's agent; answered by `CommandResult` or `FailureReply`.

    The answer to a prompt has a receipt, to a run its result, to a checkpoint its id. A run's output is pushed to the
    client that requested the run.
    """

    session: SessionId
    command: AgentCommand | Requeue | Hibernate | SandboxCommand = msgspec.field(name="wish")
    edited: bytes = b""
    """On the wire only: the changed input of an answer, as JSON. MessagePack has no number of more than 64 bits."""


class StartSession(NumberedFrame, frozen=True, kw_only=True, tag="start"):
    """The shared tmux host: start the session by its `launch.json`. Answered by `CommandResult`."""

    session: SessionId
    variables: bytes = b""
    """The starter's variables for the agent, encoded by `backends.common.environment`; empty: the host's."""


class ReleasePane(NumberedFrame, frozen=True, kw_only=True, tag="forget"):
    """Release an ended session's pane. Answered by `CommandResult`."""

    session: SessionId


class RenameWindow(NumberedFrame, frozen=True, kw_only=True, tag="rename"):
    """Set this name on the session's window. Answered by `CommandResult`."""

    session: SessionId
    name: str


class ListForeignPanes(NumberedFrame, frozen=True, kw_only=True, tag="foreign"):
    """The shared tmux host: list the panes of the user's own tmux at this socket. Answered by `ForeignPanes`."""

    socket: str


class ReportContext(NumberedFrame, frozen=True, kw_only=True, tag="say"):
    """Record the agent's own report of its progress; see `ContextReported`. Answered by `CommandResult`."""

    session: SessionId
    waiting: str | None = None
    done: str | None = None


class RecordPeerMessage(NumberedFrame, frozen=True, kw_only=True, tag="peer"):
    """Log a message of the agent to a peer on another machine. Answered by `CommandResult`."""

    session: SessionId
    event: PeerMessageWritten


class ProposeFinish(NumberedFrame, frozen=True, kw_only=True, tag="propose"):
    """Log that the agent at the other end proposes to finish the session. Answered by `CommandResult`."""

    session: SessionId
    text: str
    actor: ActingAgent | None = None
    """An agent of another machine that proposes it, as its kasmon says it; one of this machine is found instead."""
    name: str = ""
    """The name of that agent's session."""


class RecordComment(NumberedFrame, frozen=True, kw_only=True, tag="comment"):
    """Log a change of the review's comments. Answered by `CommandResult`."""

    session: SessionId
    event: CommentEvent


class RunShellCommand(NumberedFrame, frozen=True, kw_only=True, tag="shell"):
    """Run a command of the person in a structured session's folder. Answered by `CommandResult` with its exit code.

    Its output is pushed as `RunOutputChunk`. The end of the connection, or of the host, ends it.
    """

    session: SessionId
    command: str


class ReadTerminal(NumberedFrame, frozen=True, kw_only=True, tag="read"):
    """Answered by `TerminalText`: the session's terminal, buffer-relative lines start..end, both included.

    None is the beginning (start) or end (end) of the buffer; n >= 0 a line from its beginning, n < 0 one from its end.
    """

    session: SessionId
    start: int | None = None
    end: int | None = None
    ansi: bool = False
    screen_and: int | None = None
    """Instead of a range: the visible screen and this many lines above it."""


class DescribePane(NumberedFrame, frozen=True, kw_only=True, tag="look"):
    """Answered by `PaneDescription`."""

    session: SessionId
    attaching: bool = False
    """Whether a user is about to attach: an agent that sleeps in its sandbox is woken."""


class Watch(NotificationFrame, frozen=True, kw_only=True, tag="watch"):
    """From now on push this session's rows (terminal) or chunks (structured) to this client, the newest only."""

    session: SessionId
    rate_hz: float = 20.0
    """The most pushes a second; 0 pushes each change at once (focus)."""


class Unwatch(NotificationFrame, frozen=True, kw_only=True, tag="unwatch"):
    """Push nothing of this session any more, unless it has the client's focus."""

    session: SessionId


class Focus(NotificationFrame, frozen=True, kw_only=True, tag="focus"):
    """Send the client's keys to this session, resize its window to this size, push its rows at once."""

    session: SessionId
    columns: int
    rows: int


class Blur(NotificationFrame, frozen=True, kw_only=True, tag="blur"):
    """End the client's focus on this session."""

    session: SessionId


class SendKeys(NotificationFrame, frozen=True, kw_only=True, tag="keys"):
    """Bytes as a keyboard would send them, straight into the pane; no answer."""

    session: SessionId
    data: bytes


class Paste(NotificationFrame, frozen=True, kw_only=True, tag="paste"):
    """Text for the pane by tmux's own paste, bracketed if the program requested that; no answer."""

    session: SessionId
    text: str


class Scroll(NotificationFrame, frozen=True, kw_only=True, tag="scroll"):
    """Push rows this many lines above the screen's bottom from now on; 0 follows the screen again."""

    session: SessionId
    up: int


class Quit(NumberedFrame, frozen=True, kw_only=True, tag="quit"):
    """End the host; agents in tmux run on, a structured agent ends with its host. Answered by `CommandResult`."""


class Welcome(NumberedFrame, frozen=True, kw_only=True, tag="welcome"):
    """The answer to `Hello`: identifies the host."""

    pid: int
    version: int = VERSION
    kasmon: str = ""
    tmux: str = ""
    """The tmux version, from the shared tmux host."""
    answer_s: float = ANSWER_S
    """How long this host may take to answer any frame, in seconds."""


class CommandResult(NumberedFrame, frozen=True, kw_only=True, tag="done"):
    """The command was executed; with its result, if it has one."""

    receipt: Receipt | None = None
    ran: RunResult | None = None
    outcome: str = msgspec.field(default="", name="told")
    """The id of a checkpoint; for another sandbox command, what was lost by it."""


class FailureReply(NumberedFrame, frozen=True, kw_only=True, tag="failed"):
    """The command failed; `error` is an error's stable `code`."""

    error: str
    exit_code: int
    message: str
    hint: str = ""
    kind: str = ""
    """The error's class, since several share a code."""
    fields: dict[str, Any] = {}
    """The error's fields besides its message."""


class TerminalText(NumberedFrame, frozen=True, kw_only=True, tag="text"):
    """The answer to `ReadTerminal`."""

    lines: tuple[str, ...]


class ForeignPanes(NumberedFrame, frozen=True, kw_only=True, tag="foreign-panes"):
    """The panes that can be adopted, and which process their server is, as in `AdoptedPane`."""

    server_pid: int
    server_started: str
    panes: tuple[AdoptablePane, ...]


class PaneDescription(NumberedFrame, frozen=True, kw_only=True, tag="pane-seen"):
    """tmux's facts of a session's pane; titles and paths are sanitized."""

    width: int
    height: int
    cursor: tuple[int, int]
    title: str
    cwd: str
    window: str
    clients: int
    attach: tuple[str, ...]
    """The command line that attaches another terminal."""
    agent_version: str = ""
    """The version that its agent reports; empty if unknown."""


class TerminalCursor(msgspec.Struct, frozen=True, array_like=True):
    """A terminal's cursor: its position in cells from the upper left, and its look."""

    x: int = 0
    y: int = 0
    visible: bool = False
    shape: str = "block"


class TerminalModes(msgspec.Struct, frozen=True, array_like=True):
    """The modes that the program in the pane set."""

    mouse: Literal["", "standard", "button", "all"] = ""
    mouse_sgr: bool = False
    cursor_keys: bool = False
    keypad: bool = False
    """Never set; keeps the position of the fields behind it in what hosts of other versions send."""
    alternate: bool = False
    copy_mode: bool = False


class TerminalRows(NotificationFrame, frozen=True, kw_only=True, tag="rows"):
    """The rows of a terminal that changed since the last push to this client; they contain only SGR sequences."""

    session: SessionId
    columns: int
    height: int
    changed: tuple[tuple[int, str], ...]
    cursor: TerminalCursor
    modes: TerminalModes
    full: bool = False
    """Whether every row is in `changed` and replaces all earlier rows."""
    scrolled: int = 0
    """How many lines above the bottom this is; the history has `history` lines."""
    history: int = 0


class ClipboardCopy(NotificationFrame, frozen=True, kw_only=True, tag="clipped"):
    """The program in a terminal with this client's focus copies *text* to the clipboard; None if it is too long.

    Nothing is on any clipboard yet: the client decides whether to put it there.
    """

    session: SessionId
    text: str | None


class TextDelta(NotificationFrame, frozen=True, kw_only=True, tag="written"):
    """Text that a structured agent is writing now, all of it since the last finished message."""

    session: SessionId
    text: str
    thinking: bool = False


class RunOutputChunk(NotificationFrame, frozen=True, kw_only=True, tag="printed"):
    """A run's output since the last such push, for the client that requested the run."""

    run: str
    """The run's id, as in its command."""
    stdout: str = ""
    stderr: str = ""
    skipped: int = 0
    """How many characters before this were skipped because the client was behind. The run's result has them."""


class SubscriptionEnd(NotificationFrame, frozen=True, kw_only=True, tag="gone"):
    """The session can no longer be watched."""

    session: SessionId
    why: str = ""


ViewChange: TypeAlias = Watch | Unwatch | Focus | Blur | Scroll
LogRequest: TypeAlias = ReportContext | RecordComment | RecordPeerMessage | ProposeFinish
"""The frames of which a host logs the content."""
SessionRequest: TypeAlias = (
    ExecuteCommand
    | StartSession
    | ReleasePane
    | RenameWindow
    | LogRequest
    | RunShellCommand
    | ReadTerminal
    | DescribePane
)
FromClient: TypeAlias = Hello | SessionRequest | ListForeignPanes | ViewChange | SendKeys | Paste | Quit
FromTerminal: TypeAlias = TerminalRows | ClipboardCopy | SubscriptionEnd
"""The frames about terminals that a host pushes."""
FromHost: TypeAlias = (
    Welcome
    | CommandResult
    | FailureReply
    | TerminalText
    | ForeignPanes
    | PaneDescription
    | FromTerminal
    | TextDelta
    | RunOutputChunk
)
