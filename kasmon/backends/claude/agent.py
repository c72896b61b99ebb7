"""One running `claude`: its messages become events, commands become SDK calls.

Imported only when an agent is opened: the SDK takes a second and 50 MB to load.
"""

import asyncio
import contextlib
import logging
import os
import stat
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)

from kasmon.backends.base import Chunk
from kasmon.backends.claude.diff import CHANGING
from kasmon.backends.claude.elicitation import ELICITATION, reply
from kasmon.backends.claude.known_messages import name_of
from kasmon.backends.claude.requests import AllowResult, Reply
from kasmon.backends.claude.stdout_line import UnparsedLine
from kasmon.backends.claude.translator import ASK, ClaudeTranslator
from kasmon.backends.claude.transport import ClaudeTransport
from kasmon.backends.common.child_process import ChildProcess
from kasmon.backends.common.event_queue import EventQueue
from kasmon.backends.common.json_access import Table, table, text
from kasmon.errors import RefusedError, SessionEndedError
from kasmon.model.commands import AgentCommand, Answer, Configure, Interrupt, Launch, Prompt, Stop
from kasmon.model.events import Event, NoticeRaised, SessionEnded

LONGEST_BYTES: Final = 1 << 20


def read_text(path: str, workdir: str) -> str | None:
    """Return the text of the file at *path*, relative to *workdir*; empty if there is none.

    None if it is not text, too long or unreadable. Never blocks: only a regular file is read, not a pipe.
    """
    if not path or "\0" in path:
        return None
    try:
        handle = os.open(Path(workdir) / path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return ""
    except OSError:
        return None
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > LONGEST_BYTES:
            return None
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(LONGEST_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        return None
    finally:
        os.close(handle)


INTERRUPT_S: Final = 2.0
"""How long a running turn may take to end when the session is stopped, in seconds."""
LINGER_S: Final = 2.0
"""How long the process may run after it closed its output, in seconds."""
GONE: Final = "the agent ended"

log = logging.getLogger(__name__)


class ClaudeAgent:
    """One agent over *child*, a `claude` process that uses stream-json."""

    def __init__(self, launch: Launch, child: ChildProcess, translator: ClaudeTranslator) -> None:
        self._launch = launch
        self._child = child
        self._translator = translator
        self._event_queue = EventQueue()
        self._transport = ClaudeTransport(child, self._handle_message)
        self._client = ClaudeSDKClient(ClaudeAgentOptions(can_use_tool=self._permit), self._transport)
        self._replies: dict[str, asyncio.Future[Reply]] = {}
        self._watch_task: asyncio.Task[None] | None = None
        self._finish_task: asyncio.Task[None] | None = None
        self._limit_timer: asyncio.TimerHandle | None = None
        self._why = ""

    async def connect(self) -> Table:
        """Perform the handshake; return the agent's answer.

        Raises:
            ClaudeSDKError, Exception: from the SDK, if the agent ends or does not answer.
        """
        with self._calling():
            await self._client.connect()
        self._watch_task = asyncio.create_task(self._report_end())
        return await self._client.get_server_info() or {}

    def begin(self, *introduction: Event) -> None:
        """Make *introduction* its first events."""
        self._event_queue.start(introduction)

    async def events(self) -> AsyncIterator[Event | Chunk]:
        """Yield what happens, in order. Ends after the single `SessionEnded`."""
        async for item in self._event_queue.read():
            yield item

    async def send(self, command: AgentCommand, /) -> None:
        """Send the command *command* to the agent.

        Raises:
            SessionEndedError: if it has ended.
            RequestClosedError, StaleRequestError, UnableError: if no open request accepts this answer.
            RefusedError: if the agent rejects it; the message is the agent's.
        """
        if not self._child.is_running:
            raise SessionEndedError(self._launch.session)
        match command:
            case Prompt():
                await self._prompt(command)
            case Answer() if self._translator.elicitations.has(command.request):
                await self._answer_elicitation(command)
            case Answer():
                self._answer(command)
            case Interrupt():
                with self._refusing():
                    await self._client.interrupt()
            case Configure():
                await self._configure(command)
            case Stop() if self._finish_task is None:
                self._why = "stopped"
                self._finish_task = asyncio.create_task(self._finish(command.grace_s))

    async def aclose(self) -> None:
        """End the agent if it runs; idempotent, and within some 10 s."""
        self._why = self._why or "closed"
        if self._finish_task is not None:
            self._finish_task.cancel()
            await asyncio.gather(self._finish_task, return_exceptions=True)
        await self._child.end()
        await self._client.disconnect()
        if self._watch_task is not None:
            await asyncio.wait([self._watch_task], timeout=LINGER_S)
        if self._limit_timer is not None:
            self._limit_timer.cancel()

    async def _prompt(self, prompt: Prompt) -> None:
        name = str(uuid.uuid4())
        self._translator.turns.record_prompt(name, prompt)
        message = {"role": "user", "content": prompt.text}
        with self._refusing():
            await self._client.query(
                _only({"type": "user", "uuid": name, "message": message, "parent_tool_use_id": None})
            )

    def _answer(self, answer: Answer) -> None:
        outcome = self._translator.asks.answer(answer, time.time())
        self._event_queue.put(outcome.events)
        if outcome.reply is not None and not (reply := self._reply(outcome.call)).done():
            reply.set_result(outcome.reply)

    async def _answer_elicitation(self, answer: Answer) -> None:
        """Answer an MCP server's elicitation, once its whole form is filled in."""
        settled = self._translator.elicitations.answer(answer, time.time())
        self._event_queue.put(settled.events)
        if settled.result is not None:
            await self._child.write(reply(settled.call, settled.result))
        if settled.ends_turn:
            with self._refusing():
                await self._client.interrupt()

    async def _configure(self, command: Configure) -> None:
        settings = self._translator.settings
        if command.model is not None:
            with self._refusing():
                await self._client.set_model(command.model)
            self._event_queue.put(settings.change_model(settings.resolved(command.model), time.time()))
        if command.permission_mode is not None:
            mode: Any = command.permission_mode  # the agent's list of modes may differ from the SDK's
            with self._refusing():
                await self._client.set_permission_mode(mode)
            self._event_queue.put(settings.change_mode(mode, time.time()))

    async def _permit(
        self, _tool: str, _input: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        call = context.tool_use_id or ""
        try:
            reply = await self._reply(call)
        finally:
            self._replies.pop(call, None)
        if isinstance(reply, AllowResult):
            return PermissionResultAllow(updated_input=reply.input)
        return PermissionResultDeny(message=reply.reason, interrupt=reply.ends_turn)

    def _reply(self, call: str) -> asyncio.Future[Reply]:
        """Return the future reply to *call*, creating it if needed."""
        return self._replies.setdefault(call, asyncio.get_running_loop().create_future())

    async def _handle_message(self, message: Table | UnparsedLine) -> None:
        await self._event_queue.wait_for_space()
        before = await self._read_before(message)
        at = time.time()
        try:
            self._event_queue.put(self._translator.translate(message, at, before))
        except Exception as error:  # a bug in kasmon must not end the connection; the notice records it
            log.exception("a message could not be read")
            self._event_queue.put([NoticeRaised(at=at, text=f"A message could not be read: {error!r}", level="error")])
        self._schedule_limit_end()
        await self._refuse_hidden(message)

    async def _refuse_hidden(self, message: Table | UnparsedLine) -> None:
        """Reply to a server that kasmon cannot show its request."""
        if isinstance(message, UnparsedLine) or name_of(message) != ELICITATION:
            return
        call = text(message, "request_id")
        if call and not self._translator.elicitations.waits(call):
            with contextlib.suppress(SessionEndedError):
                await self._child.write(reply(call, None))

    async def _read_before(self, message: Table | UnparsedLine) -> str | None:
        """Return the content of the file that *message* asks to change."""
        if isinstance(message, UnparsedLine) or name_of(message) != ASK:
            return None
        request = table(message, "request")
        if text(request, "tool_name") not in CHANGING:
            return None
        path = text(table(request, "input"), "file_path")
        return await asyncio.to_thread(read_text, path, self._launch.workdir)

    def _schedule_limit_end(self) -> None:
        """Schedule the end of a limit: the agent does not report it while idle."""
        if self._limit_timer is not None:
            self._limit_timer.cancel()
            self._limit_timer = None
        until = self._translator.limit.until
        if until is not None:
            delay_s = max(0.0, until - time.time())
            self._limit_timer = asyncio.get_running_loop().call_later(delay_s, self._end_limit)

    def _end_limit(self) -> None:
        self._event_queue.put(self._translator.limit.end_if_passed(time.time()))
        self._schedule_limit_end()

    async def _finish(self, grace_s: float) -> None:
        """Interrupt a running turn, which the agent would finish first; end the process within *grace_s* seconds."""
        if self._translator.turns.is_running and grace_s > 0:
            with contextlib.suppress(RefusedError, TimeoutError):
                async with asyncio.timeout(min(grace_s, INTERRUPT_S)):
                    with self._refusing():
                        await self._client.interrupt()
        await self._child.end(grace_s)

    async def _report_end(self) -> None:
        await self._transport.silent.wait()
        await self._child.end(LINGER_S)
        at = time.time()
        child = self._child
        self._event_queue.put(self._translator.ended(GONE, at))
        self._event_queue.put(
            [
                SessionEnded(
                    at=at, exit_code=child.exit_code, signal=child.signal, why=self._why, last_words=child.last_words
                )
            ]
        )

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        self._transport.calls += 1
        try:
            yield
        finally:
            self._transport.calls -= 1

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        """Convert the failure of an SDK call to a kasmon error."""
        try:
            with self._calling():
                yield
        except Exception as error:  # the SDK raises a bare exception with the agent's message
            if self._transport.silent.is_set() or not self._child.is_running:
                raise SessionEndedError(self._launch.session) from error
            raise RefusedError(f"claude did not accept it: {error}.") from error


async def _only(message: Table) -> AsyncIterator[Table]:
    yield message
