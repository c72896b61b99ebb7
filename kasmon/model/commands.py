"""Commands to an agent, how to launch one, and the receipt of a prompt."""

import re
from enum import StrEnum
from typing import Any, Final, Literal, NewType, TypeAlias

import msgspec

from kasmon.model.permission import Decision, RequestId, SessionId
from kasmon.model.prompts.image import PromptImage
from kasmon.model.sandbox.policy import Interpreter, LoggedTier
from kasmon.sanitize import clean_line, has_hidden

ReceiptId = NewType("ReceiptId", str)
When = Literal["idle", "now", "interrupt", "refuse"]
"""How a prompt is delivered to a busy agent: queue, send anyway, interrupt first, or refuse."""
Sender = Literal["user", "wave", "peer"]
"""The origin of a prompt: the user, a plan, or another agent."""


class ActingAgent(msgspec.Struct, frozen=True, kw_only=True):
    """The agent that did something: the session that it belongs to, as the system's processes show it."""

    session: SessionId
    """Empty if the process belongs to an agent, and it cannot be shown to which."""
    depth: int = 0
    """How many agents are above that session: 0 if a person or a plan started it, 1 if such a session's agent did."""
    machine: str = ""
    """The host name of that session's machine, as its kasmon says it; empty for the machine of the log."""

    @property
    def is_identified(self) -> bool:
        return bool(self.session)


FLEET_TOOLS: Final = "fleet"
"""What a session's `tools` contain if its agent may use `kasmon mcp --tools fleet`."""


class StarterLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine of an agent allows the session that it starts on another one, whose own limits hold too."""

    depth: int
    """As `FleetConfig.depth`, for what that session starts."""
    minutes: float
    """As `FleetConfig.minutes`."""
    starter: str = ""
    """The name of that agent's session; empty if its machine delivers it no messages of what it started."""


Ability = Literal["see", "prompt", "answer", "type", "start", "sandbox"]
"""What the owner of a machine may allow others: to see its sessions, to prompt and to answer agents, to type into
terminals, to start and end sessions and run commands, and to use sandboxes."""
ABILITIES: Final[tuple[Ability, ...]] = ("see", "prompt", "answer", "type", "start", "sandbox")


class Mode(StrEnum):
    """How kasmon communicates with a session's agent."""

    TMUX = "tmux"
    SDK = "sdk"
    INTERPRETER = "interpreter"


class Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="do"):
    """A request to a host. It has taken effect only once its event is logged."""


class Prompt(Command, frozen=True, kw_only=True, tag="prompt"):
    """Send the agent this text as one prompt."""

    text: str
    when: When = "now"
    by: Sender = "user"
    anyway: bool = False
    """In a terminal: type it even if the prompt box cannot be recognised; its receipt then says so.
    A queued prompt loses this."""
    login: str = ""
    """The id of the login of `kasmon web` by which the user sent it; empty for a terminal."""
    over_budget: bool = False
    """Deliver it also if a budget is used up, while it is queued."""
    images: tuple[PromptImage, ...] = ()
    """The pictures that go with it, in their order."""
    key: str = ""
    """The session accepts one prompt with this key, and answers a repetition with the receipt of that one."""
    actor: ActingAgent | None = None
    """The agent that sent it; None for a person or a plan. The host sets it if an agent of its machine sends it; else
    it is that of another machine, as its kasmon says it."""


LINK_ID_LENGTH: Final = 12
"""The length of the id of a link, or of a login, in characters."""


class Answer(Command, frozen=True, kw_only=True, tag="answer"):
    request: RequestId
    digest: str
    decision: Decision
    reason: str = ""
    """Sent to the agent with DENY."""
    input: dict[str, Any] | None = None
    """The edited tool input, with EDIT."""
    labels: tuple[str, ...] = ()
    """The chosen options, with CHOOSE; for a backend also the user's custom text."""
    text: str = ""
    """The user's custom text, with CHOOSE, beside or instead of an option."""
    scope: Literal["session", "plan", "project"] = "session"
    link: str = ""
    """The id of the link, or of the login, by which the user answered; empty for a terminal."""
    editor: str = ""
    """The name of the editor in which the user answered, as it gave it to `kasmon acp`; empty for none."""


class Interrupt(Command, frozen=True, kw_only=True, tag="interrupt"):
    """End the running turn; its open requests are withdrawn."""

    interpreter: Interpreter | None = None
    """In a sandbox session: interrupt only this interpreter."""
    run: str = ""
    """In a sandbox session: interrupt only the run with this id. One that has ended or is unknown is an error."""


