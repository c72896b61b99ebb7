"""Actions inside a structured session: read and search its transcript, copy, edit its prompt queue."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kasmon.model.commands import Mode
from kasmon.model.events import TurnStarted
from kasmon.model.permission import SessionId
from kasmon.sanitize import clean_line
from kasmon.tui.actions.dialogs import confirm_operation, offer_links
from kasmon.tui.session_meter import can, can_be_configured, settable
from kasmon.tui.session_pane import PaneDashboard
from kasmon.tui.textual_ext.timers import start_timer

if TYPE_CHECKING:
    from textual.timer import Timer

    from kasmon.model.prompts.image import PromptImage
    from kasmon.model.session import Session
    from kasmon.model.transcript.clipboard_text import Piece
    from kasmon.tui.gateway.operations import Operations
    from kasmon.tui.search.controller import SearchController
    from kasmon.tui.transcript.view import SessionView


CLIPBOARD_S: Final = 2.0
"""How long a terminal may take to give a picture before the user is told how else to send one, in seconds."""
NO_REPLY: Final = "The terminal has given no picture. It may be asking you, or it gives none, as inside of tmux."
OTHERWISE: Final = "Otherwise save the picture, and mention its file: @FILE.png"
SECOND_ESC_S: Final = 0.8
"""A second Esc within this time belongs to the first one, in seconds."""


class TranscriptDashboard(PaneDashboard, Protocol):
    @property
    def search(self) -> "SearchController": ...
    def read_clipboard(self, on_reply: Callable[[bytes, str], object]) -> bool: ...


class TranscriptActions:
    """The actions inside a structured session."""

    def __init__(self, app: TranscriptDashboard) -> None:
        self.app = app
        self._left: tuple[SessionId, float] | None = None
        """The session that Esc left last, and when, by the dashboard's clock."""
        self._clipboard_timer: Timer | None = None
        """Runs while the terminal was asked for a picture and has not replied."""

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
            was_found = session_view is not None and session_view.is_from_search
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
            self.app.say(f"{clean_line(session.label)} {why}.", severity="warning")
            return
        from kasmon.tui.dialogs.settings import ModelDialog

        assert settable(session)
        self.app.push_screen(ModelDialog(self.app.look, self.app.keys, session))

    # Reading.

    def toggle(self, session_view: "SessionView") -> None:
        if not session_view.screen_of_events.toggle():
            self.app.say("Nothing is folded here.")

    def copy(self, session_view: "SessionView") -> None:
        self._copy(session_view.screen_of_events.copied())

    def copy_answer(self, session_view: "SessionView") -> None:
        self._copy(session_view.screen_of_events.copied(answer=True))

    def export_turn(self, session_view: "SessionView") -> None:
        """Write the turn under the cursor to a file, as Markdown."""
        session, turn = session_view.session.id, session_view.screen_of_events.turn()
        if turn:
            self.app.run_operation(lambda operations: operations.export(session, turn=turn))
        else:
            self.app.say("No turn here.")

    def share(self) -> None:
        """Write the session to one HTML file, once the user confirmed what that holds."""
        if (session := self._target_session) is None:
            return
        lines = (
            f"Write all of {clean_line(session.label)} to one HTML file in the dashboard's folder?",
            "It holds every prompt, answer, command, output and change. Secrets that kasmon knows are hidden in it.",
            "Read it before you send it to others: kasmon does not know every secret. Nothing is uploaded.",
        )
        confirm_operation(self.app, "Share", lines, "write", lambda operations: operations.export(session.id, "html"))

    def open_link(self, session_view: "SessionView") -> None:
        """Offer a link under the cursor; the user sees its whole address first."""
        offer_links(self.app, session_view.screen_of_events.links())

    def on_view(self, act: Callable[["SessionView"], object]) -> Callable[[], None]:
        """Return a handler that runs *act* on the open transcript, if there is one."""

        def run() -> None:
            if (session_view := self._session_view) is not None:
                act(session_view)

        return run

    # An earlier prompt.

    def leave_prompt(self) -> None:
        """Leave the session; another Esc soon after edits an earlier prompt of it."""
        session = self.app.main_view.preview.session
        self.app.session_pane.leave()
        self._left = (session.id, self.app.clock.ticking()) if session is not None else None

    def follow_esc(self) -> None:
        """Handle an Esc in the list that clears no filter: the second one edits an earlier prompt."""
        left, self._left = self._left, None
        main_view = self.app.main_view
        if left is None or self.app.clock.ticking() - left[1] > SECOND_ESC_S or main_view.focused_inside:
            return
        if (session := main_view.table.session(left[0])) is not None and session.mode is Mode.SDK:
            self._edit_earlier(session)

    def edit_earlier(self) -> None:
        """Edit an earlier prompt of the open session, and fork it there."""
        if (session := self._target_session) is not None:
            self._edit_earlier(session)

    def _edit_earlier(self, session: "Session") -> None:
        transcript = self.app.session_pane.transcripts.of(session.id).shown
        blocks = (transcript.blocks[index].event for index in transcript.turns)
        prompts = [event.prompt for event in blocks if isinstance(event, TurnStarted) and event.prompt.strip()]
        if session.via or session.mode is not Mode.SDK:
            self.app.say("Only structured sessions of this machine can be forked.", severity="warning")
        elif not prompts:
            self.app.say("There is no earlier prompt.")
        else:
            from kasmon.supervisor.prompts.fork import copies_conversation  # seldom needed, as the next
            from kasmon.tui.dialogs.earlier_prompt import EarlierPromptDialog

            copies = copies_conversation(session, whole=False), copies_conversation(session, whole=True)
            self.app.push_screen(EarlierPromptDialog(self.app.look, self.app.keys, session, prompts, copies))

    # Pictures.

    def show_image(self, session_view: "SessionView") -> None:
        """Show the pictures that the prompt mentions."""
        images = session_view.images
        if not images:
            self.app.say("The prompt mentions no picture: write @ and its file.")
            return

        async def read(image: "PromptImage") -> bytes:
            return image.data

        self._show_images(images, read)

    def paste_image(self) -> None:
        """Mention the picture in the terminal's clipboard, which is stored in a file for that, in the prompt."""
        session_view = self._session_view
        if session_view is None or (box := session_view.box) is None:
            return
        if session_view.session.via or not can(session_view.session, "receives_images"):
            self.app.say("This agent gets no pictures.", severity="warning")
            return

        def insert(picture: bytes, problem: str) -> None:
            self._stop_waiting()
            if problem:
                self.app.say(f"{problem[:1].upper()}{problem[1:]}. {OTHERWISE}", severity="warning")
                return

            from kasmon.tui.transcript.completion import mention  # loaded by the prompt box

            async def store(operations: "Operations") -> None:
                file = await operations.store_picture(picture)
                if box.is_attached:
                    box.insert(f"{mention(file)} ")

            self.app.run_operation(store)

        self._stop_waiting()
        self._clipboard_timer = start_timer(
            self.app, CLIPBOARD_S, lambda: self.app.say(f"{NO_REPLY} {OTHERWISE}", severity="warning")
        )
        if not self.app.read_clipboard(insert):
            insert(b"", "there is no terminal")

    def _stop_waiting(self) -> None:
        if self._clipboard_timer is not None:
            self._clipboard_timer.stop()
            self._clipboard_timer = None

    def read_image(self) -> None:
        """Show the pictures of the prompt under the cursor."""
        session_view, gateway = self._session_view, self.app.gateway
        if session_view is None or gateway is None:
            return
        images, session = session_view.images_here(), session_view.session.id
        if images:
            self._show_images(images, lambda image: gateway.image_content(session, image))
        else:
            self.app.say("There are no pictures here.")

    def _show_images(self, images: "Sequence[PromptImage]", read: "Callable[[PromptImage], Awaitable[bytes]]") -> None:
        from kasmon.tui.dialogs.picture import PictureDialog  # seldom needed

        self.app.push_screen(PictureDialog(self.app.look, self.app.keys, images, read))

    # The prompt queue.

    def queue(self, session_view: "SessionView") -> None:
        if not session_view.choose_queued():
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

    def jump(self, session_view: "SessionView", turns: int) -> None:
        if not session_view.screen_of_events.jump(turns):
            self.app.say("No previous turn." if turns < 0 else "No next turn.")

    def find_next(self, session_view: "SessionView", *, down: bool) -> None:
        if session_view.screen_of_events.finder.search is None:
            self.app.say(f"Search first: {self.app.keys.shown('find')}.")
        else:
            session_view.screen_of_events.finder.find_next(down=down)

    def _copy(self, piece: "Piece | None") -> None:
        if piece is None or not piece.text:
            self.app.say("Nothing to copy here.")
            return
        self.app.session_pane.put_on_clipboard(piece.text, piece.what)
