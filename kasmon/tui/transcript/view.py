"""The view of a structured session: its transcript through the pyte screen, and in focus a prompt box."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import TextArea

from kasmon.errors import KasmonError
from kasmon.model.commands import Mode, ReceiptId
from kasmon.model.events import Event
from kasmon.model.prompts.image import PromptImage, describe, mentioned
from kasmon.model.session import Session
from kasmon.model.transcript.blocks import images_of
from kasmon.model.transcript.layout import Transcript
from kasmon.model.transcript.run_blocks import codes
from kasmon.sanitize import clean_line
from kasmon.tui.action import KeyContext
from kasmon.tui.app_protocols import dashboard_of
from kasmon.tui.clock import Clock
from kasmon.tui.error_text import what_failed
from kasmon.tui.keymap import KeyMap
from kasmon.tui.sandbox.status import panel
from kasmon.tui.session_meter import meter, pinned_lines
from kasmon.tui.textual_ext.strips import UniformLinesMixin
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.transcript.completion import Suggestions, mention
from kasmon.tui.transcript.event_view import EventView
from kasmon.tui.transcript.find_bar import FindBar, FindChanged
from kasmon.tui.transcript.prompt_queue import PromptQueueView
from kasmon.tui.widgets.text_lines import DrawnLine, TextLines

if TYPE_CHECKING:
    from kasmon.tui.transcript.prompt_box import PromptBox

LOW_ROWS: Final = 12
"""In a lower window, less is shown above the prompt box."""


class SessionView(UniformLinesMixin, Vertical):
    """The transcript of one session; the box below it exists between `enter` and `leave`."""

    def __init__(self, session: Session, transcript: Transcript, look: ThemeStyles, keys: KeyMap, clock: Clock) -> None:
        super().__init__()
        self.session, self.look, self.keys, self.clock = session, look, keys, clock
        self.transcript = transcript
        self.screen_of_events = EventView(transcript, look.token)
        self.screen_of_events.contrast = look.theme.contrast
        self.find_bar = FindBar(look, keys)
        self.offered = Suggestions(look)
        self.pinned = TextLines(look, "background", id="pinned")
        self.receipts = PromptQueueView(session, look)
        self.meter = TextLines(look, "background", id="meter")
        self.sandbox = TextLines(look, "background", id="sandbox")
        self.attachments = TextLines(look, "background", id="attachments")
        self.images: Sequence[PromptImage] = ()
        """The pictures that the prompt mentions, with their content."""
        self._mentions: list[str] = []
        self.box: PromptBox | None = None
        self.only_reads = False
        """Whether it was opened for reading; leaving then returns to the list."""
        self.is_from_search = False
        """Whether it was opened from a search; leaving then returns to the search."""
        self._pending_event: tuple[Event, str, str] | None = None
        """The event to show once it is read, the line in it, and the search text."""

    def compose(self) -> ComposeResult:
        yield self.screen_of_events
        yield self.find_bar
        yield self.pinned
        yield self.receipts
        yield self.sandbox
        yield self.meter
        yield self.attachments
        yield self.offered

    def on_mount(self) -> None:
        self.screen_of_events.can_focus = self.screen_of_events.cursor is not None
        if self.box is not None:  # the box was opened before the widgets above it were mounted
            self.move_child(self.box, after=self.offered)
        self._update()
        self.set_interval(1.0, self._update_sandbox)

    def on_resize(self) -> None:
        self.set_class(self.app.size.height < LOW_ROWS, "-low")
        self._update_pinned()
        self._update_meter()

    @property
    def is_reusable(self) -> bool:
        """Whether it can show another session: it is drawn, neither entered nor read, and its last box is gone."""
        return self.is_mounted and self.screen_of_events.cursor is None and not self.query("#prompt")

    def open(self, session: Session, transcript: Transcript) -> None:
        """Show another session, at the end of its transcript."""
        self.session, self.transcript = session, transcript
        self.screen_of_events.open(transcript)
        self._update()

    def show(self, transcript: Transcript) -> None:
        """Show this transcript, which ends as the one before and may begin earlier; or its changes."""
        if transcript is not self.transcript:
            self.transcript = transcript
            self.screen_of_events.open(transcript, same_place=True)
        self.screen_of_events.draw_soon()
        self._update_pinned()

    def update_session(self, session: Session) -> None:
        before, self.session = self.session, session
        if before != session:
            self._update()

    def redraw(self) -> None:
        """Draw the transcript again, with the current styles."""
        self.screen_of_events.contrast = self.look.theme.contrast
        self.screen_of_events.redraw()

    @property
    def place(self) -> KeyContext:
        """The key context of the focused widget, or of the last one."""
        focused = self.screen.focused
        if focused is self.screen_of_events:
            return KeyContext.READING
        if focused is not None and focused is self.find_bar.box:
            return KeyContext.FIND
        return KeyContext.QUEUE if focused is self.receipts else KeyContext.PROMPT

    def enter(self, draft: str = "") -> None:
        """Open the prompt box and focus it; *draft* is its earlier text."""
        if self.box is not None:
            return
        from kasmon.tui.transcript.prompt_box import (
            CodeBox,  # heavy: only for writing
            PromptBox,
        )

        if self.session.mode is Mode.INTERPRETER:
            self.box = CodeBox(self.session.id, self.keys, draft, codes=lambda: codes(self.transcript.blocks))
        else:
            self.box = PromptBox(
                self.session.id,
                self.keys,
                f"Write to {clean_line(self.session.label)}",
                draft,
                history=lambda: [*self.transcript.prompts],
                offered=self.offered,
            )
        self.mount(self.box)
        self.screen.set_focus(self.box)  # now: the next key may be there already
        self._update()

    def leave(self) -> str:
        """Close the prompt box; return its unsent text."""
        if self.box is None:
            return ""
        self.is_from_search, self._pending_event = False, None
        self.stop_reading()
        if self.box.changes is not None:
            self.box.change(None, "")
        draft = self.box.text
        self.box.remove()
        self.box = None
        self._update()
        return draft

    def write(self) -> None:
        """Give the keyboard back to the box."""
        self.only_reads = False
        self.stop_reading()
        self.receipts.choose(on=False)
        self.receipts.can_focus = False
        if self.box is not None:
            self.screen.set_focus(self.box)

    def read(self) -> None:
        session_view = self.screen_of_events
        if session_view.cursor is None:
            session_view.read(on=True)
        session_view.can_focus = True
        self.screen.set_focus(session_view)

    def seek(self, event: Event, line: str, query: str) -> None:
        """Show *line* of *event*, with *query* highlighted, now or as soon as it is read."""
        self._pending_event = (event, line, query)
        self.go_on_seeking()

    def go_on_seeking(self) -> None:
        """Try to show the wanted event, after more of the transcript was read."""
        if self._pending_event is None or self.screen_of_events.cursor is None:
            return
        event, line, query = self._pending_event
        if self.screen_of_events.finder.seek(event, line, query):
            self._pending_event = None
            self.find_bar.words.words, self.find_bar.is_open = query, True
            self.find_bar.close_input()

    def stop_reading(self) -> None:
        """End cursor and search, so that the transcript follows its end; the keyboard focus is unchanged."""
        if self.screen_of_events.cursor is not None:
            self.find_bar.drop()
            self.screen_of_events.read(on=False)
            self.screen_of_events.show_end()
        self.screen_of_events.can_focus = False

    def choose_queued(self) -> bool:
        """Give the keyboard to the queued prompts; False if there are none."""
        if not self.receipts.waiting:
            return False
        self.receipts.choose(on=True)
        self.receipts.can_focus = True
        self.screen.set_focus(self.receipts)
        return True

    def begin_find(self) -> None:
        self.screen_of_events.finder.search = None
        self.find_bar.begin()

    def end_find(self, kept: bool) -> None:
        """Keep reading at the match, or return to where the search began."""
        if kept:
            self.find_bar.accept(self._search)
        else:
            self.screen_of_events.finder.drop()
            self.find_bar.drop()
        self.screen.set_focus(self.screen_of_events)

    def scroll_pages(self, by: int) -> None:
        self.screen_of_events.scroll_back(-by)

    def on_find_changed(self, message: FindChanged) -> None:
        message.stop()
        self.find_bar.search_if_current(message.words, self._search)

    def _search(self, query: str) -> None:
        if query != self.find_bar.words.words:
            self.find_bar.words.words = query
            self.screen_of_events.finder.find(query)

    def on_event_view_search_updated(self, message: EventView.SearchUpdated) -> None:
        message.stop()
        self.find_bar.show_count(message.matches, message.done, message.here)

    def on_text_area_changed(self, message: TextArea.Changed) -> None:
        """Show the pictures that the prompt mentions now."""
        names = mentioned(self.box.text) if self.box is not None else []
        if names != self._mentions:
            self._mentions = names
            self.run_worker(self._show_images(" ".join(map(mention, names))), exclusive=True, group="images")

    async def _show_images(self, text: str) -> None:
        gateway, problem = dashboard_of(self).gateway, ""
        self.images = ()
        if text and gateway is not None:
            try:
                self.images = await gateway.prompt_images(self.session.id, text)
            except KasmonError as error:
                problem = what_failed(error)
        key = self.keys.shown_while_writing("show_image", self.look.utf8)
        shown = (f"{key} shows it" if len(self.images) == 1 else f"{key} shows them") if self.images else ""
        lines = [
            DrawnLine(
                ((" ▣ ", "accent"), (clean_line(each.name), "text"), (f"  {describe(each)}", "soft")),
                ((shown, "faint"),) if number == 0 else (),
                action="show_image",
            )
            for number, each in enumerate(self.images)
        ]
        self.attachments.say(*lines, *([DrawnLine(((" ! ", "bad"), (clean_line(problem), "bad")))] if problem else []))

    def images_here(self) -> tuple[PromptImage, ...]:
        """Return the pictures of the prompt under the cursor; of none without a cursor."""
        place = self.screen_of_events.place()
        return () if place is None else images_of(self.transcript.blocks[place.block])

    def insert(self, text: str) -> None:
        """Insert *text* at the cursor of the prompt box, if that is open."""
        if self.box is not None:
            self.box.insert(text)
            self.write()

    def on_prompt_queue_view_change(self, message: PromptQueueView.Change) -> None:
        message.stop()
        self.change_queued(message.receipt)

    def on_prompt_queue_view_empty(self, message: PromptQueueView.Empty) -> None:
        message.stop()
        self.write()

    def change_queued(self, receipt: ReceiptId) -> None:
        short = next((each.text for each in self.session.receipts if each.id == receipt), "")
        self.write()
        if self.box is not None:
            self.box.change(receipt, self.transcript.waiting.get(receipt, short))

    def _update(self) -> None:
        self.receipts.show_session(self.session, writing=self.box is not None)
        self._update_pinned()
        self._update_meter()

    def _update_pinned(self) -> None:
        """Show what the agent has left to do, in an open session; an unchanged line is not drawn again."""
        self.pinned.say(*(pinned_lines(self.transcript, self.look, self.size.height) if self.box is not None else ()))

    def _update_sandbox(self) -> None:
        """Show the sandbox, its usage and its next change; an unchanged line is not drawn again."""
        self.sandbox.say(*panel(self.session, self.look, self.clock.now(), max(self.size.width - 1, 1)))

    def _update_meter(self) -> None:
        width = max(self.size.width - 1, 1)
        key = self.keys.shown_while_writing("configure", self.look.utf8)
        line = meter(self.session, self.look, key, width) if self.box is not None else None
        self.meter.say(*([line] if line is not None else []))
        self._update_sandbox()
