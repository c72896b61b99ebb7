"""Run code in a sandbox: once for each id, with its output shown while it runs, as events of its turn."""

import asyncio
import contextlib
import itertools
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, Self, TypeAlias, TypeVar

import msgspec

from kasmon.backends.base import Chunk, SecretsLearned
from kasmon.backends.interpreter.context_exchange import ContextExchange
from kasmon.backends.interpreter.event_queue import ThreadSafeEventQueue
from kasmon.backends.interpreter.run_history import NEVER_RAN, RunHistory, UnfinishedRun
from kasmon.backends.interpreter.sandbox_lifecycle import InterpreterLifecycle
from kasmon.backends.interpreter.threads import BlockingCalls
from kasmon.errors import AgentLostError, KasmonError, RefusedError, SandboxError
from kasmon.model.commands import Launch, Run, Sender
from kasmon.model.events import ToolFinished, ToolStarted
from kasmon.model.sandbox.policy import INTERPRETERS, MIB, SIZES, Interpreter, RunResult
from kasmon.model.task import environment
from kasmon.sandbox.guest_client.protocol import InterruptResult
from kasmon.sandbox.managed.sandbox import ManagedSandbox
from kasmon.sanitize import first_line

SHOWN: Final = 64 * 1024
"""So many characters of one run's output are shown live."""
SOON_S, LATE_S = 0.05, 0.25
"""How often live output is shown, while there is more and while there is not, in seconds."""

ReportOutput: TypeAlias = Callable[[str, str], None]

LONGEST_TITLE: Final = 200
LOST_AGENT: Final = 137
KEPT: Final = "interpreter state is kept"


class LiveOutput:
    """Passes all output to the caller, and its beginning to clients, unless the run ends at once."""

    def __init__(self, event_queue: ThreadSafeEventQueue, on_output: ReportOutput | None) -> None:
        self._event_queue = event_queue
        self._on_output = on_output
        self._left = SHOWN
        self._lock = threading.Lock()
        self._waiting = ""
        self._pause_s = SOON_S
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._timer = asyncio.get_running_loop().call_later(SOON_S, self._show)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def write(self, name: str, text: str) -> None:
        """Add *text*, which was written to the stream called *name*. From any thread."""
        if self._on_output is not None:
            self._on_output(name, text)
        with self._lock:
            self._waiting += text[: self._left]
            self._left -= min(self._left, len(text))

    def _show(self) -> None:
        with self._lock:
            text, self._waiting = self._waiting, ""
        if text:
            self._event_queue.show(Chunk(text=text))
        self._pause_s = SOON_S if text else min(self._pause_s * 2, LATE_S)
        self._timer = asyncio.get_running_loop().call_later(self._pause_s, self._show) if self._left else None


REMEMBERED: Final = 64
"""The results of so many runs are retained, so that repeating a request does not run it again."""
AGAIN_S, TRIES = 0.05, 20
"""Interval in seconds, and number of tries, to interrupt a run that has not reached its interpreter yet."""
WENT_ON: Final = (
    "Its host ended during the run, and a new host reconnected to it; some of its output was not shown live."
)
BY_LOG: Final = "It ended under an earlier host. This is its output from the log, stdout and stderr combined."


Value = TypeVar("Value")
SpawnTask = Callable[[Coroutine[Any, Any, Value]], asyncio.Task[Value]]


