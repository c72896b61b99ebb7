"""What each host does around an agent, however it talks to it: requests, answers, sandbox, stuck monitor, reports."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec

from kasmon.boot_id import boot
from kasmon.config import Config, load_or_default
from kasmon.errors import RefusedError, UsageError
from kasmon.host.journal.async_writer import WRITTEN_S, LogWriter
from kasmon.host.rpc.actor import (
    declared,
    find_actor,
    find_claimed_session,
    find_name,
    require_actor,
    require_leader,
    require_started_elsewhere,
)
from kasmon.host.rpc.frames import LogRequest, ProposeFinish, RecordComment, RecordPeerMessage, ReportContext
from kasmon.host.rpc.peer import describe_terminal, must_be_a_person
from kasmon.host.session.limit_follower import LimitFollower
from kasmon.host.session.peer_limits import require_length
from kasmon.host.session.request_registry import RequestRegistry
from kasmon.host.session.stuck_monitor import StuckMonitor, limits_of
from kasmon.host.session.turn_recorder import TurnRecorder
from kasmon.model.commands import LINK_ID_LENGTH, Answer, Interrupt, Launch, Mode, Prompt, Requeue, Sender, Stop, When
from kasmon.model.events import (
    AgentCommandReceived,
    ConnectionRestored,
    FinishProposed,
    SessionStarted,
)
from kasmon.model.session import Session
from kasmon.model.task import build_report
from kasmon.process_identity import started_at
from kasmon.sanitize import clean_line

if TYPE_CHECKING:
    from kasmon.host.sandboxed.agent import SandboxedAgent
    from kasmon.host.sandboxed.egress_requests import EgressRequests

EDITOR_CHARACTERS: Final = 40
"""The longest name of an editor in the log."""
PROPOSAL_LENGTH: Final = 1000
"""The longest text of a proposal to finish a session, in characters; the rest is dropped."""
PROPOSER_LENGTH: Final = 80
"""The longest name of a session of another machine whose agent proposes that; as above."""

log = logging.getLogger(__name__)


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
        self._monitors: list[asyncio.Task[None]] = []
        self._turns: TurnRecorder | None = None
        self._limit_follower: LimitFollower | None = None
        self._launch, self._end_agent = launch, end_agent
        self._has_own_files = launch.sandbox is None and not launch.machine and launch.mode is not Mode.INTERPRETER
        if launch.sandbox is None:
            return
        from kasmon.host.sandboxed import egress_requests  # only needed with a sandbox

        paths = log_writer.session_log.paths
        self.egress = egress_requests.EgressRequests(paths, launch.session, requests, log_writer, allow_for_good)
        if launch.mode is not Mode.INTERPRETER:
            from kasmon.host.sandboxed import agent

            self.sandboxed_agent = agent.SandboxedAgent(launch, log_writer, end_agent, on_agent, is_attached)

    def begin(self, pid: int | None, *, is_new: bool = True) -> None:
        """Inspect and keep the sandbox of process *pid*, if it has one. *is_new*: it was started just now."""
        if self.sandboxed_agent is not None and pid is not None:
            self.sandboxed_agent.begin(pid, is_new=is_new)
        if self.egress is not None:
            self.egress.begin()

    async def wait_until_inspected(self) -> None:
        """Wait until the agent's process is known, which in a sandbox is another than its pane's; after `begin`."""
        if self.sandboxed_agent is not None:
            await self.sandboxed_agent.inspected.wait()

    def watch_over(
        self,
        config: Config,
        *,
        written_at: Callable[[], float] = lambda: 0.0,
        is_watched: Callable[[], bool] = lambda: False,
        hibernates: bool = True,
    ) -> None:
        """From now on, monitor the agent, and store the files before and after its turns, as *config* has it.

        Args:
            written_at: see `StuckMonitor`.
            is_watched: see `IdleMonitor`.
            hibernates: whether the agent may be hibernated while it is idle.
        """
        if config.review.turns and self._has_own_files:
            self._turns = TurnRecorder(self._log_writer)
        self._limit_follower = LimitFollower(self._log_writer)
        if self._launch.actor is not None:
            self._monitors.append(asyncio.create_task(self._stop_in_time()))
        stuck_monitor = StuckMonitor(self._log_writer, limits_of(config.limits), written_at)
        self._monitors.append(asyncio.create_task(stuck_monitor.run()))
        idle_s = config.session.hibernate_after * 60
        if hibernates and idle_s > 0 and self._has_own_files:
            from kasmon.host.session.idle_monitor import IdleMonitor  # only where the config has it

            idle_monitor = IdleMonitor(self._log_writer, idle_s, is_watched)
            self._monitors.append(asyncio.create_task(idle_monitor.run()))

    async def _stop_in_time(self) -> None:
        """End the agent, which another agent started, when its time is over, unless a person restarted it since."""
        config = await asyncio.to_thread(load_or_default, self._log_writer.session_log.paths, log.warning)
        limits = self._launch.limits
        minutes = config.fleet.minutes if limits is None else min(config.fleet.minutes, limits.minutes)
        left_s = self._launch.created_at + 60 * minutes - time.time()
        if left_s <= 0 and self._launch.generation > 1:
            return
        await asyncio.sleep(max(0.0, left_s))
        self._end_agent(f"stopped: an agent started it, and its time is over (fleet.minutes = {minutes:g})")

    async def record(self, frame: LogRequest, peer_pid: int) -> None:
        """Log what process *peer_pid* sent as *frame*; it is written when this returns.

        Raises:
            UsageError: if it is a message to a peer, and too long; or a proposal without text, or with too much.
            RefusedError: for a message, if that process is an agent's, but not shown to be of this session. For a
                proposal, if it is no agent's, or it is not certain whose; if that agent may not use the fleet tools; or
                if neither it nor an agent below it started this session.
        """
        match frame:
            case ReportContext():
                self._log_writer.note(build_report(frame.waiting, frame.done, time.time()))
            case RecordPeerMessage():
                require_length(frame.event.text)
                await self._require_own_agent(peer_pid, "write messages of another agent")
                self._log_writer.note(frame.event)
            case RecordComment():
                self._log_writer.note(frame.event)
            case ProposeFinish():
                await self._propose_finish(frame, peer_pid)
        await self._log_writer.wait_for_write(WRITTEN_S)

    async def _propose_finish(self, frame: ProposeFinish, peer_pid: int) -> None:
        require_length(frame.text)
        if not (cleaned := clean_line(frame.text).strip()):
            raise UsageError("a proposal needs a text that says what was done.")
        paths, name = self._log_writer.session_log.paths, clean_line(frame.name).strip()[:PROPOSER_LENGTH]
        actor = declared(frame.actor)
        if actor is None or await asyncio.to_thread(find_actor, paths, peer_pid) is not None:
            actor = await asyncio.to_thread(require_actor, paths, peer_pid, "propose to finish a session")
            await asyncio.to_thread(require_leader, paths, actor, self._launch.session)
            name = await asyncio.to_thread(find_name, paths, actor)
        else:
            await asyncio.to_thread(require_started_elsewhere, paths, self._launch.session)
        self._log_writer.note(FinishProposed(at=time.time(), text=cleaned[:PROPOSAL_LENGTH], actor=actor, name=name))

    async def _require_own_agent(self, peer_pid: int, action: str) -> None:
        """Raise `RefusedError` if process *peer_pid* is an agent's, unless that is this session's.

        Of an agent's process that lost its parents, its environment decides.
        """
        actor = await asyncio.to_thread(find_actor, self._log_writer.session_log.paths, peer_pid)
        if actor is None:
            return
        if (actor.session or await asyncio.to_thread(find_claimed_session, peer_pid)) != self._launch.session:
            raise RefusedError(f"an agent cannot {action}.", hint="Its own session is the only one that it acts for.")

    async def add_actor(self, prompt: Prompt, peer_pid: int) -> Prompt:
        """Return *prompt* with the agent that process *peer_pid* belongs to, if it belongs to one."""
        actor = await asyncio.to_thread(find_actor, self._log_writer.session_log.paths, peer_pid)
        return msgspec.structs.replace(prompt, actor=actor or declared(prompt.actor))

    async def record_actor(self, command: Stop | Interrupt, peer_pid: int) -> None:
        """Log which agent sends *command*, if process *peer_pid* is an agent's; nothing is logged for a person."""
        paths = self._log_writer.session_log.paths
        if (actor := await asyncio.to_thread(find_actor, paths, peer_pid)) is None:
            return
        kind: Literal["stop", "interrupt"] = "stop" if isinstance(command, Stop) else "interrupt"
        name = await asyncio.to_thread(find_name, paths, actor)
        self._log_writer.note(AgentCommandReceived(at=time.time(), command=kind, actor=actor, name=name))

    async def check_requeue(self, command: Requeue, peer_pid: int) -> None:
        """Raise if process *peer_pid* is an agent's, and *command* changes more than a prompt that this agent sent.

        Raises:
            RefusedError: if that is so.
        """
        paths = self._log_writer.session_log.paths
        if (actor := await asyncio.to_thread(find_actor, paths, peer_pid)) is None:
            return
        sent = next((each for each in self._log_writer.session.receipts if each.id == command.receipt), None)
        is_own = sent is not None and actor.is_identified and sent.actor == actor
        if not is_own or command.place is not None:
            raise RefusedError(
                "an agent cannot change queued prompts of others.",
                hint="Send another prompt, or ask the person: the dashboard shows the queue.",
            )

    @contextlib.asynccontextmanager
    async def accepting(self, answer: Answer, peer_pid: int, *, is_agents: bool) -> AsyncIterator[str]:
        """Yield who sent *answer* from process *peer_pid*, for the log; what is accepted then is on disk afterwards.

        Answers are accepted one after the other: of two to the same request exactly one is accepted.

        *is_agents*: the sender declares that it belongs to an agent.

        Raises:
            RefusedError: if an agent sent it.
        """
        await must_be_a_person(peer_pid, self._log_writer.session.pid, is_agents=is_agents)
        who = await asyncio.to_thread(describe_terminal, peer_pid)
        if answer.link:
            who = f"link {clean_line(answer.link[:LINK_ID_LENGTH])}, {who}"
        if answer.editor:
            who = f"editor {clean_line(answer.editor[:EDITOR_CHARACTERS])}, {who}"
        async with self._answering:
            yield who
        await self._log_writer.wait_for_disk()

    async def answer_own(self, answer: Answer, who: str) -> bool:
        """Accept *answer* of *who* and execute it, if the host itself opened its request; whether it did."""
        if self.egress is None or not self.requests.is_own(answer.request):
            return False
        await self.egress.answer(answer, who)
        return True

    async def aclose(self, *, is_over: bool) -> None:
        """Stop all of that; if the agent *is_over*, remove its sandbox except its home. Idempotent."""
        for monitor in self._monitors:
            monitor.cancel()
        if self._limit_follower is not None:
            self._limit_follower.close()
        if self._turns is not None:
            await self._turns.aclose()
        if self.egress is not None:
            await self.egress.aclose()
        if self.sandboxed_agent is not None:
            await self.sandboxed_agent.aclose(is_over=is_over)


async def add_process(event: Start) -> Start:
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
    by: Sender = "peer" if launch.actor is not None else "user" if launch.wave is None else "wave"
    return Prompt(text=launch.prompt, when=when, by=by, actor=launch.actor)
