"""A world that stands still: it gives what it was given, and remembers what was wanted of it."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from textual.app import App
from textual.pilot import Pilot

from kasmon.config.profile import ProfileOffer
from kasmon.config.schema import TemplateConfig
from kasmon.errors import KasmonError, NotFoundError
from kasmon.host.rpc.frames import FromHost, FromTerminal, TerminalModes, TerminalRows, TextDelta, Watch
from kasmon.host.rpc.frames import TerminalCursor as PaneCursor
from kasmon.model.adoption.background_session import BackgroundSession
from kasmon.model.adoption.pane_candidate import AdoptablePane
from kasmon.model.collisions import CollisionSummary
from kasmon.model.commands import ConversationOffers, Mode, WorktreeChoices
from kasmon.model.events import Event, SlashCommand
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.prompts.image import PromptImage, mentioned
from kasmon.model.review.comments import LoggedComment
from kasmon.repository.branch import BranchSummary
from kasmon.store.event_log import START, Cursor
from kasmon.store.machines import MachineStatus
from kasmon.supervisor.finish.finish_plan import FinishRequest, PlannedFinish
from kasmon.supervisor.finish.merge_plan import MergePlan
from kasmon.supervisor.plans.boards import PlanBoard
from kasmon.supervisor.sandboxes.history import SandboxHistory
from kasmon.supervisor.search.search import SessionHits
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.worktrees.code_symbols import CodeSymbol
from kasmon.tui.gateway import protocol
from kasmon.tui.gateway.operations import Operations
from kasmon.tui.terminal.link import TerminalCommand, TerminalLink

if TYPE_CHECKING:
    from kasmon.tui.app import Kasmon

OFFERS = (
    ProfileOffer(name="claude", modes=(Mode.TMUX, Mode.SDK)),
    ProfileOffer(name="shell", modes=(Mode.TMUX,)),
    ProfileOffer(name="scripted", modes=(Mode.SDK, Mode.TMUX)),
    ProfileOffer(name="gemini", modes=(), problem="'gemini' is not on PATH"),
)
JAILED = (
    ProfileOffer(name="claude", modes=(Mode.TMUX, Mode.SDK), confines=(Mode.TMUX, Mode.SDK), sandbox="jail"),
    ProfileOffer(name="shell", modes=(Mode.TMUX,), confines=(Mode.TMUX,)),
    ProfileOffer(name="scripted", modes=(Mode.SDK, Mode.TMUX), confines=(Mode.TMUX,)),
    ProfileOffer(name="interpreters", modes=(Mode.INTERPRETER,), confines=(Mode.INTERPRETER,), sandbox="jail"),
)
GETS = protocol.SandboxPreview(
    lines=(
        "It sees '/home/you/project', the programs of this machine, and a home folder of its own; it may reach"
        " api.example.com.",
        "It may use 512 MB of memory where a control group is ours, and 256 processes.",
        "It gets copies of ~/.agent/login.json, which are deleted when it ends.",
    ),
    is_agreed=False,
)


Call: TypeAlias = tuple[str, Mapping[str, Any]]
"""The name of an operation, and all its arguments by their names."""


def called(operation: Callable[..., object], *positional: object, **named: object) -> Call:
    """The call of *operation* with these arguments."""
    bound = inspect.signature(operation).bind(None, *positional, **named)
    bound.apply_defaults()
    return operation.__name__, {name: value for name, value in bound.arguments.items() if name != "self"}


def created(name: str, agent: str, **more: Any) -> Call:
    """The call that starts a session with these fields."""
    return called(Operations.create_session, NewSession(name=name, agent=agent, **more))


class FakeOperations:
    """Has each of `Operations`; remembers the calls."""

    def __init__(self, gateway: "FakeGateway") -> None:
        self._gateway = gateway

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, str]]:
        async def run(*positional: object, **named: object) -> str:
            gateway, call = self._gateway, called(getattr(Operations, name), *positional, **named)
            gateway.calls.append(call)
            if (error := gateway.refusing or gateway.refusing_for.get(call[1].get("session", ""))) is not None:
                raise error
            return gateway.word

        return run


def fleet_update(fleet: Fleet, secrets: tuple[str, ...] = ()) -> protocol.FleetUpdate:
    """*fleet*, with the context of each card."""
    card = protocol.CardContext(secrets=secrets, project="/home/you/project")
    return protocol.FleetUpdate(fleet, dict.fromkeys((each.id for each in fleet.sessions if each.requests), card))


class FakeLink:
    """Remembers what terminals were told; answers a `Watch` with the rows it was given."""

    def __init__(self, gateway: "FakeGateway") -> None:
        self.gateway = gateway
        self.told: list[TerminalCommand] = []

    def send(self, command: TerminalCommand, /) -> None:
        self.told.append(command)
        if isinstance(command, Watch) and command.session in self.gateway.panes:
            self.gateway.push(rows(command.session, self.gateway.panes[command.session]))


class FakeGateway:
    """Implements `Gateway` from values."""

    commented: dict[str, tuple[LoggedComment, ...]]
    edited: list[tuple[SessionId, str, int]]
    """The files that an editor was opened for, with the line."""
    finishes: Callable[[FinishRequest], PlannedFinish]
    merges: MergePlan
    proposed = ""
    """The commit message that an agent proposes."""
    is_searchable = False
    templates_in: Mapping[str, Mapping[str, TemplateConfig]] = {}
    """Folder -> the templates of its sessions."""
    measured: Sequence[protocol.MemoryUse] = ()
    pictures: Sequence[PromptImage] = ()
    """The pictures that prompts may mention, and those that were sent."""
    picture_problem: KasmonError | None = None
    prints = ""
    """What a command of the person prints."""
    ran: Sequence[str] = ()
    announced: Sequence[SlashCommand] = ()
    """The agent's slash commands."""
    defined: Sequence[CodeSymbol] = ()
    stored = ConversationOffers()
    listing: Sequence[tuple[str, Mode | None, str, str]] = ()
    """Whose conversations were asked for."""
    background: Sequence[BackgroundSession] = ()

    def __init__(
        self,
        fleet: Fleet | None = None,
        *,
        transcripts: Mapping[str, Sequence[Event]] = {},
        written: Mapping[str, str] = {},
        panes: Mapping[str, Sequence[str]] = {},
        settings: protocol.DashboardSettings | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        self.fleets: asyncio.Queue[Fleet] = asyncio.Queue()
        self.kept: asyncio.Queue[protocol.DashboardSettings] = asyncio.Queue()
        self.planned: asyncio.Queue[tuple[PlanBoard, ...]] = asyncio.Queue()
        self.registered: asyncio.Queue[tuple[MachineStatus, ...]] = asyncio.Queue()
        if fleet is not None:
            self.fleets.put_nowait(fleet)
        self.kept.put_nowait(settings or protocol.DashboardSettings())
        self.transcripts, self.written = transcripts, written
        self.panes = {SessionId(name): lines for name, lines in panes.items()}
        self.known = tuple(secrets)
        self.listed: Sequence[str] = ()
        self.diffs: Mapping[str, str] = {}
        self.turn_diffs: Mapping[str, Mapping[int, str]] = {}
        """The diffs of the stored turns; without any, each turn is as in `diffs`."""
        self.commented, self.edited = {}, []
        self.pasts: Mapping[str, SandboxHistory] = {}
        self.asked_turns: list[int] = []
        self.confinement = protocol.SandboxPreview()
        self.confinement_in: Mapping[str, protocol.SandboxPreview] = {}
        """By folder, where it is another one."""
        self.confining: list[tuple[str, str]] = []
        self.may_be = protocol.SandboxChoices(tiers=(protocol.TierOffer(tier="jail"),))
        self.offered: Sequence[ProfileOffer] = OFFERS
        self.collided: asyncio.Queue[Mapping[SessionId, CollisionSummary]] = asyncio.Queue()
        self.branched: asyncio.Queue[Mapping[SessionId, BranchSummary]] = asyncio.Queue()
        self.asked_finishes: list[FinishRequest] = []
        self.asked_merges: list[tuple[SessionId, ...]] = []
        self.foreign: Sequence[AdoptablePane] = ()
        self.hosts: Sequence[str] = ()
        self.finds: Mapping[str, Sequence[SessionHits]] = {}
        self.searched: list[str] = []
        self.records: Mapping[str, protocol.RecordedText] = {}
        self.calls: list[Call] = []
        self.folders_here: Sequence[str] = ()
        self.refusing: KasmonError | None = None
        self.refusing_for: dict[str, KasmonError] = {}
        self.offering: KasmonError | None = None
        """Why it cannot find out what a new session may be."""
        self.word = ""
        self.listener: Callable[[FromHost], None] = lambda push: None
        self.link = FakeLink(self)
        self.has_tmux = True
        self.holding_cards = False
        self._fleet = Fleet()
        self.notices: dict[str, str] = {}
        self.repositories: dict[tuple[str, str], WorktreeChoices] = {}
        """Folder and base -> what a session there can work in."""
        self.knows = asyncio.Event()
        """Cleared while it looks for agents, for what a sandbox gets, and for what changed."""
        self.knows.set()

    @property
    def terminals(self) -> TerminalLink | None:
        return self.link if self.has_tmux else None

    def subscribe(self, listener: Callable[[FromHost], None], /) -> None:
        self.listener = listener

    def push(self, push: FromTerminal) -> None:
        asyncio.get_running_loop().call_soon(self.listener, push)

    async def follow_fleet(self, show: Callable[[protocol.FleetUpdate], object], /) -> None:
        while True:
            self._fleet = await self.fleets.get()
            show(protocol.FleetUpdate(self._fleet) if self.holding_cards else fleet_update(self._fleet, self.known))

    async def boards(self) -> AsyncIterator[tuple[PlanBoard, ...]]:
        while True:
            yield await self.planned.get()

    async def fleet_machines(self) -> AsyncIterator[tuple[MachineStatus, ...]]:
        while True:
            yield await self.registered.get()

    async def memory(self) -> AsyncIterator[protocol.MemoryUse]:
        for use in self.measured:
            yield use
        await asyncio.Event().wait()

    async def settings(self) -> AsyncIterator[protocol.DashboardSettings]:
        while True:
            yield await self.kept.get()

    async def transcript(
        self, session: SessionId, since: Cursor = START, /
    ) -> AsyncIterator[protocol.TranscriptUpdate]:
        events = tuple(self.transcripts.get(session, ()))
        yield protocol.EventBatch(events[since:], Cursor(len(events)))
        if session in self.written:
            yield TextDelta(session=session, text=self.written[session])
        await asyncio.Event().wait()

    def passed(self, operation: Callable[..., object], argument: str) -> list[Any]:
        """This argument of each call of *operation*."""
        return [arguments[argument] for name, arguments in self.calls if name == operation.__name__]

    async def operations(self) -> Operations:
        return cast("Operations", FakeOperations(self))

    async def offers(self, folder: str = "", /) -> Sequence[ProfileOffer]:
        await self.knows.wait()
        if self.offering is not None:
            raise self.offering
        return self.offered

    async def folder_notice(self, folder: str, /) -> str:
        if self.offering is not None:
            raise self.offering
        return self.notices.get(folder, "")

    async def templates(self, folder: str, /) -> Mapping[str, TemplateConfig]:
        return self.templates_in.get(folder, {})

    async def worktrees(self, folder: str, base: str = "", /) -> WorktreeChoices | None:
        return self.repositories.get((folder, base))

    async def conversations(self, agent: str, mode: Mode | None, folder: str, account: str, /) -> ConversationOffers:
        self.listing = (*self.listing, (agent, mode, folder, account))
        await self.knows.wait()
        if self.refusing is not None:
            raise self.refusing
        return self.stored

    async def sandboxes(self) -> protocol.SandboxChoices:
        return self.may_be

    async def preview_sandbox(
        self, agent: str, mode: Mode | None, workdir: str, tier: str, /
    ) -> protocol.SandboxPreview:
        self.confining.append((agent, tier))
        await self.knows.wait()
        return self.confinement_in.get(workdir, self.confinement)

    async def machines(self) -> Sequence[str]:
        return self.hosts

    async def foreign_panes(self) -> Sequence[AdoptablePane]:
        if self.refusing is not None:
            raise self.refusing
        return self.foreign

    async def background_sessions(self) -> Sequence[BackgroundSession]:
        return self.background

    async def files(self, session: SessionId, /) -> Sequence[str]:
        return self.listed

    async def slash_commands(self, session: SessionId, /) -> Sequence[SlashCommand]:
        return self.announced

    async def symbols(self, session: SessionId, /) -> Sequence[CodeSymbol]:
        return self.defined

    async def prompt_images(self, session: SessionId, text: str, /) -> Sequence[PromptImage]:
        if self.picture_problem is not None:
            raise self.picture_problem
        return [each for each in self.pictures if each.name in mentioned(text)]

    async def image_content(self, session: SessionId, image: PromptImage, /) -> bytes:
        return next(each.data for each in self.pictures if each.digest == image.digest)

    async def run_command(self, session: SessionId, command: str, report: Callable[[str], None], /) -> int:
        self.ran = (*self.ran, command)
        if self.refusing is not None:
            raise self.refusing
        report(self.prints)
        return 0

    async def folders(self, written: str, /) -> Sequence[str]:
        return [folder for folder in self.folders_here if folder.startswith(written)]

    async def read_output(self, session: SessionId, /) -> Sequence[str]:
        if self.refusing is not None:
            raise self.refusing
        return self.panes.get(session, ())

    async def search(self, query: str, /) -> AsyncGenerator[SessionHits, None]:
        self.searched.append(query)
        if self.refusing is not None:
            raise self.refusing
        for found in self.finds.get(query, ()):
            yield found

    async def read_recording(self, session: SessionId, line: int | None, at: float, /) -> protocol.RecordedText:
        return self.records.get(session, protocol.RecordedText())

    async def fact(self, session: SessionId, place: int, /) -> Event | None:
        events = self.transcripts.get(session, ())
        return events[place] if place < len(events) else None

    async def update_search_index(self) -> None:
        self.is_searchable = True

    async def explain_state(self, session: SessionId, /) -> Sequence[str]:
        if self.refusing is not None:
            raise self.refusing
        return ("working, says its title", "  screen    says idle; disagrees, lower priority")

    async def collisions(self) -> AsyncIterator[Mapping[SessionId, CollisionSummary]]:
        while True:
            yield await self.collided.get()

    async def branches(self, is_viewed: Callable[[], bool], /) -> AsyncIterator[Mapping[SessionId, BranchSummary]]:
        while True:
            yield await self.branched.get()

    async def plan_merges(self, sessions: Sequence[SessionId], /) -> MergePlan:
        self.asked_merges.append(tuple(sessions))
        return self.merges

    async def plan_finish(self, session: SessionId, request: FinishRequest, /) -> PlannedFinish:
        self.asked_finishes.append(request)
        await self.knows.wait()
        if self.refusing is not None:
            raise self.refusing
        return self.finishes(request)

    async def read_proposed_message(self, session: SessionId, /) -> str:
        return self.proposed

    async def changes_of(self, session: SessionId, turn: int | None = None, /) -> protocol.SessionChanges:
        await self.knows.wait()
        if self.refusing is not None:
            raise self.refusing
        if turn is None:
            return protocol.SessionChanges(diff=self.diffs.get(session, ""))
        self.asked_turns.append(turn)
        turns = self.turn_diffs.get(session, {turn: self.diffs.get(session, "")})
        number = turn or max(turns)
        if number not in turns:
            raise NotFoundError(f"The files of turn {number} are unknown.")
        return protocol.SessionChanges(diff=turns[number], turn=number, turns=tuple(sorted(turns)))

    async def sandbox(self, session: SessionId, /) -> SandboxHistory:
        if self.refusing is not None:
            raise self.refusing
        return self.pasts.get(session, SandboxHistory())

    async def comments(self, session: SessionId, /) -> Sequence[LoggedComment]:
        return self.commented.get(session, ())

    async def editor_argv(self, session: SessionId, name: str, line: int, /) -> Sequence[str]:
        self.edited.append((session, name, line))
        return ("true",)

    def let_cards_go(self) -> None:
        """Send the contexts of cards that were held."""
        self.holding_cards = False
        self.fleets.put_nowait(self._fleet)

    async def attach_argv(self, session: SessionId, /) -> Sequence[str]:
        return ("true",)


def rows(session: SessionId, lines: Sequence[str], columns: int = 120, height: int = 40) -> TerminalRows:
    """A whole screen that shows *lines* from its top."""
    shown = [*lines, *[""] * height][:height]
    cursor = PaneCursor(x=2, y=max(0, len(lines) - 1), visible=True)
    changed = tuple(enumerate(shown))
    return TerminalRows(
        session=session,
        columns=columns,
        height=height,
        changed=changed,
        cursor=cursor,
        modes=TerminalModes(),
        full=True,
    )


def app_of(pilot: Pilot[None]) -> "Kasmon":
    return cast("Kasmon", pilot.app)


def gateway_of(app: App[Any]) -> FakeGateway:
    return cast(FakeGateway, cast("Kasmon", app).gateway)


def text_of(app: App[Any]) -> str:
    """What the screen shows, as text."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)
