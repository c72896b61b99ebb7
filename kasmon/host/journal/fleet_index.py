"""The fleet's index, written by a process that has just read much of the logs, unless a dashboard maintains it."""

import contextlib
from typing import Final

from kasmon.errors import UnavailableError
from kasmon.host.rpc.host_lock import HostLock
from kasmon.paths import Paths
from kasmon.store.fleet_cache import FleetCache, load_cache
from kasmon.store.fleet_index import FleetIndex

MUCH_BYTES: Final = 4 << 20
"""Reading this much of the logs takes about 0.1 s, enough to be worth indexing."""


def save_index(paths: Paths, fold: FleetIndex) -> bool:
    """Write the state of *fold* to the index, unless another process holds `fleet.lock`; whether it was written."""
    lock, index = HostLock(paths.fleet_lock), FleetCache(paths.index)
    try:
        return lock.acquire(wait_s=0) and index.write(fold, fold.sessions, ())
    except (OSError, UnavailableError):  # without an index the next reader takes longer, no more
        return False
    finally:
        index.close()
        lock.let_go()


def refresh_index(paths: Paths) -> None:
    """Read what the logs have beyond the index, and update the index if that was much. Blocks."""
    fold = FleetIndex(paths)
    load_cache(paths.index, fold)
    with contextlib.suppress(OSError):
        fold.read_fleet()
    for session in list(fold.sessions):
        with contextlib.suppress(OSError):
            fold.read_session(session)
    if fold.folded_bytes:
        save_index(paths, fold)
