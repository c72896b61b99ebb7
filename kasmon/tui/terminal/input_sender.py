"""Send keys, pastes and scrolling from the thread that reads stdin to the focused session."""

import threading
from collections.abc import Callable
from typing import Final

from kasmon.host.rpc.frames import Paste, Scroll, SendKeys
from kasmon.model.permission import SessionId
from kasmon.tui.terminal.link import TerminalLink

KEYS_BYTES: Final = 256
"""The longest piece that is sent as keys; tmux slows down with longer ones."""


class InputSender:
    """Sends input to one session, from any thread; tracks how far it is scrolled back."""

    def __init__(
        self,
        link: TerminalLink,
        session: SessionId,
        leave_key_pressed: Callable[[], object],
        read_key_pressed: Callable[[], object] = lambda: None,
    ) -> None:
        self.history = 0
        """How many lines of history there are."""
        self._link, self._session = link, session
        self._leave_key_pressed, self._read_key_pressed = leave_key_pressed, read_key_pressed
        self._up = 0
        self._lock = threading.Lock()

    def send_keys(self, data: bytes) -> None:
        """Send *data*, the bytes of keys, in pieces that tmux handles quickly."""
        self.scroll_to_bottom()
        for at in range(0, len(data), KEYS_BYTES):
            self._link.tell(SendKeys(session=self._session, data=data[at : at + KEYS_BYTES]))

    def paste(self, text: str) -> None:
        """Have tmux paste *text*, bracketed if the program enabled that."""
        self.scroll_to_bottom()
        self._link.tell(Paste(session=self._session, text=text))

    def scroll(self, lines: int) -> None:
        """Scroll back in the history by *lines*, as far as there is any; forward if negative."""
        with self._lock:
            up = max(min(self._up + lines, self.history), 0)
            if up != self._up:
                self._up = up
                self._link.tell(Scroll(session=self._session, up=up))

    def scroll_to_bottom(self) -> None:
        """Scroll to the end, where the response to typing appears."""
        with self._lock:
            if self._up:
                self._up = 0
                self._link.tell(Scroll(session=self._session, up=0))

    def read(self) -> None:
        self._read_key_pressed()

    def leave(self) -> None:
        self._leave_key_pressed()
