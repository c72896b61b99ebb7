"""Sandboxes that outlived their host: each is given another by whoever looks on, so that somebody keeps its time."""

import asyncio
import logging
from collections.abc import Iterable

from kasmon.errors import KasmonError
from kasmon.model.command import Mode
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.state import SessionState
from kasmon.paths import Places

log = logging.getLogger(__name__)


def orphans(sessions: Iterable[Session]) -> list[Session]:
    """Those whose sandbox lives and whose host does not."""
    return [each for each in sessions if each.mode is Mode.INTERPRETER and each.state is SessionState.UNSURE]


class Adopter:
    """Takes up each orphan once; one that could not be taken up is left to `kasmon recover`, and the log says why."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._seen: set[tuple[SessionId, float]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def look(self, sessions: Iterable[Session]) -> None:
        """Begin to take up those that nobody took up yet. Needs a running loop."""
        for session in orphans(sessions):
            if (key := (session.id, session.since)) not in self._seen:
                self._seen.add(key)
                self._tasks.add(task := asyncio.create_task(self._take_up(session)))
                task.add_done_callback(self._tasks.discard)

    async def _take_up(self, session: Session) -> None:
        from kasmon.supervisor.sandboxes import take_up  # seldom wanted

        try:
            await take_up(self._places, session)
        except KasmonError as error:
            log.warning("the sandbox of %s could not be taken up: %s", session.id, error)
