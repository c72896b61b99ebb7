"""One running `claude`: its messages become events, commands become SDK calls.

Imported only when an agent is opened: the SDK takes a second and 50 MB to load.
"""

import asyncio
import contextlib
import logging
import os
import time
import uuid
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionUpdate,
    ToolPermissionContext,
)

from kasmon.asyncio_tasks import cancel_and_wait
from kasmon.backends.base import AgentOutput
from kasmon.backends.claude.command_line import model_of
from kasmon.backends.claude.diff import CHANGING
from kasmon.backends.claude.handshake import ClaudeLaunch, check, explain_failure, find_conversation
from kasmon.backends.claude.messages import UnparsedLine, name_of
from kasmon.backends.claude.open_requests import ELICITATION, AllowResult, PermissionReply, encode_reply
from kasmon.backends.claude.settings import ClaudeSettings, parse_commands
from kasmon.backends.claude.translator import ASK, ClaudeTranslator
from kasmon.backends.claude.transport import ClaudeTransport
from kasmon.backends.claude.usage import ClaudeUsage
from kasmon.backends.common.child_process import ChildProcess
from kasmon.backends.common.json_access import Table, table, text
from kasmon.backends.common.structured_agent import StructuredAgent
from kasmon.errors import LaunchError, RefusedError, SessionEndedError
from kasmon.model.commands import Answer, Configure, Launch, Prompt
from kasmon.model.events import NoticeRaised
from kasmon.paths import open_regular

LONGEST_BYTES: Final = 1 << 20
PRINTED: Final = 20_000
"""How much of a background task's output is logged, in characters: its end."""


def read_text(path: str, workdir: str, *, follow: bool = True) -> str | None:
    """Return the text of the file at *path*, relative to *workdir*; empty if there is none.

    *follow*: also if *path* itself is a symbolic link.

    None if it is not text, too long or unreadable. Never blocks: only a regular file is read, not a pipe.
    """
    if not path or "\0" in path:
        return None
    try:
        handle = open_regular(Path(workdir) / path, os.O_RDONLY | (0 if follow else os.O_NOFOLLOW))
        with os.fdopen(handle, "rb") as file:
            content = file.read(LONGEST_BYTES + 1)
        return content.decode() if len(content) <= LONGEST_BYTES else None
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError):
        return None


GONE: Final = "the agent ended"
MEASURE_S: Final = 10.0
"""How long the agent may take to say what fills its context, in seconds."""

log = logging.getLogger(__name__)


