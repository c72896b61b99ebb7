"""The base of all dialogs: a frame with a title, fields or a text to read, keys, the notice line, and the outcome."""

from collections.abc import Iterable
from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.widget import Widget

from kasmon.errors import KasmonError
from kasmon.model.transcript.text import Token
from kasmon.tui.app_protocols import Dashboard, dashboard_of
from kasmon.tui.dialogs.fields import ChoiceField
from kasmon.tui.error_text import sentence
from kasmon.tui.gateway.protocol import Operation
from kasmon.tui.key_names import shown_key
from kasmon.tui.keymap import KeyMap
from kasmon.tui.messages import ActionRequested
from kasmon.tui.status_bars import Banner, BannerContent
from kasmon.tui.textual_ext.inputs import forward_key
from kasmon.tui.textual_ext.modal import Overlay
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.reader import Reader, Rows, Sentences
from kasmon.tui.widgets.row_list import RowList
from kasmon.tui.widgets.text_lines import DrawnLine, TextLines, key_line, press, pressing, side_by_side

ROOMY_ROWS: Final = 28
"""In a lower window the padding is dropped, so that the keys stay visible."""
WIDTH: Final = 76
"""Most cells of a dialog's width, unless it shows a text to read."""
SHARE: Final = 96
"""Most percent of the window that it takes."""
FRAME: Final = 2
AROUND: Final = 4
"""Cells of a row that are its frame and padding."""
LOW_ROWS: Final = 14
"""In a lower window there are no blank rows."""

TURNS: Final = ("tab", "shift+tab")
"""The keys that move to the next field, and to the previous one."""
PAGES: Final = {"pagedown": 1, "pageup": -1}
"""The keys that scroll a page down, and up."""