class InterpreterRuns:
    def __init__(
        self,
        launch: Launch,
        sandbox: ManagedSandbox,
        lifecycle: InterpreterLifecycle,
        event_queue: ThreadSafeEventQueue,
        threads: BlockingCalls,
        context_exchange: ContextExchange,
        past: RunHistory,
    ) -> None:
        self.last: Interpreter = "bash"
        """The interpreter that was used last."""
        self._launch = launch
        self._sandbox = sandbox
        self._lifecycle = lifecycle
        self._event_queue = event_queue
        self._threads = threads
        self._context_exchange = context_exchange
        self._past = past
        self._earlier_results = dict(past.ended)
        self._recent_results: OrderedDict[str, asyncio.Future[RunResult]] = OrderedDict()
        self._running: dict[str, Interpreter] = {}
        self._disk_full: dict[str, str] = {}
        """Why runs were interrupted that filled the disk, by their ids."""

    async def collect_earlier_runs(self, start_task: SpawnTask[RunResult]) -> None:
        """Collect the results of the runs that earlier hosts began. On return each can be interrupted, in a turn."""
        began = {call: asyncio.Event() for call in self._past.open}
        for call, begun in self._past.open.items():
            self._recent_results[call] = start_task(self._collect_run(call, begun, began[call]))
        await asyncio.gather(*(each.wait() for each in began.values()))

    async def once(self, command: Run, on_output: ReportOutput, start_task: SpawnTask[RunResult]) -> RunResult:
        """Return the result of *command*, or of the earlier run with its id. Cancelling the caller stops no run."""
        await self._lifecycle.arrived.wait()
        while command.id and (known := self._recent_results.get(command.id)) is not None:
            if (ran := await asyncio.shield(known)) is not NEVER_RAN:
                return ran
            if self._recent_results.get(command.id) is known:
                del self._recent_results[command.id]
        if command.id in self._earlier_results:
            return await self._load_result(command.id)
        if command.again and self._past.was_replaced(self._sandbox.journal.sandbox_state.generation):
            return build_unknown_result(self._sandbox.journal.sandbox_state.lost)
        self._lifecycle.check_may_wake()
        running = start_task(
            self.run(command, on_output, f"{command.interpreter}: {first_line(command.code)[:LONGEST_TITLE]}", "user")
        )
        if command.id:
            self._recent_results[command.id] = running
            while len(self._recent_results) > REMEMBERED and next(iter(self._recent_results.values())).done():
                self._earlier_results[self._recent_results.popitem(last=False)[0]] = None
        return await asyncio.shield(running)

    async def run(self, command: Run, on_output: ReportOutput | None, what: str, by: Sender) -> RunResult:
        """Run *command* in a turn; *what* is its title, *by* its sender.

        Raises:
            KasmonError: if there is no sandbox to run it in.
        """
        await self._lifecycle.arrived.wait()
        async with self._lifecycle.turns.run(what, by):
            self._check_disk(command.interpreter)
            lost, self._lifecycle.lost = self._lifecycle.lost, ""
            self.last = command.interpreter
            variables = environment(self._launch) | await self._credentials()
            call, note = command.id or secrets.token_hex(8), self._sandbox.journal.note
            code = msgspec.json.encode({"code": command.code}).decode()
            title = first_line(command.code)[:LONGEST_TITLE]
            note(ToolStarted(at=time.time(), call=call, tool=command.interpreter, title=title, input=code))
            with self._track_run(call, command.interpreter, on_output) as shown:
                ran = await self._run_with_retry(command, call, variables, shown.write)
            await self._context_exchange.exchange()
            if lost:
                ran = add_loss(lost, ran)
            ran = self._add_disk_reason(call, ran)
            note(build_finished_event(call, ran))
            return ran

    async def interrupt(self, interpreters: tuple[Interpreter, ...]) -> None:
        """Interrupt what runs in these. If an earlier host left runs, wait until this host has its sandbox."""
        if self._past.open:
            await self._lifecycle.arrived.wait()
        turns = self._lifecycle.turns
        turns.was_interrupted = turns.is_running
        await asyncio.gather(*(self._threads.call(self._interrupted, name) for name in interpreters))

    async def interrupt_full_disk(self, why: str) -> None:
        """Interrupt all runs because the disk is full; their results contain the reason *why*."""
        self._disk_full |= dict.fromkeys(self._running, why)
        await self.interrupt(INTERPRETERS)

    def _add_disk_reason(self, call: str, ran: RunResult) -> RunResult:
        """Return *ran* of the run *call*, with the reason if it was interrupted because the disk is full.

        A run that only waited meanwhile and succeeded was not interrupted.
        """
        why = self._disk_full.pop(call, "")
        if not why or not ran.exit_code:
            return ran
        return msgspec.structs.replace(ran, disk_full=True, hint=f"{why} {ran.hint}".strip())

    async def interrupt_one(self, run: str) -> None:
        """Interrupt the run whose id is *run*, and no other.

        Raises:
            RefusedError: if it is over or does not exist; nothing was done then.
            SandboxError: if its interpreter does not react.
        """
        await self._lifecycle.arrived.wait()
        tries, reaction = itertools.count(), InterruptResult.NOTHING
        # it may be on its way
        while reaction is InterruptResult.NOTHING and run in self._running and next(tries) < TRIES:
            reaction = await self._threads.call(self._interrupted, self._running[run], run)
            if reaction is InterruptResult.NOTHING:
                await asyncio.sleep(AGAIN_S)
        if reaction is InterruptResult.NOTHING:
            raise RefusedError(f"nothing was interrupted: run {run!r} has ended or does not exist.")
        if reaction is InterruptResult.NONE:
            raise SandboxError(f"run {run!r} is still running", "its interpreter did not react to the interrupt")
        self._lifecycle.turns.was_interrupted = self._lifecycle.turns.is_running

    def _check_disk(self, interpreter: Interpreter) -> None:
        """Check the disk usage before a run.

        Raises:
            RefusedError: if the disk is full. Bash runs all the same, so that files can be removed.
        """
        usage = self._sandbox.journal.sandbox_state.usage
        if usage is not None and usage.is_full and interpreter != "bash":
            raise RefusedError(
                f"the disk of sandbox {self._launch.name!r} is full: {usage.disk_bytes // MIB} MiB of"
                f" {usage.disk_allowed // MIB} MiB.",
                hint="Remove files with bash, which still works.",
            )

    async def _credentials(self) -> dict[str, str]:
        if not self._sandbox.policy.credentials:
            return {}
        looked = await self._threads.work(self._sandbox.credentials)
        self._event_queue.show(SecretsLearned(looked.secrets))
        self._sandbox.journal.add_notice_once(*looked.missing)
        return looked.values

    async def _run_with_retry(
        self, command: Run, call: str, variables: Mapping[str, str], write: ReportOutput
    ) -> RunResult:
        """Return the result of a run. If the guest agent was lost, retry in a new sandbox unless it may have run."""
        lost, is_again = "", False
        while True:
            generation = self._sandbox.journal.sandbox_state.generation
            try:
                ran = await self._threads.work(
                    self._sandbox.run,
                    command.interpreter,
                    command.code,
                    timeout_s=command.timeout_s,
                    on_output=write,
                    cap=command.cap,
                    run=call,
                    variables=variables,
                )
            except AgentLostError as error:
                lost = await self._regain_sandbox(generation, error) or lost
                if is_again or error.may_have_run or self._lifecycle.is_ending:
                    return build_unknown_result(lost)
                is_again = True
                continue
            return msgspec.structs.replace(add_loss(lost, ran), restarted=True) if lost else ran

    async def _regain_sandbox(self, generation: int, error: KasmonError) -> str:
        """Restore a sandbox after *error*; return what was lost."""
        async with self._lifecycle.turns.gate:
            if self._lifecycle.is_ending:
                return "the session ended meanwhile"
            return await self._lifecycle.move(self._sandbox.regain, generation, error.message.rstrip("."))

    def _interrupted(self, interpreter: Interpreter, run: str = "") -> InterruptResult:
        within = self._sandbox.guest
        return InterruptResult.NOTHING if within is None else within.interrupt(interpreter, run)

    @contextlib.contextmanager
    def _track_run(self, call: str, interpreter: Interpreter, on_output: ReportOutput | None) -> Iterator["LiveOutput"]:
        """Make the run *call* interruptible by its id, and show its output, within this context."""
        self._running[call] = interpreter
        try:
            with LiveOutput(self._event_queue, on_output) as shown:
                yield shown
        finally:
            del self._running[call]

    # Runs that earlier hosts began.

    async def _collect_run(self, call: str, begun: UnfinishedRun, began: asyncio.Event) -> RunResult:
        """Return the result of a run that an earlier host began; it is logged, and never run again."""
        try:
            async with self._lifecycle.turns.run(
                f"{begun.interpreter}: {begun.title}", "user", self._lifecycle.resume_turn
            ):
                self.last = begun.interpreter
                await self._credentials()
                with self._track_run(call, begun.interpreter, None) as shown:
                    began.set()
                    ran = await self._recall_result(call, begun.generation, shown.write)
                await self._context_exchange.exchange()
                ran = self._add_disk_reason(call, ran)
                self._sandbox.journal.note(build_finished_event(call, ran))
                return ran
        finally:
            began.set()

    async def _recall_result(self, call: str, generation: int, write: ReportOutput) -> RunResult:
        """Return the guest agent's result of a run that was begun in the sandbox of *generation*."""
        sandbox_state = self._sandbox.journal.sandbox_state
        if sandbox_state.generation != generation:
            return build_unknown_result(sandbox_state.lost)
        try:
            ran = await self._threads.work(self._recall, call, write)
        except AgentLostError as error:
            return build_unknown_result(await self._regain_sandbox(generation, error))
        return NEVER_RAN if ran is None else msgspec.structs.replace(ran, hint=f"{WENT_ON} {ran.hint}".strip())

    def _recall(self, call: str, write: ReportOutput | None) -> RunResult | None:
        if (within := self._sandbox.guest) is None:
            raise AgentLostError("it is closed", may_have_run=True)
        return within.recall(call, timeout_s=SIZES[self._sandbox.policy.size].time_s, on_output=write)

    async def _load_result(self, call: str) -> RunResult:
        """Return the result of a run that ended before this host: from the guest agent if it has it, else the log."""
        with contextlib.suppress(SandboxError):
            if (ran := await self._threads.work(self._recall, call, None)) is not None and ran.turn:
                return ran
        if (finished_event := self._earlier_results[call]) is None:
            return build_unknown_result("")
        code = finished_event.exit_code if finished_event.exit_code is not None else int(not finished_event.ok)
        return RunResult(stdout=finished_event.output, exit_code=code, hint=BY_LOG)


