"""A process of which one runs at a time: it holds a lock while it works. A signal ends it, or the end of its work."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from kasmon.errors import KasmonError
from kasmon.host.journal import process_log
from kasmon.host.rpc import secret_stdin
from kasmon.host.rpc.host_lock import HostLock
from kasmon.paths import Paths, private_folder, user_paths

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The signals that ask a process to end."""

log = logging.getLogger(__name__)


def begin_process() -> Paths:
    """Prepare a detached process of kasmon: its log, its files' mode, its variables; return kasmon's folders."""
    os.umask(0o077)
    process_log.configure()
    secret_stdin.load_environment()
    return user_paths()


def run_work(
    folder: Path, lock_file: Path, work: Callable[[], Coroutine[Any, Any, object]], is_over: Callable[[], bool]
) -> int:
    """Run *work* as `run_locked` does, until it ends or a signal ends it; *folder* is its own, and is created."""
    private_folder(folder)
    return run_locked(lock_file, lambda: asyncio.run(run_until_signalled(work())), is_over)


def run_locked(lock_file: Path, run: Callable[[], bool], is_over: Callable[[], bool]) -> int:
    """Call *run* under the lock, again until *is_over*, and return the exit code; 0 also if another process holds it.

    Args:
        run: does the work; returns whether a signal ended it. An error of kasmon is logged and ends the process.
        is_over: whether nothing is left to do. It is asked once the lock is free: a command that saw it held relies on
            this.
    """
    while True:
        lock = HostLock(lock_file)
        if not lock.acquire():
            return 0
        try:
            was_signalled = run()
        except KasmonError as error:
            log.error("%s", error)
            return error.exit_code
        finally:
            lock.let_go()
        if was_signalled or is_over():
            return 0


class StopSignal:
    """The first signal that asks this process to end. Create it on the event loop."""

    def __init__(self) -> None:
        self.received = asyncio.Event()
        self.number = 0
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._receive, number)

    def _receive(self, number: int) -> None:
        self.number = self.number or number
        self.received.set()


async def run_until_signalled(work: Coroutine[Any, Any, object]) -> bool:
    """Run *work*; return whether a signal ended it. Raises what *work* raises."""
    running = asyncio.ensure_future(work)
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    await asyncio.wait([running])
    if not running.cancelled():
        running.result()
    return running.cancelled()