class Dialog(Overlay):
    """Closes by Esc. After `run_operation` it stays open with all input until the operation has succeeded."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "close", show=False)]
    title_text = ""
    carries_notice = True

    def __init__(self, look: ThemeStyles, keys: KeyMap, rows: Rows | None = None) -> None:
        """*rows*: the text to read, if it shows one."""
        super().__init__()
        self.look, self.keys = look, keys
        self.busy = False
        self.is_confirmed = False
        """Whether the user confirmed before all of it was loaded; a change, or leaving, cancels that."""
        self._buffered_keys: list[events.Key] | None = []
        self._footer_lines: list[DrawnLine] = []
        self.named_keys: tuple[tuple[str, str], ...] = ()
        """The keys that the footer names, as shown, with what each does."""
        self.within = Vertical(id="within")
        """The part that scrolls where the window is too low; the keys are always below it."""
        self.has_text = rows is not None
        self.text = Reader(look, rows or (lambda width: ()))
        self.problem = Sentences(look, id="problem")
        self.foot = TextLines(look, id="foot")
        self.banner = Banner(look, id="dialog-banner")

    @property
    def is_opening(self) -> bool:
        return self._buffered_keys is not None

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as frame:
            frame.border_title = Content(self.title_text)
            with self.within:
                yield from self.inside()
            yield self.problem
            yield self.foot
        yield self.banner

    def inside(self) -> Iterable[Widget]:
        """Return the widgets between title and keys."""
        return (self.text,) if self.has_text else ()

    def on_mount(self) -> None:
        """Textual calls it besides that of a subclass, and after it."""
        if self.has_text:
            self.text.can_focus = True
            self.offer(*self.offered(("up down", "scroll")))
            self.begin(self.text)

    def offered(self, scroll: tuple[str, str]) -> Iterable[tuple[str, str]]:
        """Return the keys of the footer below a text, *scroll* among them."""
        return scroll, ("esc", "close")

    def submit(self) -> None:
        """Do what Enter does in a field, a choice or a list; nothing by default."""

    def on_input_submitted(self, event: Message) -> None:
        event.stop()
        self.submit()

    def on_text_box_submitted(self, event: Message) -> None:
        event.stop()
        self.submit()

    def on_key(self, event: events.Key) -> None:
        """Textual calls it besides that of a subclass."""
        if event.key == "enter" and isinstance(self.focused, ChoiceField | RowList):
            event.stop()
            self.submit()
        elif self.has_text and (rows := {"j": 1, "k": -1}.get(event.key)) is not None:
            self.text.scroll_rows(rows)
        elif self.has_text and event.key == "space":
            self.text.scroll_pages(1)

    def is_read(self) -> bool:
        """Whether the end of the text was visible; shows an error if not."""
        if not self.text.seen_end:
            self.complain("There is more below.", "Scroll to the end to continue.")
        return self.text.seen_end

    def offer(self, *offers: tuple[str, str]) -> None:
        """Show these keys (`enter`, or several: `up down`) and what they do in the footer; a click presses the key."""
        utf8 = self.look.utf8
        keys = [(" ".join(shown_key(each, utf8) for each in key.split()), word, pressing(key)) for key, word in offers]
        self.named_keys = tuple((key, word) for key, word, _ in keys)
        self._footer_lines = [DrawnLine(key_line([key], (" ", "text")).left, action=key[2]) for key in keys]
        self._draw_footer()

    def _draw_footer(self) -> None:
        """Each key unbroken, on as many rows as they need."""
        blank = () if self.is_low else (DrawnLine(),)
        self.foot.say(*blank, *side_by_side(self._footer_lines, self._columns(), gap=3))
        self.share_room()

    @property
    def is_low(self) -> bool:
        """Whether there is no space for blank rows."""
        return self.app.size.height < LOW_ROWS

    def _columns(self) -> int:
        """Cells of a row within the frame."""
        return min(WIDTH, self.app.size.width * SHARE // 100) - AROUND

    def on_action_requested(self, message: ActionRequested) -> None:
        if press(self.app, message.action):
            message.stop()

    @property
    def dashboard(self) -> Dashboard:
        return dashboard_of(self)

    @property
    def is_open(self) -> bool:
        return self in self.app.screen_stack

    def run_operation(self, operation: Operation) -> None:
        """Run *operation*; then `handle_success` or `handle_failure` is called."""
        if self.begin_operation():
            self.dashboard.run_operation(operation, done=self.handle_success, failed=self.handle_failure)

    def begin_operation(self) -> bool:
        """Return whether an operation may start; there is one at a time."""
        may_start, self.busy = not self.busy, True
        if may_start:
            self.show_problem()
        return may_start

    def handle_success(self, text: str) -> bool:
        """Close it, and leave *text* to a notification."""
        if self.is_open:
            self.dismiss()
        return False

    def handle_failure(self, error: KasmonError) -> bool:
        """Show *error* and keep the input; return whether it is still open."""
        if self.is_open:
            self.busy = False
            self.complain(error.message, error.hint)
        return self.is_open

    def complain(self, problem: str, hint: str = "") -> None:
        lines = [(sentence(problem), Token.ERROR), *([(sentence(hint), Token.NOTICE)] if hint else [])]
        self.show_problem(*(() if self.is_low else (("", Token.NOTICE),)), *lines)

    def notice(self, notice: BannerContent | None) -> None:
        self.banner.notice = notice
        self.share_room()

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        """Textual calls it besides that of a subclass."""
        message.stop()
        self.show_row(message.row_list, message.row)

    def show_row(self, widget: Widget, y: int) -> None:
        """Scroll so that row *y* of *widget* is visible; for its last row, also everything below."""
        if y == widget.size.height - 1:
            self.within.scroll_end(animate=False)
        else:
            self.within.scroll_to_region(Region(0, widget.virtual_region.y + y, 1, 1), animate=False)

    @property
    def room(self) -> int:
        """Rows available between title and keys."""
        rows = self.app.size.height
        padding = 0 if rows < ROOMY_ROWS else 1
        below = len(self.foot.drawn) + self.problem.rows
        return max(1, (rows - bool(self.banner.notice)) * SHARE // 100 - FRAME - padding - below)

    def share_room(self) -> None:
        """Give that part the rows that frame, keys, error and notice leave; a text scrolls instead of that part."""
        self.within.styles.max_height = self.room
        if self.has_text:
            self.text.styles.max_height = self.room

    def on_resize(self) -> None:
        self.set_class(self.app.size.height < ROOMY_ROWS, "-tight")
        self.set_class(self.is_low, "-low")
        if self._footer_lines:
            self._draw_footer()
        self.share_room()

    def on_reader_moved(self, message: Reader.Moved) -> None:
        message.stop()
        self.share_room()

    def on_input_changed(self) -> None:
        self._handle_edit()

    def on_text_area_changed(self) -> None:
        self._handle_edit()

    def _handle_edit(self) -> None:
        self.is_confirmed = False
        if not self.busy:
            self.show_problem()

    def show_problem(self, *lines: tuple[str, Token]) -> None:
        self.problem.say(*lines)
        self.share_room()

    def wait_for(self, what: str) -> None:
        """Record that the user confirmed, and show that it takes effect as soon as *what*."""
        self.is_confirmed = True
        self.show_problem(("", Token.NOTICE), (f"Starts as soon as {what}.", Token.NOTICE))

    def submit_if_confirmed(self) -> None:
        """More is loaded: submit if the user has confirmed already."""
        if self.is_confirmed:
            self._handle_edit()
            self.submit()

    def action_leave(self) -> None:
        self.is_confirmed = False
        self.dismiss()

    def takes(self, key: events.Key) -> bool:
        """Buffer keys that come before a field has the focus; the first field gets them then. Move between fields at
        once: keys typed after that are meant for the next field. Page keys scroll from any field that does not scroll
        itself."""
        if self._buffered_keys is not None:
            self._buffered_keys.append(key)
        elif key.key in TURNS:
            (self.focus_next if key.key == "tab" else self.focus_previous)()
        elif key.key in PAGES and (self.focused is None or not self.focused.max_scroll_y):
            rows = max(1, self.within.size.height - 1)
            self.within.scroll_relative(y=PAGES[key.key] * rows, animate=False)
        else:
            return False
        return True

    def begin(self, first: Widget | None) -> None:
        """Focus *first*, and send it the buffered keys; without a field, discard them."""
        early, self._buffered_keys = self._buffered_keys or [], None
        if first is not None:
            self.set_focus(first)
            for key in early:
                forward_key(first, key)
