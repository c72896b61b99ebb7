"""Program that runs the dashboard over a generated fleet that keeps changing.

python -m kasmon.bench.dashboard.moving_fleet ROWS ALIVE CHANGES HZ
"""

import asyncio
import random
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from kasmon.bench.support.fleet import session_id
from kasmon.config import ProfileOffer
from kasmon.config.schema import TemplateConfig
from kasmon.errors import UnableError
from kasmon.host.rpc.frames import FromTerminal
from kasmon.model.adoption.background_session import BackgroundSession
from kasmon.model.adoption.pane_candidate import AdoptablePane
from kasmon.model.collisions import CollisionSummary
from kasmon.model.commands import ConversationOffers, Mode
from kasmon.model.events import Event, SlashCommand
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.prompts.image import PromptImage
from kasmon.model.review.comments import LoggedComment
from kasmon.model.session import HostProbe, Session, Tokens
from kasmon.model.session_state import SessionState
from kasmon.repository.branch import BranchSummary
from kasmon.store.event_log import START, Cursor
from kasmon.supervisor.finish.finish_plan import FinishRequest, PlannedFinish
from kasmon.supervisor.finish.merge_plan import MergePlan
from kasmon.supervisor.plans.boards import PlanBoard
from kasmon.supervisor.sandboxes.history import SandboxHistory
from kasmon.supervisor.search.search import SessionHits
from kasmon.supervisor.worktrees.code_symbols import CodeSymbol
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.protocol import (
    DashboardSettings,
    EventBatch,
    FleetUpdate,
    MemoryUse,
    RecordedText,
    SandboxChoices,
    SandboxPreview,
    SessionChanges,
    TranscriptUpdate,
)

if TYPE_CHECKING:
    from kasmon.store.machines import MachineStatus
    from kasmon.tui.gateway.operations import Operations


