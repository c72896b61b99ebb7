"""The gateway of a real kasmon: follows logs, connects to hosts, watches config and themes. See `protocol.Gateway`."""

import asyncio
import contextlib
import functools
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from kasmon import __version__
from kasmon.config import Config, ProfileOffer
from kasmon.config.profile import programs
from kasmon.config.schema import TemplateConfig
from kasmon.errors import of_system
from kasmon.host.rpc.frames import FromHost
from kasmon.model.adoption.background_session import BackgroundSession
from kasmon.model.adoption.pane_candidate import AdoptablePane
from kasmon.model.collisions import CollisionSummary
from kasmon.model.commands import ConversationOffers, Mode, WorktreeChoices
from kasmon.model.events import CommandsAnnounced, Event, SlashCommand
from kasmon.model.fleet import Fleet, FleetDifference, difference
from kasmon.model.hibernation import propose_for_budget
from kasmon.model.permission import SessionId
from kasmon.model.prompts.image import PromptImage
from kasmon.model.session import Session
from kasmon.paths import Paths, expanded
from kasmon.repository.branch import BranchSummary
from kasmon.store.event_log import START, Cursor, EventLog
from kasmon.supervisor.fleet.sandbox_adoption import SandboxAdopter
from kasmon.supervisor.fleet.watch import FleetWatch
from kasmon.tui.gateway.live.marks import LiveMarks, import_in_thread
from kasmon.tui.gateway.live.settings import LiveSettings
from kasmon.tui.gateway.log_tail import follow
from kasmon.tui.gateway.protocol import (
    CardContext,
    DashboardSettings,
    FleetUpdate,
    MemoryUse,
    RecordedText,
    SandboxChoices,
    SandboxPreview,
    SessionChanges,
    TranscriptUpdate,
)
from kasmon.tui.gateway.terminal_host import TerminalHosts

if TYPE_CHECKING:
    from kasmon.model.review.comments import LoggedComment
    from kasmon.store.machines import MachineStatus
    from kasmon.supervisor.finish.finish_plan import FinishRequest, PlannedFinish
    from kasmon.supervisor.finish.merge_plan import MergePlan
    from kasmon.supervisor.plans.boards import PlanBoard
    from kasmon.supervisor.sandboxes.history import SandboxHistory
    from kasmon.supervisor.search.index_writer import SearchIndexWriter
    from kasmon.supervisor.search.search import SessionHits
    from kasmon.supervisor.worktrees.code_symbols import CodeSymbol
    from kasmon.tui.gateway.operations import Operations

SHORTEST_SECRET: Final = 6
"""Shorter values of variables are not redacted: they would hide half of every card."""
RECONCILE_S: Final = 1.0
"""How often to check whether a plan exists by now, in seconds."""
LINKS_S: Final = 3.0
"""How often links that do not run are started, in seconds."""
MEMORY_S: Final = 10.0
"""How often the memory of agents is read, in seconds."""
MACHINES_S: Final = 0.5
"""How often the state of registered machines is read, in seconds."""
PREPARED_S: Final = 0.05
"""A fleet with a new request waits at most this long for its card's context: a file system may not respond."""

Params = ParamSpec("Params")
Result = TypeVar("Result")


def _with_kasmon_errors(
    call: Callable[Params, Coroutine[Any, Any, Result]],
) -> Callable[Params, Coroutine[Any, Any, Result]]:
    """Wrap *call* so that an `OSError` (a full disk, a missing permission) becomes a `KasmonError`."""

    @functools.wraps(call)
    async def wrapper(*args: Params.args, **kwargs: Params.kwargs) -> Result:
        try:
            return await call(*args, **kwargs)
        except OSError as error:
            raise of_system(error) from error

    return wrapper