class ClaudeAgent(StructuredAgent):
    """One agent over *child*, a `claude` process that uses stream-json and was started by *plan*."""

    def __init__(self, launch: Launch, child: ChildProcess, plan: ClaudeLaunch) -> None:
        super().__init__(launch, child)
        self._plan = plan
        self._settings = ClaudeSettings(plan.conversation, may_bypass=launch.bypassing)
        self._usage = ClaudeUsage(launch.used, plan.carried)
        self._measuring: asyncio.Task[None] | None = None
        self._translator = ClaudeTranslator(launch.session, self._settings, self._usage)
        self._transport = ClaudeTransport(child, self._handle_message)
        self._client = ClaudeSDKClient(ClaudeAgentOptions(can_use_tool=self._await_answer), self._transport)
        self._replies: dict[str, asyncio.Future[PermissionReply]] = {}
        self._started_at = time.time()

    async def begin(self) -> None:
        with self._calling():
            await self._client.connect()
        self._life = asyncio.create_task(self._watch_end())
        answer = await self._client.get_server_info() or {}
        launch, plan, settings = self._launch, self._plan, self._settings
        conversation = await asyncio.to_thread(find_conversation, launch, plan.config, self._child.pid)
        check(launch, plan, answer, conversation)
        settings.conversation = conversation or settings.conversation
        at = self._started_at
        offered = settings.apply_initialize(answer, model_of(plan.argv), at)
        proof, pid = plan.proof(launch.remembers), self._child.pid
        notices = plan.notices(launch.remembers, at)
        commands = parse_commands(answer, at)
        self._start_events(at, pid, settings.conversation or None, settings.model, proof, offered, commands, *notices)

    def explain(self, error: Exception, limit_s: float) -> LaunchError:
        return explain_failure(error, self._plan, self._child, self._translator.turns.failure, limit_s)

    def _lift_limit(self, at: float) -> Iterable[AgentOutput]:
        return self._translator.limit.end(at)

    async def _disconnect(self) -> None:
        await cancel_and_wait(self._measuring)
        await self._client.disconnect()

    async def _prompt(self, prompt: Prompt) -> None:
        name = str(uuid.uuid4())
        self._translator.turns.record_prompt(name, prompt)
        message = {"role": "user", "content": _content(prompt)}
        with self._refusing():
            await self._client.query(
                _only({"type": "user", "uuid": name, "message": message, "parent_tool_use_id": None})
            )

    async def _answer(self, answer: Answer) -> None:
        if self._translator.elicitations.has(answer.request):
            await self._answer_elicitation(answer)
            return
        outcome = self._translator.requests.answer(answer, time.time())
        self._emit(outcome.events)
        if outcome.reply is not None and not (reply := self._reply(str(outcome.call))).done():
            reply.set_result(outcome.reply)

    async def _answer_elicitation(self, answer: Answer) -> None:
        """Answer an MCP server's elicitation, once its whole form is filled in."""
        settled = self._translator.elicitations.answer(answer, time.time())
        self._emit(settled.events)
        if settled.result is not None:
            await self._child.write(encode_reply(str(settled.call), settled.result))
        if settled.ends_turn:
            await self._interrupt()

    async def _interrupt(self) -> None:
        with self._refusing():
            await self._client.interrupt()

    async def _end_turn(self) -> None:
        if self._translator.turns.is_running:
            await self._interrupt()

    async def _configure(self, command: Configure) -> None:
        settings = self._settings
        if command.model is not None:
            with self._refusing():
                await self._client.set_model(command.model)
            self._emit(settings.change_model(settings.resolved(command.model), time.time()))
        if command.permission_mode is not None:
            mode: Any = command.permission_mode  # the agent's list of modes may differ from the SDK's
            with self._refusing():
                await self._client.set_permission_mode(mode)
            self._emit(settings.change_mode(mode, time.time()))

    async def _await_answer(
        self, _tool: str, _input: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        call = context.tool_use_id or ""
        try:
            reply = await self._reply(call)
        finally:
            self._replies.pop(call, None)
        if isinstance(reply, AllowResult):
            mode: Any = reply.mode
            changes = [PermissionUpdate(type="setMode", mode=mode, destination="session")] if mode else None
            return PermissionResultAllow(updated_input=reply.input, updated_permissions=changes)
        return PermissionResultDeny(message=reply.reason, interrupt=reply.ends_turn)

    def _reply(self, call: str) -> asyncio.Future[PermissionReply]:
        """Return the future reply to *call*, creating it if needed."""
        return self._replies.setdefault(call, asyncio.get_running_loop().create_future())

    async def _handle_message(self, message: Table | UnparsedLine) -> None:
        await self._event_queue.wait_for_space()
        name = "" if isinstance(message, UnparsedLine) else name_of(message)
        before = await self._read_before(message) if name == ASK else None
        printed = await self._read_printed(message) if name == "system/task_notification" else ""
        at = time.time()
        try:
            self._emit(self._translator.translate(message, at, before, printed))
        except Exception as error:  # a bug in kasmon must not end the connection; the notice records it
            log.exception("a message could not be read")
            self._emit([NoticeRaised(at=at, text=f"A message could not be read: {error!r}", level="error")])
        if name == ELICITATION:
            await self._refuse_hidden(text(message, "request_id"))
        if name == "result" and (self._measuring is None or self._measuring.done()):
            self._measuring = asyncio.create_task(self._report_context())

    async def _report_context(self) -> None:
        """Ask the agent what fills its context."""
        with contextlib.suppress(Exception):  # an older agent does not know the question; an ended one cannot answer
            async with asyncio.timeout(MEASURE_S):
                answer = await self._client.get_context_usage()
            filled = self._usage.fill(dict(answer), time.time())
            self._emit([filled] if filled is not None else [])

    async def _refuse_hidden(self, call: str) -> None:
        """Reply to a server that kasmon cannot show its request *call*, unless it can."""
        if call and call not in self._translator.elicitations.calls:
            with contextlib.suppress(SessionEndedError):
                await self._child.write(encode_reply(call, None))

    async def _read_before(self, message: object) -> str | None:
        """Return the content of the file that *message* asks to change."""
        request = table(message, "request")
        if text(request, "tool_name") not in CHANGING:
            return None
        path = text(table(request, "input"), "file_path")
        return await asyncio.to_thread(read_text, path, self._launch.workdir)

    async def _read_printed(self, message: object) -> str:
        """Return the end of the output of a background task that *message* reports as ended; only of claude's own file.

        Nothing of a confined agent: the file that it names is not one of this machine.
        """
        path, task = Path(text(message, "output_file")), text(message, "task_id")
        is_own = path.is_absolute() and path.parts[-2:] == ("tasks", f"{task}.output") and ".." not in path.parts
        if not is_own or self._launch.sandbox is not None:
            return ""
        whole = await asyncio.to_thread(read_text, str(path), "/", follow=False)
        return (whole or "")[-PRINTED:]

    async def _watch_end(self) -> None:
        try:
            await self._transport.silent.wait()
            await self._await_end()
        finally:
            self._report_end(self._translator.ended(GONE, time.time()))

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


def _content(prompt: Prompt) -> str | list[Table]:
    """Return the content of the message with *prompt*: its text, behind its pictures."""
    if not prompt.images:
        return prompt.text
    blocks = [
        {
            "type": "image",
            "source": {"type": "base64", "media_type": image.media_type, "data": b64encode(image.data).decode()},
        }
        for image in prompt.images
    ]
    return [*blocks, {"type": "text", "text": prompt.text}]


async def _only(message: Table) -> AsyncIterator[Table]:
    yield message
