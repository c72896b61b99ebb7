"""Replay everything that ran in one sandbox in a new one, on the user's request."""

import asyncio
import time

import msgspec

from kasmon.errors import SessionNotFoundError
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.supervisor.fleet.snapshot import look_once
from kasmon.supervisor.sandboxes import operations
from kasmon.supervisor.sandboxes.create import made_known, policy_of_session
from kasmon.supervisor.sessions.names import proper
from kasmon.supervisor.sessions.start import begin


async def replayed(places: Paths, session: Session, name: str, until: str = "") -> str:
    """Create a sandbox called *name*, like that of *session*, and run in it what ran there until checkpoint *until*;
    return a summary. It starts without files. A run that fails does not stop the next ones.

    Raises:
        NotFoundError: if there is no such checkpoint.
        UnableError: if *session* is no interpreter sandbox.
        KasmonError: as `operations.create` and `operations.run` raise.
    """
    codes = await asyncio.to_thread(operations.history, places, session, until)
    known = await asyncio.to_thread(policy_of_session, places, session.id)
    policy = msgspec.structs.replace(known, workspace="")
    launch = await asyncio.to_thread(made_known, places, proper(name), policy, time.time())
    await begin(places, launch)
    new = (await asyncio.to_thread(look_once, places)).get(launch.session)
    if new is None:
        raise SessionNotFoundError(launch.session)
    failed = 0
    for interpreter, code in codes:
        failed += bool((await operations.run(places, new, interpreter, code)).exit_code)
    ran = "1 run" if len(codes) == 1 else f"{len(codes)} runs"
    return f"{name}: {ran} replayed" + (f", {failed} ended with an error" if failed else "")
