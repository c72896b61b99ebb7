"""The config schema: structs with their defaults. `--explain` prints the docstring below each field.

To add a setting, add one field with its docstring.
"""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from kasmon.config import sandbox_defaults
from kasmon.model.sandbox.policy import CopiedFile, Credential, Mount, ServiceSpec, Tier, VolatileFile

Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=3600)]
Keys: TypeAlias = str | tuple[str, ...]


class SandboxConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a sandbox is created. For sandboxed agents, each profile has its own table: [agents.NAME.confined]."""

    tier: Tier = "jail"
    """The tier: `jail` isolates with namespaces and a system call filter on this machine's kernel, `microvm` with a
    virtual machine that keeps its memory on disk (`kasmon sandbox image build`), `e2b` with a microVM at that service
    (E2B_API_KEY, `kasmon[e2b]`)."""
    size: Literal["default", "build", "max"] = "default"
    """Its resource limits: `default` allows 30 s a run, 2 processors, 512 MB and 1 GB of disk; `build` and `max` allow
    more."""
    template: str = ""
    """The template of an `e2b` sandbox. It needs Python 3.11 and bash, and the agent's program if it is for an agent.
    Empty uses the default of the service."""
    network: tuple[str, ...] = ()
    """The hosts it may reach: names (`example.org`, `*.example.org`, `example.org:8443`) and the presets npm, pypi,
    github. Empty allows none."""
    refuse: tuple[str, ...] = ()
    """The hosts that are refused without a request in the inbox, written like `network`: for a sandboxed agent, hosts
    that its program contacts by itself and can work without (telemetry, updates). The sandbox screen lists these
    refusals too. While a turn runs, hosts of a preset are requested, since the task may need them. A host in `network`
    stays allowed."""
    project: str = ""
    """A folder that is mounted as /project; empty for none."""
    project_writable: bool = False
    """Whether the sandbox may write to the project folder."""
    mounts: tuple[Mount, ...] = ()
    """Further mounted files and folders, each a table: source, target (empty for the same path), writable."""
    volatile: tuple[VolatileFile, ...] = ()
    """Files inside that pauses and checkpoints leave out. They are written again after each resume. Each is a table:
    path, content or source (the name of a credential), mode."""
    services: tuple[ServiceSpec, ...] = ()
    """Services inside, started with the sandbox and checked after each resume. Each is a table: name, port, start."""
    credentials: tuple[Credential, ...] = ()
    """Credentials that each command inside gets as variables; they are never stored. Each is a table: name, one of
    variable, file or command, aliases."""
    files: tuple[CopiedFile, ...] = ()
    """For a sandboxed agent: files that are copied into its home at each start and removed when it ends. Each is a
    table: source, target (empty for the same path below the home), renews (true for a login, whose renewed tokens are
    copied back at the end). A missing source is skipped."""


class Lifetime(msgspec.Struct, frozen=True, kw_only=True):
    """How long an unused sandbox is kept. A sandbox is not idle while a turn runs, or while its agent waits for an
    answer or is in an unknown state. Read when its host or its agent starts."""

    standby_after_seconds: Annotated[float, msgspec.Meta(ge=0, le=31_536_000)] = 900.0
    """An idle sandbox is paused after this time: it uses no processor and its memory stays in RAM. 0 for never."""
    idle_timeout_seconds: Annotated[float, msgspec.Meta(ge=0, le=31_536_000)] | None = None
    """After this time idle, `on_timeout` applies. 0 for never. The default is 1800, except for an agent whose memory
    can only stay in RAM, as in a jail: it stays paused until it is used, or until `max_lifetime_seconds`."""
    max_lifetime_seconds: Annotated[float, msgspec.Meta(ge=0, le=31_536_000)] = 86_400.0
    """A sandbox ends after this time, used or not, once its turn is over. 0 for never."""
    on_timeout: Literal["pause", "end"] = "pause"
    """`pause` writes its memory to disk and ends its processes if its tier supports that; otherwise it ends, as with
    `end`."""
    auto_resume: bool = True
    """Whether use resumes it: a prompt, a run, opening its terminal, a key typed there. Otherwise only `kasmon sandbox
    resume` does."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent is started, under the name that `--agent` takes."""

    program: str = ""
    """The program, by name or path. Empty for the shipped profile's program; for `shell` your login shell."""
    flags: tuple[str, ...] = ()
    """Its arguments; each element is split as a shell would, so "--permission-mode plan" is two."""
    enabled: bool = True
    """Whether it can be started. A disabled profile is refused."""
    execution_mode: Literal["tmux", "sdk"] | None = None
    """How its sessions run without --mode: in a terminal (tmux) or as a structured session (sdk)."""
    protocol: Literal["", "claude", "codex", "acp"] = ""
    """The protocol of its structured sessions. Empty selects it by the program's name and by whether `acp` is set."""
    acp: tuple[str, ...] = ()
    """The arguments that start it with the Agent Client Protocol, split like `flags` and placed before them."""
    model: str = ""
    """The model it uses; empty leaves the choice to the agent."""
    env: dict[str, str] = {}
    """Variables for its process. They are stored in this file: pass a secret with `kasmon new --env NAME` instead."""
    clipboard: bool = False
    """Whether text that it copies while you are in its terminal reaches your clipboard."""
    worktree: bool | None = None
    """Whether each of its sessions gets a git worktree of its own. Empty for `worktree.default`."""
    sandbox: Literal["", "jail", "microvm", "e2b"] = ""
    """The tier of its sandbox; empty for none."""
    confined: SandboxConfig = SandboxConfig()
    """How its sandbox is created, if `sandbox` names a tier."""


