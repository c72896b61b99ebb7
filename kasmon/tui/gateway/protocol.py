"""What the screen needs of the world below it: `Gateway`, and the values that go to and fro.

The app is given one and asks nobody else. Widgets do not even see it: they get values and post messages. Every value
in here is frozen; every call that may wait is a coroutine or an async iterator.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

from kasmon.host.rpc.frames import FromTerminal, TextDelta
from kasmon.model.collisions import CollisionSummary
from kasmon.model.commands import Mode, Requeue, SandboxWish, Wish
from kasmon.model.events import Event
from kasmon.model.fleet import Fleet
from kasmon.model.pane_candidate import AdoptablePane
from kasmon.model.permission import SessionId
from kasmon.model.plan.events import Deed
from kasmon.store.event_log import START, Cursor
from kasmon.tui.notifications.alerts import Alert
from kasmon.tui.terminal.link import TerminalLink

if TYPE_CHECKING:
    from kasmon.config.profile import ProfileOffer
    from kasmon.supervisor.plans.boards import PlanBoard
    from kasmon.supervisor.sandboxes.history import SandboxHistory
    from kasmon.supervisor.search.search import SessionHits


class EventBatch(msgspec.Struct, frozen=True):
    """The next facts of one session's log, oldest first, and the cursor behind them."""

    events: tuple[Event, ...]
    cursor: Cursor
    more: bool = False
    """Further facts are there already, and come at once."""
    is_end: bool = False
    """The last facts of a long log, to look at until it is read from its beginning; they come again then."""


Heard: TypeAlias = EventBatch | TextDelta


class SendToAgent(msgspec.Struct, frozen=True, kw_only=True):
    """Carry *wish* to the session's agent."""

    session: SessionId
    wish: Wish | Requeue | SandboxWish


class CreateSession(msgspec.Struct, frozen=True, kw_only=True):
    """Start a session. No mode is the agent's default; an empty workdir the dashboard's own folder."""

    name: str
    agent: str
    mode: Mode | None = None
    workdir: str = ""
    prompt: str = ""
    sandbox: str | None = None
    """What confines it; empty for nothing, None for what its profile says."""
    agrees: bool = False
    """The person saw what its sandbox is handed, and agrees."""
    size: str | None = None
    """Of interpreters: what their sandbox may use; None is what the config says."""
    hosts: tuple[str, ...] | None = None
    """Of interpreters: whom they may reach; likewise."""


class SandboxPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent's sandbox would get."""

    lines: tuple[str, ...] = ()
    """A sentence each."""
    is_agreed: bool = True
    """Whether a person has agreed to it before, or there is nothing to agree to."""


class TierOffer(msgspec.Struct, frozen=True, kw_only=True):
    """One tier of sandbox that a new session may have."""

    tier: str
    why_not: str = ""
    """Why none can be made here, and what would help, a sentence a line; empty where nothing speaks against it."""
    has_agents: bool = True
    """Whether agents run in it; interpreters do in each."""


class SandboxChoices(msgspec.Struct, frozen=True, kw_only=True):
    """What a new session may be confined by, and what the config says of sandboxes of interpreters."""

    tiers: tuple[TierOffer, ...] = ()
    sizes: tuple[str, ...] = ()
    size: str = ""
    hosts: tuple[str, ...] = ()
    """Whom they may reach."""
    project: str = ""
    """The folder that they see as /project; empty is none."""


class RestartSession(msgspec.Struct, frozen=True, kw_only=True):
    """Start an ended session again."""

    session: SessionId


class MoveSession(msgspec.Struct, frozen=True, kw_only=True):
    """Go on with the same conversation in this mode."""

    session: SessionId
    to: Mode
    changes_permissions: bool = False
    """The person was told that its permission mode cannot go with it, and agrees."""


class RenameSession(msgspec.Struct, frozen=True, kw_only=True):
    """Call the session *name*."""

    session: SessionId
    name: str


class MarkViewed(msgspec.Struct, frozen=True, kw_only=True):
    """Note that the person looked at what the session finished."""

    session: SessionId


class RemoveSession(msgspec.Struct, frozen=True, kw_only=True):
    """Take an ended session off the list; its log stays on disk."""

    session: SessionId


class ForkSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """Make a session called *name* that begins where the sandbox of this one is, or was at *checkpoint*."""

    session: SessionId
    name: str
    checkpoint: str = ""


class ReplaySandbox(msgspec.Struct, frozen=True, kw_only=True):
    """Make a session called *name*, and run in it all that this one ran until *checkpoint* (empty: until now)."""

    session: SessionId
    name: str
    checkpoint: str = ""


