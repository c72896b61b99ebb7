"""The process that resumes sessions after a usage limit: it holds a lock while it runs, and ends when none is left."""

import logging
from collections.abc import Sequence

from kasmon.config import load_or_default
from kasmon.errors import UsageError
from kasmon.host.rpc.locked_process import begin_process, run_work
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.limits.permission import is_resumer_needed
from kasmon.supervisor.limits.resumer import Resumer

log = logging.getLogger(__name__)


def main(argv: Sequence[str]) -> int:
    """Resume sessions until none is left; 0 also if another process does it."""
    if argv:
        return UsageError.exit_code
    here = begin_process()

    def is_over() -> bool:
        config = load_or_default(here, log.warning)
        return not is_resumer_needed(here, config, read_fleet(here).sessions)

    return run_work(here.limits, here.resumer_lock, lambda: Resumer(here).run(), is_over)
