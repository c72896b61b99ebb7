"""What travels on a host's socket: frames, the values; how they become bytes stands in `codec`.

Facts never travel here; they are in the log. A client sends wishes and says what it looks at; a host answers each
numbered frame once and pushes what is shown and forgotten: rows of a terminal, text as it is written.
"""

from typing import Any, Literal, TypeAlias

import msgspec

from kasmon.model.commands import Receipt, Requeue, SandboxWish, Wish
from kasmon.model.pane_candidate import AdoptablePane
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import RunResult

VERSION = 1
ANSWER_S = 10.0
"""How long an answer may take where its host does not say otherwise."""


class Frame(msgspec.Struct, frozen=True, kw_only=True, tag_field="t"):
    """Anything on the wire."""


class Numbered(Frame, frozen=True, kw_only=True):
    """A frame that is answered, or an answer."""

    n: int
    """Chosen by the client; the answer carries it back."""


class Hello(Numbered, frozen=True, kw_only=True, tag="hello"):
    """The client's first frame; answered by `Welcome`, or by `Failed` where the versions do not fit."""

    version: int = VERSION
    as_agent: bool = False


class ExecuteCommand(Numbered, frozen=True, kw_only=True, tag="do"):
    """Carry this wish to the session's agent; answered by `CommandDone` or `Failed`.

    A prompt's answer has a receipt, a run's what came of it, a checkpoint's its id. What a run prints is pushed to
    whoever asked for it.
    """

    session: SessionId
    wish: Wish | Requeue | SandboxWish
    edited: bytes = b""
    """On the wire only: the changed input of an answer, as JSON. MessagePack has no number of more than 64 bits."""


class StartSession(Numbered, frozen=True, kw_only=True, tag="start"):
    """The shared tmux host: start the session as its `launch.json` says. Answered by `CommandDone`."""

    session: SessionId
    variables: bytes = b""
    """What passes to the agent of its starter's environment, as `surroundings.encoded` writes it; empty: the host's."""


class ReleasePane(Numbered, frozen=True, kw_only=True, tag="forget"):
    """Let go of an ended session's pane. Answered by `CommandDone`."""

    session: SessionId


class RenameWindow(Numbered, frozen=True, kw_only=True, tag="rename"):
    """Show this name on the session's window. Answered by `CommandDone`."""

    session: SessionId
    name: str


class ListForeignPanes(Numbered, frozen=True, kw_only=True, tag="foreign"):
    """The shared tmux host: which panes has the user's own tmux at this socket? Answered by `ForeignPanes`."""

    socket: str


class ReportContext(Numbered, frozen=True, kw_only=True, tag="say"):
    """Note how the session's agent says that it stands; see `ContextReported`. Answered by `CommandDone`."""

    session: SessionId
    waiting: str | None = None
    done: str | None = None


class ReadTerminal(Numbered, frozen=True, kw_only=True, tag="read"):
    """Answered by `TerminalText`: the session's terminal, buffer-relative lines start..end, both included.

    None is the beginning (start) or end (end) of the buffer; n >= 0 a line from its beginning, n < 0 one from its end.
    """

    session: SessionId
    start: int | None = None
    end: int | None = None
    ansi: bool = False
    screen_and: int | None = None
    """Instead of a range: the visible screen and this many lines above it."""


class DescribePane(Numbered, frozen=True, kw_only=True, tag="look"):
    """Answered by `PaneSeen`."""

    session: SessionId
    attaching: bool = False
    """Somebody is going to sit down at it: an agent that sleeps in its sandbox is woken."""


class Watch(Frame, frozen=True, kw_only=True, tag="watch"):
    """From now on push this session's rows (terminal) or chunks (structured) to this client, the newest only."""

    session: SessionId
    rate_hz: float = 20.0
    """At most so many pushes a second; 0 pushes each change at once (focus)."""


class Unwatch(Frame, frozen=True, kw_only=True, tag="unwatch"):
    """Push nothing of this session any more, unless it has the client's focus."""

    session: SessionId


class Focus(Frame, frozen=True, kw_only=True, tag="focus"):
    """The client's keys go to this session, its window takes this size, its rows come at once."""

    session: SessionId
    columns: int
    rows: int


class Blur(Frame, frozen=True, kw_only=True, tag="blur"):
    """The client's keys go there no more."""

    session: SessionId


class SendKeys(Frame, frozen=True, kw_only=True, tag="keys"):
    """Bytes as a keyboard would send them, straight into the pane; no answer."""

    session: SessionId
    data: bytes


class Paste(Frame, frozen=True, kw_only=True, tag="paste"):
    """Text for the pane by tmux's own paste, bracketed if the program asked for that; no answer."""

    session: SessionId
    text: str


class Scroll(Frame, frozen=True, kw_only=True, tag="scroll"):
    """Push rows this many lines above the screen's bottom from now on; 0 follows the screen again."""

    session: SessionId
    up: int