def _confined(agent: str) -> SandboxConfig:
    return SandboxConfig(
        size="build",
        network=sandbox_defaults.hosts(agent),
        refuse=sandbox_defaults.refused_hosts(agent),
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
    """The look and the bell of the dashboard."""

    theme: str = ""
    """The name of the theme; empty for kasmon's default."""
    bell: bool = True
    """Ring the terminal's bell when a session begins to need you."""
    toasts: bool = True
    """Show a short notification in the corner when something happens."""
    preview: bool = True
    """Show the preview beside the list when the dashboard opens."""
    ascii: Literal["auto", "yes", "no"] = "auto"
    """Draw with ASCII characters only; auto does so if the terminal is not UTF-8."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long kasmon waits before it reports that something did not happen. A timeout never approves anything."""

    call_s: Seconds = 10.0
    """How long a structured agent may take to accept a prompt, an interrupt or an answer, in seconds. Read when its
    session starts."""
    handshake_s: Seconds | None = None
    """How long a structured agent may take to complete its handshake, in seconds; empty for the default of its kind.
    Read when its session starts."""

    stuck_after_minutes: Annotated[float, msgspec.Meta(ge=0, le=1440)] = 10.0
    """A working agent counts as stuck after this time without progress: no result, no written file, no work of its
    child processes. 0 for never. Read when its host starts."""
    stuck_after_calls: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 5
    """A working agent counts as stuck after this many identical calls in a row. 0 for never. Read when its host
    starts."""


class Notify(msgspec.Struct, frozen=True, kw_only=True):
    """How the dashboard notifies you: by the bell (`ui.bell`), the desktop, and your command."""

    desktop: Literal["auto", "yes", "no"] = "auto"
    """Show a desktop notification; needs kasmon[desktop]. auto does so if that is installed and works."""
    command: tuple[str, ...] = ()
    """A program and its arguments, run without a shell for each notification. It gets KASMON_NOTIFY_KIND, _TITLE, _TEXT
    and _SESSIONS in its environment and the same as JSON on its stdin. kasmon ends it after 10 s."""
    finished_after_s: Annotated[float, msgspec.Meta(ge=0, le=86400)] = 60.0
    """Notify also when an agent finishes after it worked this long, in seconds. 0 for never."""


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """How the dashboard presents pending requests."""

    popup: bool = False
    """Open the permission card by itself while the session list has the focus and no key was pressed for 1 s. Without
    it a banner counts the pending requests, and a key opens them."""


class Plans(msgspec.Struct, frozen=True, kw_only=True):
    """How plans run, unless the plan sets it."""

    folders: tuple[str, ...] = ()
    """Folders whose plan files the dashboard lists. It reads them again when they change."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 8
    """How many tasks of a plan run at once."""
    max_load: Annotated[float, msgspec.Meta(ge=0, le=1000)] = 4.0
    """No further task starts while the load per processor is above this. 0 for no limit."""
    auto_advance: bool = False
    """Start the next wave without asking when all tasks of a wave are done."""
    believe: bool = False
    """Accept a task without a check as done when its agent reports that, without asking."""


class WorktreeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The git worktrees of sessions."""

    default: Literal["folder", "new"] = "folder"
    """Where a session works without --worktree: in the folder itself, or in a new worktree if that is in a git
    repository. Programs after `--` and plans work as they are told."""
    branch: str = "kasmon/{name}"
    """The name of the branch of a new worktree; `{name}` is the session's name."""
    setup: str = ""
    """A shell command that runs in each new worktree before its session starts."""
    setup_s: Seconds = 600.0
    """How long that command may take, in seconds."""
    copy: tuple[str, ...] = ()
    """Files and folders of the checkout that are copied into a new worktree, as `.env` or `certs/*`."""
    link: tuple[str, ...] = ()
    """Files and folders of the checkout that a new worktree links to, as `node_modules`."""
    teardown: str = ""
    """A shell command that runs in a worktree before kasmon removes it."""
    folder: str = ""
    """Where new worktrees are created, each in a folder of its own; `{repository}` is the repository's name. Empty for
    `{repository}-worktrees` beside the repository, and a relative path begins there too."""


class Tmux(msgspec.Struct, frozen=True, kw_only=True):
    """kasmon's own tmux server."""

    history_limit: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 10_000
    """The scrollback lines of a new terminal. Read when kasmon's tmux host starts."""


class SearchConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What `kasmon grep` and the search of the dashboard find besides transcripts."""

    record: bool = True
    """Record terminal output as text, without known secrets, for search and export. `kasmon rm` deletes it. Read when
    kasmon's tmux host starts; earlier records are kept until then."""
    record_mb: Annotated[float, msgspec.Meta(ge=0.1, le=1000)] = 10.0
    """The most that is recorded for a session, in MB; the oldest lines are dropped first. Read when kasmon's tmux host
    starts."""


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """The review of what agents changed."""

    turns: bool = True
    """Store the files of a session's git worktree before and after each turn, for `kasmon diff` and `kasmon undo`.
    Files that git ignores are left out. Read when its host starts."""


class FinishConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Pull requests of sessions' branches."""

    watch: bool = False
    """Whether an open dashboard reads pull requests also while you do not look at it: at most once a minute for each
    repository, by `gh` or `glab`."""
    auto_fix: bool = False
    """Whether an open dashboard sends failed checks and requested changes to the session by itself, once for each
    commit; the agent is asked to push."""
    rounds: Annotated[int, msgspec.Meta(ge=1, le=100)] = 5
    """How many times that is done for a branch at most."""


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """Other machines, used as `--agent shell@HOST`."""

    ssh: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("ssh",)
    """The SSH program with its arguments; hosts are set in its own config. Read when kasmon's tmux host starts."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All settings."""

    default_agent: str = "claude"
    """The profile of a new session without --agent."""
    agents: dict[str, Profile] = msgspec.field(default_factory=lambda: dict(SHIPPED))
    """The profiles, each a table [agents.NAME]."""
    keys: dict[str, Keys] = {}
    """The keys of each action; `?` in the dashboard shows the actions."""
    ui: Ui = Ui()
    """The look and the bell of the dashboard."""
    limits: Limits = Limits()
    """The timeouts of kasmon."""
    notify: Notify = Notify()
    """How the dashboard notifies you."""
    attention: Attention = Attention()
    """How the dashboard presents pending requests."""
    plans: Plans = Plans()
    """How plans run."""
    worktree: WorktreeConfig = WorktreeConfig()
    """The git worktrees of sessions."""
    tmux: Tmux = Tmux()
    """kasmon's own tmux server."""
    search: SearchConfig = SearchConfig()
    """The search and the terminal records."""
    review: Review = Review()
    """The review of what agents changed."""
    finish: FinishConfig = FinishConfig()
    """Pull requests of sessions' branches."""
    remote: Remote = Remote()
    """Other machines."""
    sandbox: SandboxConfig = SandboxConfig()
    """How interpreter sandboxes are created, unless `kasmon sandbox create` sets it."""
    session: Lifetime = Lifetime()
    """How long sandboxes are kept."""