class MovingGateway:
    """A `Gateway` that yields fleets of *rows* sessions, of which *changes* differ from one fleet to the next."""

    terminals = None

    def __init__(self, rows: int, alive: int, changes: int, rate_hz: float) -> None:
        self._rng = random.Random(7)
        self._alive, self._changes, self._rate_hz = alive, changes, rate_hz
        now = time.time()
        self._sessions = [self._session(number, number < alive, now) for number in range(rows)]

    def subscribe(self, listener: Callable[[FromTerminal], None], /) -> None:
        """Do nothing: there are no terminals."""

    async def changes(self) -> AsyncIterator[FleetUpdate]:
        while True:
            yield FleetUpdate(Fleet(sessions=tuple(self._sessions), at=time.time()))
            await asyncio.sleep(1 / self._rate_hz)
            for number in self._rng.sample(range(self._alive), self._changes):
                old = self._sessions[number]
                tokens = Tokens(input=self._rng.randrange(100_000), output=900, context=800, limit=200_000)
                line = f"step {self._rng.randrange(1000)} of many"
                self._sessions[number] = msgspec.structs.replace(old, last_line=line, tokens=tokens)

    async def settings(self) -> AsyncIterator[DashboardSettings]:
        yield DashboardSettings()
        await asyncio.Event().wait()

    async def transcript(self, session: SessionId, since: Cursor = START, /) -> AsyncIterator[TranscriptUpdate]:
        yield EventBatch(events=(), cursor=since)
        await asyncio.Event().wait()

    async def boards(self) -> AsyncIterator[tuple[PlanBoard, ...]]:
        await asyncio.Event().wait()
        yield ()

    async def fleet_machines(self) -> AsyncIterator[tuple["MachineStatus", ...]]:
        await asyncio.Event().wait()
        yield ()

    async def memory(self) -> AsyncIterator[MemoryUse]:
        await asyncio.Event().wait()
        yield MemoryUse()

    async def operations(self) -> "Operations":
        raise UnableError("this fleet cannot be changed.")

    async def folders(self, written: str, /) -> Sequence[str]:
        return ()

    async def files(self, session: SessionId, /) -> Sequence[str]:
        return ()

    async def slash_commands(self, session: SessionId, /) -> Sequence[SlashCommand]:
        return ()

    async def symbols(self, session: SessionId, /) -> Sequence[CodeSymbol]:
        return ()

    async def run_command(self, session: SessionId, command: str, report: Callable[[str], None], /) -> int:
        return 0

    async def prompt_images(self, session: SessionId, text: str, /) -> Sequence[PromptImage]:
        return ()

    async def image_content(self, session: SessionId, image: PromptImage, /) -> bytes:
        return b""

    async def foreign_panes(self) -> Sequence[AdoptablePane]:
        return ()

    async def conversations(self, agent: str, mode: Mode | None, folder: str, account: str, /) -> ConversationOffers:
        return ConversationOffers()

    async def background_sessions(self) -> Sequence[BackgroundSession]:
        return ()

    async def offers(self, folder: str = "", /) -> Sequence[ProfileOffer]:
        return ()

    async def folder_notice(self, folder: str, /) -> str:
        return ""

    async def templates(self, folder: str, /) -> Mapping[str, TemplateConfig]:
        return {}

    async def worktrees(self, folder: str, base: str = "", /) -> None:
        """Return that no folder is in a git repository."""

    async def printed(self, session: SessionId, /) -> Sequence[str]:
        return ()

    async def search(self, words: str, /) -> AsyncGenerator[SessionHits, None]:
        await asyncio.Event().wait()
        yield SessionHits(self._sessions[0], ())

    async def update_search_index(self) -> None:
        """Do nothing: no measurement searches."""

    async def recorded(self, session: SessionId, line: int | None, at: float, /) -> RecordedText:
        return RecordedText()

    async def fact(self, session: SessionId, place: int, /) -> Event | None:
        return None

    async def explained(self, session: SessionId, /) -> Sequence[str]:
        return ()

    async def collisions(self) -> AsyncIterator[Mapping[SessionId, CollisionSummary]]:
        await asyncio.Event().wait()
        yield {}

    async def branches(self, is_viewed: Callable[[], bool], /) -> AsyncIterator[Mapping[SessionId, BranchSummary]]:
        await asyncio.Event().wait()
        yield {}

    async def plan_merges(self, sessions: Sequence[SessionId], /) -> MergePlan:
        raise NotImplementedError  # no measurement finishes a branch

    async def plan_finish(self, session: SessionId, request: FinishRequest, /) -> PlannedFinish:
        raise NotImplementedError  # no measurement finishes a branch

    async def proposed_message(self, session: SessionId, /) -> str:
        return ""

    async def changes_of(self, session: SessionId, turn: int | None = None, /) -> SessionChanges:
        return SessionChanges(diff="")

    async def sandboxes(self) -> SandboxChoices:
        return SandboxChoices()

    async def confined(self, agent: str, mode: Mode | None, workdir: str, tier: str, /) -> SandboxPreview:
        return SandboxPreview()

    async def machines(self) -> Sequence[str]:
        return ()

    async def sandbox(self, session: SessionId, /) -> SandboxHistory:
        return SandboxHistory()

    async def comments(self, session: SessionId, /) -> Sequence[LoggedComment]:
        return ()

    async def editor_argv(self, session: SessionId, name: str, line: int, /) -> Sequence[str]:
        return ("true",)

    async def attach_argv(self, session: SessionId, /) -> Sequence[str]:
        return ("true",)

    def _session(self, number: int, alive: bool, now: float) -> Session:
        return Session(
            id=session_id(number),
            name=f"row-{number:04d}",
            agent="scripted",
            mode=Mode.SDK,
            backend="scripted",
            state=SessionState.WORKING if alive else SessionState.ENDED,
            since=now - number,
            generation=1,
            last_line="Working on it",
            exit_code=None if alive else 0,
            host=HostProbe(pid=1, alive=True) if alive else None,
        )


def main(rows: int, alive: int, changes: int, rate_hz: float) -> None:
    Kasmon(gateway=MovingGateway(rows, alive, changes, rate_hz)).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
