"""What all dialogs share: a frame with a title, keys at its foot, a word on what waits elsewhere, and its outcome."""

import itertools
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from kasmon.errors import KasmonError
from kasmon.model.transcript.text import Token
from kasmon.tui.error_text import sentence
from kasmon.tui.gateway.protocol import Wanted
from kasmon.tui.key_names import shown_key
from kasmon.tui.keymap import KeyMap
from kasmon.tui.messages import ActionRequested, CommandRequested
from kasmon.tui.status_bars import Banner, BannerContent
from kasmon.tui.textual_ext.modal import Overlay
from kasmon.tui.theme.look import Span, ThemeStyles
from kasmon.tui.widgets.reader import Reader, Sentences
from kasmon.tui.widgets.text_lines import DrawnLine, TextLines, key_line, press, pressing, side_by_side

ROOMY_ROWS: Final = 28
"""In a lower window what stands in a dialog moves together, so that its keys are in sight."""
WIDTH: Final = 76
"""A dialog is at most so many cells wide, unless it is there to be read."""
SHARE: Final = 96
"""It takes at most so many percent of the window."""
FRAME: Final = 2
"""Rows of its frame."""
AROUND: Final = 4
"""Cells of a row that are its frame and padding."""
LOW_ROWS: Final = 14
"""In one lower than this nothing stands apart."""
_tokens = itertools.count(1)

TURNS: Final = ("tab", "shift+tab")
"""The keys that lead to the next field, and to the one before."""
PAGES: Final = {"pagedown": 1, "pageup": -1}
"""The keys that lead a page on, and back."""


