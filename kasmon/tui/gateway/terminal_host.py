"""The dashboard's connection to the shared tmux host: opened by the first terminal shown, reopened when it breaks."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kasmon.errors import KasmonError
from kasmon.host.rpc.frames import Blur, Focus, FromHost, FromTerminal, SubscriptionEnd, Unwatch, Watch
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.tui.terminal.link import TerminalCommand

if TYPE_CHECKING:
    from kasmon.host.rpc.client import HostLink

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 5.0


class TerminalHost:
    """Implements `TerminalLink`. After a reconnect it repeats the subscriptions."""

    def __init__(self, places: Paths) -> None:
        self.listener: Callable[[FromTerminal], None] = lambda frame: None
        self._places = places
        self._link: HostLink | None = None
        self._opening: asyncio.Task[None] | None = None
        self._watched: dict[SessionId, Watch] = {}
        self._focused: dict[SessionId, Focus] = {}

    def send(self, command: TerminalCommand, /) -> None:
        """Send *command*; see `TerminalLink`. Input typed while there is no host is dropped, not sent later."""
        match command:
            case Watch():
                self._watched[command.session] = command
            case Unwatch():
                self._watched.pop(command.session, None)
            case Focus():
                self._focused[command.session] = command
            case Blur():
                self._focused.pop(command.session, None)
        if self._link is not None and self._link.is_open:
            self._link.send(command)
        elif isinstance(command, Watch | Focus):
            self._open()

    def _open(self) -> None:
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        """Connect, however long that takes, and repeat the subscriptions."""
        from kasmon.host.rpc.connect import open_link  # not before the first frame

        pause_s = FIRST_PAUSE_S
        while self._watched or self._focused:
            try:
                opened = await open_link(self._places, SessionId("tmux"), Mode.TMUX)
            except KasmonError as error:
                for session in (*self._watched, *self._focused):
                    self.listener(SubscriptionEnd(session=session, why=error.message))
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
                continue
            opened.on_push = self._push
            opened.on_close = self._handle_disconnect
            self._link = opened
            for command in (*self._watched.values(), *self._focused.values()):
                opened.send(command)
            break
        self._opening = None

    def _push(self, frame: FromHost) -> None:
        if isinstance(frame, FromTerminal):
            self.listener(frame)

    def _handle_disconnect(self) -> None:
        self._link = None
        for session in (*self._watched, *self._focused):
            self.listener(SubscriptionEnd(session=session, why="host process died"))
        if self._watched or self._focused:
            self._open()