class Continue(Command, frozen=True, kw_only=True, tag="continue"):
    """Continue a terminal agent that a stop signal (Ctrl-Z) stopped."""


class Stop(Command, frozen=True, kw_only=True, tag="stop"):
    """Ask the agent to exit; end it if it does not."""

    grace_s: float = 5.0
    """How long to wait before ending it, in seconds; 0 ends it at once."""


class Hibernate(Command, frozen=True, kw_only=True, tag="hibernate"):
    """End the agent if it is idle and nothing waits for it; its conversation is resumed on the next use.

    The sender has verified that it can be resumed, and that nothing which it started runs.
    """

    freed_bytes: int = 0
    """The memory of its processes before that; the log has it."""


class Configure(Command, frozen=True, kw_only=True, tag="configure"):
    """Change the agent's settings; None leaves a setting unchanged."""

    model: str | None = None
    permission_mode: str | None = None
    """The agent's own name of its permission mode, e.g. `plan` or `acceptEdits`."""
    switches: dict[str, bool] = {}
    """Options to turn on or off, by the ids of `Session.switches`."""


class Requeue(Command, frozen=True, kw_only=True, tag="requeue"):
    """Change a queued prompt; the host does it, and the agent is not involved."""

    receipt: ReceiptId
    text: str | None = None
    """The new text; None leaves it unchanged."""
    place: int | None = None
    """The new position in the queue, counted from 0; None leaves it unchanged."""
    drop: bool = False


class Run(Command, frozen=True, kw_only=True, tag="run"):
    """Run this code in an interpreter of the session's sandbox; the caller gets the result."""

    interpreter: Interpreter
    code: str
    id: str = ""
    """Chosen by the caller: of two runs with the same id only the first is executed, and both get its result."""
    again: bool = False
    """It was requested before from a host that has ended since: it runs only if it certainly did not run then."""
    timeout_s: float | None = None
    """None is the limit of the sandbox's size."""
    cap: int | None = None
    """The maximum number of output bytes returned; None is the sandbox's own limit."""


class Pause(Command, frozen=True, kw_only=True, tag="sleep"):
    """Pause the session's sandbox once its turn is over."""

    to_disk: bool = False
    """Its processes end and their memory is written to disk, where its tier supports that."""


class Resume(Command, frozen=True, kw_only=True, tag="wake"):
    """Resume the session's sandbox and repair it."""


class Checkpoint(Command, frozen=True, kw_only=True, tag="checkpoint"):
    """Save a checkpoint of the session's sandbox."""


class Restore(Command, frozen=True, kw_only=True, tag="restore"):
    """Restore the session's sandbox to a checkpoint: files, and the saved state of its interpreters."""

    checkpoint: str


class Fork(Command, frozen=True, kw_only=True, tag="fork"):
    """Copy the sandbox for another session: a checkpoint's files and the saved state of its interpreters."""

    checkpoint: str = ""
    """Empty makes a new one now."""
    folder: str
    """An empty folder on this machine for the files."""
    memory: str = ""
    """A file on this machine for the saved state of the interpreters; empty leaves that out."""
    session: SessionId = SessionId("")
    """The session that gets the copy, including all memory if its tier can copy that and no checkpoint is named;
    its origin file records what it got."""


class Allow(Command, frozen=True, kw_only=True, tag="allow"):
    """Allow the session's sandbox to reach these hosts too."""

    hosts: tuple[str, ...]


AgentCommand: TypeAlias = Prompt | Answer | Interrupt | Continue | Stop | Configure
SandboxCommand: TypeAlias = Run | Pause | Resume | Checkpoint | Restore | Fork | Allow


class ReceiptState(StrEnum):
    """How far a prompt got."""

    QUEUED = "queued"
    TYPED = "typed"
    SUBMITTED = "submitted"
    STARTED = "started"
    FINISHED = "finished"
    FAILED = "failed"
    """Its turn ended in an error; the receipt's reason names it."""
    UNSURE = "unsure"
    """Nothing shows whether the agent took it, or which turn was its own."""
    REFUSED = "refused"
    LOST = "lost"


HELD: Final = "held"
"""The first word of the reason of a queued prompt that a budget holds."""
NO_TURN: Final = "no turn started from it"
"""Why a receipt is unsure if no turn is known to have carried its prompt."""

