"""One session as an editor sees it: its events as updates, its requests as questions, prompts and their ends."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable
from typing import Final

from acp import RequestError

from kasmon.acp.connection import EditorConnection, refused
from kasmon.acp.permissions import answer_of, contents_of, options_of
from kasmon.acp.updates import EditorUpdate, UpdateTranslator, notice, text_chunk
from kasmon.asyncio_tasks import cancel_and_wait
from kasmon.errors import KasmonError
from kasmon.host.journal.secrets import secrets_of
from kasmon.host.rpc.connect import open_link
from kasmon.host.rpc.frames import FromHost, TextDelta, Watch
from kasmon.model.commands import Configure, Mode, Receipt, ReceiptState, Requeue, Sender
from kasmon.model.events import (
    Event,
    MessageWritten,
    RequestAnswered,
    RequestOpened,
    RequestWithdrawn,
    SettingsChanged,
    ThoughtWritten,
    TurnEnded,
    TurnStarted,
)
from kasmon.model.permission import CONSENTS, Request, RequestId
from kasmon.model.session import AWAITED, Session
from kasmon.model.session_state import OVER
from kasmon.model.transcript.export import fenced
from kasmon.model.transcript.request_text import sheet
from kasmon.paths import Paths
from kasmon.store.event_log import START
from kasmon.supervisor.fleet.new_events import NewEvents
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.read import read

MOST_HISTORY: Final = 2000
"""How many updates of a session's history an editor gets: the newest."""
MODEL: Final = "model"
"""The id of the option that selects the model."""
CHUNKS: Final = {False: "agent_message_chunk", True: "agent_thought_chunk"}
INTERRUPTED: Final = "interrupted"