def build_unknown_result(lost: str) -> RunResult:
    """Return the result of a run that may have begun in a sandbox which no longer responds; *lost* with it."""
    hint = f"It is unknown how far this ran; it was not run again. {format_sentence(lost or KEPT)}"
    is_kept = not lost
    return RunResult(stderr=hint, exit_code=LOST_AGENT, session_preserved=is_kept, restarted=not is_kept, hint=hint)


def build_finished_event(call: str, ran: RunResult) -> ToolFinished:
    """Return the event that the run *call* ended as *ran*, now."""
    is_ok = ran.exit_code == 0
    return ToolFinished(at=time.time(), call=call, ok=is_ok, output=join_output(ran), exit_code=ran.exit_code)


def add_loss(lost: str, ran: RunResult) -> RunResult:
    """Return *ran*, with the hint that *lost* was lost before it."""
    return msgspec.structs.replace(ran, session_preserved=False, hint=f"{format_sentence(lost)} {ran.hint}".strip())


def format_sentence(text: str) -> str:
    """Return *text* with a capital at its start and a full stop at its end."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def join_output(ran: RunResult) -> str:
    parts = [ran.stdout, ran.stderr if ran.stderr != ran.hint else "", ran.hint if ran.hint not in ran.stderr else ""]
    return "\n".join(part.rstrip("\n") for part in (*parts, ran.stderr if ran.stderr == ran.hint else "") if part)
