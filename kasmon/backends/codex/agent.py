"""One running codex: its process, and its messages as events."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Final

import msgspec

from kasmon.backends.base import AgentOutput
from kasmon.backends.codex import program_path, thread_start
from kasmon.backends.codex.commands import CommandSender
from kasmon.backends.codex.translator import CodexTranslator
from kasmon.backends.codex.transport import CodexMessage, CodexTransport, UnreadableLine
from kasmon.backends.common.child_process import ChildProcess
from kasmon.backends.common.json_access import Table, text
from kasmon.errors import KasmonError, SessionEndedError
from kasmon.model.commands import AgentCommand, Answer, Configure, Interrupt, Launch, Prompt, Stop
from kasmon.model.events import LimitReached, NoticeRaised, SessionEnded, SessionStarted, SettingsChanged
from kasmon.sanitize import redact

BACKLOG: Final = 1000
"""How many events may wait for the reader before codex is no longer read."""
INTERRUPT_S: Final = 2.0
"""How long a turn may take to end before codex is ended, in seconds."""
HEARD_OUT_S: Final = 1.0
"""How long to read remaining output when codex ends, in seconds."""
NOT_FOUND: Final = "kasmon does not support this method"

log = logging.getLogger(__name__)


class CodexAgent:
    """One codex, from the start of its process. Call `begin` before anything else."""

    def __init__(self, launch: Launch, child: ChildProcess, secrets: tuple[str, ...]) -> None:
        self.has_begun = False
        """Its conversation is open."""
        self._launch = launch
        self._child = child
        self._secrets = secrets
        self._transport = CodexTransport(child, launch.session, secrets)
        self._translator = CodexTranslator(launch)
        self._command_sender = CommandSender(self._transport, self._translator, self._emit)
        self._queue: asyncio.Queue[AgentOutput] = asyncio.Queue()
        self._space = asyncio.Event()
        self._started_at = time.time()
        self._started: SessionStarted | None = None
        self._is_over = self._is_ended = self._saw_garbage = False
        self._why = ""
        self._limit_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._reader = asyncio.create_task(self._read_messages())

    async def begin(self, thread: Table) -> None:
        """Open the conversation, with the settings *thread*.

        Raises:
            LaunchError: if it cannot be opened.
            SessionEndedError: if codex ended.
        """
        version = await thread_start.introduce(self._transport)
        opened = await thread_start.open_thread(self._transport, self._launch, thread, version)
        now = time.time()
        self._emit(*self._translator.begin(opened.thread, opened.response, now))
        if self._launch.permission_mode:  # plan mode has no argument
            await self._command_sender.configure(Configure(permission_mode=self._launch.permission_mode))
        if opened.notice:
            self._emit(NoticeRaised(at=now, text=opened.notice, level="warning"))
        self._started = SessionStarted(
            at=self._started_at,
            generation=self._launch.generation,
            backend="codex",
            mode=self._launch.mode,
            workdir=self._launch.workdir,
            pid=await asyncio.to_thread(program_path.speaker, self._child.pid),
            resume_id=opened.thread,
            model=text(opened.response, "model"),
            proof=opened.proof,
        )
        self.has_begun = True
        self._start_task(self._list_models())

    async def events(self) -> AsyncIterator[AgentOutput]:
        """Yield what happens, in order. Ends after the single `SessionEnded`."""
        if self._started is not None:
            started, self._started = self._started, None
            yield started
        while not self._is_ended:
            said = await self._queue.get()
            if self._queue.qsize() < BACKLOG:
                self._space.set()
            self._is_ended = isinstance(said, SessionEnded)
            yield said

    async def send(self, command: AgentCommand, /) -> None:
        """Send the command *command* to codex.

        Raises:
            SessionEndedError: if it has ended.
            RequestClosedError, StaleRequestError, UnableError, UsageError: if no open request accepts the answer.
            RefusedError: if codex rejects it.
        """
        if self._is_over:
            raise SessionEndedError(self._launch.session)
        match command:
            case Prompt():
                await self._command_sender.prompt(command)
            case Answer():
                await self._command_sender.answer(command)
            case Interrupt():
                await self._command_sender.interrupt()
            case Configure():
                await self._command_sender.configure(command)
            case Stop():
                self._why = self._why or "stopped"
                self._start_task(self._stop(command.grace_s))

    async def aclose(self) -> None:
        """End codex if it runs; idempotent, and bounded like `ChildProcess.end`."""
        self._why = self._why or "closed"
        await self._child.end()
        await asyncio.wait([self._reader], timeout=HEARD_OUT_S)
        for task in (self._reader, *self._tasks):
            task.cancel()
        await asyncio.gather(self._reader, *self._tasks, return_exceptions=True)

    # Messages of codex

    async def _read_messages(self) -> None:
        """Translate all messages of codex to events, until its end."""
        try:
            async for message in self._transport.messages():
                self._emit(*await self._translate(message))
                while self._queue.qsize() >= BACKLOG:
                    self._space.clear()
                    await self._space.wait()
            await self._await_end()
        finally:
            self._report_end()

    async def _await_end(self) -> None:
        """Wait for its end, which follows that of its output; else end it."""
        try:
            async with asyncio.timeout(HEARD_OUT_S):
                await self._child.wait()
        except TimeoutError:
            self._why = self._why or "it closed its output"
            await self._child.end()

    async def _translate(self, message: CodexMessage | UnreadableLine) -> list[AgentOutput]:
        now = time.time()
        if isinstance(message, UnreadableLine):
            return self._report_garbage(message.raw, now)
        try:
            if message.call is None:
                return self._translator.heard(message.method, message.params, now)
            said = self._translator.asked(message.call, message.method, message.params, now)
        except Exception:  # a message of unexpected shape must not end the session; it is kept and reported
            log.warning("codex's %s could not be read", message.method, exc_info=True)
            said = None
        if message.call is not None and said is None:
            await self._answer_unsupported(message)
        return self._report_unknown(message, now) if said is None else said

    async def _answer_unsupported(self, message: CodexMessage) -> None:
        """Refuse a call that kasmon cannot answer; answer one for the current time."""
        assert message.call is not None
        with contextlib.suppress(SessionEndedError):
            if message.method == "currentTime/read":
                await self._transport.answer(message.call, {"currentTimeAt": int(time.time())})
            else:
                await self._transport.refuse(message.call, NOT_FOUND)

    def _report_unknown(self, message: CodexMessage, now: float) -> list[AgentOutput]:
        raw = redact(msgspec.json.encode(message.params).decode(), self._secrets)[0]
        return [*self._translator.notices.unknown(message.method, raw, now)]

    def _report_garbage(self, raw: bytes, now: float) -> list[AgentOutput]:
        if self._saw_garbage:
            log.info("codex printed another line that is not a message, %d bytes", len(raw))
            return []
        self._saw_garbage = True
        line = redact(raw.decode("utf-8", "replace"), self._secrets)[0]
        kept = self._translator.notices.unknown("a line that is not a message", line, now)
        return [NoticeRaised(at=now, text="Codex printed a line that is not a message.", level="warning"), *kept]

    def _emit(self, *said: AgentOutput) -> None:
        for one in said:
            self._queue.put_nowait(one)
            if isinstance(one, LimitReached) and one.until is not None:
                self._wait_for_limit(one.until)

    def _wait_for_limit(self, until: float) -> None:
        if self._limit_timer is not None:
            self._limit_timer.cancel()
        left = max(0.0, until - time.time())
        self._limit_timer = asyncio.get_running_loop().call_later(
            left, lambda: self._emit(*self._translator.lifted(time.time()))
        )

    def _report_end(self) -> None:
        """Queue its last event; idempotent."""
        if self._is_over:
            return
        self._is_over = True
        if self._limit_timer is not None:
            self._limit_timer.cancel()
        self._emit(
            *self._translator.ended(time.time()),
            SessionEnded(
                at=time.time(),
                exit_code=self._child.exit_code,
                signal=self._child.signal,
                why=self._why,
                last_words=self._child.last_words,
            ),
        )

    async def _list_models(self) -> None:
        if offered := await thread_start.models(self._transport):
            self._emit(SettingsChanged(at=time.time(), models=offered))

    # Its end and background tasks

    async def _stop(self, grace_s: float) -> None:
        if grace_s > 0 and self._translator.turns:
            with contextlib.suppress(KasmonError, TimeoutError):
                async with asyncio.timeout(min(grace_s, INTERRUPT_S)):
                    await self._command_sender.interrupt()
        await self._child.end(grace_s)

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish_task)

    def _finish_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("codex: %s", error)
