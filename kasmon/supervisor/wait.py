"""Wait until sessions are in a state that somebody waits for."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import cast

from kasmon.errors import SessionEndedError, SessionNotFoundError, TimedOutError
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.state import ALIVE, SessionState
from kasmon.paths import Places
from kasmon.supervisor.watch import FleetWatch


async def wait_for(
    places: Places,
    sessions: Sequence[SessionId],
    states: Collection[SessionState],
    *,
    any: bool = False,  # noqa: A002  # the word of the command line
    timeout_s: float | None = None,
) -> tuple[Session, ...]:
    """The *sessions* that are in one of *states*, as soon as all of them are, or with *any* one of them.

    Raises:
        SessionNotFoundError: if one is not there, or is forgotten meanwhile.
        SessionEndedError: if it cannot come true any more, since an agent that would have to do it does not run.
        TimedOutError: if it did not come true within *timeout_s* seconds.
    """
    watch = FleetWatch(places, writes=False)
    try:
        async with asyncio.timeout(timeout_s):
            async with contextlib.aclosing(cast("AsyncGenerator[Fleet, None]", watch.changes())) as fleets:
                async for fleet in fleets:
                    there = _there(fleet, sessions, states, any)
                    if there:
                        return there
    except TimeoutError as error:
        raise TimedOutError(
            f"waited {timeout_s:g} s for {', '.join(sessions)} to be {' or '.join(sorted(states))}.",
            hint="See `kasmon ls`.",
        ) from error
    finally:
        watch.close()
    raise AssertionError("the changes of a fleet never end")


def _there(
    fleet: Fleet, wanted: Sequence[SessionId], states: Collection[SessionState], one_will_do: bool
) -> tuple[Session, ...]:
    sessions = [fleet.get(session) for session in wanted]
    for session, name in zip(sessions, wanted, strict=True):
        if session is None:
            raise SessionNotFoundError(name)
    known = [session for session in sessions if session is not None]
    there = tuple(session for session in known if session.state in states)
    if len(there) == len(known) or (one_will_do and there):
        return there
    gone = [session for session in known if session.state not in ALIVE and session.state not in states]
    if len(gone) == len(known) or (gone and not one_will_do):
        raise SessionEndedError(gone[0].name)
    return ()