FAILED_RECEIPTS: Final = frozenset({ReceiptState.REFUSED, ReceiptState.LOST, ReceiptState.UNSURE})
"""Receipts that a transcript shows: no other entry shows the end of their prompts."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery status of one prompt."""

    id: ReceiptId
    """`<session>-r<n>`, n counted in the session's log."""
    session: SessionId
    state: ReceiptState
    reason: str = ""
    text: str = ""
    """The prompt's first line, for people."""
    at: float = 0.0
    exit_code: int | None = None
    """For a command typed into a shell, once it is finished; None if unknown."""
    digest: str = ""
    """`prompt_digest` of the whole prompt as sent to the agent; empty in logs of earlier versions."""
    carried_by: Literal["", "text", "alone"] = ""
    """Evidence that a turn carried this prompt. `text`: the agent's own record (its protocol, a hook) names the prompt.
    `alone`: a turn began when this was the only prompt it could have been. Empty: no turn is known to have."""
    by: Sender | Literal[""] = ""
    """The origin of the prompt; empty in logs of earlier versions."""
    key: str = ""
    actor: ActingAgent | None = None
    """The agent that sent the prompt; None for a person or a plan."""


def prompt_digest(text: str) -> str:
    """Return a hash of the prompt *text*, independent of white space and of marks around a paste (claude 2.1).

    `kasmon-emit` computes the same.
    """
    import hashlib  # only here: most importers take no digest, and the library takes 4 ms to load

    bare = re.sub(r'</?pasted_content id="[^"]*">', "", text)
    return hashlib.sha256("".join(bare.split()).encode("utf-8", "replace")).hexdigest()[:32]


class ConversationUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversation has used so far: tokens, and cost where known."""

    input: int = 0
    output: int = 0
    cost_usd: float | None = None


class ContextPart(msgspec.Struct, frozen=True, kw_only=True):
    """What a part of the context window holds, by the agent's own words."""

    name: str
    tokens: int


class TerminalLogIn(msgspec.Struct, frozen=True, kw_only=True):
    """The command that logs in to an agent in a terminal, as the agent offers it."""

    title: str
    argv: tuple[str, ...]
    variables: dict[str, str] = {}
    """Its variables beside those of the agent."""