class ServedSession:
    """One session and its editor. `follow` is called with each newer state of the session."""

    def __init__(self, paths: Paths, session: Session, editor: EditorConnection, by: Sender, refusal: str) -> None:
        """
        Args:
            by: the origin of the prompts.
            refusal: why the editor cannot answer requests; empty if it can.
        """
        self.session = session
        self._paths, self._editor, self._by, self._refusal = paths, editor, by, refusal
        self._events = NewEvents(paths, session.id, START)
        self._translator = UpdateTranslator(session.workdir)
        self._following = asyncio.Lock()
        self._news = asyncio.Event()
        self._calls: dict[RequestId, tuple[Request, str]] = {}
        """Each open request, with the tool call that shows it."""
        self._asking: dict[RequestId, asyncio.Task[None]] = {}
        self._text = LiveChunks()
        self._link: contextlib.AsyncExitStack = contextlib.AsyncExitStack()
        self._link_is_open = False
        self._own_prompts: list[str] = []
        self._is_cancelled = False
        self._receipt: Receipt | None = None

    async def skip_history(self) -> None:
        """Send nothing of what the log has now."""
        await asyncio.to_thread(self._events.skip)
        for request in self.session.requests:
            call, update = self._translator.open_request(request)
            self._calls[request.id] = request, call
            await self._send([update] if update else [])

    async def follow(self, session: Session) -> None:
        """Send what is new in the log; *session* is the state that it leads to, or an earlier one."""
        async with self._following:
            first = self._events.cursor == START
            self.session = session
            await self._send_events()
            if first and session.mode is Mode.TMUX and session.exists:
                await self._send_screen()
            for number, (request, call) in self._calls.items():
                if number not in self._asking:
                    self._asking[number] = asyncio.create_task(self._ask(request, call))
        self._news.set()
        self._news = asyncio.Event()

    async def _send_events(self) -> None:
        updates: deque[EditorUpdate] = deque(maxlen=MOST_HISTORY if self._events.cursor == START else None)
        left_out = 0
        for event in await asyncio.to_thread(self._events.more):
            for update in self._translate(event):
                left_out += len(updates) == updates.maxlen
                updates.append(update)
        if left_out:
            updates[0] = notice(f"{left_out + 1} earlier updates are left out. `kasmon read` shows them.")
        await self._send(updates)

    async def prompt(self, text: str) -> str:
        """Send *text* to the agent and return the protocol's reason for the end of its turn.

        Raises:
            RequestError: if it was not delivered, or the turn failed.
        """
        self._is_cancelled = False
        await self._watch_text()
        self._own_prompts.append(text)
        try:
            receipt = await session_operations.send(self._paths, self.session, text, "idle", self._by)
        except KasmonError as error:
            self._own_prompts.remove(text)
            raise refused(error) from error
        self._receipt = receipt
        while receipt.state in AWAITED and self.session.state not in OVER:
            news = self._news
            receipt = self._now(receipt)
            if receipt.state in AWAITED and self.session.state not in OVER:
                await news.wait()
        self._receipt = None
        if self.session.mode is Mode.TMUX and self.session.exists:
            await self._send_screen()
        return self._reason(receipt)

    async def cancel(self) -> None:
        """Interrupt the running turn; a prompt that is still queued is removed instead."""
        self._is_cancelled = True
        try:
            receipt = self._receipt and self._now(self._receipt)
            if receipt is not None and receipt.state is ReceiptState.QUEUED:
                await session_operations.requeue(self._paths, self.session, Requeue(receipt=receipt.id, drop=True))
            else:
                await session_operations.interrupt(self._paths, self.session)
        except KasmonError as error:
            await self._send([notice(str(error))])

    async def configure(self, command: Configure) -> None:
        """Change a setting of the agent. Raises `RequestError` if it is refused."""
        try:
            await session_operations.execute(self._paths, self.session, command)
        except KasmonError as error:
            raise refused(error) from error

    async def aclose(self) -> None:
        """Stop following; the agent runs on. Idempotent."""
        await cancel_and_wait(*self._asking.values())
        await self._link.aclose()

    def _now(self, receipt: Receipt) -> Receipt:
        return next((each for each in self.session.receipts if each.id == receipt.id), receipt)

    def _reason(self, receipt: Receipt) -> str:
        is_interrupted = receipt.state is ReceiptState.FINISHED and receipt.reason == INTERRUPTED
        if self._is_cancelled or is_interrupted:
            return "cancelled"
        if receipt.state is ReceiptState.FINISHED or (
            receipt.state is ReceiptState.UNSURE and self.session.mode is Mode.TMUX
        ):
            return "end_turn"
        why = receipt.reason or self.session.turn_error or self.session.end_why or "the agent has ended"
        raise RequestError(-32603, f"the prompt is {receipt.state.value}: {why}")

    def _translate(self, event: Event) -> list[EditorUpdate]:
        match event:
            case TurnStarted() if event.prompt in self._own_prompts:
                self._own_prompts.remove(event.prompt)  # the editor shows its own prompts
                return []
            case MessageWritten() | ThoughtWritten() if not event.within:
                return self._text.finish(event.text, thinking=isinstance(event, ThoughtWritten))
            case RequestOpened():
                call, update = self._translator.open_request(event.request)
                self._calls[event.request.id] = event.request, call
                return [update] if update else []
            case RequestAnswered() | RequestWithdrawn():
                is_allowed = isinstance(event, RequestAnswered) and event.decision in CONSENTS
                return self._close_request(event.request, is_allowed=is_allowed)
            case SettingsChanged() if event.permission_mode or event.model:
                mode = {"sessionUpdate": "current_mode_update", "currentModeId": self.session.permission_mode}
                options = {"sessionUpdate": "config_option_update", "configOptions": config_options(self.session)}
                return [*([mode] if event.permission_mode else []), *([options] if event.model else [])]
            case TurnEnded() if event.reason != "done":
                self._text.clear()  # what it was writing is not finished any more
                return []
            case _:
                return self._translator.translate(event)

    def _close_request(self, request: RequestId, *, is_allowed: bool) -> list[EditorUpdate]:
        if (asking := self._asking.pop(request, None)) is not None:
            asking.cancel()
        if request not in self._calls:
            return []
        asked, call = self._calls.pop(request)
        return self._translator.close_request(asked, call, allowed=is_allowed)

    async def _ask(self, request: Request, call: str) -> None:
        secrets = await asyncio.to_thread(secrets_of, self._paths, self.session.id)
        document = sheet(request, secrets)
        options = [] if self._refusal else options_of(document)
        contents = contents_of(document, self.session.workdir, options)
        tool_call = {"toolCallId": call, "status": "pending", "content": contents}
        await self._send([{"sessionUpdate": "tool_call_update", **tool_call}])
        if not options:
            why = self._refusal or f"The request {request.id} cannot be answered here: `kasmon inbox` shows it."
            await self._send([notice(why)])
            return
        try:
            option = await self._editor.ask(self.session.id, tool_call, options)
            answer = answer_of(request, option, self._editor.name)
            if answer is None:
                await self._send([notice(f"The request {request.id} was not answered here. It waits in kasmon.")])
                return
            await session_operations.execute(self._paths, self.session, answer)
        except (KasmonError, RequestError) as error:
            await self._send([notice(f"The request {request.id} was not answered here: {refused(error)}")])
        except ConnectionError:
            return

    async def _send_screen(self) -> None:
        """Send a terminal's screen and the lines above it."""
        try:
            lines = await read(self._paths, self.session)
        except KasmonError as error:
            await self._send([notice(error.message)])
            return
        text = "\n".join(line.rstrip() for line in lines).strip("\n")
        await self._send([text_chunk("agent_message_chunk", fenced(text, ""))])

    async def _watch_text(self) -> None:
        """Have the host send text while it is written. Without that, whole messages are sent."""
        if self.session.mode is not Mode.SDK or self._link_is_open:
            return
        with contextlib.suppress(KasmonError):
            link = await open_link(self._paths, self.session.id, self.session.mode, only_looks=True)
            self._link.push_async_callback(link.aclose)
            self._link_is_open = True
            link.on_push = self._handle_push
            link.on_close = self._handle_link_end
            link.send(Watch(session=self.session.id))

    def _handle_link_end(self) -> None:
        self._link_is_open = False

    def _handle_push(self, frame: FromHost) -> None:
        if isinstance(frame, TextDelta) and self._text.write(frame.text, thinking=frame.thinking):
            asyncio.get_running_loop().create_task(self._send_text())

    async def _send_text(self) -> None:
        async with self._following:
            if self._text.begins:
                await self._send_events()  # the message before is finished, maybe in the log alone
            await self._send(self._text.collect())

    async def _send(self, updates: Iterable[EditorUpdate]) -> None:
        for update in updates:
            await self._editor.update(self.session.id, update)


