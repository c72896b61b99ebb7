"""Delivers what agents of a plan write to peers on other machines, for the plan's runner: an agent reaches no machine.

Each message is an event in the log of its sender's session, wherever that runs. The plan's log counts those delivered.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Final

from kasmon.errors import KasmonError, NotFoundError, RefusedError
from kasmon.model.fleet import Fleet
from kasmon.model.formatting import clock
from kasmon.model.permission import SessionId
from kasmon.model.plan.events import PeerMessageDelivered
from kasmon.model.plan.progress import ACTIVE, PlanRun
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.plans.peers.messages import read_messages, send, write_note

NOTES: Final = "notes"
"""Instead of a session: the notes of the plan."""
AGAIN_S: Final = 1.0
"""After this time, in seconds, the next attempt is made to deliver a message to a machine that was unreachable."""


def find_senders(run: PlanRun, fleet: Fleet) -> Iterator[Session]:
    """Yield the sessions of tasks that wrote messages which were not delivered yet."""
    for at in run.tasks.values():
        session = fleet.get(SessionId(at.session)) if at.session else None
        if session is not None and session.peer_messages > run.delivered.get(session.id, 0):
            yield session


async def deliver(paths: Paths, plan_log: PlanLog, sender: Session, fleet: Fleet) -> None:
    """Deliver the messages of *sender*, in their order, up to one whose recipient's machine is unreachable.

    A runner that is killed while it does that repeats the last one; its recipient takes it once, by its key.
    """
    events = await asyncio.to_thread(read_messages, paths, sender.id)
    for number, message in enumerate(events, 1):
        if number <= plan_log.run.delivered.get(sender.id, 0):
            continue
        state = why = ""
        try:
            if message.to == NOTES:
                await asyncio.to_thread(write_note, plan_log.notes, sender, message.text, clock(message.at))
            else:
                peer = _find_recipient(plan_log.run, fleet, message.to)
                if peer.is_unreachable:
                    await asyncio.sleep(AGAIN_S)
                    return
                key = f"{plan_log.run.plan}.{sender.id}.{number}"
                state = (await send(paths, sender, peer, message.text, key)).state
        except (KasmonError, OSError) as error:
            why = error.message if isinstance(error, KasmonError) else str(error.strerror)
        delivered = PeerMessageDelivered(
            at=time.time(), session=sender.id, number=number, to=message.to, state=state, why=why
        )
        await asyncio.to_thread(plan_log.note, delivered)


def _find_recipient(run: PlanRun, fleet: Fleet, to: str) -> Session:
    """Return the session of a task at work. Raises `KasmonError` if *to* is none."""
    if not any(at.session == to and at.state in ACTIVE for at in run.tasks.values()):
        raise RefusedError(f"{to!r} is no task of this plan that is at work.")
    peer = fleet.get(SessionId(to))
    if peer is None:
        raise NotFoundError(f"there is no session {to!r}.")
    return peer