class Quit(Numbered, frozen=True, kw_only=True, tag="quit"):
    """End the host; agents in tmux go on, a structured agent ends with its host. Answered by `CommandDone`."""


class Welcome(Numbered, frozen=True, kw_only=True, tag="welcome"):
    """The answer to `Hello`: who the host is."""

    pid: int
    version: int = VERSION
    kasmon: str = ""
    tmux: str = ""
    """The tmux version, from the shared tmux host."""
    answer_s: float = ANSWER_S
    """How long this host may take to answer any frame, in seconds."""


class CommandDone(Numbered, frozen=True, kw_only=True, tag="done"):
    """It was done; what came of it, where something did."""

    receipt: Receipt | None = None
    ran: RunResult | None = None
    """What came of a run."""
    told: str = ""
    """The id of a checkpoint; for what else was wished of a sandbox, what was lost by that."""


class Failed(Numbered, frozen=True, kw_only=True, tag="failed"):
    """Why not; `error` is an error's stable `code`."""

    error: str
    exit_code: int
    message: str
    hint: str = ""
    kind: str = ""
    """The error's class, since several share a code."""
    fields: dict[str, Any] = {}
    """What the error carries beside its message."""


class TerminalText(Numbered, frozen=True, kw_only=True, tag="text"):
    """The answer to `ReadTerminal`."""

    lines: tuple[str, ...]


class ForeignPanes(Numbered, frozen=True, kw_only=True, tag="foreign-panes"):
    """The panes that somebody may adopt, and which process their server is, as in `AdoptedPane`."""

    server_pid: int
    server_started: str
    panes: tuple[AdoptablePane, ...]


class PaneSeen(Numbered, frozen=True, kw_only=True, tag="pane-seen"):
    """What tmux says of a session's pane; titles and paths are cleaned."""

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
    """What the agent in it says of its version; empty where nobody knows."""


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Where the cursor of a terminal stands, in cells from its upper left, and how it looks."""

    x: int = 0
    y: int = 0
    visible: bool = False
    shape: str = "block"


class TerminalModes(msgspec.Struct, frozen=True, array_like=True):
    """What the program in the pane asked its terminal for."""

    mouse: Literal["", "standard", "button", "all"] = ""
    mouse_sgr: bool = False
    cursor_keys: bool = False
    keypad: bool = False
    """Asked by nobody; it keeps the place of those behind it in what hosts of other versions tell."""
    alternate: bool = False
    copy_mode: bool = False


class TerminalRows(Frame, frozen=True, kw_only=True, tag="rows"):
    """The rows of a terminal that changed since the last push to this client; SGR sequences inside, nothing else."""

    session: SessionId
    columns: int
    height: int
    changed: tuple[tuple[int, str], ...]
    cursor: Cursor
    modes: TerminalModes
    full: bool = False
    """Every row is in `changed`; what was known before is void."""
    scrolled: int = 0
    """How many lines above the bottom this is; history behind it has `history` lines."""
    history: int = 0


class ClipboardCopy(Frame, frozen=True, kw_only=True, tag="clipped"):
    """The program in a terminal that has this client's focus puts *text* on the clipboard; None where it is too long.

    Nothing is on any clipboard yet: whether it gets there is for the client to decide.
    """

    session: SessionId
    text: str | None


class TextDelta(Frame, frozen=True, kw_only=True, tag="written"):
    """Text that a structured agent is writing now, all of it since the last finished message."""

    session: SessionId
    text: str
    thinking: bool = False


class RunOutputChunk(Frame, frozen=True, kw_only=True, tag="printed"):
    """What a run wrote since the last such push, to whoever asked for it."""

    run: str
    """The run's id, as its wish has it."""
    stdout: str = ""
    stderr: str = ""
    skipped: int = 0
    """So many characters before this were not shown: the client was behind. What came of the run has them."""


class SubscriptionEnded(Frame, frozen=True, kw_only=True, tag="gone"):
    """There is nothing to watch any more."""

    session: SessionId
    why: str = ""


FromClient: TypeAlias = (
    Hello
    | ExecuteCommand
    | StartSession
    | ReleasePane
    | RenameWindow
    | ListForeignPanes
    | ReportContext
    | ReadTerminal
    | DescribePane
    | Watch
    | Unwatch
    | Focus
    | Blur
    | SendKeys
    | Paste
    | Scroll
    | Quit
)
FromHost: TypeAlias = (
    Welcome
    | CommandDone
    | Failed
    | TerminalText
    | ForeignPanes
    | PaneSeen
    | TerminalRows
    | ClipboardCopy
    | TextDelta
    | RunOutputChunk
    | SubscriptionEnded
)
FromTerminal: TypeAlias = TerminalRows | ClipboardCopy | SubscriptionEnded
"""What a host tells of terminals unasked."""
