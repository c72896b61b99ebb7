"""The process of a plan's runner: it holds the plan's lock while it runs, and signals end it."""

import asyncio
import contextlib
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import Final

from kasmon.config import load_or_default
from kasmon.errors import KasmonError, PlanNotFoundError, UsageError
from kasmon.host.journal import process_log
from kasmon.host.rpc import secret_stdin
from kasmon.host.rpc.host_lock import HostLock
from kasmon.paths import places
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.plans.runner import PlanRunner

ID: Final = re.compile(r"[a-z0-9_][a-z0-9_-]{0,63}")

log = logging.getLogger(__name__)


def main(argv: Sequence[str]) -> int:
    """Run the plan whose id is the only argument, until it ends; 0 also if another process runs it."""
    if len(argv) != 1 or not ID.fullmatch(argv[0]):
        sys.stderr.write("a plan runner requires the id of one plan.\n")
        return UsageError.exit_code
    os.umask(0o077)
    process_log.configure()
    secret_stdin.load_environment()
    here = places()
    plan_log = PlanLog(here, argv[0])
    if not plan_log.folder.is_dir():
        sys.stderr.write(f"{PlanNotFoundError(argv[0])}\n")
        return PlanNotFoundError.exit_code
    while True:
        lock = HostLock(plan_log.lock)
        if not lock.acquire():
            return 0
        try:
            plan_log.more()
            was_signalled = asyncio.run(
                _run_until_ended(PlanRunner(here, plan_log, load_or_default(here, log.warning)))
            )
        except KasmonError as error:
            log.error("%s", error)
            return error.exit_code
        finally:
            lock.let_go()
        plan_log.more()  # a `resume` of a stopped plan that saw the lock still held relies on this
        if was_signalled or plan_log.run.is_stopped or plan_log.run.state == "ended":
            return 0


async def _run_until_ended(runner: PlanRunner) -> bool:
    """Run until the plan ends or is stopped; True if a signal ended this process and the next runner continues."""
    running = asyncio.ensure_future(runner.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return running.cancelled()
