"""The dashboard's connections to tmux hosts: opened by the first terminal shown, reopened when they break.

All terminals of this machine share one. Each terminal of another machine has its own, which the link forwards.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kasmon.errors import KasmonError
from kasmon.host.rpc.frames import Blur, Focus, FromHost, Paste, SendKeys, SubscriptionEnd, Unwatch, Watch
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.tui.terminal.link import TerminalCommand

if TYPE_CHECKING:
    from kasmon.host.rpc.client import HostLink

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 5.0
MOST_TYPED: Final = 256
"""How many keys or pastes wait for the first connection."""


SHARED: Final = SessionId("tmux")


class TerminalHosts:
    """Implements `TerminalLink`. *is_remote*: whether a session is of another machine."""

    def __init__(self, paths: Paths, is_remote: Callable[[SessionId], bool]) -> None:
        self.listener: Callable[[FromHost], None] = lambda frame: None
        """Called with each frame that a host pushes. Set it before the first `send`."""
        self._paths, self._is_remote = paths, is_remote
        self._hosts: dict[SessionId, TerminalHost] = {}

    def send(self, command: TerminalCommand, /) -> None:
        """Send *command*; see `TerminalLink`.

        Input typed before the first connection is sent once that is open. Later, input typed while there is no host is
        dropped.
        """
        session = command.session if self._is_remote(command.session) else SHARED
        host = self._hosts.get(session)
        if host is None:
            host = self._hosts[session] = TerminalHost(self._paths, session, self.listener)
        host.send(command)
        if session != SHARED and not host.is_used():
            del self._hosts[session]
            host.close()

    def close(self) -> None:
        for host in self._hosts.values():
            host.close_now()


class TerminalHost:
    """The connection to the host of *session*'s terminal. After a reconnect it repeats the subscriptions."""

    def __init__(self, paths: Paths, session: SessionId, listener: Callable[[FromHost], None]) -> None:
        self._listener = listener
        self._paths, self._session = paths, session
        self._link: HostLink | None = None
        self._opening: asyncio.Task[None] | None = None
        self._is_first = True
        """Whether it was never connected: what is typed meanwhile is for the terminal that is about to be shown."""
        self._typed: list[SendKeys | Paste] = []
        self._closing: asyncio.Task[None] | None = None
        self._watched: dict[SessionId, Watch] = {}
        self._focused: dict[SessionId, Focus] = {}

    def is_used(self) -> bool:
        return bool(self._watched or self._focused)

    def close(self) -> None:
        if self._link is not None:
            link, self._link = self._link, None
            self._closing = asyncio.get_running_loop().create_task(link.aclose())

    def close_now(self) -> None:
        """Close the connection for good, without waiting for what is not sent yet."""
        self._watched.clear()
        self._focused.clear()
        if self._link is not None:
            self._link.close()

    def send(self, command: TerminalCommand, /) -> None:
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
        elif isinstance(command, SendKeys | Paste) and self._is_first and len(self._typed) < MOST_TYPED:
            self._typed.append(command)

    def _open(self) -> None:
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        """Connect, however long that takes, and repeat the subscriptions."""
        from kasmon.host.rpc.connect import open_link  # not before the first frame

        pause_s = FIRST_PAUSE_S
        while self.is_used():
            try:
                opened = await open_link(self._paths, self._session, Mode.TMUX)
            except KasmonError as error:
                self._is_first = False
                self._typed.clear()
                for session in (*self._watched, *self._focused):
                    self._listener(SubscriptionEnd(session=session, why=error.message))
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
                continue
            if not self.is_used():
                await opened.aclose()
                break
            opened.on_push = self._listener
            opened.on_close = self._handle_disconnect
            self._link = opened
            self._is_first = False
            typed = [keys for keys in self._typed if keys.session in self._focused]
            self._typed.clear()
            for command in (*self._watched.values(), *self._focused.values(), *typed):
                opened.send(command)
            break
        self._opening = None

    def _handle_disconnect(self) -> None:
        self._link = None
        for session in (*self._watched, *self._focused):
            self._listener(SubscriptionEnd(session=session, why="host process died"))
        if self.is_used():
            self._open()
