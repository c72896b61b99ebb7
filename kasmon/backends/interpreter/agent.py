"""The agent of one interpreter session: the commands it accepts, and their effects as events.

A host folder has no quota that works without root, so its size is measured every few seconds; more can be written in
between. Outside a turn it is not measured. While it is full, `Runs` lets nothing but bash run.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, TypeVar

import msgspec

from kasmon.backends.base import Chunk, SecretsLearned
from kasmon.backends.interpreter.context_exchange import ContextExchange
from kasmon.backends.interpreter.event_queue import ThreadSafeEventQueue
from kasmon.backends.interpreter.run_history import RunHistory
from kasmon.backends.interpreter.runs import InterpreterRuns
from kasmon.backends.interpreter.sandbox_lifecycle import InterpreterLifecycle
from kasmon.backends.interpreter.threads import BlockingCalls
from kasmon.errors import KasmonError, SandboxError, UnableError
from kasmon.model import commands
from kasmon.model.events import Event
from kasmon.model.sandbox.policy import INTERPRETERS, MIB, RunResult, SandboxPhase, SandboxPolicy
from kasmon.paths import Paths
from kasmon.sandbox import tiers
from kasmon.sandbox.managed.checkpoints import SandboxCheckpoints, fork_sandbox
from kasmon.sandbox.managed.idle_policy import LifetimeTerms, origin_of, store_origin
from kasmon.sandbox.managed.sandbox import ManagedSandbox

LOOK_S: Final = 3.0
"""How often the disk is measured, in seconds; each time takes half a second at most."""


Value = TypeVar("Value")


class InterpreterAgent:
    """Runs code for its session. It acts only while its `events` are being read."""

    def __init__(
        self,
        paths: Paths,
        launch: commands.Launch,
        create_sandbox: Callable[[Callable[[Event], None]], ManagedSandbox],
        create_checkpoints: Callable[[ManagedSandbox], SandboxCheckpoints],
        terms: LifetimeTerms,
        loop: asyncio.AbstractEventLoop,
        history: RunHistory,
        store_policy: Callable[[SandboxPolicy], None],
        quiet_s: float,
    ) -> None:
        """*create_sandbox* gets the function to which the events of the sandbox go."""
        self._paths = paths
        self._event_queue, self._threads = ThreadSafeEventQueue(loop), BlockingCalls()
        self._sandbox = create_sandbox(self._event_queue.write)
        self._checkpoints = create_checkpoints(self._sandbox)
        self._store_policy = store_policy
        self._lifecycle = InterpreterLifecycle(
            launch, self._sandbox, self._checkpoints, terms, self._event_queue, self._threads, quiet_s
        )
        self._context_exchange = ContextExchange(paths, launch, self._sandbox, self._event_queue, history.until)
        self._runs = InterpreterRuns(
            launch, self._sandbox, self._lifecycle, self._event_queue, self._threads, self._context_exchange, history
        )
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_started = False

    def events(self) -> AsyncIterator[Event | Chunk | SecretsLearned]:
        """Yield what happens, in order. Ends after the single `SessionEnded`."""
        return self._event_queue.read(self._start_once)

    async def send(self, command: commands.AgentCommand, /) -> None:
        """Run a prompt in the interpreter that was used last, initially bash; interrupt what runs; or stop.

        Raises:
            RefusedError: if the sandbox is paused and not resumed on use, or the run to interrupt is over.
            UnableError: for every other command.
        """
        match command:
            case commands.Prompt():
                self._lifecycle.check_may_wake()
                run = commands.Run(interpreter=self._runs.last, code=command.text)
                self._start_task(self._runs.run(run, None, command.text, command.by))
            case commands.Interrupt(run=run) if run:
                await self._runs.interrupt_one(run)
            case commands.Interrupt():
                await self._runs.interrupt((command.interpreter,) if command.interpreter else INTERPRETERS)
            case commands.Stop():
                self._start_task(self._lifecycle.end("stopped"))
            case _:
                raise UnableError(f"interpreters do not support {type(command).__name__.lower()}.")

    async def run(self, command: commands.Run, on_output: Callable[[str, str], None], /) -> RunResult:
        """Run code, resuming the sandbox for it; return its result. *on_output* gets its output, from a thread.

        Of two runs with one id, the second returns the result of the first. On return the host has received the end of
        the run, so it can log it before it answers. So the next host knows the result even without the sandbox.
        """
        ran = await self._runs.once(command, on_output, self._start_task)
        await self._event_queue.wait_read()
        return ran

    async def change_sandbox(self, command: commands.SandboxCommand, /) -> str:
        """Change the sandbox as `SandboxedAgentControl` describes. On return the host has received its events.

        After a fork, what the new session received is written to the origin of that session.
        """
        await self._lifecycle.arrived.wait()
        try:
            if isinstance(command, commands.Allow):
                async with self._lifecycle.turns.gate:
                    return await self._lifecycle.move(self._allow, command)
            async with self._lifecycle.turns.none():
                return await self._lifecycle.move(self._execute, command)
        finally:
            self._lifecycle.check_due()
            await self._event_queue.wait_read()

    async def aclose(self) -> None:
        """End the sandbox if it exists; idempotent."""
        await self._lifecycle.end("closed")

    def _execute(self, command: commands.SandboxCommand) -> str:
        match command:
            case commands.Pause():
                why = self._sandbox.sleep(to_disk=command.to_disk, why="by user")
                if why or self._sandbox.phase is not SandboxPhase.PAUSED:
                    raise SandboxError("the sandbox was not paused", why or "see its log")
                return ""
            case commands.Resume():
                return self._sandbox.wake()
            case commands.Checkpoint():
                return self._checkpoints.create("asked")
            case commands.Restore():
                return self._checkpoints.restore(command.checkpoint)
            case commands.Fork():
                return self._fork(command)
            case _:
                raise UnableError(f"{type(command).__name__.lower()} is not supported here.")

    def _fork(self, command: commands.Fork) -> str:
        """Copy the sandbox and record the complete copy for the new session; return what this session lost."""
        known = origin_of(self._paths, command.session) if command.session else None
        other = tiers.policy_of(self._paths, command.session) if known is not None else None
        got = fork_sandbox(self._sandbox, self._checkpoints, command, other)
        if known is not None:
            whole = msgspec.structs.replace(
                known, is_whole=True, with_memory=not got.why, checkpoint=got.checkpoint, why=got.why
            )
            try:
                store_origin(self._paths, command.session, whole)
            except OSError as error:  # the caller has undone the fork meanwhile
                if other is not None:
                    self._sandbox.tier.forget(other)
                raise SandboxError("the fork was not created", error.strerror or str(error)) from error
        return got.lost

    def _allow(self, command: commands.Allow) -> str:
        later = self._sandbox.allow(command.hosts)
        self._store_policy(self._sandbox.policy)
        return later

    def _start_once(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._start_task(self._lifecycle.run(lambda: self._runs.collect_earlier_runs(self._start_task)))
            self._start_task(self._watch_disk())
            self._start_task(self._context_exchange.exchange_until(lambda: self._lifecycle.is_ending))

    async def _watch_disk(self) -> None:
        """Measure the disk until the session ends. Only growing usage is interrupted, so bash can free space."""
        before: int | None = None
        while True:
            await asyncio.sleep(LOOK_S)
            if self._lifecycle.is_ending:
                return
            if not self._lifecycle.turns.is_running:
                before = None
                continue
            await self._lifecycle.measure()
            usage = self._sandbox.journal.sandbox_state.usage
            if usage is None:
                continue
            is_growing, before = before is not None and usage.disk_bytes > before, usage.disk_bytes
            if usage.is_full and is_growing:
                before = None  # the next run did not cause this
                of = f"{usage.disk_bytes // MIB} MiB of {usage.disk_allowed // MIB} MiB"
                why = f"The disk of the sandbox is full, {of}: the run was interrupted."
                why += " Bash still works, to remove files."
                self._sandbox.journal.add_notice(why)
                await self._runs.interrupt_full_disk(why)

    def _start_task(self, work: Coroutine[Any, Any, Value]) -> asyncio.Task[Value]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish_task)
        return task

    def _finish_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, KasmonError):
            self._lifecycle.report_end(f"its backend failed: {error!r}", None)
