"""The connection to a tmux server on a running loop, with awaitable requests and automatic reconnection."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from kasmon.asyncio_tasks import cancel_and_wait
from kasmon.backends.tmux.hub_pump import HubPump
from kasmon.backends.tmux.pane_events import PaneListeners
from kasmon.errors import KasmonError, TmuxCommandError, TmuxError, TmuxServerGoneError
from kasmon.tmux.control import requests as ask
from kasmon.tmux.control.requests import TmuxRequest
from kasmon.tmux.formats import PaneFacts, distinct
from kasmon.tmux.hub import Hub, OnDone
from kasmon.tmux.process_identity import ProcessIdentity, identify
from kasmon.tmux.server import TmuxServer

Answer = TypeVar("Answer")

ANSWER_S: Final = 10.0

log = logging.getLogger(__name__)


class ServerConnection:
    """The one control client of a tmux server. `open` starts the server if it does not run.

    When tmux ends the connection, a new one is made. If the server itself is gone, or another one has replaced it,
    `on_lost` is called and `open` is needed again.
    """

    def __init__(self, server: TmuxServer, hub: Hub | None = None) -> None:
        hub = Hub(server) if hub is None else hub
        self._hub, self._pump = hub, HubPump(hub)
        self.listeners = PaneListeners(hub, self._pump)
        self.server = server
        self.on_lost: Callable[[str], None] = lambda why: None
        self._hub.on_exit = self._handle_loss
        self._watched: dict[str, int] = {}
        self._focused: list[str] = []
        """The windows that a user has focused, the latest last."""
        self._opening = asyncio.Lock()
        self.is_open = False
        self.process: ProcessIdentity | None = None
        """The tmux server that this is, or was last, attached to."""
        self._reopening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start the server if needed and attach to it; idempotent.

        Raises:
            TmuxMissingError, TmuxTooOldError: if there is no usable tmux.
            TmuxCommandError, TmuxServerGoneError: if it does not start, or ends at once.
        """
        async with self._opening:
            if not self.is_open:
                await asyncio.to_thread(self.server.start)
                await self._attach()

    async def attach(self) -> bool:
        """Attach to the server if it runs; whether it does. A deleted socket is recreated.

        Raises:
            TmuxMissingError: if there is no tmux.
            TmuxCommandError: if the server refuses.
        """
        async with self._opening:
            if not self.is_open:
                with contextlib.suppress(TmuxServerGoneError):
                    if await asyncio.to_thread(self.server.heal_socket):
                        await self._attach()
            return self.is_open

    async def aclose(self) -> None:
        """Close the connection; the server and all its panes keep running. Idempotent."""
        await cancel_and_wait(self._reopening)
        async with self._opening:
            if self.is_open:
                self.is_open = False
                self._hub.client.fail_pending()  # on the loop: the hub is closed in another thread
            self._pump.stop()
            await asyncio.to_thread(self._hub.close)

    # -- requests and input

    def submit(self, request: TmuxRequest[Answer], on_done: OnDone[Answer] | None = None) -> None:
        """Send *request*; *on_done* gets the answer, or the error in its place, on the loop. Never waits."""
        if self.is_open:
            self._hub.client.submit(request, on_done)
            self._pump.stir()
        elif on_done is not None:
            on_done(TmuxServerGoneError(str(self.server.socket)))

    async def ask(self, request: TmuxRequest[Answer]) -> Answer:
        """Return the answer to *request*.

        Raises:
            TmuxServerGoneError: if the connection ends first.
            TmuxCommandError: if tmux refuses, or does not answer within 10 s.
            KasmonError: the error that the answer stands for, if it is a refusal.
        """
        if not self.is_open:
            raise TmuxServerGoneError(str(self.server.socket))
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def settle(answer: Answer | KasmonError) -> None:
            if answered.done():
                return
            if isinstance(answer, KasmonError):
                answered.set_exception(answer)
            else:
                answered.set_result(answer)

        self._hub.client.submit(request, settle)
        self._pump.stir()
        try:
            async with asyncio.timeout(ANSWER_S):
                return await answered
        except TimeoutError as error:
            raise TmuxCommandError(request.name, f"no answer within {ANSWER_S:g} s") from error

    async def panes(self) -> dict[str, PaneFacts]:
        """Return the panes of all kasmon sessions, by session id. Raises `TmuxError` if tmux does not answer."""
        all_panes: list[PaneFacts] = await self.ask(ask.all_panes())
        by_session: dict[str, PaneFacts] = {}
        for facts in distinct(all_panes):
            if facts.kasmon_id:
                by_session.setdefault(facts.kasmon_id, facts)
        return by_session

    def type_keys(self, pane: str, data: bytes) -> None:
        """Type *data* into *pane* at once, whatever it shows, without a reply."""
        for request in ask.keys(pane, data):
            self.submit(request)

    # -- viewers

    def watch(self, pane: str, by: int) -> None:
        """Add *by* viewers of *pane* (negative: remove): its output is read however much it prints."""
        self._watched[pane] = self._watched.get(pane, 0) + by
        if self._watched[pane] <= 0:
            del self._watched[pane]
        if self.is_open:
            self._hub.watch(self._watched)
            self._pump.stir()

    def focus(self, window: str, *, is_focused: bool) -> None:
        """Record that a user focused *window* or left it: a program in it that requested focus events gets one."""
        if is_focused == (window in self._focused):
            return
        self._focused = [other for other in self._focused if other != window] + [window] * is_focused
        if self.is_open:
            self._hub.focus(self._focused)
            self._pump.stir()

    def hurry(self, by: int) -> None:
        """Add *by* users who wait for each echo (negative: remove): output is then read at once."""
        self._pump.hurried += by
        self._pump.stir()

    # -- the connection

    async def _attach(self) -> None:
        self.listeners.begin()
        await asyncio.to_thread(self._hub.open)
        self.process = await asyncio.to_thread(identify, self._hub.server_pid)
        self.is_open = True
        self._hub.watch(self._watched)
        self._hub.focus(self._focused)
        self._pump.begin()

    def _handle_loss(self) -> None:
        if self.listeners.is_loop_thread and self.is_open:
            self.is_open = False
            self._pump.stop()
            self._reopening = self.listeners.loop.create_task(self._reopen())

    async def _reopen(self) -> None:
        before, why = self.process, "the tmux server ended"
        try:
            await asyncio.to_thread(self._hub.close)
            await self.attach()
        except TmuxError as error:
            why = error.message
        if not self.is_open or self.process != before:
            log.warning("the tmux server is gone: %s", why)
            self.on_lost(why)
            return
        log.warning("tmux closed our connection; kasmon reconnected")
        self.listeners.report_missed()
