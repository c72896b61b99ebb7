"""A session's live terminal for another program to draw: its current rows, and a way to send input."""

import asyncio
from typing import Final

from kasmon.errors import HostUnreachableError, TimedOutError
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.connect import open_link
from kasmon.host.rpc.frames import (
    Blur,
    Focus,
    FromHost,
    Paste,
    Scroll,
    SendKeys,
    SubscriptionEnd,
    TerminalCursor,
    TerminalRows,
)
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.paths import Paths

FIRST_S: Final = 10.0


class EmbeddedTerminal:
    """The terminal of one tmux session, at the caller's size. Close it."""

    def __init__(self, host: HostLink, session: SessionId) -> None:
        self.rows: list[str] = []
        """The screen's rows as text with SGR sequences and no other control sequences."""
        self.cursor = TerminalCursor()
        self.gone = ""
        """Why the terminal is gone; empty while it exists."""
        self._host = host
        self._session = session
        self._changed = asyncio.Event()
        host.on_push = self._receive
        host.on_close = self._handle_loss

    @classmethod
    async def open(cls, paths: Paths, session: SessionId, columns: int, rows: int) -> "EmbeddedTerminal":
        """Subscribe to the terminal of *session* and resize it.

        Raises `HostUnreachableError` if it has no terminal, `TimedOutError` if no rows arrive within 10 s.
        """
        terminal = cls(await open_link(paths, session, Mode.TMUX), session)
        try:
            terminal.resize(columns, rows)
            async with asyncio.timeout(FIRST_S):
                while len(terminal.rows) != rows and not terminal.gone:
                    await terminal.wait_for_change()
        except TimeoutError as error:
            await terminal.aclose()
            raise TimedOutError(f"the terminal of {session!r} sent nothing within {FIRST_S:g} s.") from error
        if terminal.gone:
            await terminal.aclose()
            raise HostUnreachableError(session, terminal.gone)
        return terminal

    async def wait_for_change(self) -> None:
        """Wait until something changed since the last call."""
        await self._changed.wait()
        self._changed.clear()

    def write(self, data: bytes) -> None:
        """Send *data* as keyboard input."""
        self._host.send(SendKeys(session=self._session, data=data))

    def paste(self, text: str) -> None:
        """Paste *text*, bracketed if the program requested that."""
        self._host.send(Paste(session=self._session, text=text))

    def resize(self, columns: int, rows: int) -> None:
        """Request this size of the pane; it applies unless another client also shows the pane."""
        self._host.send(Focus(session=self._session, columns=columns, rows=rows))

    def scroll(self, up: int) -> None:
        """Show the rows *up* lines above the screen's bottom; 0 follows the screen again."""
        self._host.send(Scroll(session=self._session, up=up))

    async def aclose(self) -> None:
        """Unsubscribe; the session continues. Idempotent."""
        if self._host.is_open:
            self._host.send(Blur(session=self._session))
        await self._host.aclose()

    def _receive(self, frame: FromHost) -> None:
        if isinstance(frame, SubscriptionEnd):
            self.gone = frame.why or "its terminal is gone"
        elif isinstance(frame, TerminalRows):
            if frame.full or len(self.rows) != frame.height:
                self.rows = [""] * frame.height
            for number, text in frame.changed:
                if number < frame.height:
                    self.rows[number] = text
            self.cursor = frame.cursor
        self._changed.set()

    def _handle_loss(self) -> None:
        self.gone = self.gone or "its host is gone"
        self._changed.set()