class Dialog(Overlay):
    """Closes by Esc. What it wants done it says by `want`; it stays, with all that was typed, until that is done."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "close", show=False),
    ]
    title_text = ""
    carries_notice = True

    def __init__(self, look: ThemeStyles, keys: KeyMap) -> None:
        super().__init__()
        self.look, self.keys = look, keys
        self.token = next(_tokens)
        self.busy = False
        self._early: list[events.Key] | None = []
        self._offered: list[DrawnLine] = []
        self.named_keys: tuple[tuple[str, str], ...] = ()
        """The keys that the foot names, as shown, with what each does."""
        self.within = Vertical(id="within")
        """What scrolls where the window is too low for all of it; what it is answered with stands below."""
        self.problem = Sentences(look, id="problem")
        self.foot = TextLines(look, id="foot")
        self.banner = Banner(look, id="dialog-banner")

    @property
    def is_opening(self) -> bool:
        return self._early is not None

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as frame:
            frame.border_title = Content(self.title_text)
            with self.within:
                yield from self.inside()
            yield self.problem
            yield self.foot
        yield self.banner

    def inside(self) -> Iterable[Widget]:
        """What stands between title and keys."""
        return ()

    def offer(self, *offers: tuple[str, str]) -> None:
        """Show these keys (`enter`, or several: `up down`) and what they do at the foot; a click on one presses it."""
        utf8 = self.look.utf8
        keys = [(" ".join(shown_key(each, utf8) for each in key.split()), word, pressing(key)) for key, word in offers]
        self.named_keys = tuple((key, word) for key, word, _ in keys)
        self._offered = [DrawnLine(key_line([key], (" ", "text")).left, action=key[2]) for key in keys]
        self._say_offered()

    def _say_offered(self) -> None:
        """Each key whole, on as many rows as they need."""
        blank = () if self.is_low else (DrawnLine(),)
        self.foot.say(*blank, *side_by_side(self._offered, self._columns(), gap=3))
        self.share_room()

    @property
    def is_low(self) -> bool:
        """Whether there is no row for what is blank."""
        return self.app.size.height < LOW_ROWS

    def _columns(self) -> int:
        """Cells of a row within the frame."""
        return min(WIDTH, self.app.size.width * SHARE // 100) - AROUND

    def on_action_requested(self, message: ActionRequested) -> None:
        if press(self.app, message.action):
            message.stop()

    def want(self, wanted: Wanted) -> None:
        """Ask for *wanted*; `done` or `refused` comes back."""
        if not self.busy:
            self.busy = True
            self.tell_problem()
            self.post_message(CommandRequested(wanted, token=self.token))

    def done(self, wanted: Wanted, word: str) -> str:
        """*wanted* is done, which the world tells by *word*; return what the person is told."""
        self.dismiss()
        return word

    def refused(self, wanted: Wanted, error: KasmonError) -> None:
        """It was not done: say why, keep everything."""
        self.busy = False
        self.complain(error.message, error.hint)

    def complain(self, problem: str, hint: str = "") -> None:
        said = [(sentence(problem), Token.ERROR), *([(sentence(hint), Token.NOTICE)] if hint else [])]
        self.tell_problem(*(() if self.is_low else (("", Token.NOTICE),)), *said)

    def notice(self, notice: BannerContent | None) -> None:
        """Something waits elsewhere."""
        self.banner.notice = notice
        self.share_room()

    def dress(self, look: ThemeStyles) -> None:
        """Draw with *look* from now on."""
        self.look = look
        for widget in self.query("Lines, Banner, Reader, Choice"):
            widget.look = look  # type: ignore[attr-defined]
            widget.refresh()

    def show_row(self, widget: Widget, y: int) -> None:
        """Scroll so that row *y* of *widget* is in sight, and below its last one what stands there."""
        if y == widget.size.height - 1:
            self.within.scroll_end(animate=False)
        else:
            self.within.scroll_to_region(Region(0, widget.virtual_region.y + y, 1, 1), animate=False)

    @property
    def room(self) -> int:
        """Rows that the window has for what stands between title and keys."""
        rows = self.app.size.height
        padding = 0 if rows < ROOMY_ROWS else 1
        below = len(self.foot.drawn) + self.problem.rows
        return max(1, (rows - bool(self.banner.notice)) * SHARE // 100 - FRAME - padding - below)

    def share_room(self) -> None:
        """That gets what the frame, the keys, what went wrong, and what waits elsewhere leave."""
        self.within.styles.max_height = self.room

    def on_resize(self) -> None:
        self.set_class(self.app.size.height < ROOMY_ROWS, "-tight")
        self.set_class(self.is_low, "-low")
        if self._offered:
            self._say_offered()
        self.share_room()

    def on_reader_moved(self, message: Reader.Moved) -> None:
        message.stop()
        self.share_room()

    def on_input_changed(self) -> None:
        self._take_back()

    def on_text_area_changed(self) -> None:
        self._take_back()

    def _take_back(self) -> None:
        """What was wrong is being mended."""
        if not self.busy:
            self.tell_problem()

    def tell_problem(self, *said: tuple[str, Token]) -> None:
        """Say this above the keys."""
        self.problem.say(*said)
        self.share_room()

    def action_leave(self) -> None:
        self.dismiss()

    def takes(self, key: events.Key) -> bool:
        """Keep a key that came before any field had the keyboard: the first one that has it gets it then. And turn to
        another field at once: what is typed behind that key is meant for it. What does not fit is paged from any field
        that does not scroll itself."""
        if self._early is not None:
            self._early.append(key)
        elif key.key in TURNS:
            (self.focus_next if key.key == "tab" else self.focus_previous)()
        elif key.key in PAGES and (self.focused is None or not self.focused.max_scroll_y):
            rows = max(1, self.within.size.height - 1)
            self.within.scroll_relative(y=PAGES[key.key] * rows, animate=False)
        else:
            return False
        return True

    def begin(self, first: Widget | None) -> None:
        """Give *first* the keyboard, and what was typed for it; without a field, what was typed is nothing."""
        early, self._early = self._early or [], None
        if first is not None:
            self.set_focus(first)
            for key in early:
                first._forward_event(key)


class DialogField(Horizontal):
    """Our own word, and at its right what is filled in."""

    def __init__(self, word: str, *inside: Widget) -> None:
        super().__init__(Static(Content(word), markup=False, classes="label"), *inside, classes="field")


class ChoiceChanged(Message):
    """Another word is chosen."""

    def __init__(self, choice: "ChoiceField") -> None:
        super().__init__()
        self.choice = choice


class ChoiceField(Widget, can_focus=True):
    """One of a few words, on as many lines as they need; left and right change it, a click takes it."""

    ALLOW_SELECT = False

    def __init__(self, look: ThemeStyles, options: Sequence[str], chosen: int = 0, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes="choice")
        self.look = look
        self.options, self.chosen = tuple(options), chosen
        self.off: frozenset[str] = frozenset()
        """Those that cannot be had: they can be chosen to see why, and whoever offers them says it."""

    def put(self, options: Sequence[str], chosen: int = 0, off: Iterable[str] = ()) -> None:
        """Offer other words, of which those *off* cannot be had."""
        self.options, self.chosen, self.off = tuple(options), chosen, frozenset(off)
        self.refresh(layout=True)

    @property
    def value(self) -> str:
        """The word that is chosen; empty while there is none."""
        return self.options[self.chosen] if self.options else ""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return 1 + max((row for row, _, _ in self._placed(width)), default=0)

    def _placed(self, width: int) -> list[tuple[int, int, int]]:
        """Row, first cell and cells of each word."""
        placed: list[tuple[int, int, int]] = []
        row = x = 0
        for option in self.options:
            size = cell_len(option) + 2
            if x and x + size > width:
                row, x = row + 1, 0
            placed.append((row, x, size))
            x += size + 1
        return placed

    def render_line(self, y: int) -> Strip:
        spans: list[Span] = []
        for number, (row, _, _) in enumerate(self._placed(self.size.width)):
            if row == y:
                here = number == self.chosen
                is_off = self.options[number] in self.off
                role = ("accent.solid.bold" if self.has_focus else "accent.bold") if here else "soft"
                role = "faint" if is_off and not here else role
                mark = self.look.mark("cursor") if here and not self.has_focus else " "
                spans += [(f"{mark}{self.options[number]} ", role), (" ", "text")]
        return self.look.strip(spans, self.size.width, "background")

    def on_key(self, event: events.Key) -> None:
        step = {"left": -1, "h": -1, "right": 1, "l": 1, "space": 1}.get(event.key)
        if step is not None and self.options:
            event.stop()
            self.choose((self.chosen + step) % len(self.options))

    def on_click(self, event: events.Click) -> None:
        for number, (row, x, size) in enumerate(self._placed(self.size.width)):
            if row == event.y and x <= event.x < x + size:
                self.choose(number)

    def choose(self, number: int) -> None:
        """Take the word of this number, the first being 0, and say so."""
        self.chosen = number
        self.refresh()
        self.post_message(ChoiceChanged(self))

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()
