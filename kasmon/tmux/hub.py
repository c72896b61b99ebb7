"""`Hub`: one control client that receives the output of all panes of our server; every window is linked to it."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from kasmon.errors import KasmonError, TmuxCommandError, TmuxServerGoneError
from kasmon.tmux.control import requests as ask
from kasmon.tmux.control.client import ControlClient
from kasmon.tmux.control.protocol import NoticeItem
from kasmon.tmux.control.requests import TmuxRequest
from kasmon.tmux.flood_control import FloodControl
from kasmon.tmux.formats import HUB, PaneFacts, distinct, orphans
from kasmon.tmux.pane_deaths import PaneDeaths
from kasmon.tmux.quoting import ID, exact, quote_text
from kasmon.tmux.server import TmuxServer, build_run_error

Answer = TypeVar("Answer")
OnDone = Callable[[Answer | KasmonError], None]

PAUSE_AFTER_S = 1
"""How far behind we may be before tmux skips a pane's output. Until then tmux buffers it in its memory."""

TICK_S = 1.0
"""How often the owner of a hub calls `tick`."""

DEAD_FORMAT = "#{W:#{P:#{pane_pid}#{?pane_dead,d,} }}"
"""The format that tmux compares once a second, kept short. The pid tells a second death from the first."""

OWN_IDS = "#{session_id} #{window_id} #{pane_id}"

LOOK_AGAIN = frozenset({"subscription-changed", "window-close", "unlinked-window-close", "sessions-changed"})


