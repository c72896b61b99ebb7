"""An event loop on one thread: files, ended children and timers; without a timer it blocks indefinitely."""

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable

READABLE = select.POLLIN
WRITABLE = select.POLLOUT
TICK_S = 0.2
"""Longest sleep while a timer is set: at most this much of a freeze may count towards it."""
FROZEN_S = 1.0
"""A process that slept this much longer than requested was frozen."""


class Timer:
    """A call to be made once, at a time of the monotonic clock."""

    __slots__ = ("act", "at")

    def __init__(self, at: float, act: Callable[[], None]) -> None:
        self.at, self.act = at, act


class EventLoop:
    """Calls the handler of a file when that is ready, and *reap* when a child ended.

    A handler may be called in vain, if its file's number was closed and reused: so files must be non-blocking.
    """

    def __init__(self, reap: Callable[[], None]) -> None:
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], object]] = {}
        self._timers: list[Timer] = []
        self._now = time.monotonic()
        self._reap = reap
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.watch(self._woken, self._wake)

    def watch(self, file: int, ready: Callable[[], object], events: int = READABLE) -> None:
        """Call *ready* whenever *file* is ready; replaces the earlier handler of *file*."""
        self._handlers[file] = ready
        self._poll.register(file, events)

    def forget(self, file: int) -> None:
        """Stop watching *file*; to be called before it is closed."""
        if self._handlers.pop(file, None):
            with contextlib.suppress(OSError, KeyError):
                self._poll.unregister(file)

    def after(self, seconds: float, act: Callable[[], None]) -> Timer:
        """Call *act* once, after *seconds*."""
        timer = Timer(time.monotonic() + seconds, act)
        self._timers.append(timer)
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """Cancel *timer*, unless it was called already."""
        if timer in self._timers:
            self._timers.remove(timer)

    def run(self) -> None:
        """Run forever. Timers do not advance while the whole process is frozen."""
        while True:
            self._postpone_timers(0.0)
            limit_s = None
            if self._timers:
                limit_s = min(TICK_S, max(0.0, min(timer.at for timer in self._timers) - self._now))
            ready = self._poll.poll(None if limit_s is None else limit_s * 1000 + 1)
            self._postpone_timers(limit_s)
            for file, _ in ready:
                if handler := self._handlers.get(file):
                    self._call(handler)
            self._postpone_timers(0.0)
            for timer in [timer for timer in self._timers if timer.at <= self._now]:
                if timer in self._timers:  # an earlier one may have cancelled it
                    self._timers.remove(timer)
                    self._call(timer.act)

    def _call(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - a bug here must not end the interpreters
            print(f"internal error in the guest program: {error!r}", file=sys.stderr)  # noqa: T201

    def _postpone_timers(self, slept_s: float | None) -> None:
        """Postpone all timers by the time since the last call that *slept_s* does not explain."""
        before, self._now = self._now, time.monotonic()
        if slept_s is not None and self._now - before > slept_s + FROZEN_S:
            for timer in self._timers:
                timer.at += self._now - before - slept_s

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._woken, 4096):
                pass
        self._reap()
