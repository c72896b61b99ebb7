"""The process that feeds watcher sessions: it holds a lock while it runs, and ends when no other session runs."""

import logging
from collections.abc import Sequence

from kasmon.config import load_or_default
from kasmon.errors import UsageError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.host.rpc.locked_process import begin_process, run_work
from kasmon.host.rpc.spawn import spawn_prompter
from kasmon.paths import Paths
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.watchers.feeder import Feeder, is_feeder_needed

log = logging.getLogger(__name__)


def start_feeder(places: Paths) -> None:
    """Start the process if the config has rules and none runs. Blocks.

    Raises:
        OSError: if it cannot be started.
    """
    if load_or_default(places).watch and lock_holder(places.feeder_lock) is None:
        spawn_prompter(places, "watch")


def main(argv: Sequence[str]) -> int:
    """Feed watchers until no other session runs; 0 also if another process does it."""
    if argv:
        return UsageError.exit_code
    here = begin_process()

    def is_over() -> bool:
        return not is_feeder_needed(load_or_default(here, log.warning), read_fleet(here))

    return run_work(here.watch, here.feeder_lock, lambda: Feeder(here).run(), is_over)