class Hub:
    """Reports the output, the deaths and the removal of all panes of a tmux server, through one pipe.

    Set the callbacks, `open()`, then watch the pipes of `client` and call its `pump()`, and `tick()` once a second.
    Only `open`, `call` and `close` block. After `on_exit`, `open()` tries again, and raises if the server is gone.
    """

    def __init__(self, server: TmuxServer, clock: Callable[[], float] = time.monotonic) -> None:
        self.server = server
        self._client: ControlClient | None = None
        self.on_output: Callable[[str, bytes], None] = lambda pane, data: None
        """A pane printed *data*. Empty data: the pane is new here, or output was skipped; capture the pane."""
        self.on_death: Callable[[str, int | None, int | None], None] = lambda pane, status, number: None
        """A pane's program ended, with an exit code or a signal; with neither if tmux does not know."""
        self.on_closed: Callable[[str], None] = lambda pane: None
        """A pane no longer exists."""
        self.on_flood: Callable[[str, bool], None] = lambda pane, is_off: None
        """An unwatched pane prints too much: its output is skipped while *is_off*. Capture it now and then."""
        self.on_exit: Callable[[], None] = lambda: None
        """tmux ended the connection."""
        self._clock = clock
        self.server_pid = 0
        """The pid of the tmux server that we are attached to."""
        self._own_pane = self._own_window = self._session = ""
        self._watched: frozenset[str] = frozenset()
        self._focused: tuple[str, ...] = ()
        self._keeper: ControlClient | None = None
        self._floods = FloodControl()
        self._deaths = PaneDeaths()
        self._is_listing = self._list_again = False

    @property
    def is_open(self) -> bool:
        """Whether a control client is running and connected."""
        return self._client is not None and self._client.is_open

    @property
    def client(self) -> ControlClient:
        """Its open control client. Raises `TmuxServerGoneError` if it is not open."""
        if self._client is None:
            raise TmuxServerGoneError(str(self.server.socket))
        return self._client

    def submit(self, request: TmuxRequest[Answer], on_done: OnDone[Answer] | None = None) -> None:
        """Send a request of `control.requests`; *on_done* receives its answer, or the error instead of one."""
        if self._client is not None:
            self._client.submit(request, on_done)
        elif on_done:
            on_done(TmuxServerGoneError(str(self.server.socket)))

    def call(self, request: TmuxRequest[Answer], limit_s: float = 10.0) -> Answer:
        """Send *request*, wait for its answer and return it.

        Raises:
            TmuxServerGoneError, TmuxCommandError: if no answer comes.
            KasmonError: if the answer is a refusal.
        """
        return self.client.call(request, limit_s)

    def open(self) -> None:
        """Attach, link every window, and report the panes that are dead already; idempotent.

        Raises:
            TmuxServerGoneError: if the server does not run.
            TmuxCommandError: if tmux refuses.
        """
        if self.is_open:
            return
        self.close()
        with contextlib.suppress(TmuxCommandError):  # the session exists already
            self.server.run(
                "new-session", "-d", "-s", HUB, "-n", HUB, "-c", "/", "--", "/bin/sh", "-c", "exec cat >/dev/null"
            )
        self._own_pane = self._own_window = self._session = ""
        self._deaths, self._is_listing, self._list_again = PaneDeaths(), False, False
        try:
            self._client = self._attach_client("-f", f"ignore-size,pause-after={PAUSE_AFTER_S}", "-t", f"={HUB}")
            self._client.on_output, self._client.on_notice = self._handle_output, self._handle_notice
            self._client.on_exit = lambda: self.on_exit()
            self._ensure_keeper()
            self._set_up()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End our clients; the server and its sessions keep running. Idempotent, bounded by a few seconds."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.close()
        for pane in self._floods.off:
            self.on_flood(pane, False)
        self._floods = FloodControl()

    def tick(self) -> None:
        """Resume panes whose flood pause has ended; check unexplained deaths again. Call it about once a second."""
        if not self.is_open:
            return
        with contextlib.suppress(KasmonError):  # our own client reports that the server is gone
            self._ensure_keeper()
        for pane in self._floods.due(self._clock()):
            self._resume_pane(pane)
        if self._list_again:
            self.refresh()

    def watch(self, panes: Iterable[str]) -> None:
        """Receive all output of these watched *panes*; all other panes have an output budget."""
        self._watched = frozenset(panes)
        for pane in self._floods.off & self._watched:
            if self._floods.listen(pane, self._clock()):
                self._resume_pane(pane)

    def focus(self, windows: Sequence[str]) -> None:
        """Set the *windows* that users have entered, the latest last; empty if they left all.

        tmux reports focus to a program that asked for focus events (`?1004`) while a client's current window is its
        own. Our client's current window is therefore the window entered last, or else the hub's own.
        """
        self._focused = tuple(windows)
        if self._session:
            self._select_window()

    def _select_window(self) -> None:
        window = self._focused[-1] if self._focused else self._own_window
        self.submit(ask.command(f"select-window -t {exact(self._session)}:{exact(window)}"))

    def refresh(self) -> None:
        """List all panes; report new deaths and removed panes; end windows that only the hub still holds."""
        if self._is_listing:
            self._list_again = True
            return
        self._is_listing, self._list_again = True, False
        self.submit(ask.all_panes(), self._handle_listing)

    def _handle_listing(self, panes: list[PaneFacts] | KasmonError) -> None:
        self._is_listing = False
        if isinstance(panes, KasmonError):
            return
        for window in orphans(panes, self._own_window):
            self.submit(ask.kill_window(window))
        changes = self._deaths.compare(distinct(panes))
        if changes.unexplained:
            self._wake_server()
        again = self._list_again
        for pane in changes.appeared:
            self.on_output(pane, b"")
        for pane in changes.closed:
            self._floods.forget(pane)
            self.on_closed(pane)
        for death in changes.deaths:
            self.on_death(death.pane, death.status, death.signal)
        self._list_again = self._list_again or changes.unexplained
        if again or changes.at_once:
            self.refresh()

    def _wake_server(self) -> None:
        """Send SIGCHLD to the server, so that it reaps its dead children: tmux sometimes misses the signal."""
        with contextlib.suppress(OSError):
            os.kill(self.server_pid, signal.SIGCHLD)

    def _set_up(self) -> None:
        answer_lines = self.call(  # the hub's first window is its own; the current one may be an agent's
            ask.command(f"display-message -t '={HUB}:^' -p '#{{pid}} #{{client_name}} {OWN_IDS}'")
        )
        pid, client, self._session, self._own_window, self._own_pane = answer_lines[0].decode("ascii").split(" ")
        self.server_pid = int(pid)
        for window in self._list_unlinked():
            self._link_window(window)
        self._select_window()
        self.submit(ask.command(f"refresh-client -B {quote_text('dead::' + DEAD_FORMAT)}"))
        # A hook cannot notify us, but it can pause our own pane, and tmux reports that at once.
        signal_us = f"refresh-client -t {quote_text(client)} -A {quote_text(f'{self._own_pane}:pause')}"
        self.submit(ask.command(f"set-hook -g pane-died {quote_text(signal_us)}"))
        self.refresh()
        self.call(ask.command("display-message -p settled"))

    def _list_unlinked(self) -> list[str]:
        lines = self.call(ask.command("list-windows -a -F '#{session_id} #{window_id}'"))
        pairs = [line.decode("ascii").split(" ") for line in lines]
        linked = {window for session, window in pairs if session == self._session}
        return sorted({window for _, window in pairs} - linked, key=lambda window: int(window[1:]))

    def _link_window(self, window: str) -> None:
        self.submit(ask.command(f"link-window -d -s {exact(window)} -t {exact(self._session)}:"))

    def _handle_output(self, pane: str, data: bytes) -> None:
        if pane == self._own_pane:
            return
        if pane not in self._watched and self._floods.overflows(pane, len(data), self._clock()):
            # Not `off`: if we were the only client, tmux would stop reading from the pane, which blocks its program.
            self._set_flow(pane, "pause")
            self.on_flood(pane, True)
        self.on_output(pane, data)

    def _handle_notice(self, notice: NoticeItem) -> None:
        if not self._session:
            return  # `_set_up` is not done; it finds in its lists what changed before
        first = notice.rest.split(b" ")[0].decode("ascii", "replace")
        if notice.kind == "unlinked-window-add" and ID.fullmatch(first):
            self._link_window(first)
            self.refresh()
        elif notice.kind == "pause" and ID.fullmatch(first) and first not in self._floods.off:
            self._set_flow(first, "continue")
            if first == self._own_pane:
                self.refresh()
            else:
                self.on_output(first, b"")
        elif notice.kind in LOOK_AGAIN:
            self.refresh()

    def _resume_pane(self, pane: str) -> None:
        self._set_flow(pane, "continue")
        self.on_flood(pane, False)
        self.on_output(pane, b"")

    def _set_flow(self, pane: str, state: str) -> None:
        self.submit(ask.command(f"refresh-client -A {quote_text(f'{exact(pane)}:{state}')}"))

    def _ensure_keeper(self) -> None:
        """Ensure that a second, silent client is attached, and discard what it receives.

        tmux stops reading from a pane, and so blocks its program, when no attached client can take more of its output.
        A hanging host would thus block every agent. This client takes no output: tmux reads on and skips ours instead.
        """
        if self._keeper is not None:
            if self._keeper.pump():
                return
            self._keeper.close()
        self._keeper = self._attach_client("-f", "ignore-size,no-output", "-t", f"={HUB}")

    def _attach_client(self, *options: str) -> ControlClient:
        """Start another control client, attached with *options*.

        Raises:
            TmuxServerGoneError: if there is no server, or no such session.
            TmuxCommandError: if tmux cannot be run, or does not answer.
        """
        server = self.server
        argv = [server.program, "-u", "-N", "-S", str(server.socket), "-C", "attach-session", *options]
        with server.quiet():
            try:
                client = ControlClient(argv, server.environment, str(server.socket))
            except OSError as error:
                raise build_run_error("attach-session", error) from error
            try:
                client.wait_until_attached()
            except BaseException:
                client.close()
                raise
        return client
