"""Drives a hub on a running loop: reads tmux's output, writes pending input, ticks once a second."""

import asyncio
from typing import Final

from kasmon.tmux.control.client import ControlClient
from kasmon.tmux.hub import TICK_S, Hub

REST_S: Final = 0.015
"""The read interval while no echo or answer is awaited: batched reads cost half."""


class HubPump:
    """Drives *hub* between `begin`, when it is open, and `stop`. All on one loop and in its thread."""

    def __init__(self, hub: Hub) -> None:
        self.hurried = 0
        """Users who wait for each echo. Call `stir` after a change."""
        self.has_read = False
        """Set by callbacks that receive something from the hub."""
        self._hub = hub
        self._loop: asyncio.AbstractEventLoop
        self._client: ControlClient
        self._fds: tuple[int, int] | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._resting: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start to drive the hub, which is open."""
        self._loop = asyncio.get_running_loop()
        self._client = self._hub.client
        self._fds = self._client.fileno(), self._client.write_fileno()
        self._loop.add_reader(self._fds[0], self._read_hub)
        self._read_hub()
        self._tick()

    def stop(self) -> None:
        """Stop driving the hub: it is gone, or will be closed. Idempotent."""
        for timer in (self._ticking, self._resting):
            if timer is not None:
                timer.cancel()
        self._ticking = self._resting = None
        if self._fds is not None:
            self._loop.remove_reader(self._fds[0])
            self._loop.remove_writer(self._fds[1])
            self._fds = None

    def stir(self) -> None:
        """Write what is pending, and read as soon as there is something to read."""
        if self._fds is None:
            return
        if self._client.wants_write():
            self._loop.add_writer(self._fds[1], self._flush_hub)
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
            self._loop.add_reader(self._fds[0], self._read_hub)

    def _read_hub(self) -> None:
        self._client.pump()
        if self._fds is None:
            return
        if self._client.wants_write():
            self._loop.add_writer(self._fds[1], self._flush_hub)
        if not (self.hurried or self._client.is_awaiting_answer or self._resting):
            self._loop.remove_reader(self._fds[0])
            self._resting = self._loop.call_later(REST_S, self._read_after_rest)

    def _read_after_rest(self) -> None:
        self.has_read = False
        self._client.pump()
        if self._resting is not None and self.has_read:
            self._resting = self._loop.call_later(REST_S, self._read_after_rest)
        else:
            self.stir()

    def _flush_hub(self) -> None:
        self._client.flush()
        if self._fds is not None and not self._client.wants_write():
            self._loop.remove_writer(self._fds[1])

    def _tick(self) -> None:
        if self._fds is not None:
            self._ticking = self._loop.call_later(TICK_S, self._tick)
            self._hub.tick()
            self.stir()