class AdoptedPane(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session runs that kasmon did not start: a pane of the user's own tmux."""

    socket: str
    pane: str
    """tmux's id of it (`%5`), which is only valid in that server."""
    target: str = ""
    """The user's name for it, given or computed: `work:1.0`."""
    server_pid: int = 0
    server_started: str = ""
    """The identity of that server's process, as in `tmux.process_identity.Process`."""


class SessionWorktree(msgspec.Struct, frozen=True, kw_only=True):
    """The git worktree that kasmon created for a session."""

    path: str
    branch: str
    is_new_branch: bool = True
    base: str
    base_name: str = ""
    """What that commit was requested as: a branch, a tag, `pr:12`."""
    source: str
    """The folder in whose repository it was requested; its `.kasmon.toml` applies."""
    setup_s: float = 0.0
    """How long its setup may take, in seconds; 0 if it needs none. In `launch.json`, 0 also once it is done."""
    remarks: tuple[str, ...] = ()
    """What the person should know about it, a sentence part each."""


class WorktreeChoices(msgspec.Struct, frozen=True, kw_only=True):
    """What a new session in a folder of a git repository can work in, besides that folder."""

    base: str
    """What a new worktree begins at unless the user chooses: the branch that is checked out, else `HEAD`."""
    begins: str = ""
    """Name, commit and subject of what was asked for as its base."""
    error: str = ""
    """Why it cannot begin there, with what to do; empty if it can."""
    others: dict[str, str] = {}
    """Branch -> folder of each other worktree that exists, the one that corresponds to the folder asked for."""


LONGEST_ID: Final = 256
LONGEST_TITLE: Final = 200
"""Most characters of a title that are kept."""


class ConversationOffer(msgspec.Struct, frozen=True, kw_only=True):
    """One stored conversation. Its title is the agent's, cleaned; its folder is as the agent reports it."""

    id: str
    """The agent's own id of it."""
    folder: str
    """Where its agent ran."""
    title: str = ""
    """The agent's title for it, else its first prompt, in one line; empty if there is none."""
    used_at: float = 0.0
    """When it was last used, in seconds since the epoch; 0 if unknown."""
    session: str = ""
    """The name of the session that has it; empty if none has."""


class ConversationOffers(msgspec.Struct, frozen=True, kw_only=True):
    """The conversations that an agent stores, the last used one first."""

    conversations: tuple[ConversationOffer, ...] = ()
    is_whole: bool = True
    """Whether these are all of them; very long lists are cut."""


def is_conversation_id(text: str) -> bool:
    """Whether *text* can be the id of a conversation: nothing in it is hidden, and no program takes it as an option."""
    return 0 < len(text) <= LONGEST_ID and text.isprintable() and not has_hidden(text) and not text.startswith("-")


def build_offer(id_: str, folder: str, title: str, used_at: float) -> ConversationOffer | None:
    """Return the offer of a conversation from untrusted texts; None if its id is unusable."""
    if not is_conversation_id(id_):
        return None
    return ConversationOffer(id=id_, folder=folder, title=clean_line(title.strip())[:LONGEST_TITLE], used_at=used_at)


class ConversationFork(msgspec.Struct, frozen=True, kw_only=True):
    """The part of another session's conversation that a new one begins with: all before a prompt, or all of it."""

    conversation: str
    """The agent's own id of it."""
    prompt: str = ""
    """The text of the prompt; empty for the whole conversation."""
    later: int = 0
    """How many later prompts of the conversation have the same text."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How a session is started and restarted; stored as `launch.json`, without the values of variables."""

    session: SessionId
    name: str
    agent: str
    mode: Mode
    backend: str
    """The backend that runs it: `tmux`, `scripted`, ..."""
    argv: tuple[str, ...] = ()
    """The program and its arguments; empty for the scripted backend."""
    workdir: str = "/"
    prompt: str = ""
    """The first prompt, sent once the agent is ready; only in generation 1."""
    fork: ConversationFork | None = None
    """The conversation that its agent begins with a copy of; only in generation 1."""
    model: str = ""
    account: str = ""
    """The account that it uses: its name in the config, or the agent's config directory; empty for the agent's own."""
    parent: SessionId | None = None
    """tmux: open a further window beside this session's."""
    actor: ActingAgent | None = None
    """The agent that started it; None for a person or a plan."""
    limits: StarterLimits | None = None
    """The limits of that agent's machine, if it or an agent above it is on another one."""
    tools: tuple[str, ...] = ()
    """What its agent may use of `kasmon mcp --tools`, besides the tools of each client."""
    task: int | None = None
    wave: int | None = None
    peers: int | None = None
    """The size of the wave, including this session."""
    plan: str | None = None
    tags: tuple[str, ...] = ()
    """Its tags when it is created."""
    fallback: str | None = None
    """Why it does not run in the requested mode."""
    bypassing: bool = False
    """The agent was started without permission prompts; marked in its row."""
    log_in_of: SessionId | None = None
    """The session whose agent offered the program as its log-in; None for any other program."""
    is_command: bool = False
    """tmux: a program that is neither an agent nor an interactive shell; it counts as working until it exits."""
    public_variables: tuple[str, ...] = ()
    """The names of its own variables with public values (`--env-public`)."""
    worktree: SessionWorktree | None = None
    """The worktree that `workdir` is in, if kasmon created it for this session."""
    brought: str = ""
    """The digest of the profile, where a trusted `.kasmon.toml` of its folder defined it; otherwise empty."""
    sandbox: LoggedTier | None = None
    """The tier that confines it; None is unconfined. Its policy is in the session's `sandbox.json`."""
    window: str = ""
    """tmux: the name of its window; empty is the session's name."""
    machine: str = ""
    """tmux: the remote machine it runs on, as ssh names it; empty for this one. Folder (`HOST:PATH`) and program are
    remote too; no program is the login shell."""
    adopted: AdoptedPane | None = None
    """tmux: the user's own pane that it runs in; None for sessions that kasmon started."""
    interrupt_key: Literal["", "ctrl-c", "escape"] = ""
    """tmux: the key that ends a turn; empty for the default of the agent's kind."""
    seed: int = 0
    """For the scripted agent: the random seed of its pauses."""
    speed: float = 1.0
    """For the scripted agent: its pauses are divided by this; 0 means no pauses."""
    permission_mode: str = ""
    """structured, if no argument sets it: the permission mode to set before the first prompt, by the name in the
    agent's protocol; empty: the agent's own choice."""
    generation: int = 1
    """Which start of the agent this is, counted from 1: each restart is the next."""
    resume: str | None = None
    """The agent's own id of the conversation to resume."""
    remembers: str = ""
    """The last prompt of that conversation in kasmon's log, to verify that the agent resumed the same one;
    set by the host, never in the file."""
    used: ConversationUsage = ConversationUsage()
    """The session's earlier usage by its log: many agents count from zero in each process. Set by the host too."""
    handshake_s: float | None = None
    """How long a structured agent may take for its handshake; None is its backend's own limit. Set by the host too."""
    created_at: float = 0.0
