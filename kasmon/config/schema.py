"""The config schema: structs with their defaults. `--explain` prints the docstring below each field.

To add a setting, add one field with its docstring.
"""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from kasmon.config import sandbox_defaults
from kasmon.model.sandbox.policy import Credential, HandedFile, Mount, ServiceSpec, Tier, VolatileFile

Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=3600)]
Keys: TypeAlias = str | tuple[str, ...]


class SandboxConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a sandbox is made. For sandboxed agents, each profile has its own: [agents.NAME.confined]."""

    tier: Tier = "jail"
    """What confines it: `jail` is namespaces and a filter of system calls, on this machine's kernel; `microvm` a
    virtual machine that keeps its memory on disk (`kasmon sandbox image build`); `e2b` a microVM at that service
    (E2B_API_KEY, `kasmon[e2b]`)."""
    size: Literal["default", "build", "max"] = "default"
    """What it may use: default is 30 s a run, 2 processors, 512 MB, 1 GB of disk; build and max are more."""
    template: str = ""
    """What a sandbox of `e2b` is made from: it needs Python 3.11 and bash, and an agent's program where it is for one.
    Empty is the service's own choice."""
    network: tuple[str, ...] = ()
    """Whom it may reach: hosts (`example.org`, `*.example.org`, `example.org:8443`) and the presets npm, pypi, github;
    empty is nobody."""
    refuse: tuple[str, ...] = ()
    """Whom it is refused without a request in the inbox, written like `network`: for an agent inside, what its program
    contacts by itself and works without (telemetry, updates). The sandbox's screen lists these refusals too. Hosts of
    a preset are asked about while a turn runs, as its work may need them. One in `network` is reached all the same."""
    project: str = ""
    """A folder that it sees as /project; empty is none."""
    project_writable: bool = False
    """Whether it may write there."""
    mounts: tuple[Mount, ...] = ()
    """Further files and folders that it sees, each a table: source, target (empty is the same path), writable."""
    volatile: tuple[VolatileFile, ...] = ()
    """Files inside that no pause and no checkpoint keeps, written anew after each resume: path, content or source (the
    name of a credential), mode."""
    services: tuple[ServiceSpec, ...] = ()
    """What runs inside beside it, started with it and looked for after each resume: name, port, start."""
    credentials: tuple[Credential, ...] = ()
    """Variables that each command inside gets, and nothing keeps: name, one of variable, file or command, aliases."""
    files: tuple[HandedFile, ...] = ()
    """For an agent inside: files of which its home gets a copy at each start, taken away when it ends: source, target
    (empty is the same place below the home), renews (true: a log-in, whose renewed tokens are brought back then). One
    that is not there is left out."""


class Lifetime(msgspec.Struct, frozen=True, kw_only=True):
    """How long an unused sandbox is kept, with interpreters or with an agent. A sandbox is not idle while a turn runs,
    or while its agent waits for an answer or is in an unknown state. Read when its host or its agent starts."""

    standby_after_seconds: Annotated[float, msgspec.Meta(ge=0, le=31_536_000)] = 900.0
    """It sleeps after so long: it takes no processor, and its memory is held. 0 never."""
    idle_timeout_seconds: Annotated[float, msgspec.Meta(ge=0, le=31_536_000)] | None = None
    """After so long happens what `on_timeout` says; 0 never. By default 1800, but for an agent whose memory can only be
    held, as in a jail: it sleeps until it is used, or until `max_lifetime_seconds`."""
    max_lifetime_seconds: Annotated[float, msgspec.Meta(ge=0, le=31_536_000)] = 86_400.0
    """It ends after so long, used or not, once its turn is over. 0 never."""
    on_timeout: Literal["pause", "end"] = "pause"
    """pause writes its memory to disk and ends its processes, where its tier can; else it ends, as with end."""
    auto_resume: bool = True
    """Whether use wakes it: a prompt, a run, sitting down at its pane, a key typed there; otherwise only `kasmon
    sandbox resume` does."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One way of starting an agent, under the name that `--agent` takes."""

    program: str = ""
    """The program, by name or path. Empty is the shipped profile's own; for `shell` your login shell."""
    flags: tuple[str, ...] = ()
    """Its arguments; each element is split as a shell would, so "--permission-mode plan" is two."""
    enabled: bool = True
    """Whether it is offered; a disabled profile is refused by name."""
    execution_mode: Literal["tmux", "sdk"] | None = None
    """How its sessions run unless --mode says otherwise: in a terminal (tmux) or as a structured session (sdk)."""
    protocol: Literal["", "claude", "codex", "acp"] = ""
    """What a structured session speaks with it; empty goes by the program's name, and by whether `acp` is given."""
    acp: tuple[str, ...] = ()
    """The arguments with which it speaks the Agent Client Protocol, split like `flags`; they go before those."""
    model: str = ""
    """The model it is told to use; empty leaves the choice to the agent."""
    env: dict[str, str] = {}
    """Variables for its process. They lie in this file: name a secret with `kasmon new --env NAME` instead."""
    clipboard: bool = False
    """Whether what it puts on the clipboard while you are in its terminal gets to yours."""
    sandbox: Literal["", "jail", "microvm", "e2b"] = ""
    """What confines it; empty is nothing."""
    confined: SandboxConfig = SandboxConfig()
    """How its sandbox is made, where it has one; `sandbox` says the tier."""


def _confined(agent: str) -> SandboxConfig:
    return SandboxConfig(
        size="build",
        network=sandbox_defaults.hosts(agent),
        refuse=sandbox_defaults.refused(agent),
        files=sandbox_defaults.files(agent),
    )


