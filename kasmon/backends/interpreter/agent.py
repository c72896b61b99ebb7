"""The agent of one interpreter session: the commands it accepts, and their effects as events.

A host folder has no quota that works without root, so its size is measured every few seconds; more can be written in
between. Outside a turn it is not measured. While it is full, `Runs` lets nothing but bash run.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

import msgspec

from kasmon.backends.base import Chunk, SecretsLearned
from kasmon.backends.interpreter.context_exchange import ContextExchange
from kasmon.backends.interpreter.event_queue import ThreadSafeEventQueue
from kasmon.backends.interpreter.policy import policy_of
from kasmon.backends.interpreter.run_history import RunHistory
from kasmon.backends.interpreter.runs import InterpreterRuns
from kasmon.backends.interpreter.sandbox_lifecycle import InterpreterLifecycle
from kasmon.backends.interpreter.threads import BlockingCalls
from kasmon.backends.interpreter.turns import QUIET_S
from kasmon.errors import KasmonError, SandboxError, UnableError
from kasmon.model.commands import (
    Allow,
    Checkpoint,
    Fork,
    Interrupt,
    Launch,
    Pause,
    Prompt,
    Restore,
    Resume,
    Run,
    SandboxWish,
    Stop,
    Wish,
)
from kasmon.model.events import Event
from kasmon.model.sandbox.policy import INTERPRETERS, MIB, RunResult, SandboxPhase, SandboxPolicy
from kasmon.paths import Paths
from kasmon.sandbox.managed.checkpoints import SandboxCheckpoints
from kasmon.sandbox.managed.fork import copied
from kasmon.sandbox.managed.lifecycle import LifetimeTerms
from kasmon.sandbox.managed.origin import keep_origin, origin_of
from kasmon.sandbox.managed.sandbox import ManagedSandbox

LOOK_S: Final = 3.0
"""How often the disk is measured, in seconds; each time takes half a second at most."""


class DiskLimit:
    """The disk limit of one session's sandbox."""

    def __init__(
        self, box: ManagedSandbox, life: InterpreterLifecycle, interrupt: Callable[[str], Awaitable[None]]
    ) -> None:
        """*interrupt*: interrupts what runs, for the reason passed to it, and preserves what it can."""
        self._box = box
        self._life = life
        self._interrupt = interrupt

    async def watch(self) -> None:
        """Measure until the session ends. Only growing usage is interrupted, so bash can free space."""
        before: int | None = None
        while True:
            await asyncio.sleep(LOOK_S)
            if self._life.is_ending:
                return
            if not self._life.turns.is_running:
                before = None
                continue
            await self._life.measure()
            usage = self._box.journal.housing.usage
            if usage is None:
                continue
            is_growing, before = before is not None and usage.disk_bytes > before, usage.disk_bytes
            if usage.is_full and is_growing:
                before = None  # the next run did not cause this
                of = f"{usage.disk_bytes // MIB} MiB of {usage.disk_allowed // MIB} MiB"
                why = (
                    f"The disk of the sandbox is full, {of}: the run was interrupted. Bash still works, to remove "
                    "files."
                )
                self._box.journal.tell(why)
                await self._interrupt(why)


Value = TypeVar("Value")


