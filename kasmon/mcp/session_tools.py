"""The tools of an agent that is a kasmon session: its task, its peers, and reporting the task as done."""

import asyncio
from typing import Any

import msgspec

from kasmon.model.fleet import peers_of
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.supervisor.fleet.lookup import find
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.plans.peers.context import context_of, now_of
from kasmon.supervisor.sessions import session_operations


class SessionTools:
    def __init__(self, paths: Paths, session: str) -> None:
        self._paths = paths
        self._id = session

    async def report_done(self, summary: str) -> dict[str, Any]:
        """Log its report that its task is done.

        Raises:
            KasmonError: why that could not be logged.
        """
        session = await asyncio.to_thread(self._session)
        await session_operations.declare(self._paths, session, done=summary)
        return {"noted": True, "done": summary}

    def task(self) -> dict[str, Any]:
        """Return its task. Blocks. Raises `NotFoundError` if it is not in the fleet."""
        session = self._session()
        result: dict[str, Any] = {
            "session": session.id,
            "name": session.name,
            "state": session.state.value,
            "plan": session.plan,
            "task": session.task,
            "wave": session.wave,
            "peers": session.peers,
            "waits": session.waits or None,
            "done": session.done,
        }
        context = context_of(self._paths, session.id)
        return result if context is None else result | {"title": context.title, "notes": context.notes}

    def peers(self) -> dict[str, Any]:
        """Return its peers. Blocks; raises as `task`."""
        fleet = read_fleet(self._paths)
        session = find(fleet, self._id)
        context = context_of(self._paths, session.id)
        if context is None:
            return {"peers": [now_of(peer) for peer in peers_of(fleet, session)]}
        result = []
        for peer in context.peer_sessions:
            now = fleet.get(SessionId(peer.id or ""))
            result.append(msgspec.to_builtins(peer) | ({} if now is None else now_of(now)))
        return {"peers": result}

    def _session(self) -> Session:
        return find(read_fleet(self._paths), self._id)