class LiveGateway:
    """Implements `Gateway` over the folders of one kasmon."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.watch = FleetWatch(paths)
        self._fleet = Fleet()
        self.terminals = TerminalHosts(paths, self._is_remote)
        self._settings = LiveSettings(paths)
        self._operations: Operations | None = None
        self._sandbox_adopter = SandboxAdopter(paths)
        self._searcher: SearchIndexWriter | None = None
        self._here: tuple[Session, ...] = ()
        """The sessions of this machine; the same tuple while none of them changes."""
        self._marks = LiveMarks(paths, lambda: self._fleet, lambda: self._here, lambda: self._config)

    @property
    def _config(self) -> Config:
        return self._settings.config

    def first(self) -> Fleet:
        """Return the current fleet, read synchronously: for the first frame, before there is an event loop to block."""
        self._fleet = self.watch.refresh()
        self._here = self._fleet.here
        return self._fleet

    async def operations(self) -> "Operations":
        if self._operations is None:
            await import_in_thread("kasmon.tui.gateway.operations")  # with all that it imports: 15 ms
            from kasmon.tui.gateway.operations import Operations

            self._operations = Operations(self.paths, lambda: self._config, lambda: self._fleet)
        return self._operations

    def subscribe(self, listener: Callable[[FromHost], None], /) -> None:
        self.terminals.listener = listener

    async def follow_fleet(self, show: Callable[[FleetUpdate], object], /) -> None:
        fleets, cards = self.watch.changes(), dict[SessionId, CardContext]()
        known, is_first = Fleet(), True
        requested, reads = set[SessionId](), set[asyncio.Task[dict[SessionId, CardContext]]]()
        next_fleet = asyncio.create_task(anext(fleets))
        try:
            while True:
                await asyncio.wait({next_fleet, *reads}, return_when=asyncio.FIRST_COMPLETED)
                change = FleetDifference((), ())
                if next_fleet.done():
                    self._fleet = next_fleet.result()
                    next_fleet = asyncio.create_task(anext(fleets))
                    change, known = difference(known, self._fleet), self._fleet
                    if change.gone or not all(each.via for each in change.changed):
                        self._here = known.here
                    self._sandbox_adopter.adopt_orphans(change.changed)
                    for gone in change.gone:
                        cards.pop(gone, None)
                        requested.discard(gone)
                    if new := [each for each in change.changed if each.requests and each.id not in requested]:
                        requested |= {each.id for each in new}
                        reads.add(asyncio.create_task(asyncio.to_thread(_read_cards, self.paths, new)))
                        await asyncio.wait(reads, timeout=PREPARED_S)  # while the dashboard draws, threads wait
                for read in [each for each in reads if each.done()]:
                    reads.remove(read)
                    cards |= {id_: card for id_, card in read.result().items() if id_ in requested}
                show(FleetUpdate(known, dict(cards), None if is_first else change))
                is_first = False
        finally:
            next_fleet.cancel()
            await asyncio.wait([next_fleet])
            await fleets.aclose()

    async def update_search_index(self) -> None:
        """Keep the search index up to date from now on, while this dashboard is the one that writes it."""
        module = await asyncio.to_thread(import_module, "kasmon.supervisor.search.index_writer")
        writer = module.SearchIndexWriter(self.paths, lambda: self._fleet.sessions, lambda: self.watch.is_writer)
        self._searcher = writer
        self._searcher.start()

    async def boards(self) -> AsyncIterator[tuple["PlanBoard", ...]]:
        if not await asyncio.to_thread(self._may_have_plans):
            yield ()
        while not await asyncio.to_thread(self._may_have_plans):  # noqa: ASYNC110 - files are what it waits for
            await asyncio.sleep(RECONCILE_S)
        module = await asyncio.to_thread(import_module, "kasmon.supervisor.plans.boards")
        async for boards in module.PlanBoards(self.paths, lambda: self._fleet, lambda: self._config).changes():
            yield boards

    def _may_have_plans(self) -> bool:
        """Whether a plan was ever started, or is in a folder of the config; only then half a megabyte is imported."""
        with contextlib.suppress(OSError):
            return bool(self._config.plans.folders) or any(self.paths.plans.iterdir())
        return False

    async def fleet_machines(self) -> AsyncIterator[tuple["MachineStatus", ...]]:
        shown: tuple[MachineStatus, ...] | None = None
        started_at = -math.inf
        while True:
            machines = self.watch.machines
            missing = [each.machine.name for each in machines or () if _needs_link(each)]
            if missing and time.monotonic() >= started_at + LINKS_S:
                registration = await asyncio.to_thread(import_module, "kasmon.supervisor.machines.registration")
                await asyncio.to_thread(registration.start_links, self.paths, missing)
                started_at = time.monotonic()
            if machines is not None and machines != shown:
                shown = machines
                yield machines
            await asyncio.sleep(MACHINES_S)

    async def memory(self) -> AsyncIterator[MemoryUse]:
        module = await asyncio.to_thread(import_module, "kasmon.supervisor.fleet.process_usage")
        shown, cache = None, module.MemoryCache()
        while True:
            usages = await asyncio.to_thread(module.read_usage, self._fleet.sessions, cache)
            used = {session: usage.memory_bytes for session, usage in usages.items()}
            budget = self._config.session.memory_budget * 1_000_000
            proposed = propose_for_budget(self._fleet.sessions, used, budget)
            use = MemoryUse(
                total_bytes=sum(used.values()), budget_bytes=budget, proposed=tuple(each.id for each in proposed)
            )
            if shown is None or not use.looks_like(shown):
                shown = use
                yield use
            await asyncio.sleep(MEMORY_S)

    def _is_remote(self, session: SessionId) -> bool:
        shown = self._fleet.get(session)
        return shown is not None and bool(shown.via)

    def settings(self) -> AsyncIterator[DashboardSettings]:
        return self._settings.changes()

    def transcript(self, session: SessionId, since: Cursor = START, /) -> AsyncIterator[TranscriptUpdate]:
        return follow(self.paths, self._fleet.get(session), session, since)

    @_with_kasmon_errors
    async def offers(self, folder: str = "", /) -> Sequence[ProfileOffer]:
        await import_in_thread("kasmon.tui.gateway.live.sandbox")
        from kasmon.tui.gateway.live.sandbox import list_offers

        return await asyncio.to_thread(list_offers, self.paths, self._config, folder)

    @_with_kasmon_errors
    async def folder_notice(self, folder: str, /) -> str:
        from kasmon.supervisor.sessions.folder_config import in_folder  # rarely needed

        notice = (await asyncio.to_thread(in_folder, self.paths, self._config, folder)).notice
        return f"{notice} {await asyncio.to_thread(self._notice_of_sharers, folder)}".strip()

    def _notice_of_sharers(self, folder: str) -> str:
        from kasmon.supervisor.worktrees.shared_checkout import describe_sharers, list_agents_in  # rarely needed

        sharers = list_agents_in(folder and str(expanded(folder)), self._fleet.sessions, programs(self._config))
        return f"{describe_sharers(sharers)}." if sharers else ""

    @_with_kasmon_errors
    async def templates(self, folder: str, /) -> Mapping[str, TemplateConfig]:
        from kasmon.supervisor.sessions.folder_config import in_folder  # rarely needed

        return (await asyncio.to_thread(in_folder, self.paths, self._config, folder)).config.templates

    @_with_kasmon_errors
    async def worktrees(self, folder: str, base: str = "", /) -> WorktreeChoices | None:
        from kasmon.supervisor.worktrees.session_worktree import list_choices  # rarely needed

        return await asyncio.to_thread(list_choices, expanded(folder), base)

    @_with_kasmon_errors
    async def conversations(self, agent: str, mode: Mode | None, folder: str, account: str, /) -> ConversationOffers:
        from kasmon.supervisor.recovery.stored_conversations import list_conversations  # rarely needed, as the next
        from kasmon.supervisor.sessions.create import NewSession
        from kasmon.supervisor.sessions.folder_config import for_session

        settings = await asyncio.to_thread(for_session, self.paths, self._config, folder, agent)
        new = NewSession(name="", agent=agent, mode=mode, workdir=folder, account=account)
        return await list_conversations(self.paths, settings.config, new)

    @_with_kasmon_errors
    async def sandboxes(self) -> SandboxChoices:
        await import_in_thread("kasmon.tui.gateway.live.sandbox")
        from kasmon.tui.gateway.live.sandbox import list_sandboxes

        return await asyncio.to_thread(list_sandboxes, self.paths, self._config)

    @_with_kasmon_errors
    async def preview_sandbox(self, agent: str, mode: Mode | None, workdir: str, tier: str, /) -> SandboxPreview:
        await import_in_thread("kasmon.tui.gateway.live.sandbox")
        from kasmon.tui.gateway.live.sandbox import preview

        return await asyncio.to_thread(preview, self.paths, self._config, agent, mode, workdir, tier)

    async def machines(self) -> Sequence[str]:
        from kasmon.supervisor.machines.candidates import find_machines  # rarely needed

        return await asyncio.to_thread(find_machines, self._config.remote.ssh, self._fleet)

    @_with_kasmon_errors
    async def foreign_panes(self) -> Sequence[AdoptablePane]:
        from kasmon.supervisor.sessions.adoption.panes import foreign_panes

        return await foreign_panes(self.paths)

    @_with_kasmon_errors
    async def background_sessions(self) -> Sequence[BackgroundSession]:
        from kasmon.supervisor.sessions.adoption.background import list_sessions

        return await list_sessions(self.paths, self._config)

    @_with_kasmon_errors
    async def files(self, session: SessionId, /) -> Sequence[str]:
        from kasmon.supervisor.worktrees.file_listing import list_files  # only for file name completion

        return await asyncio.to_thread(list_files, self.paths, self._session(session))

    @_with_kasmon_errors
    async def slash_commands(self, session: SessionId, /) -> Sequence[SlashCommand]:
        event = await asyncio.to_thread(EventLog(self.paths.log(session)).find_last, CommandsAnnounced)
        return event.slash_commands if isinstance(event, CommandsAnnounced) else ()

    @_with_kasmon_errors
    async def symbols(self, session: SessionId, /) -> Sequence["CodeSymbol"]:
        from kasmon.supervisor.worktrees.code_symbols import list_symbols  # only for completion

        return await asyncio.to_thread(list_symbols, self.paths, self._session(session))

    async def prompt_images(self, session: SessionId, text: str, /) -> Sequence[PromptImage]:
        from kasmon.supervisor.prompts.images import find_mentioned  # only for a mention of a picture

        return await asyncio.to_thread(find_mentioned, self._session(session), text)

    async def image_content(self, session: SessionId, image: PromptImage, /) -> bytes:
        from kasmon.host.session.prompt_images import load_image

        return (await asyncio.to_thread(load_image, self.paths, session, image)).data

    async def run_command(self, session: SessionId, command: str, report: Callable[[str], None], /) -> int:
        from kasmon.supervisor.prompts import shell_command  # rarely needed

        return await shell_command.run_command(self.paths, self._session(session), command, report)

    async def folders(self, written: str, /) -> Sequence[str]:
        from kasmon.supervisor.worktrees.file_listing import folders_like  # only for folder name completion

        return await asyncio.to_thread(folders_like, written)

    @_with_kasmon_errors
    async def read_output(self, session: SessionId, /) -> Sequence[str]:
        from kasmon.supervisor.sessions.read import read as printed  # rarely needed

        return await printed(self.paths, self._session(session), 0, ansi=True)

    async def search(self, query: str, /) -> AsyncGenerator["SessionHits", None]:
        from kasmon.tui.gateway.live.search import search_sessions  # rarely needed

        async with contextlib.aclosing(search_sessions(self.paths, self._fleet, query)) as hits:
            async for each in hits:
                yield each

    @_with_kasmon_errors
    async def read_recording(self, session: SessionId, line: int | None, at: float, /) -> RecordedText:
        from kasmon.tui.gateway.live.search import read_recorded

        return await asyncio.to_thread(read_recorded, self.paths, session, line, at)

    async def fact(self, session: SessionId, place: int, /) -> Event | None:
        from kasmon.tui.gateway.live.search import find_event

        return await asyncio.to_thread(find_event, self.paths, session, place)

    @_with_kasmon_errors
    async def explain_state(self, session: SessionId, /) -> Sequence[str]:
        from kasmon.supervisor.sessions.explain import explain  # rarely needed
        from kasmon.supervisor.sessions.explanation_text import lines

        return lines(await explain(self.paths, self._session(session)))

    def collisions(self) -> AsyncIterator[Mapping[SessionId, CollisionSummary]]:
        return self._marks.collisions()

    def branches(self, is_viewed: Callable[[], bool], /) -> AsyncIterator[Mapping[SessionId, BranchSummary]]:
        return self._marks.branches(is_viewed)

    @_with_kasmon_errors
    async def plan_finish(self, session: SessionId, request: "FinishRequest", /) -> "PlannedFinish":
        await import_in_thread("kasmon.supervisor.finish.finish_plan")  # rarely needed
        from kasmon.supervisor.finish.finish_plan import plan_finish

        return await asyncio.to_thread(plan_finish, self.paths, self._session(session), request, self._fleet)

    @_with_kasmon_errors
    async def plan_merges(self, sessions: Sequence[SessionId], /) -> "MergePlan":
        await import_in_thread("kasmon.supervisor.finish.merge_plan")
        from kasmon.supervisor.finish.merge_plan import plan_merges  # rarely needed

        wanted, fleet = [self._session(each) for each in sessions], self._fleet
        return await asyncio.to_thread(lambda: plan_merges(self.paths, wanted, "merge", "", fleet=fleet))

    @_with_kasmon_errors
    async def read_proposed_message(self, session: SessionId, /) -> str:
        from kasmon.supervisor.finish.commit_message import find_message  # rarely needed

        return await find_message(self.paths, self._session(session))

    @_with_kasmon_errors
    async def changes_of(self, session: SessionId, turn: int | None = None, /) -> SessionChanges:
        from kasmon.tui.gateway.live.review import read_changes  # rarely needed

        return await read_changes(self.paths, self._session(session), turn)

    @_with_kasmon_errors
    async def sandbox(self, session: SessionId, /) -> "SandboxHistory":
        from kasmon.supervisor.sandboxes.history import read_history  # rarely needed

        return await asyncio.to_thread(read_history, self.paths, self._session(session))

    @_with_kasmon_errors
    async def comments(self, session: SessionId, /) -> Sequence["LoggedComment"]:
        from kasmon.supervisor.review.comments import list_comments

        return await asyncio.to_thread(list_comments, self.paths, self._session(session))

    @_with_kasmon_errors
    async def editor_argv(self, session: SessionId, name: str, line: int, /) -> Sequence[str]:
        from kasmon.tui.gateway.live.review import find_editor

        return await asyncio.to_thread(find_editor, self._session(session), name, line)

    @_with_kasmon_errors
    async def attach_argv(self, session: SessionId, /) -> Sequence[str]:
        from kasmon.supervisor.sessions.session_operations import attach_argv  # rarely needed

        return await attach_argv(self.paths, self._session(session))

    def close(self) -> None:
        """Close the connections to hosts, and bring the search index up to date; agents and hosts keep running."""
        self.terminals.close()
        if self._searcher is not None:
            self._searcher.close()
        self.watch.close()

    def _session(self, session: SessionId) -> Session:
        return self._fleet.require(session)


def _read_cards(paths: Paths, sessions: Sequence[Session]) -> dict[SessionId, CardContext]:
    from kasmon.host.session.rules import project_of  # for a shown request

    def read(session: Session) -> CardContext:
        project = project_of(session.workdir) if session.workdir else ""
        return CardContext(secrets=_read_secrets(paths, session.id), project=project)

    return {session.id: read(session) for session in sessions}


def _read_secrets(paths: Paths, session: SessionId) -> tuple[str, ...]:
    """The secret values of the session's variables that are long enough to differ from ordinary words."""
    from kasmon.backends.common.environment import given_secrets  # only where something is shown that may hold one

    try:
        return tuple(value for value in given_secrets(paths, session) if len(value) >= SHORTEST_SECRET)
    except OSError:
        return ()


def _needs_link(status: "MachineStatus") -> bool:
    """Whether the link of *status* does not run, or is of another kasmon than this one."""
    is_known = status.link == status.presence.link
    return status.link is None or (is_known and status.presence.link_kasmon != __version__)
