"""What panes do, told on the loop to whoever listens to them, in whatever thread the hub is pumped."""

import asyncio
import threading
from collections.abc import Callable

from kasmon.backends.tmux.hub_pump import HubPump
from kasmon.tmux.hub import Hub

KEPT_BYTES, KEPT_PANES = 1 << 14, 64
"""So much of what so many panes print is kept until somebody listens to them."""


class PaneListener:
    """Somebody who wants to know what one pane does. Its methods are called on the loop, and must not wait."""

    def printed(self, data: bytes) -> None:
        """The pane printed *data*; empty data says that some output was not heard."""

    def died(self, status: int | None, number: int | None) -> None:
        """Its program ended, with an exit code or a signal; with neither if tmux does not know."""

    def closed(self) -> None:
        """The pane is not there any more."""

    def flooded(self, is_off: bool) -> None:
        """It prints so much that its output is not heard while *is_off*."""


class PaneListeners:
    """Who listens to which pane of *hub*, which *pump* drives."""

    def __init__(self, hub: Hub, pump: HubPump) -> None:
        self._hub, self._pump = hub, pump
        hub.on_output, hub.on_death = self._printed, self._died
        hub.on_closed, hub.on_flood = self._closed, self._flooded
        self._listeners: dict[str, list[PaneListener]] = {}
        self._unheard: dict[str, bytes] = {}
        self._loop: asyncio.AbstractEventLoop
        self._thread = 0

    def listen(self, pane: str, listener: PaneListener) -> None:
        """From now on tell *listener* what *pane* does, and first what it printed while nobody listened."""
        if (said := self._unheard.pop(pane, b"")) and pane not in self._listeners:
            self._loop.call_soon(listener.printed, said)  # not now: the listener may be half made
        self._listeners.setdefault(pane, []).append(listener)

    def unlisten(self, pane: str, listener: PaneListener) -> None:
        """Tell it no more; idempotent."""
        listeners = self._listeners.get(pane, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners:
            self._listeners.pop(pane, None)

    def forget(self, pane: str) -> None:
        """What *pane* printed until now is nobody's: another program is about to run in it."""
        self._unheard.pop(pane, None)

    def _begin(self) -> None:
        """This is the loop, and its thread the one in which listeners are told."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    @property
    def _is_here(self) -> bool:
        """Whether this is the loop's thread."""
        return threading.get_ident() == self._thread

    def _missed(self) -> None:
        """Some output of each pane may not have been heard: say so."""
        for pane in list(self._listeners):
            self._printed(pane, b"")

    def _each(self, pane: str, tell: Callable[[PaneListener], None]) -> None:
        if not self._is_here:
            self._loop.call_soon_threadsafe(self._each, pane, tell)
            return
        self._pump.has_read = True
        for listener in tuple(self._listeners.get(pane, ())):
            tell(listener)

    def _printed(self, pane: str, data: bytes) -> None:
        if not self._is_here:
            self._loop.call_soon_threadsafe(self._printed, pane, data)
            return
        if pane not in self._listeners:
            self._keep(pane, data)
        self._each(pane, lambda listener: listener.printed(data))

    def _keep(self, pane: str, data: bytes) -> None:
        """Keep the first words of a pane that nobody listens to yet: its agent is being made."""
        if len(kept := self._unheard.pop(pane, b"") + data) <= KEPT_BYTES:
            self._unheard[pane] = kept
        while len(self._unheard) > KEPT_PANES:
            del self._unheard[next(iter(self._unheard))]

    def _died(self, pane: str, status: int | None, number: int | None) -> None:
        self._each(pane, lambda listener: listener.died(status, number))

    def _closed(self, pane: str) -> None:
        self._each(pane, lambda listener: listener.closed())

    def _flooded(self, pane: str, is_off: bool) -> None:
        self._each(pane, lambda listener: listener.flooded(is_off))
