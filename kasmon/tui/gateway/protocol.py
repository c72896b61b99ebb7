"""The interface between the dashboard and everything below it: `Gateway`, and the values it takes and returns.

The app gets a gateway and does no other I/O. Widgets do not see the gateway: they get values and post messages. Every
value in here is frozen; every call that may wait is a coroutine or an async iterator.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

import msgspec

from kasmon.host.rpc.frames import FromHost, TextDelta
from kasmon.model.adoption.background_session import BackgroundSession
from kasmon.model.adoption.pane_candidate import AdoptablePane
from kasmon.model.collisions import CollisionSummary
from kasmon.model.commands import ConversationOffers, Mode, WorktreeChoices
from kasmon.model.events import Event, SlashCommand
from kasmon.model.fleet import Fleet, FleetDifference
from kasmon.model.permission import SessionId
from kasmon.model.prompts.image import PromptImage
from kasmon.repository.branch import BranchSummary
from kasmon.store.event_log import START, Cursor
from kasmon.tui.session_list.layout import ListLayout
from kasmon.tui.terminal.link import TerminalLink

if TYPE_CHECKING:
    from kasmon.config.profile import ProfileOffer
    from kasmon.config.schema import TemplateConfig
    from kasmon.model.review.comments import LoggedComment
    from kasmon.store.machines import MachineStatus
    from kasmon.supervisor.finish.finish_plan import FinishRequest, PlannedFinish
    from kasmon.supervisor.finish.merge_plan import MergePlan
    from kasmon.supervisor.plans.boards import PlanBoard
    from kasmon.supervisor.sandboxes.history import SandboxHistory
    from kasmon.supervisor.search.search import SessionHits
    from kasmon.supervisor.worktrees.code_symbols import CodeSymbol
    from kasmon.tui.gateway.operations import Operations


class EventBatch(msgspec.Struct, frozen=True):
    """The next events of one session's log, oldest first, and the cursor after them."""

    events: tuple[Event, ...]
    cursor: Cursor
    more: bool = False
    """Whether further events exist already and follow at once."""
    is_end: bool = False
    """Whether these are the last events of a long log, shown until it is read from its start; they come again then."""


TranscriptUpdate: TypeAlias = EventBatch | TextDelta


class CardContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the permission card of a session needs besides the request."""

    secrets: tuple[str, ...] = ()
    """The values of its environment that must not be shown."""
    project: str = ""
    """The folder that a rule for its project would cover; empty for none."""


class FleetUpdate(msgspec.Struct, frozen=True):
    """The fleet, and the contexts of its sessions with requests. No card may be shown before its context is there."""

    fleet: Fleet
    cards: Mapping[SessionId, CardContext] = {}
    change: FleetDifference | None = None
    """The difference from the update before; None if that is not known."""


class SandboxPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent's sandbox would get."""

    lines: tuple[str, ...] = ()
    """A sentence each."""
    is_agreed: bool = True
    """Whether the user has agreed to it before, or there is nothing to agree to."""


class TierOffer(msgspec.Struct, frozen=True, kw_only=True):
    """One tier of sandbox that a new session may use."""

    tier: str
    why_not: str = ""
    """Why none can be created here, and what would help, a sentence a line; empty if it can."""
    has_agents: bool = True
    """Whether agents run in it; interpreters run in every tier."""


class SandboxChoices(msgspec.Struct, frozen=True, kw_only=True):
    """The sandboxes that a new session may use, and the config's settings for interpreter sandboxes."""

    tiers: tuple[TierOffer, ...] = ()
    sizes: tuple[str, ...] = ()
    size: str = ""
    hosts: tuple[str, ...] = ()
    """The network hosts that they may reach."""
    project: str = ""
    """The folder mounted as /project; empty for none."""


class Split(msgspec.Struct, frozen=True):
    """The list's share of the window, as the user dragged the divider; 0 means not set."""

    width: int = 0
    """In percent, with the preview beside the list."""
    height: int = 0
    """In percent, with the preview below it."""


class RecordedText(msgspec.Struct, frozen=True, kw_only=True):
    """Part of what a session's terminal printed, oldest first."""

    lines: tuple[str, ...] = ()
    here: int | None = None
    """The index of the requested line; None if that no longer exists."""


class SessionChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What a session changed."""

    diff: str
    """As git prints it, cleaned; empty if it changed nothing."""
    turn: int | None = None
    """The number of the turn that changed it; None for all since the session's branch began."""
    turns: tuple[int, ...] = ()
    """The stored turns, where they were read."""


class DashboardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the config and theme files; the last good one where a file is broken."""

    theme: str = ""
    """The name of the theme; empty for the default."""
    light_theme: str = ""
    """The same on a light terminal; empty for `theme`."""
    bell: bool = True
    toasts: bool = True
    finished_after_s: float = 60.0
    """An agent that worked this long causes an alert when it finishes; 0 turns that off."""
    has_targets: bool = False
    """Whether notifications are pushed to services."""
    popup: bool = False
    """Whether the permission card opens by itself while the session list has the focus."""
    agents: Mapping[str, str] = {}
    """Name -> program of each agent profile."""
    preview: bool = True
    """Whether the preview is shown when the dashboard opens."""
    split: Split = Split()
    """How the window is split when the dashboard opens."""
    layout: ListLayout = ListLayout()
    """How the list is arranged then."""
    ascii: Literal["auto", "yes", "no"] = "auto"
    workdir: str = ""
    """The dashboard's own folder, where new sessions start; empty if it no longer exists."""
    clipboard: tuple[str, ...] = ()
    keys: dict[str, str | tuple[str, ...]] = {}
    """Action id -> its key or keys, for those that differ from the table in `keymap.py`."""
    theme_files: tuple[tuple[str, str], ...] = ()
    """The user's own themes: path and text."""
    config_path: str = ""
    config_text: str = ""
    """The config file in force, for line numbers in errors."""
    problems: tuple[str, ...] = ()
    """What is wrong with which file, as text for the user."""


Operation: TypeAlias = "Callable[[Operations], Awaitable[str | None]]"


