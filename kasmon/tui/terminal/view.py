"""A session's terminal in the dashboard: a cropped preview, or in focus with the full size, keys and mouse."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.reactive import reactive
from textual.timer import Timer
from textual.widget import Widget

from kasmon.host.rpc.frames import Blur, Focus, Paste, Scroll, SendKeys, Unwatch, Watch
from kasmon.model.permission import SessionId
from kasmon.tui.preview import TerminalPane
from kasmon.tui.terminal.key_encoding import LEAVE_KEYS, ReservedKey, encode_key
from kasmon.tui.terminal.link import TerminalLink
from kasmon.tui.terminal.stdin_tap import SHIFT_HOME, WHEEL_LINES, FocusGeometry, StdinTap
from kasmon.tui.terminal.widget import TerminalWidget
from kasmon.tui.textual_ext.driver import find_tap_driver
from kasmon.tui.textual_ext.strips import UniformLinesMixin
from kasmon.tui.textual_ext.timers import start_timer

KEYS_BYTES: Final = 256
"""The longest piece that is sent as keys; tmux slows down with longer ones."""


class InputSender:
    """Sends input to one session, from any thread; tracks how far it is scrolled back."""

    def __init__(
        self,
        link: TerminalLink,
        session: SessionId,
        leave: Callable[[], None],
        read: Callable[[], None] = lambda: None,
    ) -> None:
        self.history = 0
        self._link, self._session = link, session
        self.leave, self.read = leave, read
        self._up = 0
        self._lock = threading.Lock()

    def send_keys(self, data: bytes) -> None:
        """Send *data*, the bytes of keys, in pieces that tmux handles quickly."""
        self.scroll_to_bottom()
        for at in range(0, len(data), KEYS_BYTES):
            self._link.send(SendKeys(session=self._session, data=data[at : at + KEYS_BYTES]))

    def paste(self, text: str) -> None:
        """Have tmux paste *text*, bracketed if the program enabled that."""
        self.scroll_to_bottom()
        self._link.send(Paste(session=self._session, text=text))

    def scroll(self, lines: int) -> None:
        """Scroll back in the history by *lines*, as far as there is any; forward if negative."""
        with self._lock:
            up = max(min(self._up + lines, self.history), 0)
            if up != self._up:
                self._up = up
                self._link.send(Scroll(session=self._session, up=up))

    def scroll_to_bottom(self) -> None:
        """Scroll to the end, where the response to typing appears."""
        with self._lock:
            if self._up:
                self._up = 0
                self._link.send(Scroll(session=self._session, up=0))


RESIZE_S: Final = 0.1
"""The minimum interval between two resizes of a window, in seconds."""
ENDED: Final = "program ended; keys are ignored"
SETTLE_S: Final = 0.03
"""How long the layout may settle before a focused window takes its size, in seconds."""


class FocusBar(Widget):
    """The line below a focused terminal: its session, how to leave, pending requests, the scroll position."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"focus-bar--name", "focus-bar--waiting", "focus-bar--lost"}
    DEFAULT_CSS = """
    FocusBar { height: 1; background: $surface; color: $text-muted; }
    FocusBar .focus-bar--name { color: $foreground; text-style: bold; }
    FocusBar .focus-bar--waiting { color: $warning; text-style: bold; }
    FocusBar .focus-bar--lost { color: $error; text-style: bold; }
    """

    label: reactive[str] = reactive("")
    """The session's name and state, sanitized."""
    waiting: reactive[int] = reactive(0)
    """The number of pending requests, of all sessions."""
    lost: reactive[str] = reactive("")
    ended: reactive[bool] = reactive(False)
    scrolled: reactive[str] = reactive("")

    def __init__(self, leave: Sequence[ReservedKey]) -> None:
        super().__init__()
        self._leave = leave

    @property
    def _parts(self) -> list[tuple[str, str]]:
        parts = [
            (self.label, "name"),
            (self.lost or (ENDED if self.ended else ""), "lost"),
            (_describe_requests(self.waiting), "waiting"),
            (self.scrolled, ""),
            (f"{' or '.join(key.name for key in self._leave)} list", "leave"),
            ("Shift+Home search, copy" if self.scrolled else "Shift+PgUp scrollback", "read"),
        ]
        shown = [(text, part) for text, part in parts if text]
        needed = sum(cell_len(text) + len(" · ") for text, _ in shown) - 1
        return shown if needed <= self.size.width else shown[:-1]

    def render(self) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis", end="")
        for text, part in self._parts:
            styled = f"focus-bar--{part}" in self.COMPONENT_CLASSES
            line.append(" · " if line else " ")
            line.append(text, self.get_component_rich_style(f"focus-bar--{part}", partial=True) if styled else None)
        return line

    def part_at(self, x: int) -> str:
        """Return the part at cell *x*; empty if a click there does nothing."""
        end = 1
        for text, part in self._parts:
            start, end = end, end + cell_len(text) + len(" · ")
            if start <= x < end - len(" · "):
                return part
        return ""


