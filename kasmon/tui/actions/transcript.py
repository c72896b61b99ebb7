"""Actions inside a structured session: read and search its transcript, copy, edit its prompt queue."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kasmon.model.commands import Mode
from kasmon.sanitize import clean_line
from kasmon.tui.app_protocols import Dashboard
from kasmon.tui.session_meter import can, can_be_configured, settable

if TYPE_CHECKING:
    from kasmon.model.session import Session
    from kasmon.model.transcript.clipboard_text import Piece
    from kasmon.tui.search.controller import SearchController
    from kasmon.tui.session_pane import SessionPane
    from kasmon.tui.transcript.view import SessionView


class TranscriptDashboard(Dashboard, Protocol):
    """What these actions need."""

    @property
    def session_pane(self) -> "SessionPane": ...
    @property
    def search(self) -> "SearchController": ...
    def offer_keys(self) -> None: ...


class TranscriptActions:
    """The actions inside a structured session."""

    def __init__(self, app: TranscriptDashboard) -> None:
        self.app = app

    # Opening and leaving.

    def read_story(self) -> None:
        """Open the session for reading, from the list."""
        session = self._target_session
        if session is None:
            return
        if session.mode is Mode.TMUX:
            self.app.session_pane.read_terminal(session)
            return
        self.app.session_pane.enter(session.id)
        if (session_view := self._session_view) is not None:
            session_view.read()
            session_view.only_reads = True
        self.app.offer_keys()

    def stop_reading(self) -> None:
        session_view = self._session_view
        if session_view is None or session_view.only_reads:
            was_found = session_view is not None and session_view.was_found
            self.app.session_pane.leave()
            if was_found:
                self.app.search.open()
        else:
            session_view.write()

    def break_off(self) -> None:
        session = self.app.main_view.preview.session
        if session is None:
            return
        if can(session, "interrupts"):
            self.app.run_operation(lambda operations: operations.interrupt(session.id))
        else:
            self.app.say("This agent cannot be interrupted.", severity="warning")

    def configure(self) -> None:
        """Change the session's model or permission mode."""
        session = self._target_session
        if session is None:
            return
        if not can_be_configured(session):
            why = "is not running" if not session.exists else "offers no other model or mode while running"
            self.app.say(f"{clean_line(session.name)} {why}.", severity="warning")
            return
        from kasmon.tui.dialogs.settings import ModelDialog

        assert settable(session)
        self.app.push_screen(ModelDialog(self.app.look, self.app.keys, session))

    # Reading.

    def toggle(self) -> None:
        if (session_view := self._session_view) is not None and not session_view.screen_of_events.toggle():
            self.app.say("Nothing is folded here.")

    def copy(self) -> None:
        if (session_view := self._session_view) is not None:
            self._copy(session_view.screen_of_events.copied())

    def copy_answer(self) -> None:
        if (session_view := self._session_view) is not None:
            self._copy(session_view.screen_of_events.copied(answer=True))

    def on_view(self, act: Callable[["SessionView"], object]) -> Callable[[], None]:
        """Return a handler that runs *act* on the open transcript, if there is one."""

        def run() -> None:
            if (session_view := self._session_view) is not None:
                act(session_view)

        return run

    # In the prompt box, which handles its keys itself: a click on the key bar does what the key does.

    def use_box(self, action: str) -> None:
        """Run this action of the prompt box or the code box."""
        if (session_view := self._session_view) is not None and session_view.box is not None:
            session_view.box.means(action)

    # The prompt queue.

    def queue(self) -> None:
        if (session_view := self._session_view) is not None and not session_view.choose_queued():
            self.app.say("No queued prompts.")

    # Shared.

    @property
    def _target_session(self) -> "Session | None":
        """The open session, or the one under the list's cursor."""
        main_view = self.app.main_view
        return main_view.preview.session if main_view.focused_inside else main_view.table.selected_session

    @property
    def _session_view(self) -> "SessionView | None":
        session_view = self.app.session_pane.session_view
        return session_view if session_view is not None and session_view.box is not None else None

    def jump(self, turns: int) -> None:
        if (session_view := self._session_view) is not None and not session_view.screen_of_events.jump(turns):
            self.app.say("No previous turn." if turns < 0 else "No next turn.")

    def find_next(self, *, down: bool) -> None:
        session_view = self._session_view
        if session_view is None:
            return
        if session_view.screen_of_events.finder.search is None:
            self.app.say(f"Search first: {self.app.keys.shown('find')}.")
        else:
            session_view.screen_of_events.finder.find_next(down=down)

    def _copy(self, piece: "Piece | None") -> None:
        if piece is None or not piece.text:
            self.app.say("Nothing to copy here.")
            return
        self.app.session_pane.put_on_clipboard(piece.text, piece.what)