class LiveChunks:
    """The text that is being written, as far as it was sent. A finished text is sent from there on.

    Each field has the message under False and the thought under True.
    """

    def __init__(self) -> None:
        self._sent: dict[bool, str] = {}
        self._written: dict[bool, str] = {}
        self._last: dict[bool, str] = {}
        """The text that was finished last: the host may send its beginning again, late."""
        self.clear()

    def clear(self) -> None:
        """Forget what was written."""
        for texts in (self._sent, self._written, self._last):
            texts.update({False: "", True: ""})

    def write(self, text: str, *, thinking: bool) -> bool:
        """Note all of the unfinished *text*; whether there is something to send."""
        if not text or self._last[thinking].startswith(text) or not text.startswith(self._sent[thinking]):
            return False  # the log has the rest
        self._written[thinking] = text
        return len(text) > len(self._sent[thinking])

    @property
    def begins(self) -> bool:
        """Whether a text is being written of which nothing was sent."""
        return any(text and not self._sent[thinking] for thinking, text in self._written.items())

    def collect(self) -> list[EditorUpdate]:
        """Return the updates that send what was written since the last call."""
        updates = []
        for thinking in (True, False):
            sent, written = self._sent[thinking], self._written[thinking]
            if len(written) > len(sent) and written.startswith(sent):
                updates.append(text_chunk(CHUNKS[thinking], written[len(sent) :]))
                self._sent[thinking] = written
        return updates

    def finish(self, text: str, *, thinking: bool) -> list[EditorUpdate]:
        sent = self._sent[thinking]
        rest = text[len(sent) :] if text.startswith(sent) else f"\n\n{text}"
        self._sent[thinking] = self._written[thinking] = ""
        self._last[thinking] = text
        return [text_chunk(CHUNKS[thinking], rest)] if rest else []


def config_options(session: Session) -> list[dict[str, object]]:
    """Return the options of *session* that an editor can set: its model, if the agent offers several."""
    if len(session.models) < 2 or session.model not in session.models:
        return []
    options = [{"value": model, "name": model} for model in session.models]
    model = {"id": MODEL, "name": "Model", "category": "model", "type": "select", "currentValue": session.model}
    return [model | {"options": options}]


def mode_state(session: Session) -> dict[str, object] | None:
    """Return the permission modes of *session*; None if its agent offers none."""
    if session.permission_mode not in session.permission_modes:
        return None
    modes = [{"id": mode, "name": mode} for mode in session.permission_modes]
    return {"currentModeId": session.permission_mode, "availableModes": modes}