class FocusView(UniformLinesMixin, Vertical, TerminalPane):
    """A terminal and its bar. The app passes rows to `terminal` and a host's loss to `show_loss`, and handles `Left`.

    `enter` sends every key to the session until a leave key, `leave`, or a click elsewhere moves Textual's focus. A
    screen above it (a dialog) gets the keys while it is open.
    """

    DEFAULT_CSS = """
    FocusView { width: 1fr; height: 1fr; }
    FocusView FocusBar { display: none; }
    FocusView.-live FocusBar { display: block; }
    """

    class Left(Message):
        """The keyboard belongs to the dashboard again."""

    class WaitingClicked(Message):
        """The user clicked the number of pending requests."""

    class ReadWanted(Message):
        """The user wants to read the scrollback, *up* lines above its end. The view regains the keyboard afterwards."""

        def __init__(self, session: SessionId, up: int) -> None:
            self.session, self.up = session, up
            super().__init__()

    class _LeaveKeyPressed(Message):
        pass

    def __init__(self, link: TerminalLink, session: SessionId, leave: Sequence[ReservedKey] = LEAVE_KEYS) -> None:
        super().__init__()
        self.session = session
        self.terminal = TerminalWidget()
        self.bar = FocusBar(leave)
        self.is_live = self._enters_once_mounted = False
        self._link, self._leave_keys = link, leave
        self._input_sender = InputSender(link, session, self._leave_key_pressed, self._read_key_pressed)
        self._tap: StdinTap | None = None
        self._is_left = False
        self._sent_size: tuple[int, int] | None = None
        self._sent_at = 0.0
        self._resize_timer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield self.terminal
        yield self.bar

    def on_mount(self) -> None:
        self._link.send(Watch(session=self.session))
        self.app.screen_change_signal.subscribe(self, lambda _screen: self._update_tap())
        self.call_later(self._enter_if_wanted)  # that comes once this is mounted

    def on_unmount(self) -> None:
        self.leave()
        self._link.send(Unwatch(session=self.session))

    def show_loss(self, why: str) -> None:
        """Show that the host does not respond: the rows are old, and keys are dropped. New rows clear `bar.lost`."""
        self.bar.lost = why or "host process died"

    @property
    def is_left(self) -> bool:
        """Whether it was left, also by a leave key that this widget has not handled yet: keys behind it are not its."""
        return self._is_left or (self._tap is not None and self._tap.left)

    def enter(self) -> None:
        """Send the keyboard to the session, once this is mounted; a second call does nothing."""
        self._enters_once_mounted = not self.is_mounted
        if self.is_live or self._enters_once_mounted:
            return
        self.is_live, self._is_left = True, False
        self.add_class("-live")
        self._sent_size = None
        self.terminal.live = True
        self.terminal.can_focus = True
        self.terminal.focus()
        self._update_tap()
        self._resize_timer = start_timer(self, SETTLE_S, self._send_size_later)

    def _enter_if_wanted(self) -> None:
        if self._enters_once_mounted:
            self.enter()

    def leave(self) -> None:
        """Take the keyboard back; the session stays as a preview. A second call does nothing."""
        self._enters_once_mounted = False
        if not self.is_live:
            return
        self.is_live, self._is_left = False, True
        self._update_tap()
        self.remove_class("-live")
        if self._resize_timer is not None:
            self._resize_timer.stop()
            self._resize_timer = None
        self.terminal.live = False
        self.terminal.can_focus = False
        self._input_sender.scroll_to_bottom()
        self._link.send(Blur(session=self.session))
        self._link.send(Watch(session=self.session))
        self.post_message(self.Left())

    def _update_tap(self) -> None:
        if (driver := find_tap_driver(self.app)) is None:
            return
        wanted = self.is_live and self.is_mounted and self.screen.is_active
        if wanted and self._tap is None:
            self._tap = StdinTap(self._input_sender, self._leave_keys)
            self._tap.aim = self._geometry()
            driver.open_tap(self._tap)
        elif not wanted and self._tap is not None:
            driver.close_tap(self._tap)
            self._tap = None

    def _geometry(self) -> FocusGeometry:
        terminal = self.terminal
        area = terminal.content_region
        left, top = terminal.corner
        return FocusGeometry(
            area.x,
            area.y,
            min(area.width, terminal.columns - left) if terminal.columns else area.width,
            min(area.height, terminal.rows - top) if terminal.rows else area.height,
            left,
            top,
            terminal.modes,
            terminal.scrolled,
        )

    def on_terminal_widget_moved(self, message: TerminalWidget.Moved) -> None:
        message.stop()
        self._input_sender.history = self.terminal.history
        self.bar.scrolled = f"{self.terminal.scrolled} lines up" if self.terminal.scrolled else ""
        if self._tap is not None:
            self._tap.aim = self._geometry()
        if self.is_live:
            self._send_size()

    def _send_size(self) -> None:
        """Set the session's window to the terminal's size; of many changes, only the last one is sent."""
        width, height = size = tuple(self.terminal.size)
        if not self.is_live or not width or not height or size == self._sent_size or self._resize_timer is not None:
            return
        wait_s = self._sent_at + RESIZE_S - time.monotonic()
        if wait_s > 0:
            self._resize_timer = start_timer(self, wait_s, self._send_size_later)
            return
        self._sent_size, self._sent_at = (width, height), time.monotonic()
        self._link.send(Focus(session=self.session, columns=width, rows=height))

    def _send_size_later(self) -> None:
        self._resize_timer = None
        self._send_size()

    def _read_key_pressed(self) -> None:
        self.post_message(self.ReadWanted(self.session, self.terminal.scrolled))

    def _leave_key_pressed(self) -> None:
        self.post_message(self._LeaveKeyPressed())

    def on_focus_view__leave_key_pressed(self, message: _LeaveKeyPressed) -> None:
        message.stop()
        if self.is_left:  # not entered again meanwhile
            self.leave()

    def on_descendant_blur(self) -> None:
        if self.is_live and self.app.app_focus and self.screen.is_active and not self.terminal.has_focus:
            self.leave()

    def on_click(self, event: events.Click) -> None:
        if event.widget is not self.bar:
            return
        event.stop()
        match self.bar.part_at(event.x):
            case "leave":
                self.leave()
            case "read":
                self._read_key_pressed()
            case _ if self.bar.waiting:
                self.post_message(self.WaitingClicked())

    def on_key(self, event: events.Key) -> None:
        """Without a tap: send the bytes of Textual's key."""
        if self.is_live and self._tap is None:
            self._send_key(event)

    def send_early_key(self, event: events.Key) -> bool:
        """Send a key that Textual read before the tap was open; false if it is not this terminal's."""
        if not self.is_live or self._tap is None or self.is_left:
            return False
        self._send_key(event)
        return True

    def _send_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        data = encode_key(event.key, event.character)
        if any(key.pressed_by(data) for key in self._leave_keys):
            self.leave()
        elif data == SHIFT_HOME and not self.terminal.modes.alternate:
            self._input_sender.read()
        elif data:
            self._input_sender.send_keys(data)

    def on_paste(self, event: events.Paste) -> None:
        if self.is_live and self._tap is None and event.text:
            event.stop()
            self._input_sender.paste(event.text)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        if self.is_live and self._tap is None:
            event.stop()
            self._input_sender.scroll(WHEEL_LINES)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        if self.is_live and self._tap is None:
            event.stop()
            self._input_sender.scroll(-WHEEL_LINES)


def _describe_requests(count: int) -> str:
    if not count:
        return ""
    return "1 pending request" if count == 1 else f"{count} pending requests"