class InterpreterAgent:
    """Runs code for its session. It acts only while its `events` are being read."""

    def __init__(
        self,
        places: Paths,
        launch: Launch,
        box: Callable[[Callable[[Event], None]], ManagedSandbox],
        keeping: Callable[[ManagedSandbox], SandboxCheckpoints],
        terms: LifetimeTerms,
        loop: asyncio.AbstractEventLoop,
        known: RunHistory,
        keep_policy: Callable[[SandboxPolicy], None] = lambda _: None,
        quiet_s: float = QUIET_S,
    ) -> None:
        """Create the agent.

        Args:
            places: the folders of its kasmon.
            launch: its session.
            box: creates its sandbox, whose events go to the given function.
            keeping: creates the checkpoints of that sandbox.
            terms: how long the sandbox is retained.
            loop: the event loop of the agent.
            known: what ran there under earlier hosts.
            keep_policy: stores the changed policy of the sandbox.
            quiet_s: how long nothing must run until a turn is over.
        """
        self._places = places
        self._diary, self._threads = ThreadSafeEventQueue(loop), BlockingCalls()
        self._box = box(self._diary.write)
        self._keeping = keeping(self._box)
        self._keep_policy = keep_policy
        self._life = InterpreterLifecycle(launch, self._box, self._keeping, terms, self._diary, self._threads, quiet_s)
        self._mailbox = ContextExchange(places, launch, self._box, self._diary, known.until)
        self._runs = InterpreterRuns(launch, self._box, self._life, self._diary, self._threads, self._mailbox, known)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lives = False

    def events(self) -> AsyncIterator[Event | Chunk | SecretsLearned]:
        """Yield what happens, in order. Ends after the single `SessionEnded`."""
        return self._diary.read(self._live_once)

    async def send(self, wish: Wish, /) -> None:
        """Run a prompt in the interpreter that was used last, initially bash; interrupt what runs; or stop.

        Raises:
            RefusedError: if the sandbox is paused and not resumed on use, or the run to interrupt is over.
            UnableError: for every other command.
        """
        match wish:
            case Prompt():
                self._life.must_wake()
                run = Run(interpreter=self._runs.last, code=wish.text)
                self._beside(self._runs.run(run, None, wish.text, wish.by))
            case Interrupt(run=run) if run:
                await self._runs.interrupt_one(run)
            case Interrupt():
                await self._runs.interrupt((wish.interpreter,) if wish.interpreter else INTERPRETERS)
            case Stop():
                self._beside(self._life.end("stopped"))
            case _:
                raise UnableError(f"interpreters do not support {type(wish).__name__.lower()}.")

    async def run(self, wish: Run, printed: Callable[[str, str], None], /) -> RunResult:
        """Run code, resuming the sandbox for it; return its result. *printed* gets its output, from a thread.

        Of two runs with one id, the second returns the result of the first. On return the host has received the end of
        the run, so it can log it before it answers. So the next host knows the result even without the sandbox.

        Raises:
            RefusedError: if the sandbox is paused and must not be resumed on use.
            SandboxError: if there is no sandbox to run it in.
        """
        ran = await self._runs.once(wish, printed, self._beside)
        await self._diary.heard()
        return ran

    async def keep(self, wish: SandboxWish, /) -> str:
        """Pause or resume the sandbox, create a checkpoint or restore one, once its turn is over.

        Returns the checkpoint's id, or else what was lost; empty if nothing was. On return the host has received its
        events. After a fork, what the new session received is written to the origin of that session.

        Raises:
            KasmonError: if it could not be done; the message gives the reason.
        """
        await self._life.arrived.wait()
        try:
            if isinstance(wish, Allow):
                async with self._life.turns.gate:
                    return await self._life.moved(self._allow, wish)
            async with self._life.turns.none():
                return await self._life.moved(self._kept, wish)
        finally:
            self._life.stir()
            await self._diary.heard()

    async def aclose(self) -> None:
        """End the sandbox if it exists; idempotent."""
        await self._life.end("closed")

    def _kept(self, wish: SandboxWish) -> str:
        match wish:
            case Pause():
                why = self._box.sleep(to_disk=wish.to_disk, why="by user")
                if why or self._box.phase is not SandboxPhase.PAUSED:
                    raise SandboxError("the sandbox was not paused", why or "see its log")
                return ""
            case Resume():
                return self._box.wake()
            case Checkpoint():
                return self._keeping.keep("asked")
            case Restore():
                return self._keeping.restore(wish.checkpoint)
            case Fork():
                return self._forked(wish)
            case _:
                raise UnableError(f"{type(wish).__name__.lower()} is not supported here.")

    def _forked(self, wish: Fork) -> str:
        """Copy the sandbox and record the complete copy for the new session; return what this session lost."""
        known = origin_of(self._places, wish.session) if wish.session else None
        other = policy_of(self._places, wish.session) if known is not None else None
        got = copied(self._box, self._keeping, wish, other)
        if known is not None:
            whole = msgspec.structs.replace(
                known, is_whole=True, with_memory=not got.why, checkpoint=got.checkpoint, why=got.why
            )
            try:
                keep_origin(self._places, wish.session, whole)
            except OSError as error:  # the caller has undone the fork meanwhile
                if other is not None:
                    self._box.tier.forget(other)
                raise SandboxError("the fork was not created", error.strerror or str(error)) from error
        return got.lost

    def _allow(self, wish: Allow) -> str:
        later = self._box.allow(wish.hosts)
        self._keep_policy(self._box.policy)
        return later

    def _live_once(self) -> None:
        if not self._lives:
            self._lives = True
            self._beside(self._life.live(lambda: self._runs.take_up(self._beside)))
            self._beside(DiskLimit(self._box, self._life, self._runs.interrupt_for_room).watch())
            self._beside(self._mailbox.live(lambda: self._life.is_ending))

    def _beside(self, work: Coroutine[Any, Any, Value]) -> asyncio.Task[Value]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, KasmonError):
            self._life.say_end(f"its backend failed: {error!r}", None)
