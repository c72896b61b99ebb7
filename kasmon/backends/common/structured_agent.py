"""The life of an agent that is a child process with a protocol: its events, its commands, its limits and its end."""

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from kasmon.asyncio_tasks import cancel_and_wait
from kasmon.backends.base import AgentOutput
from kasmon.backends.common import agent_start
from kasmon.backends.common.agent_version import explain_unfit
from kasmon.backends.common.child_process import ChildProcess
from kasmon.errors import KasmonError, LaunchError, SessionEndedError, UnfitAgentError
from kasmon.model.commands import AgentCommand, Answer, Configure, Interrupt, Launch, Prompt, Stop
from kasmon.model.events import Event, LimitLifted, LimitReached, SessionEnded, SessionStarted

INTERRUPT_S: Final = 2.0
"""How long a running turn may take to end when the session is stopped, in seconds."""
LINGER_S: Final = 2.0
"""How long the process may run after it closed its output, and its output be read after its end, in seconds."""
FULL: Final = 1000
"""How many events may wait for the host before the agent is no longer read."""


class EventQueue:
    """The events of one agent, in order, for one reader; while that does not read, the agent is not read either.

    The end of a limit is added when it is due, as an idle agent does not report it.
    """

    def __init__(self, lift_limit: Callable[[float], Iterable[AgentOutput]] = lambda _: ()) -> None:
        """*lift_limit*: returns the events at the end of a limit, of which the agent said when it ends."""
        self._waiting: deque[AgentOutput] = deque()
        self._stirred, self._taken = asyncio.Event(), asyncio.Event()
        self._is_read = self._is_over = False
        self._lift_limit = lift_limit
        self._limit_timer: asyncio.TimerHandle | None = None

    def put(self, items: Iterable[AgentOutput]) -> None:
        """Add *items*; never blocks. Nothing is added after a `SessionEnded`, nor if *items* raises."""
        for each in list(items):
            if self._is_over:
                break
            self._waiting.append(each)
            self._is_over = isinstance(each, SessionEnded)
            if isinstance(each, LimitReached | LimitLifted | SessionEnded):
                self._await_lift(each.until if isinstance(each, LimitReached) else None)
        self._stirred.set()
        if self._is_over:
            self._taken.set()

    def start(self, first: Iterable[Event]) -> None:
        """Put *first* before the events added so far; from now on the host is expected to read."""
        self._waiting.extendleft(reversed([*first]))
        self._is_read = True
        self._stirred.set()

    async def read(self) -> AsyncIterator[AgentOutput]:
        """Yield all events as they come; ends after `SessionEnded`, and at once if that was yielded before."""
        while self._waiting or not self._is_over:
            while not self._waiting:
                self._stirred.clear()
                await self._stirred.wait()
            item = self._waiting.popleft()
            self._taken.set()
            yield item

    async def wait_for_space(self) -> None:
        """Wait until the host has read enough that there is space."""
        while self._is_read and not self._is_over and len(self._waiting) >= FULL:
            self._taken.clear()
            await self._taken.wait()

    def _await_lift(self, until: float | None) -> None:
        if self._limit_timer is not None:
            self._limit_timer.cancel()
            self._limit_timer = None
        if until is not None:
            delay_s = max(0.0, until - time.time())
            self._limit_timer = asyncio.get_running_loop().call_later(
                delay_s, lambda: self.put(self._lift_limit(time.time()))
            )