STEADY_SHARE: Final = 0.05
"""A smaller change of the memory is not drawn: with idle agents nothing is written to the terminal."""


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of the sessions on this machine."""

    total_bytes: int = 0
    budget_bytes: int = 0
    """0 for no limit."""
    proposed: tuple[SessionId, ...] = ()
    """Those to hibernate so that the others stay within the budget, idle for the longest time first."""

    def looks_like(self, shown: "MemoryUse") -> bool:
        """Whether to leave *shown* on the screen: idle agents change their memory by a few percent all the time."""
        is_near = abs(self.total_bytes - shown.total_bytes) <= STEADY_SHARE * shown.total_bytes
        over, was_over = (0 < each.budget_bytes < each.total_bytes for each in (self, shown))
        return is_near and (self.budget_bytes, self.proposed, over) == (shown.budget_bytes, shown.proposed, was_over)


class Gateway(Protocol):
    """Everything that the dashboard reads or requests, without how it is done.

    A coroutine raises `KasmonError` if what it returns cannot be determined; the message is for the user.
    """

    @property
    def terminals(self) -> TerminalLink | None:
        """Where commands to live terminals are sent; None if there are none (no tmux)."""

    async def operations(self) -> "Operations":
        """Return what the user can have done; the first call loads it."""

    def subscribe(self, listener: Callable[[FromHost], None], /) -> None:
        """Call *listener* from now on, on the app's loop, with each frame that the host of a terminal pushes."""

    async def follow_fleet(self, show: Callable[[FleetUpdate], object], /) -> None:
        """Call *show* with the fleet now, then after each change, at most ten times a second. Never ends by itself."""

    def boards(self) -> AsyncIterator[tuple["PlanBoard", ...]]:
        """Yield the plans now, then after each change, a few times a second. Never ends by itself."""

    def fleet_machines(self) -> AsyncIterator[tuple["MachineStatus", ...]]:
        """Yield the registered machines now, then after each change, within a second. Never ends by itself.

        Meanwhile the links to them are kept running.
        """

    def memory(self) -> AsyncIterator[MemoryUse]:
        """Yield the memory that agents use now, then every few seconds. Never ends by itself."""

    def settings(self) -> AsyncIterator[DashboardSettings]:
        """Yield the settings now, then after each change of a file. Never ends by itself."""

    def transcript(self, session: SessionId, since: Cursor = START, /) -> AsyncIterator[TranscriptUpdate]:
        """Yield what the session's log holds after *since*, then what is added, with the text being written now."""

    async def offers(self, folder: str = "", /) -> Sequence["ProfileOffer"]:
        """Return the agents that a new session in *folder* (empty: none known) may use, in the order to offer them."""

    async def folder_notice(self, folder: str, /) -> str:
        """Return why the config file in *folder* is ignored, in a line; empty if no notice is needed."""

    async def templates(self, folder: str, /) -> "Mapping[str, TemplateConfig]":
        """Return the templates of new sessions in *folder*, by name."""

    async def worktrees(self, folder: str, base: str = "", /) -> WorktreeChoices | None:
        """Return what a new session in *folder* can work in; None if that is in no git repository.

        *base* is what a new worktree shall begin at; empty for the branch that is checked out.
        """

    async def conversations(self, agent: str, mode: Mode | None, folder: str, account: str, /) -> ConversationOffers:
        """Return the conversations that this agent stores for *folder*; one with ACP is run for that."""

    async def sandboxes(self) -> SandboxChoices:
        """Return the sandboxes that a new session may use."""

    async def preview_sandbox(self, agent: str, mode: Mode | None, workdir: str, tier: str, /) -> SandboxPreview:
        """Return what the sandbox of this agent would get in that folder, with that tier."""

    async def machines(self) -> Sequence[str]:
        """Return the other machines that a new session may run on, in the order to offer them."""

    async def foreign_panes(self) -> Sequence[AdoptablePane]:
        """Return the panes of the user's own tmux, if there is one."""

    async def background_sessions(self) -> Sequence[BackgroundSession]:
        """Return the background sessions of Claude Code, if it lists them."""

    async def files(self, session: SessionId, /) -> Sequence[str]:
        """Return files and folders below the session's folder, nearest first: as many as are found quickly."""

    async def slash_commands(self, session: SessionId, /) -> Sequence[SlashCommand]:
        """Return the commands that the agent announced last."""

    async def symbols(self, session: SessionId, /) -> Sequence["CodeSymbol"]:
        """Return where the code in the session's folder defines names: as many as are found quickly."""

    async def prompt_images(self, session: SessionId, text: str, /) -> Sequence[PromptImage]:
        """Return the pictures that the prompt *text* mentions and that are sent with it, with their content."""

    async def image_content(self, session: SessionId, image: PromptImage, /) -> bytes:
        """Return the content of a picture that was sent to the session."""

    async def run_command(self, session: SessionId, command: str, report: Callable[[str], None], /) -> int:
        """Run *command* by the person's shell in the session's folder, *report* its output; return its exit code."""

    async def folders(self, written: str, /) -> Sequence[str]:
        """Return the folders of this machine whose paths begin with *written*, each with a trailing slash."""

    async def read_output(self, session: SessionId, /) -> Sequence[str]:
        """Return all lines of the session's terminal and scrollback, oldest first, unwrapped, with SGR sequences."""

    def search(self, query: str, /) -> AsyncGenerator["SessionHits", None]:
        """Yield where *query* occurs in transcripts or output, a session at a time; closing it ends the search.

        Raises `KasmonError` if *query* is not searchable.
        """

    async def update_search_index(self) -> None:
        """Keep the search index up to date from now on."""

    async def read_recording(self, session: SessionId, line: int | None, at: float, /) -> RecordedText:
        """Return what the session's terminal printed around *line*, by its number; if None, around the time *at*."""

    async def fact(self, session: SessionId, place: int, /) -> Event | None:
        """Return the event at this place of the session's log; None if there is none."""

    async def explain_state(self, session: SessionId, /) -> Sequence[str]:
        """Return why the session is in its state, a line each."""

    def collisions(self) -> AsyncIterator[Mapping[SessionId, CollisionSummary]]:
        """Yield the sessions whose worktrees change the same as others', now and after each change; never ends."""

    def branches(self, is_viewed: Callable[[], bool], /) -> AsyncIterator[Mapping[SessionId, BranchSummary]]:
        """Yield the branches of sessions that have a worktree, now and after each change; never ends.

        *is_viewed* is whether the user looks: only then, or with the setting `finish.watch`, pull requests are read.
        """

    async def plan_merges(self, sessions: Sequence[SessionId], /) -> "MergePlan":
        """Return in which order the branches of *sessions* are merged into their base, and what conflicts."""

    async def plan_finish(self, session: SessionId, request: "FinishRequest", /) -> "PlannedFinish":
        """Return how *request* is done with the session's branch; without a request, what is left to do."""

    async def read_proposed_message(self, session: SessionId, /) -> str:
        """Return the commit message that the session's agent proposed last; empty if there is none."""

    async def changes_of(self, session: SessionId, turn: int | None = None, /) -> SessionChanges:
        """Return what the session's worktree changed: in *turn*, in the last one for 0, or since it began for None."""

    async def sandbox(self, session: SessionId, /) -> "SandboxHistory":
        """Return the limits, history, checkpoints and blocked connections of the session's sandbox."""

    async def comments(self, session: SessionId, /) -> Sequence["LoggedComment"]:
        """Return the comments of the session, oldest first, each with its state by the current files."""

    async def editor_argv(self, session: SessionId, name: str, line: int, /) -> Sequence[str]:
        """Return the command line of the user's editor for a file in the session's worktree, at *line*."""

    async def attach_argv(self, session: SessionId, /) -> Sequence[str]:
        """Return the command line that attaches this terminal to the session's."""
