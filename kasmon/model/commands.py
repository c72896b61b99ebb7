"""What is wanted: commands to an agent, how to launch one, and the receipt of a prompt."""

import re
from enum import StrEnum
from typing import Any, Final, Literal, NewType, TypeAlias

import msgspec

from kasmon.model.permission import Decision, RequestId, SessionId
from kasmon.model.sandbox.policy import Interpreter, LoggedTier

ReceiptId = NewType("ReceiptId", str)
When = Literal["idle", "now", "interrupt", "refuse"]
"""What a prompt does when the agent is busy: queue, go in anyway, interrupt first, or be refused."""
Sender = Literal["user", "wave", "peer"]
"""Whose prompt it is: a person's, a plan's, or that of another agent."""


class Mode(StrEnum):
    """How a session is talked to."""

    TMUX = "tmux"
    SDK = "sdk"
    INTERPRETER = "interpreter"


class Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="do"):
    """A wish. It is true only when its event comes back."""


class Prompt(Command, frozen=True, kw_only=True, tag="prompt"):
    """Give the agent this text as one prompt."""

    text: str
    when: When = "now"
    by: Sender = "user"
    anyway: bool = False
    """In a terminal: typed also where nobody sees the box that takes it; its receipt then says so.
    One that waits loses this."""


class Answer(Command, frozen=True, kw_only=True, tag="answer"):
    """Answer exactly the request that has this id and this digest."""

    request: RequestId
    digest: str
    decision: Decision
    reason: str = ""
    """Told to the agent with DENY."""
    input: dict[str, Any] | None = None
    """The edited tool input, with EDIT."""
    labels: tuple[str, ...] = ()
    """The chosen options, with CHOOSE; for a backend also the person's own words."""
    text: str = ""
    """The person's own words, with CHOOSE, beside or instead of an option."""
    scope: Literal["session", "plan", "project"] = "session"
    """How far ALWAYS and NEVER reach."""


class Interrupt(Command, frozen=True, kw_only=True, tag="interrupt"):
    """End the running turn; whatever it asks is withdrawn."""

    interpreter: Interpreter | None = None
    """Of a sandbox's session: interrupt what runs in this one only."""
    run: str = ""
    """Of a sandbox's session: only the run with this id. One that is over, or is not known, is an error."""


class Continue(Command, frozen=True, kw_only=True, tag="continue"):
    """Continue an agent in a terminal that a stop signal (Ctrl-Z) stopped."""


class Stop(Command, frozen=True, kw_only=True, tag="stop"):
    """Ask the agent to finish; end it if it does not."""

    grace_s: float = 5.0
    """How long to wait before ending it, in seconds. 0 ends it at once."""


class Configure(Command, frozen=True, kw_only=True, tag="configure"):
    """Change how the agent goes on from now; None leaves a setting as it is."""

    model: str | None = None
    permission_mode: str | None = None
    """The agent's own word for how much it asks, e.g. `plan` or `acceptEdits`."""


class Requeue(Command, frozen=True, kw_only=True, tag="requeue"):
    """Change a prompt that waits; its host does it, and the agent never knows."""

    receipt: ReceiptId
    text: str | None = None
    """What it says from now on; None leaves it."""
    place: int | None = None
    """Which of those that wait it is from now on, the first being 0; None leaves it where it is."""
    drop: bool = False
    """Take it back."""


class Run(Command, frozen=True, kw_only=True, tag="run"):
    """Run this code in an interpreter of the session's sandbox; whoever asked gets what came of it."""

    interpreter: Interpreter
    code: str
    id: str = ""
    """Chosen by whoever asks: of two with the same one only the first runs, and both get what came of it."""
    again: bool = False
    """It was asked for before, of a host that went away since: it runs only where it is certain that it did not."""
    timeout_s: float | None = None
    """None is what the sandbox's size allows."""
    cap: int | None = None
    """The most bytes of output that come back; None is the sandbox's own."""


class Pause(Command, frozen=True, kw_only=True, tag="sleep"):
    """Put the session's sandbox to sleep, once its turn is over."""

    to_disk: bool = False
    """Its processes end and their memory is kept on disk, where its tier can."""


class Resume(Command, frozen=True, kw_only=True, tag="wake"):
    """Let the session's sandbox go on, healed."""


class Checkpoint(Command, frozen=True, kw_only=True, tag="checkpoint"):
    """Keep what can be kept of the session's sandbox as it is now."""


class Restore(Command, frozen=True, kw_only=True, tag="restore"):
    """Put the session's sandbox back to a checkpoint: files, and of its interpreters what was kept."""

    checkpoint: str


class Fork(Command, frozen=True, kw_only=True, tag="fork"):
    """Copy the sandbox for another session: a checkpoint's files and what was kept of its interpreters."""

    checkpoint: str = ""
    """Empty is a new one, of now."""
    folder: str
    """An empty folder of this machine, for the files."""
    memory: str = ""
    """A file of this machine, for what was kept of the interpreters; empty: for nothing."""
    session: SessionId = SessionId("")
    """The session that it is for, which gets all memory too where its tier can copy that, and no checkpoint is named;
    what it got is written to its origin."""


class Allow(Command, frozen=True, kw_only=True, tag="allow"):
    """Let the session's sandbox reach these hosts too."""

    hosts: tuple[str, ...]


