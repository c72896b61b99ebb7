"""The process of a plan's runner: under its lock from the beginning to the end, and ended by whoever wants to."""

import asyncio
import contextlib
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import Final

from kasmon.config import in_force
from kasmon.errors import KasmonError, PlanNotFoundError, UsageError
from kasmon.host import handed, own_log
from kasmon.host.alive import HostLock
from kasmon.paths import places
from kasmon.store.plan import PlanBook
from kasmon.supervisor.plans.runner import Runner

ID: Final = re.compile(r"[a-z0-9_][a-z0-9_-]{0,63}")

log = logging.getLogger(__name__)


def main(argv: Sequence[str]) -> int:
    """Run the plan whose id is the only argument, until it ends; 0 also if another process runs it."""
    if len(argv) != 1 or not ID.fullmatch(argv[0]):
        sys.stderr.write("a runner needs the id of one plan.\n")
        return UsageError.exit_code
    os.umask(0o077)
    own_log.keep()
    handed.take()
    here = places()
    book = PlanBook(here, argv[0])
    if not book.folder.is_dir():
        sys.stderr.write(f"{PlanNotFoundError(argv[0])}\n")
        return PlanNotFoundError.exit_code
    lock = HostLock(book.lock)
    if not lock.take():
        return 0
    try:
        book.more()
        asyncio.run(_until_told(Runner(here, book, in_force(here, log.warning))))
    except KasmonError as error:
        log.error("%s", error)
        return error.exit_code
    finally:
        lock.let_go()
    return 0


async def _until_told(runner: Runner) -> None:
    """Run until the plan ends, or somebody ends this process: the plan goes on with the next one."""
    running = asyncio.ensure_future(runner.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running
