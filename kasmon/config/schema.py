"""The config schema: structs with their defaults. `--explain` prints the docstring below each field.

To add a setting, add one field with its docstring, then run `make pages`.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from kasmon.agents.catalog import catalog
from kasmon.agents.profile import AgentProfile, SandboxNeeds
from kasmon.model.commands import ABILITIES, Ability
from kasmon.model.sandbox.policy import CopiedFile, Credential, Mount, ServiceSpec, Tier, VolatileFile

Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=3600)]
HTTPS_HOST: Final = msgspec.Meta(
    pattern=r"^(https://[a-z0-9.-]+(:[0-9]{1,5})?)?\Z",
    description="`https://` and a host name in small letters, without a path",
)
PROMPT_TEMPLATE: Final = r"\A(?:[^{}]|\{\{|\}\}|\{[A-Za-z_][A-Za-z0-9_]*\})*\Z"
BudgetText: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=r"^(\$[0-9]{1,9}(\.[0-9]{1,2})?|[0-9]{1,12}(\.[0-9]{1,3})?[kM]?)?$")
]
BoundKeys: TypeAlias = str | tuple[str, ...]
NotifyEvent: TypeAlias = Literal[
    "asking", "lost", "crashed", "stuck", "unsure", "limited", "finished", "plan", "machine"
]
QuietHours: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"\A((?:[01]\d|2[0-3]):[0-5]\d-(?:[01]\d|2[0-3]):[0-5]\d)?\Z", description="a text like '22:00-07:00'"
    ),
]


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
    """How long an unused sandbox or agent is kept. A sandbox is not idle while a turn runs, or while its agent waits
    for an answer or is in an unknown state. Read when its host or its agent starts."""

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
    hibernate_after: Annotated[float, msgspec.Meta(ge=0, le=525_600)] = 0.0
    """An agent without a sandbox that is idle for this long is hibernated, in minutes, as by `kasmon hibernate`, if
    nothing is against that. 0 for never."""
    memory_budget: Annotated[int, msgspec.Meta(ge=0, le=100_000_000)] = 0
    """The memory that agents may use together, in MB. Above it the dashboard and `kasmon top` propose which idle ones
    to hibernate, those first that are idle for the longest time. 0 for no limit."""


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
    tools: tuple[Literal["fleet"], ...] = ()
    """What its agent may use of `kasmon mcp --tools`: `fleet` lets it start and prompt other agents, within the limits
    of the table [fleet]. Empty for nothing; `kasmon new --tools` sets it for one session."""
    sandbox: Literal["", "jail", "microvm", "e2b"] = ""
    """The tier of its sandbox; empty for none."""
    confined: SandboxConfig = SandboxConfig()
    """How its sandbox is created, if `sandbox` names a tier."""


def shipped_sandbox(agent: AgentProfile) -> SandboxConfig:
    """Return how a sandbox of *agent* is created without settings of the user."""
    known = agent.sandbox
    if known == SandboxNeeds():
        return SandboxConfig()
    return SandboxConfig(
        size="build",
        network=tuple(known.hosts),
        refuse=tuple(known.refused),
        files=tuple(
            CopiedFile(source=f"~/{path}", target=path, renews=path in known.log_in_files)
            for path in (*known.log_in_files, *known.files)
        ),
    )


class ShippedProfiles(Mapping[str, Profile]):
    """The profiles that need no config: one for each agent in the folders of `kasmon.agents`, read when it is used.

    A table of the same name in the config overrides only the settings it has.
    """

    def __getitem__(self, name: str) -> Profile:
        if (agent := catalog().get(name)) is None:
            raise KeyError(name)
        program = "" if agent.login_shell else name
        return Profile(program=program, acp=agent.start.acp, confined=shipped_sandbox(agent))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and any(catalog().folders(name))

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in catalog().names() if catalog().get(name)])

    def __len__(self) -> int:
        return len(list(iter(self)))


SHIPPED: Final = ShippedProfiles()


class Ui(msgspec.Struct, frozen=True, kw_only=True):
    """The look and the bell of the dashboard."""

    theme: str = ""
    """The name of the theme; empty for kasmon's default, which is a light one on a light terminal."""
    light_theme: str = ""
    """The name of the theme on a light terminal, if it differs from `theme`."""
    bell: bool = True
    """Ring the terminal's bell when a session begins to need you."""
    toasts: bool = True
    """Show a short notification in the corner when something happens."""
    preview: bool = True
    """Show the preview beside the list when the dashboard opens."""
    ascii: Literal["auto", "yes", "no"] = "auto"
    """Draw with ASCII characters only; auto does so if the terminal is not UTF-8."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long kasmon waits before it reports that something did not happen, and what follows a provider's usage limit.
    A timeout never approves anything."""

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

    resume: Literal["ask", "auto", "never"] = "ask"
    """What happens to sessions that wait for a usage limit once it ends: `ask` resumes those that you allowed, `auto`
    all, `never` none."""
    resume_spacing_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 10.0
    """The time between two sessions that are resumed after a usage limit, in seconds."""
    resume_at_once: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 3
    """How many of these sessions work at once: the next is resumed when one of them is done."""


class AccountConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A log-in of an agent, under the name that `--account` takes."""

    agent: str = ""
    """The profile that it is for: `claude`, `codex`, or another one with the same program."""
    directory: str = ""
    """The agent's config directory, where this account is logged in; empty for the usual one."""
    env: dict[str, str] = {}
    """Variables for its sessions. A value that begins with `$` is that of your variable with this name: keep keys out
    of this file (`ANTHROPIC_API_KEY = "$WORK_KEY"`)."""


class TemplateConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a session is started, under the name that `--template` takes. Options of `kasmon new` have priority."""

    agent: str = ""
    """The profile that is started; empty for that of its account, else for `default_agent`."""
    account: str = ""
    """The account that it uses; empty for the agent's own log-in."""
    mode: Literal["tmux", "sdk"] | None = None
    """How it runs: in a terminal (tmux) or as a structured session (sdk). Empty for the profile's mode."""
    worktree: bool | None = None
    """Whether it gets a git worktree of its own. Empty for the profile's setting, else for `worktree.default`."""
    base: str = ""
    """What its new worktree begins at: a branch, a tag, a commit, `pr:NUMBER`. Empty for the checked out branch."""
    sandbox: Literal["", "jail", "microvm", "e2b"] | None = None
    """The tier of its sandbox; "" is none. Empty for the profile's sandbox."""
    machine: str = ""
    """The registered machine that it is started on; empty for this one."""
    tags: tuple[str, ...] = ()
    """Its tags."""
    prompt: Annotated[
        str,
        msgspec.Meta(
            pattern=PROMPT_TEMPLATE,
            description="a text in which each field is a word in braces, as {issue}; {{ and }} stand for braces",
        ),
    ] = ""
    """Its first prompt. `{issue}` is a field: `kasmon new --field issue=12` gives its text, and the dialog for a new
    session asks for it. `{{` and `}}` stand for braces."""


class NotifyTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A service that notifications are pushed to, with or without an open dashboard; needs kasmon[push]."""

    url: str = ""
    """The address of the service as apprise writes it, with its secrets: `ntfys://ntfy.sh/TOPIC`. kasmon never prints
    it. Set one of `url`, `url_file` and `url_env`."""
    url_file: str = ""
    """A file whose first line is that address; only you may read it (mode 0600)."""
    url_env: str = ""
    """The name of an environment variable with that address, where kasmon is started."""
    events: tuple[NotifyEvent, ...] = ("asking", "lost", "crashed", "stuck", "limited", "finished", "plan")
    """What is pushed."""
    sessions: tuple[str, ...] = ()
    """The sessions it is for, by name; `*` stands for any text. Empty for all of them, and for plans and machines."""
    when: Literal["away", "desk", "always"] = "away"
    """Push while you are away, while you are at the desk, or always; `notify.away_after_minutes` decides. What still
    needs you when that changes is pushed then."""
    quiet_hours: QuietHours = ""
    """The local time of day at which nothing is pushed. What still needs you at its end is pushed then."""
    escalate_after_minutes: Annotated[float, msgspec.Meta(ge=0, le=1440)] = 0.0
    """Push only what still needs you after this time, for a second target that you cannot miss. 0 pushes at once."""
    link: bool = True
    """Send also a link to the page of a request, while `kasmon web` runs. Who reads it can answer the request."""


class BudgetConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How much agents may use, as they report it: money (`$5`) or tokens (`500k`, `2M`). Empty for no budget.

    From 80 % on kasmon warns. A budget that is used up lets no more prompts be sent, unless you agree to each; nothing
    is ended."""

    per_session: BudgetText = ""
    """For each session, since it was created."""
    per_plan: BudgetText = ""
    """For all sessions of a plan. No further task starts when it is used up."""
    per_day: BudgetText = ""
    """For all sessions in a day, which begins at 00:00 UTC. No further task of a plan starts when it is used up."""


class FleetConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent may do with other sessions: by `kasmon mcp --tools fleet`, and by `kasmon new` and `kasmon send`,
    if it or a program of it runs them. A child is a session that an agent started; children of children count too."""

    sees: Literal["own", "all"] = "own"
    """The sessions that the tools show: `own` are the agent's session and its children, `all` are all of this
    machine."""
    agents: tuple[str, ...] = ()
    """The profiles that the tools may start. Empty for the agent's own profile only."""
    sandboxes: tuple[Literal["jail", "microvm", "e2b"], ...] = ()
    """The sandboxes that the tools may choose for a child, besides that of its profile, which they cannot remove."""
    machines: tuple[str, ...] = ()
    """The registered machines on which the tools may start children, with a profile of the config there, and within
    the limits there too. Empty for none."""
    depth: Annotated[int, msgspec.Meta(ge=0, le=8)] = 1
    """How deep children may be: 1 allows children, 2 also children of children, 0 none."""
    sessions: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 4
    """How many children of a session that you started may exist at once."""
    starts: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 20
    """How many children of it may be started in all, ended and removed ones included."""
    money: BudgetText = "$5"
    """How much all children of it may use together, as their agents report it. Then agents start and prompt no more of
    them."""
    tokens: BudgetText = "2M"
    """The same in tokens, for agents that report no money."""
    minutes: Annotated[float, msgspec.Meta(gt=0, le=525_600)] = 120.0
    """How long a child may work, from its start: then agents prompt it no more, and it is stopped unless you restarted
    it. Read when it starts."""


class Notify(msgspec.Struct, frozen=True, kw_only=True):
    """How kasmon notifies you: by the bell (`ui.bell`), the desktop, your command, and services."""

    desktop: Literal["auto", "yes", "no"] = "auto"
    """Show a desktop notification; needs kasmon[desktop]. auto does so if that is installed and works."""
    command: tuple[str, ...] = ()
    """A program and its arguments, run without a shell for each notification. It gets KASMON_NOTIFY_KIND, _TITLE, _TEXT
    and _SESSIONS in its environment and the same as JSON on its stdin. kasmon ends it after 10 s."""
    finished_after_s: Annotated[float, msgspec.Meta(ge=0, le=86400)] = 60.0
    """Notify also when an agent finishes after it worked this long, in seconds. 0 for never."""
    away_after_minutes: Annotated[float, msgspec.Meta(ge=0, le=1440)] = 3.0
    """You count as away after this time without a key in any dashboard, or while your screen is locked."""
    targets: dict[str, NotifyTarget] = {}
    """The services, each a table [notify.targets.NAME]."""


class WebConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Pages for a browser, for example on a phone: one request by a link, and the list of sessions after a login."""

    link_minutes: Annotated[float, msgspec.Meta(gt=0, le=1440)] = 15.0
    """How long such a link works, in minutes. An answer uses it up."""
    link_rules: bool = False
    """Whether its page also offers *always*, which makes a rule for the session."""
    link_url: Annotated[str, HTTPS_HOST] = ""
    """Where a browser elsewhere reaches `kasmon web`, for example through `tailscale serve`: `https://` and a host
    name. Under this name only the pages of requests are served. Empty for this machine only. Read when `kasmon web`
    starts."""
    link_list: bool = False
    """Whether the list of sessions is served under the name in `link_url` too. It needs a login. Read when `kasmon web`
    starts."""
    login_days: Annotated[float, msgspec.Meta(gt=0, le=365)] = 30.0
    """How long a browser stays logged in to the list of sessions, in days."""


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
    lost_machine_s: Annotated[float, msgspec.Meta(ge=1, le=86400)] = 90.0
    """A task that may run on several machines is tried again on another one after its machine was unreachable for this
    long, in seconds. What it did there in the meantime is not used."""
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


class MachineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """This machine, for those who registered it on another one (`kasmon machines add`)."""

    allow: tuple[Ability, ...] = ABILITIES
    """What they may do here: `see` the sessions, `prompt` and `answer` agents (to a shell, a prompt is a command),
    `type` into terminals, `start` and end sessions and run commands, run code in each `sandbox`. All by default: who
    has an account here can do all that by ssh too. For other people, give their key in `authorized_keys` the command
    `kasmon bus --stdio --allow see`."""
    labels: tuple[str, ...] = ()
    """What kind of machine it is, for tasks of plans that ask for it: `linux`, `gpu`."""
    slots: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    """How many tasks of their plans run here at once, and of plans here that may run on any machine. 0 for
    `plans.limit`."""
    repositories: tuple[str, ...] = ()
    """Git repositories, or folders with some, whose commits a plan of another machine need not send here. Their refs
    and files never change."""
    repository_days: Annotated[float, msgspec.Meta(ge=0, le=36500)] = 30.0
    """How long the repositories and worktrees of their tasks stay here after the last use, in days. What a plan has not
    fetched stays longer. 0 for ever."""


class WatchRule(msgspec.Struct, frozen=True, kw_only=True):
    """A watcher session: its prompts are what other sessions do. It can comment and propose; it answers no request."""

    session: Annotated[str, msgspec.Meta(min_length=1)]
    """The name of the watcher session."""
    agent: str = ""
    """The profile with which it is started if there is none of that name; empty never starts one."""
    folder: str = ""
    """The folder in which it is started; empty for the home folder."""
    on: tuple[Literal["turn-ended", "request", "checks-failed"], ...] = ("turn-ended",)
    """What it is told: that a turn ended, that a request waits, that checks of a pull request failed (`gh` or `glab`
    reads them with your login, once a minute)."""
    tags: tuple[str, ...] = ()
    """Only about sessions with one of these tags; empty for all others of this machine. Nothing is reported about
    watchers, or about turns that an agent prompted."""
    prompt: str = "Tell me in one line each what needs my attention."
    """What it shall do; the events follow, quoted as data."""
    per_hour: Annotated[int, msgspec.Meta(ge=1, le=60)] = 6
    """The most prompts in an hour. Events wait meanwhile, and are sent together."""
    most: Annotated[int, msgspec.Meta(ge=1, le=10000)] = 100
    """The most prompts ever sent by this rule's session name; `rm` of `watch/sent.jsonl` in the state folder starts
    again."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All settings."""

    default_agent: str = "claude"
    """The profile of a new session without --agent."""
    agents: Mapping[str, Profile] = msgspec.field(default_factory=lambda: SHIPPED)
    """The profiles, each a table [agents.NAME]."""
    budget: BudgetConfig = BudgetConfig()
    """How much agents may use."""
    fleet: FleetConfig = FleetConfig()
    """What agents may do with other sessions."""
    accounts: dict[str, AccountConfig] = {}
    """Further log-ins, each a table [accounts.NAME]."""
    templates: dict[str, TemplateConfig] = {}
    """The templates of new sessions, each a table [templates.NAME]."""
    keys: dict[str, BoundKeys] = {}
    """The keys of each action; `?` in the dashboard shows the actions."""
    ui: Ui = Ui()
    """The look and the bell of the dashboard."""
    limits: Limits = Limits()
    """The timeouts of kasmon."""
    notify: Notify = Notify()
    """How kasmon notifies you."""
    web: WebConfig = WebConfig()
    """Links to requests."""
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
    machine: MachineConfig = MachineConfig()
    """This machine, for others."""
    watch: tuple[WatchRule, ...] = ()
    """The watcher sessions, each a table [[watch]]."""
    sandbox: SandboxConfig = SandboxConfig()
    """How interpreter sandboxes are created, unless `kasmon sandbox create` sets it."""
    session: Lifetime = Lifetime()
    """How long sandboxes and idle agents are kept."""
