"""The process of a plan's runner: it holds the plan's lock while it runs, and signals end it."""

import asyncio
import logging
import os
import re
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from kasmon.config import load_or_default
from kasmon.errors import PlanNotFoundError, UsageError
from kasmon.host.rpc.locked_process import begin_process, run_locked, run_until_signalled
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.plans.runner import PlanRunner

THREADS: Final = 256
"""How many blocking calls run at once: one that waits for a machine must not delay other tasks."""
LEAVE_S: Final = 3.0
"""How long blocking calls may go on after a signal, in seconds; one that waits for a machine may hang for minutes."""
ID: Final = re.compile(r"[a-z0-9_][a-z0-9_-]{0,63}")

log = logging.getLogger(__name__)


def main(argv: Sequence[str]) -> int:
    """Run the plan whose id is the only argument, until it ends; 0 also if another process runs it."""
    if len(argv) != 1 or not ID.fullmatch(argv[0]):
        sys.stderr.write("a plan runner requires the id of one plan.\n")
        return UsageError.exit_code
    here = begin_process()
    plan_log = PlanLog(here, argv[0])
    if not plan_log.folder.is_dir():
        sys.stderr.write(f"{PlanNotFoundError(argv[0])}\n")
        return PlanNotFoundError.exit_code

    def run() -> bool:
        plan_log.more()
        return asyncio.run(_run_until_ended(PlanRunner(here, plan_log, load_or_default(here, log.warning))))

    def is_over() -> bool:
        plan_log.more()
        return plan_log.run.is_stopped or plan_log.run.state == "ended"

    return run_locked(plan_log.lock, run, is_over)


async def _run_until_ended(runner: PlanRunner) -> bool:
    """Run until the plan ends or is stopped; True if a signal ended this process and the next runner continues.

    After a signal, a call that hangs ends with this process, which would hold the plan's lock until then.
    """
    threads = ThreadPoolExecutor(THREADS)
    asyncio.get_running_loop().set_default_executor(threads)
    if was_signalled := await run_until_signalled(runner.run()):
        ending = threading.Thread(target=threads.shutdown, daemon=True)
        ending.start()
        ending.join(LEAVE_S)
        if ending.is_alive():
            os._exit(0)
    return was_signalled
