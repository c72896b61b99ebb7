"""The controller of the search: its screen, its last results, and opening a result."""

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final

from kasmon.errors import KasmonError
from kasmon.model.commands import Mode
from kasmon.sanitize import clean_line
from kasmon.tui.actions.dialogs import offer_link
from kasmon.tui.error_text import sentence

if TYPE_CHECKING:
    from textual.worker import Worker

    from kasmon.model.transcript.search.text import SearchHit
    from kasmon.supervisor.search.search import SessionHits
    from kasmon.tui.search.screen import SearchScreen
    from kasmon.tui.session_pane import PaneDashboard

GONE: Final = "it no longer exists"


class SearchController:
    """Opens the screen, runs searches, and opens their results."""

    def __init__(self, app: "PaneDashboard") -> None:
        self.app = app
        self._words = ""
        self._results: list[SessionHits] = []
        self._at = 0
        self._shown: SearchScreen | None = None
        self._search: Worker[None] | None = None

    @property
    def screen(self) -> "SearchScreen | None":
        return self._shown if self._shown is not None and self._shown in self.app.screen_stack else None

    def open(self) -> None:
        """Open the screen with the last results and the last selection, if any."""
        from kasmon.tui.search.screen import SearchScreen  # not before the first frame

        app = self.app
        if len(app.screen_stack) > 1 or app.main_view.filter_bar.box is not None:
            return
        self._shown = SearchScreen(app.look, app.clock, app.keys, self._words, self._results)
        app.push_screen(self._shown)
        self._shown.call_after_refresh(self._shown.list.move, self._at)
        app.permissions.show_notice()

    def close(self) -> None:
        if (screen := self.screen) is None:
            return
        self._stop()
        self._words, self._results = (screen.words, screen.results) if screen.is_done else (screen.words, [])
        hits = [row for row in screen.list.rows if row.hit is not None]
        row = screen.list.chosen
        self._at = hits.index(row) if row in hits else 0
        screen.dismiss()
        self.app.hold_still()
        self.app.call_later(self.app.permissions.show_notice)

    def _stop(self) -> None:
        if self._search is not None:
            self._search.cancel()

    def search_for(self, query: str) -> None:
        if query and self.app.gateway is not None:
            self._search = self.app.run_worker(self._search_for(query), group="search", exclusive=True)
        else:
            self._stop()

    async def _search_for(self, query: str) -> None:
        screen, gateway = self.screen, self.app.gateway
        if screen is None or gateway is None:
            return
        try:
            async with contextlib.aclosing(gateway.search(query)) as results:
                async for each in results:
                    screen.add(each)
        except KasmonError as error:
            screen.end(sentence(error.message))
        else:
            screen.end()

    def go_to(self, hit: "SearchHit") -> None:
        """Show *hit* in its session: terminal output above the search, a transcript in its own view."""
        if self.app.gateway is None:
            return
        session = self.app.main_view.table.session(hit.session)
        if hit.source == "terminal" or (session is not None and session.mode is Mode.TMUX):
            self.app.run_worker(self._read(hit), group="scrollback", exclusive=True)
        else:
            self.app.run_worker(self._enter(hit), group="scrollback", exclusive=True)

    async def _read(self, hit: "SearchHit") -> None:
        from kasmon.tui.terminal.scrollback.buffer import BufferPosition, ScrollbackBuffer  # seldom needed
        from kasmon.tui.terminal.scrollback.screen import ScrollbackScreen

        app = self.app
        assert app.gateway is not None
        is_line = hit.source == "terminal"
        try:
            recorded = await app.gateway.read_recording(hit.session, hit.position if is_line else None, hit.at)
        except KasmonError as error:
            if self.screen is not None:
                self.screen.end(sentence(error.message))
            return
        session = app.main_view.table.session(hit.session)
        if self.screen is None or self.screen is not app.screen:
            return
        if session is None or recorded.here is None:
            self.screen.end(GONE)
            return
        begins = BufferPosition(recorded.here, hit.start if is_line else 0)
        copied, looked = app.session_pane.put_on_clipboard, partial(offer_link, app)
        match = hit.line[hit.start : hit.end]
        reading = ScrollbackScreen(
            app.look,
            app.keys,
            clean_line(session.label),
            ScrollbackBuffer(recorded.lines),
            copied,
            looked,
            at=begins,
            query=match,
        )
        app.push_screen(reading)
        app.session_pane.mark_viewed(session)

    async def _enter(self, hit: "SearchHit") -> None:
        app = self.app
        assert app.gateway is not None
        event = await app.gateway.fact(hit.session, hit.position)
        session = app.main_view.table.session(hit.session)
        if self.screen is None or self.screen is not app.screen:
            return
        if session is None or event is None:
            self.screen.end(GONE)
            return
        self.close()
        app.session_pane.enter(session.id)
        session_view = app.session_pane.session_view
        if session_view is not None:
            session_view.read()
            session_view.only_reads = session_view.is_from_search = True
            app.call_after_refresh(session_view.seek, event, hit.line, hit.line[hit.start : hit.end])
        app.offer_keys()