class Split(msgspec.Struct, frozen=True):
    """How much of the window the list gets, as a person dragged the divider; 0 where nobody did."""

    width: int = 0
    """In percent, with the preview beside the list."""
    height: int = 0
    """In percent, with the preview below it."""


class KeepSplit(msgspec.Struct, frozen=True, kw_only=True):
    """Store how the window is split, for the next start."""

    split: Split


class KeepTheme(msgspec.Struct, frozen=True, kw_only=True):
    """Write this theme's name into the config."""

    name: str


class CopyText(msgspec.Struct, frozen=True, kw_only=True):
    """Give this text to the tmux that the dashboard itself runs in, if it does, and by it to the clipboard."""

    text: str


class OpenLink(msgspec.Struct, frozen=True, kw_only=True):
    """Show this http or https address in the person's browser; they have looked at all of it."""

    address: str


class AdoptPane(msgspec.Struct, frozen=True, kw_only=True):
    """Watch this pane of the user's own tmux (`%5`) as a session of this name."""

    pane: str
    name: str


class DecideOnPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Decide something on a plan that runs."""

    plan: str
    deed: Deed
    task: str = ""
    agent: str = ""
    """Who takes the task's place, for `replace`."""


class ApplyPlanEdit(msgspec.Struct, frozen=True, kw_only=True):
    """Take the edited file of this plan over, as it was shown."""

    plan: str
    digest: str


class NotifyPerson(msgspec.Struct, frozen=True, kw_only=True):
    """Call the person, wherever they look: on the desktop, and by the command of their config."""

    alert: Alert


class ExportSession(msgspec.Struct, frozen=True, kw_only=True):
    """Write all of this session into a new file in the dashboard's own folder."""

    session: SessionId


class RecordedText(msgspec.Struct, frozen=True, kw_only=True):
    """Some of what a session's terminal printed, oldest first."""

    lines: tuple[str, ...] = ()
    here: int | None = None
    """Which of them was asked for; None where it is not there any more."""


Wanted: TypeAlias = (
    SendToAgent
    | CreateSession
    | RestartSession
    | MoveSession
    | RenameSession
    | MarkViewed
    | RemoveSession
    | ForkSandbox
    | ReplaySandbox
    | KeepTheme
    | KeepSplit
    | CopyText
    | AdoptPane
    | NotifyPerson
    | OpenLink
    | ExportSession
    | DecideOnPlan
    | ApplyPlanEdit
)


class DashboardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the config and the theme files say; the last good ones where a file is broken."""

    theme: str = ""
    """The name of the theme; empty for the default."""
    bell: bool = True
    toasts: bool = True
    finished_after_s: float = 60.0
    """An agent that worked so long calls a person when it has finished; 0: it does not."""
    popup: bool = False
    """Whether the permission card opens by itself while the session list has the focus."""
    agents: Mapping[str, str] = {}
    """Name -> program of each agent profile."""
    preview: bool = True
    """Whether the preview is there when the dashboard opens."""
    split: Split = Split()
    """How the window is split when the dashboard opens."""
    ascii: Literal["auto", "yes", "no"] = "auto"
    workdir: str = ""
    """The dashboard's own folder, where new sessions begin; empty where it is not there any more."""
    clipboard: tuple[str, ...] = ()
    """The agents that may put something on the clipboard."""
    keys: dict[str, str | tuple[str, ...]] = {}
    """Action id -> its key or keys, for those that differ from the table in `keys.py`."""
    theme_files: tuple[tuple[str, str], ...] = ()
    """The user's own themes: path and text."""
    config_path: str = ""
    config_text: str = ""
    """The config file that is in force, to tell lines."""
    problems: tuple[str, ...] = ()
    """What is wrong with which file, for people."""


