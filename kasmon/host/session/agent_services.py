"""What each host does around an agent, however it talks to it: requests, answers, sandbox, stuck monitor, reports."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from kasmon.boot_id import boot
from kasmon.errors import KasmonError
from kasmon.host.journal.async_writer import WRITTEN_S, LogWriter
from kasmon.host.rpc.frames import ReportContext
from kasmon.host.rpc.peer import describe_terminal, must_be_a_person
from kasmon.host.session.request_registry import AcceptedAnswer, RequestRegistry
from kasmon.host.session.stuck_monitor import StuckMonitor
from kasmon.model.commands import Answer, Launch, Mode, Prompt, When
from kasmon.model.events import CommentEvent, ConnectionRestored, NoticeRaised, SessionStarted
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE
from kasmon.model.stuck import StuckLimits
from kasmon.model.task import build_report
from kasmon.process_identity import started_at

CLOSE_S: Final = 20.0
"""How long a host that ends waits until the files of its last turn are stored."""

log = logging.getLogger(__name__)


class TurnRecorder:
    """Follows the events of one session, from its construction until it is closed. A failure never stops the agent."""

    def __init__(self, log_writer: LogWriter) -> None:
        self._log_writer = log_writer
        self._is_in_turn = _is_in_turn(log_writer.session)
        self._moments: deque[bool] = deque()
        """Turns that began (true) or ended, and are not stored yet."""
        self._turn: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False
        log_writer.listeners.append(self._follow)

    async def aclose(self) -> None:
        """Stop following, and wait until what happened is stored. Idempotent."""
        if self._follow in self._log_writer.listeners:
            self._log_writer.listeners.remove(self._follow)
        if self._task is not None:
            await asyncio.wait([self._task], timeout=CLOSE_S)

    def _follow(self) -> None:
        is_in_turn = _is_in_turn(self._log_writer.session)
        if is_in_turn is self._is_in_turn:
            return
        self._is_in_turn = is_in_turn
        self._moments.append(is_in_turn)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._store())

    async def _store(self) -> None:
        while self._moments:
            try:
                await asyncio.to_thread(self._store_moment, is_begin=self._moments.popleft())
            except (KasmonError, OSError, ValueError) as error:
                self._turn = None
                log.warning("the files of a turn are not stored: %s", error)
                if not self._has_failed:
                    self._has_failed = True
                    text = f"The files before and after turns are not stored: {error}"
                    self._log_writer.note(NoticeRaised(at=time.time(), text=text, level="warning"))

    def _store_moment(self, *, is_begin: bool) -> None:
        session, folder = self._log_writer.session, Path(self._log_writer.session.workdir)
        if is_begin:
            self._turn = None
            if not any((place / ".git").exists() for place in (folder, *folder.parents)):
                return
        elif self._turn is None:
            return
        from kasmon.repository.turn_trees import TurnTrees  # only in repositories: hosts are small

        trees = TurnTrees(self._log_writer.session_log.places.turns(session.id))
        if is_begin:
            self._turn = trees.begin(folder)
        elif self._turn is not None:
            trees.end(folder, self._turn)
            self._turn = None


def _is_in_turn(session: Session) -> bool:
    return session.state in ALIVE and (session.in_turn or session.worked)


if TYPE_CHECKING:
    from kasmon.host.sandboxed.agent import SandboxedAgent
    from kasmon.host.sandboxed.egress_requests import EgressRequests

Start = TypeVar("Start", bound=SessionStarted | ConnectionRestored)


async def _is_never_attached() -> bool:
    return False


class AgentServices:
    """The services of the agent of *launch*, from its start to `aclose`."""

    def __init__(
        self,
        log_writer: LogWriter,
        launch: Launch,
        requests: RequestRegistry,
        *,
        end_agent: Callable[[str], None],
        on_agent: Callable[[int], None] = lambda _: None,
        is_attached: Callable[[], Awaitable[bool]] = _is_never_attached,
        allow_for_good: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """
        Args:
            end_agent: begins to end it, for the given reason.
            on_agent: called with the pid of its process in a sandbox.
            is_attached: whether a user is attached to it, though it does nothing.
            allow_for_good: adds a host to its sandbox's list; None: to its policy's file.
        """
        self.requests = requests
        self.sandboxed_agent: SandboxedAgent | None = None
        """Controls its sandbox; None without one, and for an interpreter, whose backend does."""
        self.egress: EgressRequests | None = None
        """Opens requests for hosts that its sandbox was refused; None without a sandbox."""
        self._log_writer = log_writer
        self._answering = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self._turns: TurnRecorder | None = None
        self._has_own_files = launch.sandbox is None and not launch.machine and launch.mode is not Mode.INTERPRETER
        if launch.sandbox is None:
            return
        from kasmon.host.sandboxed import egress_requests  # only needed with a sandbox

        places = log_writer.session_log.places
        self.egress = egress_requests.EgressRequests(places, launch.session, requests, log_writer, allow_for_good)
        if launch.mode is not Mode.INTERPRETER:
            from kasmon.host.sandboxed import agent

            self.sandboxed_agent = agent.SandboxedAgent(launch, log_writer, end_agent, on_agent, is_attached)

    def begin(self, pid: int | None, *, is_new: bool = True) -> None:
        """Inspect and keep the sandbox of process *pid*, if it has one. *is_new*: it was started just now."""
        if self.sandboxed_agent is not None and pid is not None:
            self.sandboxed_agent.begin(pid, is_new=is_new)
        if self.egress is not None:
            self.egress.begin()

    def watch_over(
        self, limits: StuckLimits, written_at: Callable[[], float] = lambda: 0.0, *, stores_turns: bool = True
    ) -> None:
        """Run the stuck monitor from now on; *written_at* as there.

        *stores_turns*: also store the files before and after each turn, if the agent works in a folder of this machine.
        """
        if stores_turns and self._has_own_files:
            self._turns = TurnRecorder(self._log_writer)
        self._watching = asyncio.create_task(StuckMonitor(self._log_writer, limits, written_at).run())

    async def report(self, frame: ReportContext) -> None:
        """Note the agent's own report of its progress."""
        self._log_writer.note(build_report(frame.waiting, frame.done, time.time()))
        await self._log_writer.written(WRITTEN_S)

    async def record_comment(self, event: CommentEvent) -> None:
        """Log *event*; it is written when this returns."""
        self._log_writer.note(event)
        await self._log_writer.written(WRITTEN_S)

    async def answer(
        self,
        answer: Answer,
        peer_pid: int,
        accept: Callable[[Answer, str], Awaitable[AcceptedAnswer | None]],
        *,
        is_agents: bool,
    ) -> AcceptedAnswer | None:
        """Have *accept* take *answer*, which process *peer_pid* sent; what it accepted is on disk when this returns.

        Answers are taken one after the other: of two to the same request exactly one is accepted.

        Args:
            accept: takes the answer of the user at the given terminal; returns what has to be sent to the agent now.
            is_agents: the sender declares that it belongs to an agent.

        Raises:
            RefusedError: if an agent sent it, or its request does not take it; nothing was sent then.
            KasmonError: as *accept*.
        """
        await must_be_a_person(peer_pid, self._log_writer.session.pid, is_agents=is_agents)
        accepted, who = None, await asyncio.to_thread(describe_terminal, peer_pid)
        async with self._answering:
            if self.egress is not None and self.requests.is_own(answer.request):
                await self.egress.answer(answer, who)
            else:
                accepted = await accept(answer, who)
        await self._log_writer.on_disk()
        return accepted

    async def aclose(self, *, is_over: bool) -> None:
        """Stop all of that; if the agent *is_over*, remove its sandbox except its home. Idempotent."""
        if self._watching is not None:
            self._watching.cancel()
        if self._turns is not None:
            await self._turns.aclose()
        if self.egress is not None:
            await self.egress.aclose()
        if self.sandboxed_agent is not None:
            await self.sandboxed_agent.aclose(is_over=is_over)


async def with_process(event: Start) -> Start:
    """Return *event* with this boot's id, and when its process started."""
    born = event.pid_started
    if event.pid is not None and born is None:
        born = await asyncio.to_thread(started_at, event.pid)
    return msgspec.structs.replace(event, pid_started=born, pid_boot=await asyncio.to_thread(boot))


def first_prompt(session: Session, launch: Launch, when: When) -> Prompt | None:
    """Return the prompt of *launch*; None if it has none, or *session* ran or was prompted before."""
    is_first = launch.generation <= 1 and not session.generation and not session.receipts_counted
    if not is_first or not launch.prompt.strip():
        return None
    return Prompt(text=launch.prompt, when=when, by="user" if launch.wave is None else "wave")