Wish: TypeAlias = Prompt | Answer | Interrupt | Continue | Stop | Configure
"""What an agent is told."""
SandboxWish: TypeAlias = Run | Pause | Resume | Checkpoint | Restore | Fork | Allow
"""What an agent is told whose session is a sandbox's."""


class ReceiptState(StrEnum):
    """How far a prompt came."""

    QUEUED = "queued"
    TYPED = "typed"
    SUBMITTED = "submitted"
    STARTED = "started"
    FINISHED = "finished"
    FAILED = "failed"
    """Its turn ended in an error; the receipt's reason says which."""
    UNSURE = "unsure"
    """Nothing shows whether the agent took it, or which turn was its own."""
    REFUSED = "refused"
    LOST = "lost"


NO_TURN: Final = "no turn started from it"
"""Why a receipt is unsure whose prompt no turn is known to have carried."""

TOLD_RECEIPTS: Final = frozenset({ReceiptState.REFUSED, ReceiptState.LOST, ReceiptState.UNSURE})
"""Receipts that a transcript shows, since nothing else in it says what became of their prompts."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one prompt."""

    id: ReceiptId
    """`<session>-r<n>`, n counted by the session's log."""
    session: SessionId
    state: ReceiptState
    reason: str = ""
    text: str = ""
    """The prompt's first line, for people."""
    at: float = 0.0
    exit_code: int | None = None
    """Of a command that was typed into a shell, once it is finished; None where nobody can tell."""
    digest: str = ""
    """`prompt_digest` of the whole prompt as it was given to the agent; empty in logs of earlier versions."""
    carried_by: Literal["", "text", "alone"] = ""
    """How it is known that a turn carried this prompt. `text`: the agent's own record (its protocol, a hook) names the
    prompt. `alone`: a turn began when this was the only prompt it can have been. Empty: no turn is known to."""


def prompt_digest(text: str) -> str:
    """What identifies the prompt *text*, whatever an agent made of its white space or put around a paste (claude 2.1).

    `kasmon-emit` computes the same.
    """
    import hashlib  # only here: most who know commands take no digest, and the library takes 4 ms to load

    bare = re.sub(r'</?pasted_content id="[^"]*">', "", text)
    return hashlib.sha256("".join(bare.split()).encode("utf-8", "replace")).hexdigest()[:32]


class ConversationUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversation has used so far: tokens, and money where that is known."""

    input: int = 0
    output: int = 0
    cost_usd: float | None = None


class AdoptedPane(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session runs that kasmon did not start: a pane of the user's own tmux."""

    socket: str
    pane: str
    """tmux's id of it (`%5`), which says nothing in another server."""
    target: str = ""
    """How the user named it, or would: `work:1.0`."""
    server_pid: int = 0
    server_started: str = ""
    """Which process that server is; as in `tmux.process_identity.Process`."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How a session is started, and started again; kept as `launch.json`. Variables' values are not in here."""

    session: SessionId
    name: str
    agent: str
    mode: Mode
    backend: str
    """The backend that talks to it: `tmux`, `scripted`, ..."""
    argv: tuple[str, ...] = ()
    """The program and its arguments; for the scripted backend empty."""
    workdir: str = "/"
    prompt: str = ""
    """The first prompt, given once the agent is ready; only in generation 1."""
    model: str = ""
    parent: SessionId | None = None
    """tmux: open a further window beside this session's."""
    task: int | None = None
    wave: int | None = None
    peers: int | None = None
    """The size of the wave, this session counted."""
    plan: str | None = None
    fallback: str | None = None
    """Why the mode that was asked for is not the mode it runs in."""
    bypassing: bool = False
    """The agent was told to skip permissions; marked in its row."""
    is_command: bool = False
    """tmux: a program that is no agent and no interactive shell: it works until it exits."""
    public_variables: tuple[str, ...] = ()
    """The names of its own variables whose values are no secrets (`--env-public`)."""
    brought: str = ""
    """What its profile was known by, where a trusted `.kasmon.toml` of its folder made it; empty where none did."""
    sandbox: LoggedTier | None = None
    """What confines it; None is nothing. How is in the session's `sandbox.json`."""
    window: str = ""
    """tmux: what its window is called; empty is the session's name."""
    machine: str = ""
    """tmux: the other machine that it runs on, as ssh knows it; empty for this one. Folder (`HOST:PATH`) and program
    are there then; no program is the login shell."""
    adopted: AdoptedPane | None = None
    """tmux: the pane of the user's own that it runs in; None for what kasmon started."""
    interrupt_key: Literal["", "ctrl-c", "escape"] = ""
    """tmux: the key that ends a turn; empty for what agents of this name take."""
    seed: int = 0
    """For the scripted agent: what its pauses are drawn from."""
    speed: float = 1.0
    """For the scripted agent: its pauses are divided by this; 0 means none."""
    permission_mode: str = ""
    """structured, where no argument says it: the permission mode that the agent is put into before its first prompt, by
    the name in its protocol; empty: its own choice."""
    generation: int = 1
    resume: str | None = None
    """The agent's own id of the conversation to go on with."""
    remembers: str = ""
    """The last prompt of that conversation as our log has it, by which the agent is known to remember the same one;
    filled in by the host, never in the file."""
    used: ConversationUsage = ConversationUsage()
    """What the session had used before, as its log has it: the figures of many agents begin anew with each process.
    Likewise."""
    handshake_s: float | None = None
    """How long a structured agent may take to introduce itself; None is its backend's own limit. Likewise."""
    created_at: float = 0.0