SHIPPED: Final = {
    "claude": Profile(program="claude", confined=_confined("claude")),
    "codex": Profile(program="codex", confined=_confined("codex")),
    "opencode": Profile(program="opencode", acp=("acp",), confined=_confined("opencode")),
    "gemini": Profile(program="gemini", acp=("--acp",), confined=_confined("gemini")),
    "amp": Profile(program="amp"),
    "shell": Profile(),
    "scripted": Profile(program="scripted"),
}
"""The profiles that need no config; a table of the same name in the config overrides only the settings it has."""


class Ui(msgspec.Struct, frozen=True, kw_only=True):
    """How the dashboard looks and sounds."""

    theme: str = ""
    """The theme's name; empty is the one kasmon ships as its own."""
    bell: bool = True
    """Ring the terminal's bell when a session begins to need you."""
    toasts: bool = True
    """Show a short note in the corner when something happens."""
    preview: bool = True
    """Show the preview beside the list when the dashboard opens."""
    ascii: Literal["auto", "yes", "no"] = "auto"
    """Draw with ASCII characters only; auto does so where the terminal is not UTF-8."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long kasmon waits before it says that something did not happen. Time never allows anything."""

    call_s: Seconds = 10.0
    """For a structured agent to take a prompt, an interrupt or an answer, in seconds; read when its session starts."""
    handshake_s: Seconds | None = None
    """For a structured agent to introduce itself, in seconds; empty is as long as its kind needs. Read likewise."""

    stuck_after_minutes: Annotated[float, msgspec.Meta(ge=0, le=1440)] = 10.0
    """An agent that works counts as stuck when nothing came of it for so long: no result, no file written, no work of
    its children. 0 never. Read when its host starts."""
    stuck_after_calls: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 5
    """Likewise when it made the very same call so often in a row; 0 never."""


class Notify(msgspec.Struct, frozen=True, kw_only=True):
    """How the dashboard calls you while you look elsewhere: by the bell (`ui.bell`), the desktop, and your command."""

    desktop: Literal["auto", "yes", "no"] = "auto"
    """Show a note on the desktop; needs kasmon[desktop]. auto does so where that is installed and works."""
    command: tuple[str, ...] = ()
    """A program and its arguments, run without a shell for each call. It finds KASMON_NOTIFY_KIND, _TITLE, _TEXT and
    _SESSIONS in its environment, the same as JSON on its stdin, and is ended after 10 s."""
    finished_after_s: Annotated[float, msgspec.Meta(ge=0, le=86400)] = 60.0
    """Call also when an agent has finished after it worked so long, in seconds; 0 never does."""


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """How the dashboard presents pending requests."""

    popup: bool = False
    """Open the permission card by itself while the session list has the focus and no key was pressed for 1 s. Without
    it a banner counts the pending requests, and a key opens them."""


class Plans(msgspec.Struct, frozen=True, kw_only=True):
    """How plans run, where they do not say it themselves."""

    folders: tuple[str, ...] = ()
    """Folders whose plan files the dashboard lists, and reads anew when they change."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 8
    """How many of a plan's tasks run at once."""
    max_load: Annotated[float, msgspec.Meta(ge=0, le=1000)] = 4.0
    """No further task begins while the machine's load for each processor is above this; 0 never waits."""
    auto_advance: bool = False
    """After a wave in which all is done, begin the next one without asking."""
    believe: bool = False
    """Where a task has no check, take its agent's word for it without asking."""


class Tmux(msgspec.Struct, frozen=True, kw_only=True):
    """kasmon's own tmux server."""

    history_limit: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 10_000
    """How many lines that scrolled away a new terminal keeps; read when kasmon's tmux host starts."""


class SearchConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What `kasmon grep` and the dashboard's search find beside transcripts."""

    record: bool = True
    """Keep what terminals print, as text without what is known to be secret, to be searched and exported; `kasmon rm`
    deletes it. Read when kasmon's tmux host starts; what was kept before stays until then."""
    record_mb: Annotated[float, msgspec.Meta(ge=0.1, le=1000)] = 10.0
    """How much of it is kept for each session, in MB; the oldest goes first. Read likewise."""


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """Other machines, as in `--agent shell@HOST`."""

    ssh: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("ssh",)
    """The program that reaches them, with arguments of its own; whom it reaches how stands in its own config. Read when
    kasmon's tmux host starts."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be set."""

    default_agent: str = "claude"
    """The profile of a new session that names none."""
    agents: dict[str, Profile] = msgspec.field(default_factory=lambda: dict(SHIPPED))
    """The profiles, each a table [agents.NAME]."""
    keys: dict[str, Keys] = {}
    """Action -> its key or keys; `?` in the dashboard shows the actions."""
    ui: Ui = Ui()
    """How the dashboard looks and sounds."""
    limits: Limits = Limits()
    """How long kasmon waits."""
    notify: Notify = Notify()
    """How the dashboard calls you while you look elsewhere."""
    attention: Attention = Attention()
    """How the dashboard presents pending requests."""
    plans: Plans = Plans()
    """How plans run."""
    tmux: Tmux = Tmux()
    """kasmon's own tmux server."""
    search: SearchConfig = SearchConfig()
    """What search finds."""
    remote: Remote = Remote()
    """Other machines."""
    sandbox: SandboxConfig = SandboxConfig()
    """How the sandboxes of interpreters are made, unless `kasmon sandbox create` says otherwise."""
    session: Lifetime = Lifetime()
    """How long sandboxes are kept."""
