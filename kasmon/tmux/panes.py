"""What can be asked of panes, and done to them, through one connection. Nothing blocks but `panes` and `paste`."""

from kasmon.clean import outgoing
from kasmon.errors import KasmonError
from kasmon.tmux import request as ask
from kasmon.tmux.connection import Connection, OnDone
from kasmon.tmux.facts import PaneFacts, PaneText, ScreenFacts, distinct
from kasmon.tmux.request import Lines


class Panes(Connection):
    """A connection that knows panes. Answers come to *on_done* in the order of the questions, errors in their place."""

    def capture(
        self,
        pane: str,
        on_done: OnDone[Lines],
        *,
        start: int | str | None = None,
        end: int | str | None = None,
        ansi: bool = True,
        join: bool = False,
    ) -> None:
        """Rows of *pane*; see `request.capture`."""
        self.submit(ask.capture(pane, start=start, end=end, ansi=ansi, join=join), on_done)

    def cursor(self, pane: str, on_done: OnDone[ScreenFacts]) -> None:
        """Cursor and modes of *pane*."""
        self.submit(ask.screen_facts(pane), on_done)

    def text(self, pane: str, on_done: OnDone[PaneText]) -> None:
        """Title, directory and command of *pane*; foreign text."""
        self.submit(ask.pane_text(pane), on_done)

    def panes(self) -> list[PaneFacts]:
        """Every pane of ours once, as it is now; waits for the answer."""
        everywhere = self.call(ask.all_panes())
        return distinct(everywhere)

    def keys(self, pane: str, data: bytes) -> None:
        """Type *data* into *pane*, whatever it shows; for a person at the keyboard. Nothing is told back."""
        for request in ask.keys(pane, data):
            self.submit(request)

    def press(self, pane: str, data: bytes, on_done: OnDone[None]) -> None:
        """Type at most 256 bytes into *pane*, or be refused as a whole: `PaneDeadError`, `PasteRefusedError`."""
        self.submit(ask.press(pane, data), on_done)

    def paste(self, pane: str, text: str) -> None:
        """Put *text* into *pane* as one paste, without control characters; waits until tmux has done it.

        A text of which nothing is left is not sent.

        Raises:
            PaneDeadError: if the pane's program has ended; nothing was sent.
            PasteRefusedError: if the pane takes no input now; nothing was sent.
            TmuxCommandError: if there is no such pane.
            TmuxServerGoneError: if the server is gone.
        """
        cleaned = outgoing(text).encode()
        if not cleaned:
            return
        answers: list[KasmonError | None] = []
        self.paste_buffer(pane, self._server.load(cleaned), answers.append)
        self.call(ask.command("display-message -p done"))
        if answers and isinstance(answers[0], KasmonError):
            raise answers[0]

    def paste_buffer(self, pane: str, buffer: str, on_done: OnDone[None]) -> None:
        """Put what `Server.load` stored as *buffer* into *pane*, or be refused; the buffer goes either way."""

        def done(answer: KasmonError | None) -> None:
            if isinstance(answer, KasmonError):
                self.submit(ask.drop_buffer(buffer))
            on_done(answer)

        self.submit(ask.paste(pane, buffer), done)

    def resize(self, window: str, width: int, height: int) -> None:
        """Give *window* a size, until a terminal looks at it, which then decides."""
        self.submit(ask.resize(window, width, height))

    def kill_window(self, window: str, on_done: OnDone[None] | None = None) -> None:
        """End *window* and its program; `on_closed` follows."""
        self.submit(ask.kill_window(window), on_done)
