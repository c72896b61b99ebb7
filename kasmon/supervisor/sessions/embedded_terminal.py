"""A session's live terminal for somebody else to draw: its rows as they are now, and a way in for bytes."""

import asyncio
from typing import Final

from kasmon.errors import HostUnreachableError, TimedOutError
from kasmon.host.rpc.connect import HostLink, link
from kasmon.host.rpc.frames import (
    Blur,
    Cursor,
    Focus,
    FromHost,
    Paste,
    Scroll,
    SendKeys,
    SubscriptionEnded,
    TerminalRows,
)
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.paths import Paths

FIRST_S: Final = 10.0
"""How long the first rows may take, in seconds."""


class EmbeddedTerminal:
    """The terminal of one tmux session, at a size of one's own. Close it."""

    def __init__(self, host: HostLink, session: SessionId) -> None:
        self.rows: list[str] = []
        """The screen's rows as text with SGR sequences and nothing else that a terminal would act on."""
        self.cursor = Cursor()
        self.gone = ""
        """Why there is nothing to see any more; empty while there is."""
        self._host = host
        self._session = session
        self._changed = asyncio.Event()
        host.on_push = self._take
        host.on_close = self._lost

    @classmethod
    async def open(cls, places: Paths, session: SessionId, columns: int, rows: int) -> "EmbeddedTerminal":
        """Look at the terminal of *session*, which takes this size.

        Raises:
            HostUnreachableError: if there is none.
            TimedOutError: if nothing was seen of it in 10 s.
        """
        terminal = cls(await link(places, session, Mode.TMUX), session)
        try:
            terminal.resize(columns, rows)
            async with asyncio.timeout(FIRST_S):
                while len(terminal.rows) != rows and not terminal.gone:
                    await terminal.changed()
        except TimeoutError as error:
            await terminal.aclose()
            raise TimedOutError(f"the terminal of {session!r} sent nothing within {FIRST_S:g} s.") from error
        if terminal.gone:
            await terminal.aclose()
            raise HostUnreachableError(session, terminal.gone)
        return terminal

    async def changed(self) -> None:
        """Return when something is another than at the last call."""
        await self._changed.wait()
        self._changed.clear()

    def write(self, data: bytes) -> None:
        """Send *data* as a keyboard would."""
        self._host.tell(SendKeys(session=self._session, data=data))

    def paste(self, text: str) -> None:
        """Paste *text*, bracketed where the program asked for that."""
        self._host.tell(Paste(session=self._session, text=text))

    def resize(self, columns: int, rows: int) -> None:
        """Want the pane to be so large; it is, unless somebody else looks at it as well."""
        self._host.tell(Focus(session=self._session, columns=columns, rows=rows))

    def scroll(self, up: int) -> None:
        """Show the rows *up* lines above the screen's bottom; 0 follows the screen again."""
        self._host.tell(Scroll(session=self._session, up=up))

    async def aclose(self) -> None:
        """Look no more; the session goes on. Idempotent."""
        if self._host.is_open:
            self._host.tell(Blur(session=self._session))
        await self._host.aclose()

    def _take(self, frame: FromHost) -> None:
        if isinstance(frame, SubscriptionEnded):
            self.gone = frame.why or "its terminal is gone"
        elif isinstance(frame, TerminalRows):
            if frame.full or len(self.rows) != frame.height:
                self.rows = [""] * frame.height
            for number, text in frame.changed:
                if number < frame.height:
                    self.rows[number] = text
            self.cursor = frame.cursor
        self._changed.set()

    def _lost(self) -> None:
        self.gone = self.gone or "its host is gone"
        self._changed.set()