class Gateway(Protocol):
    """Everything that the dashboard reads and wants, and nothing of how."""

    @property
    def terminals(self) -> TerminalLink | None:
        """Where wishes about live terminals go; None where there are none (no tmux)."""
        ...

    def hear(self, heard: Callable[[FromTerminal], None], /) -> None:
        """From now on call *heard*, on the app's loop, for each push about a terminal."""
        ...

    def changes(self) -> AsyncIterator[Fleet]:
        """Yield the fleet now, then after each change, at most ten times a second. Never ends by itself."""
        ...

    def boards(self) -> AsyncIterator[tuple["PlanBoard", ...]]:
        """Yield the plans now, then after each change, a few times a second. Never ends by itself."""
        ...

    def settings(self) -> AsyncIterator[DashboardSettings]:
        """Yield the settings now, then after each change of a file. Never ends by itself."""
        ...

    def transcript(self, session: SessionId, since: Cursor = START, /) -> AsyncIterator[Heard]:
        """Yield what the session's log holds after *since*, then what is added, with the text being written now."""
        ...

    async def execute(self, wanted: Wanted, /) -> str:
        """Carry out *wanted*; return a sentence for the person, or nothing where the list will show it.

        Raises:
            KasmonError: if it was not done; its message is for the person.
        """
        ...

    async def offers(self, folder: str = "", /) -> Sequence["ProfileOffer"]:
        """The agents that a new session in *folder* may have, in the order to offer them; empty is no certain one.

        Raises:
            KasmonError: if that cannot be found out.
        """
        ...

    async def folder_notice(self, folder: str, /) -> str:
        """Why the config that *folder* brings along does not count, in a line; empty where there is no need to say.

        Raises:
            KasmonError: if that cannot be found out.
        """
        ...

    async def sandboxes(self) -> SandboxChoices:
        """What a new session may be confined by.

        Raises:
            KasmonError: if that cannot be found out.
        """
        ...

    async def confined(self, agent: str, mode: Mode | None, workdir: str, tier: str, /) -> SandboxPreview:
        """What the sandbox of this agent would get in that folder, of that tier.

        Raises:
            KasmonError: if it can have none.
        """
        ...

    async def machines(self) -> Sequence[str]:
        """The other machines that a new session may be on, in the order to offer them."""
        ...

    async def foreign_panes(self) -> Sequence[AdoptablePane]:
        """The panes of the user's own tmux.

        Raises:
            KasmonError: if there is none.
        """
        ...

    async def files(self, session: SessionId, /) -> Sequence[str]:
        """Files and folders below the session's folder, nearest first: as many as are found quickly."""
        ...

    async def folders(self, written: str, /) -> Sequence[str]:
        """The folders of this machine whose paths begin with *written*, each with a slash behind it."""
        ...

    async def printed(self, session: SessionId, /) -> Sequence[str]:
        """All lines that the session's terminal still knows, oldest first, whole, with SGR sequences.

        Raises:
            KasmonError: if nobody can tell.
        """
        ...

    def search(self, words: str, /) -> AsyncGenerator["SessionHits", None]:
        """Yield where *words* were said or printed, a session at a time; closing it ends the search.

        Raises:
            KasmonError: if they are nothing to search for.
        """
        ...

    async def keep_searchable(self) -> None:
        """From now on keep what makes searches quick."""
        ...

    async def recorded(self, session: SessionId, line: int | None, at: float, /) -> RecordedText:
        """What the session's terminal printed around *line*, by its number; None: around the time *at*.

        Raises:
            KasmonError: if nobody can tell.
        """
        ...

    async def fact(self, session: SessionId, place: int, /) -> Event | None:
        """The fact at this place of the session's log; None where there is none."""
        ...

    async def explained(self, session: SessionId, /) -> Sequence[str]:
        """Why the session is in its state, a line each.

        Raises:
            KasmonError: if nobody can tell.
        """
        ...

    def collisions(self) -> AsyncIterator[Mapping[SessionId, CollisionSummary]]:
        """The sessions whose worktrees change what others change, now and after each change; never ends."""
        ...

    async def diff(self, session: SessionId, /) -> str:
        """What the session's worktree changed, as a git diff; empty where nothing.

        Raises:
            KasmonError: if it works in no repository, or git cannot tell.
        """
        ...

    async def sandbox(self, session: SessionId, /) -> "SandboxHistory":
        """What the session's sandbox may, what ran in it, what was kept of it, and whom it was not let reach.

        Raises:
            KasmonError: if nobody can tell.
        """
        ...

    async def turn_diff(self, session: SessionId, turn: int, /) -> str:
        """What this turn changed in the files of the session's sandbox, as a git diff; empty where nothing.

        Raises:
            KasmonError: if no checkpoint tells.
        """
        ...

    async def secrets(self, session: SessionId, /) -> Sequence[str]:
        """Values that must not be shown on a card of this session (those of its environment)."""
        ...

    async def project(self, session: SessionId, /) -> str:
        """The folder that a rule for the session's project would cover."""
        ...

    async def attach_argv(self, session: SessionId, /) -> Sequence[str]:
        """The command line that attaches this terminal to the session's.

        Raises:
            InteractiveOnlyError: if it has none.
        """
        ...
