"""A small dashboard: a terminal that has the focus from the start; every wish it tells is written to a file.

SIGUSR1 opens a dialog, which Enter closes; on SIGUSR2 it is stopped in the middle of a write. Outside of the terminal,
Alt+V asks for the picture in the clipboard.
"""

import asyncio
import json
import signal
import sys
import threading
from pathlib import Path

from textual import events
from textual.app import App, ComposeResult
from textual.screen import ModalScreen
from textual.widgets import Static

from kasmon.host.rpc.frames import Focus, Paste, Scroll, SendKeys, TerminalCursor, TerminalModes, TerminalRows
from kasmon.model.permission import SessionId
from kasmon.tui.process import shutdown
from kasmon.tui.process.shutdown import exit_on_signals
from kasmon.tui.terminal.link import TerminalCommand
from kasmon.tui.terminal.view import FocusView
from kasmon.tui.textual_ext.driver import TapDriver

SESSION = SessionId("abcdefgh")


class Notes:
    """A link that writes down what it is told, a line each, before it returns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def note(self, kind: str, value: object) -> None:
        self._file.write(json.dumps([kind, value]) + "\n")

    def send(self, command: TerminalCommand) -> None:
        match command:
            case SendKeys():
                self.note("keys", command.data.hex())
            case Paste():
                self.note("paste", command.text)
            case Scroll():
                self.note("scroll", command.up)
            case Focus():
                self.note("focus", [command.columns, command.rows])
            case _:
                self.note(type(command).__name__.lower(), None)


class Dialog(ModalScreen[None]):
    def on_mount(self) -> None:
        assert isinstance(self.app, Tapped)
        self.notes = self.app.notes
        self.notes.note("dialog", None)

    def on_key(self, event: events.Key) -> None:
        event.stop()
        self.notes.note("dialog-key", event.key)
        if event.key == "enter":
            self.dismiss()


class Tapped(App[None]):
    CSS = "#side { height: 3; }"

    deaf = False
    """Nobody reads its terminal."""
    sticks = False
    """Its loop stands still once USR1 comes."""

    def __init__(self, notes: Path, modes: TerminalModes, history: int = 0, is_kept_clean: bool = True) -> None:
        super().__init__(driver_class=TapDriver)
        self.notes, self.modes, self.history, self.is_kept_clean = Notes(notes), modes, history, is_kept_clean

    def compose(self) -> ComposeResult:
        yield Static("dashboard", id="side")
        yield FocusView(self.notes, SESSION)

    def on_mount(self) -> None:
        if self.is_kept_clean:
            exit_on_signals(self, lambda: self.notes.note("suspended", None))
        call, asked = asyncio.get_running_loop().call_soon_threadsafe, self._stand_still if self.sticks else self._ask
        signal.signal(signal.SIGUSR1, lambda *_: call(asked))
        signal.signal(signal.SIGUSR2, lambda *_: call(self._stop_in_the_middle))
        view = self.query_one(FocusView)
        view.terminal.show(
            TerminalRows(
                session=SESSION,
                columns=80,
                height=20,
                changed=((0, "ready to type"),),
                cursor=TerminalCursor(5, 0, True),
                modes=self.modes,
                full=True,
                history=self.history,
            )
        )
        self.call_after_refresh(self._enter)

    def _enter(self) -> None:
        self.query_one(FocusView).enter()
        if self.deaf:
            assert self._driver is not None
            self._driver.disable_input()
        self.call_after_refresh(lambda: self.notes.note("live", None))

    def _ask(self) -> None:
        self.call_later(self._open_dialog)

    def _stand_still(self) -> None:
        """The loop runs no more."""
        self.notes.note("stuck", None)
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

    async def _open_dialog(self) -> None:
        await self.push_screen(Dialog())

    def _stop_in_the_middle(self) -> None:
        assert isinstance(self._driver, TapDriver)
        assert self._driver._writer_thread is not None
        with self._driver._writer_thread._queue.mutex:
            signal.raise_signal(signal.SIGTSTP)

    def on_focus_view_left(self) -> None:
        self.notes.note("left", None)

    def on_key(self, event: events.Key) -> None:
        self.notes.note("textual", event.key)
        if event.key == "alt+v":
            assert isinstance(self._driver, TapDriver)
            self._driver.read_clipboard(lambda picture, problem: self.notes.note("picture", [picture.hex(), problem]))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self.notes.note("mouse", [event.screen_x, event.screen_y])

    def on_app_blur(self) -> None:
        self.notes.note("app-blur", None)


if __name__ == "__main__":
    asked = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    tapped = Tapped(
        Path(sys.argv[1]), TerminalModes(**asked.get("modes", {})), asked.get("history", 0), asked.get("clean", True)
    )
    tapped.deaf = asked.get("deaf", False)
    tapped.sticks = asked.get("sticks", False)
    shutdown.LAST_RESORT_S = asked.get("last_resort_s", 5.0)  # type: ignore[misc]  # the test waits for it
    tapped.run()
    sys.exit(tapped.return_code)
