"""What tests ask of a server and do to its panes, and wait for; kasmon asks on a loop, by
`backends/tmux/server_connection`."""

import os
import select
import signal
import time

from kasmon.errors import KasmonError, TmuxCommandError
from kasmon.sanitize import outgoing
from kasmon.tmux import formats
from kasmon.tmux.control import requests as ask
from kasmon.tmux.hub import Hub, OnDone
from kasmon.tmux.quoting import exact
from kasmon.tmux.server import TmuxServer

ABSENT = ("can't find", "no current", "no sessions")


class SyncHub(Hub):
    """A hub that can be asked for one thing after the other. Answers come to *on_done*, errors in their place."""

    def pump_for(self, limit_s: float) -> None:
        """Tell what comes within *limit_s*, all of that time, or until tmux ends the connection."""
        deadline = time.monotonic() + limit_s
        while self.client.pump() and (left_s := deadline - time.monotonic()) > 0:
            writing = [self.client.write_fileno()] if self.client.wants_write() else []
            if select.select([self.client.fileno()], writing, [], left_s)[1]:
                self.client.flush()

    @property
    def flooded(self) -> frozenset[str]:
        """The panes that are not heard now, because they print too much."""
        return self._floods.off

    def panes(self) -> list[formats.PaneFacts]:
        """Every pane of ours once, as it is now."""
        everywhere = self.call(ask.all_panes())
        return formats.distinct(everywhere)

    def cursor(self, pane: str, on_done: OnDone[formats.ScreenFacts]) -> None:
        self.submit(ask.screen_facts(pane), on_done)

    def keys(self, pane: str, data: bytes) -> None:
        """Type *data* into *pane*, whatever it shows."""
        for request in ask.keys(pane, data):
            self.submit(request)

    def press(self, pane: str, data: bytes, on_done: OnDone[None]) -> None:
        """Type at most 256 bytes into *pane*, or be refused as a whole."""
        self.submit(ask.press(pane, data), on_done)

    def paste(self, pane: str, text: str) -> None:
        """Put *text* into *pane* as one paste, cleaned as kasmon does, and wait until tmux has done it.

        Raises:
            PaneDeadError, PasteRefusedError, TmuxError: as it answers.
        """
        cleaned = outgoing(text).encode()
        if not cleaned:
            return
        buffer = self.server.load(cleaned)
        try:
            self.call(ask.paste(pane, buffer))
        except KasmonError:
            self.submit(ask.drop_buffer(buffer))
            raise

    def resize(self, window: str, width: int, height: int) -> None:
        """Give *window* a size, until a terminal looks at it, which then decides."""
        self.submit(ask.resize(window, width, height))

    def kill_window(self, window: str) -> None:
        """End *window* and its program; `on_closed` follows."""
        self.submit(ask.kill_window(window))


def panes_of(server: TmuxServer) -> list[formats.PaneFacts]:
    """Every pane of *server* once, as it is now, in the order in which they were made.

    Raises:
        TmuxServerGoneError: if it does not run.
    """
    lines = _unless_gone(server, "list-panes", "-a", "-F", formats.PANE_FACTS_FORMAT).splitlines()
    return formats.distinct([facts for line in lines if (facts := formats.read_pane_facts(line))])


def texts_of(server: TmuxServer, pane: str) -> formats.PaneText:
    """Title, directory and command of *pane*."""
    return formats.read_text(
        server.run("display-message", "-p", "-t", exact(pane), formats.TEXT_FORMAT).removesuffix(b"\n")
    )


def end_window(server: TmuxServer, window: str) -> None:
    """End *window* wherever it is linked, and its program; one that is gone already is no error."""
    _unless_gone(server, "kill-window", "-t", exact(window))


def _unless_gone(server: TmuxServer, *argv: str) -> bytes:
    """What *server* answers; nothing for what is not there any more."""
    try:
        return server.run(*argv)
    except TmuxCommandError as error:
        if error.reason.startswith(ABSENT):
            return b""
        raise


def have_all_ended(server: TmuxServer) -> bool:
    """Whether the program of every pane of *server* has ended, and it knows how.

    tmux sometimes misses SIGCHLD: a hub sends it again, and here there may be none.
    """
    if all(pane.has_exit_status for pane in panes_of(server)):
        return True
    os.kill(int(server.run("display-message", "-p", "#{pid}")), signal.SIGCHLD)
    return False