class StructuredAgent(ABC):
    """One agent over *child*; what it does with a command, its protocol decides."""

    def __init__(self, launch: Launch, child: ChildProcess) -> None:
        self._launch, self._child = launch, child
        self._event_queue = EventQueue(self._lift_limit)
        self._emit = self._event_queue.put
        self._why = ""
        """Why it was ended; empty if it ended by itself."""
        self._life: asyncio.Task[None] | None = None
        """Ends with the call of `_report_end`."""
        self._stop_task: asyncio.Task[None] | None = None

    def events(self) -> AsyncIterator[AgentOutput]:
        """Yield what happens, in order. Ends after the single `SessionEnded`."""
        return self._event_queue.read()

    async def send(self, command: AgentCommand, /) -> None:
        """Send the command *command* to the agent.

        Raises:
            SessionEndedError: if it has ended.
            SessionBusyError: if it accepts no prompt during a turn.
            RequestClosedError, StaleRequestError, UnableError, UsageError: if no open request accepts this answer.
            UnableError, RefusedError: if it rejects the command.
        """
        if not self._child.is_running:
            raise SessionEndedError(self._launch.session)
        match command:
            case Prompt():
                await self._prompt(command)
            case Answer():
                await self._answer(command)
            case Interrupt():
                await self._interrupt()
            case Configure():
                await self._configure(command)
            case Stop() if self._stop_task is None:
                self._why = self._why or "stopped"
                self._stop_task = asyncio.create_task(self._stop(command.grace_s))

    async def aclose(self) -> None:
        """End the agent if it runs; idempotent, and within some 10 s."""
        self._why = self._why or "closed"
        await cancel_and_wait(self._stop_task)
        await self._child.end()
        await self._disconnect()
        if self._life is not None:
            await asyncio.wait([self._life], timeout=LINGER_S)
            await cancel_and_wait(self._life)

    @abstractmethod
    async def begin(self) -> None:
        """Open the conversation; after that, `events` yields.

        Raises:
            LaunchError: if the agent refuses, or another exception if it does not answer; see `explain`.
        """

    @abstractmethod
    def explain(self, error: Exception, limit_s: float) -> LaunchError:
        """Return why `begin` failed with *error* within *limit_s* seconds; the process has ended."""

    @abstractmethod
    async def _prompt(self, prompt: Prompt) -> None: ...

    @abstractmethod
    async def _answer(self, answer: Answer) -> None: ...

    @abstractmethod
    async def _interrupt(self) -> None: ...

    @abstractmethod
    async def _configure(self, command: Configure) -> None: ...

    @abstractmethod
    async def _end_turn(self) -> None:
        """End the running turn, if any, before the process is ended."""

    @abstractmethod
    async def _disconnect(self) -> None:
        """Release the connection to the process, which has ended. Idempotent."""

    def _lift_limit(self, at: float) -> Iterable[AgentOutput]:
        """Return the events at the end of a limit, of which the agent said when it ends."""
        return ()

    def _start_events(
        self,
        at: float,
        pid: int,
        conversation: str | None,
        model: str,
        proof: str,
        *others: Event,
        abilities: tuple[str, ...] = (),
    ) -> None:
        """Report the start, verified by *proof*, then *others*, before all events so far.

        *abilities*: what this agent supports beside what its backend does.
        """
        launch = self._launch
        started = SessionStarted(
            at=at,
            generation=launch.generation,
            backend=launch.backend,
            mode=launch.mode,
            workdir=launch.workdir,
            pid=pid,
            resume_id=conversation,
            model=model,
            proof=proof,
            abilities=abilities,
        )
        self._event_queue.start([started, *others])

    async def _stop(self, grace_s: float) -> None:
        """End a running turn, which the agent would finish first; end the process within *grace_s* seconds."""
        if grace_s > 0:
            with contextlib.suppress(KasmonError, TimeoutError):
                async with asyncio.timeout(min(grace_s, INTERRUPT_S)):
                    await self._end_turn()
        await self._child.end(grace_s)

    async def _await_end(self) -> None:
        """Wait for the end of the process, which follows that of its output; else end it."""
        try:
            async with asyncio.timeout(LINGER_S):
                await self._child.wait()
        except TimeoutError:
            self._why = self._why or "it closed its output, and was ended"
        await self._child.end()

    def _report_end(self, last: Iterable[AgentOutput]) -> None:
        """Report *last*, then the end of the process, as the last events."""
        child = self._child
        ended = SessionEnded(
            at=time.time(),
            exit_code=child.exit_code,
            signal=child.signal,
            why=self._why,
            last_words=child.last_words,
        )
        self._emit([*last, ended])


AnyAgent = TypeVar("AnyAgent", bound=StructuredAgent)


async def open_agent(
    launch: Launch,
    child: ChildProcess,
    create: Callable[[], Awaitable[AnyAgent]],
    *,
    backend: str,
    argv: Sequence[str],
    variables: Mapping[str, str],
) -> AnyAgent:
    """Return the agent that *create* makes of *child*, with its conversation open; end it if that fails.

    Args:
        argv: the program that is asked for its version if it does not speak its protocol, with the environment
            *variables*.

    Raises:
        LaunchError: with the reason.
    """
    limit_s, agent = agent_start.limit_s(launch), None
    try:
        agent = await create()
        await agent_start.wait_for_start(launch, child.pid)
        async with asyncio.timeout(limit_s):
            await agent.begin()
        return agent
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, TimeoutError | LaunchError):
            await child.end(LINGER_S)
        await (child.end() if agent is None else agent.aclose())
        if agent is None or not isinstance(error, Exception):
            raise
        why = error if isinstance(error, LaunchError) else agent.explain(error, limit_s)
        if why is not error:
            why.__cause__ = error
        if isinstance(why, UnfitAgentError):
            why = await explain_unfit(why, backend, argv, launch.workdir, variables)
        if why is error:
            raise
        raise why from error
