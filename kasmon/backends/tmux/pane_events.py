"""Delivers pane events on the loop to their listeners, whatever thread the hub is pumped in."""

import asyncio
import threading
from collections.abc import Callable

from kasmon.backends.tmux.hub_pump import HubPump
from kasmon.tmux.hub import Hub

KEPT_BYTES, KEPT_PANES = 1 << 14, 64
"""The most output bytes retained for a pane without a listener, and the most such panes."""


class PaneListener:
    """The interface of a listener to one pane's events, which ignores them unless its methods are overridden.

    Its methods are called on the loop, and must not wait.
    """

    def handle_output(self, data: bytes) -> None:
        """Handle *data* that the pane printed; empty if output was missed."""

    def handle_exit(self, status: int | None, number: int | None) -> None:
        """Handle its program's end, with an exit code or a signal; with neither if tmux does not know."""

    def handle_close(self) -> None:
        """Handle that the pane no longer exists."""

    def handle_flood(self, is_off: bool) -> None:
        """Handle that its output is paused (*is_off*) because it floods, or resumed."""


class PaneListeners:
    """The listeners of each pane of *hub*, which *pump* drives."""

    def __init__(self, hub: Hub, pump: HubPump) -> None:
        self._hub, self._pump = hub, pump
        hub.on_output, hub.on_death = self._handle_output, self._handle_exit
        hub.on_closed, hub.on_flood = self._handle_close, self._handle_flood
        self._listeners: dict[str, list[PaneListener]] = {}
        self._unclaimed: dict[str, bytes] = {}
        self.loop: asyncio.AbstractEventLoop
        self._thread = 0

    def listen(self, pane: str, listener: PaneListener) -> None:
        """Report events of *pane* to *listener* from now on, beginning with its output before the first listener."""
        if (output := self._unclaimed.pop(pane, b"")) and pane not in self._listeners:
            self.loop.call_soon(listener.handle_output, output)  # not now: the listener may be half constructed
        self._listeners.setdefault(pane, []).append(listener)

    def unlisten(self, pane: str, listener: PaneListener) -> None:
        """Stop reporting to *listener*; idempotent."""
        listeners = self._listeners.get(pane, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners:
            self._listeners.pop(pane, None)

    def forget(self, pane: str) -> None:
        """Discard retained output of *pane*: another program is about to run in it."""
        self._unclaimed.pop(pane, None)

    def begin(self) -> None:
        """Record this loop, and its thread as the one in which listeners are called."""
        self.loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    @property
    def is_loop_thread(self) -> bool:
        return threading.get_ident() == self._thread

    def report_missed(self) -> None:
        """Report to all listeners that some output may have been missed."""
        for pane in list(self._listeners):
            self._handle_output(pane, b"")

    def _call_listeners(self, pane: str, call: Callable[[PaneListener], None]) -> None:
        if not self.is_loop_thread:
            self.loop.call_soon_threadsafe(self._call_listeners, pane, call)
            return
        self._pump.has_read = True
        for listener in tuple(self._listeners.get(pane, ())):
            call(listener)

    def _handle_output(self, pane: str, data: bytes) -> None:
        if not self.is_loop_thread:
            self.loop.call_soon_threadsafe(self._handle_output, pane, data)
            return
        if pane not in self._listeners:
            self._retain(pane, data)
        self._pump.has_read = True
        for listener in tuple(self._listeners.get(pane, ())):
            listener.handle_output(data)

    def _retain(self, pane: str, data: bytes) -> None:
        """Retain the first output of a pane without a listener: its agent is being constructed."""
        if len(retained := self._unclaimed.pop(pane, b"") + data) <= KEPT_BYTES:
            self._unclaimed[pane] = retained
        while len(self._unclaimed) > KEPT_PANES:
            del self._unclaimed[next(iter(self._unclaimed))]

    def _handle_exit(self, pane: str, status: int | None, number: int | None) -> None:
        self._call_listeners(pane, lambda listener: listener.handle_exit(status, number))

    def _handle_close(self, pane: str) -> None:
        self._call_listeners(pane, lambda listener: listener.handle_close())

    def _handle_flood(self, pane: str, is_off: bool) -> None:
        self._call_listeners(pane, lambda listener: listener.handle_flood(is_off))
