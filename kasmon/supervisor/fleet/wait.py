"""Wait until sessions are in given states."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Sequence

from kasmon.errors import TimedOutError
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.supervisor.fleet.follower import GAP_S
from kasmon.supervisor.fleet.goal import find_matching
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.fleet.watch import FleetWatch


@contextlib.asynccontextmanager
async def fleets(paths: Paths, gap_s: float = GAP_S) -> AsyncIterator[AsyncIterator[Fleet]]:
    """Iterate over the current fleet and each later one (`FleetWatch.changes`) within the context. Writes nothing."""
    watch = FleetWatch(paths, writes=False)
    try:
        async with contextlib.aclosing(watch.changes(gap_s)) as changes:
            yield changes
    finally:
        watch.close()


async def wait_for(
    paths: Paths,
    sessions: Sequence[SessionId],
    states: Collection[SessionState],
    *,
    any: bool = False,  # noqa: A002  # noqa: A002  # as on the command line
    timeout_s: float | None = None,
) -> tuple[Session, ...]:
    """Wait until all *sessions*, or with *any* one of them, are in one of *states*; return those that are.

    A session with a prompt on its way, or in its turn, counts as idle only after that turn. The states are checked at
    least once, however short *timeout_s* is.

    Raises:
        SessionNotFoundError: if one does not exist, or is forgotten meanwhile.
        SessionEndedError, RefusedError: if the states cannot be reached any more, because a required agent does not
            run.
        TimedOutError: if they were not reached within *timeout_s* seconds.
    """
    fleet = await asyncio.to_thread(read_fleet, paths)
    if matching := find_matching(fleet, sessions, states, any):
        return matching
    try:
        async with asyncio.timeout(timeout_s), fleets(paths) as changes:
            async for fleet in changes:
                if matching := find_matching(fleet, sessions, states, any):
                    return matching
    except TimeoutError as error:
        names = ", ".join(repr(session.name) for session in map(fleet.get, sessions) if session is not None)
        raise TimedOutError(
            f"waited {timeout_s:g} s for {names} to be {' or '.join(sorted(states))}.", hint="See `kasmon ls`."
        ) from error
    raise AssertionError("the changes of a fleet never end")
