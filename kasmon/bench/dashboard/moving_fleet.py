"""Program that runs the dashboard over a generated fleet that keeps changing, in the folders of its environment.

python -m kasmon.bench.dashboard.moving_fleet ROWS ALIVE CHANGES HZ
"""

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Callable

import msgspec

from kasmon.bench.support.fleet import session_id
from kasmon.model.commands import Mode
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import HostProbe, Session, Tokens
from kasmon.model.session_state import SessionState
from kasmon.paths import user_paths
from kasmon.store.event_log import START, Cursor
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.live.gateway import LiveGateway
from kasmon.tui.gateway.protocol import EventBatch, FleetUpdate, TranscriptUpdate


class MovingGateway(LiveGateway):
    """A gateway that yields fleets of *rows* sessions, of which *changes* differ from one fleet to the next."""

    def __init__(self, rows: int, alive: int, changes: int, rate_hz: float) -> None:
        super().__init__(user_paths())
        self._rng = random.Random(7)
        self._alive, self._changes, self._rate_hz = alive, changes, rate_hz
        now = time.time()
        self._sessions = [_build_session(number, number < alive, now) for number in range(rows)]

    async def follow_fleet(self, show: Callable[[FleetUpdate], object], /) -> None:
        while True:
            show(FleetUpdate(Fleet(sessions=tuple(self._sessions), at=time.time())))
            await asyncio.sleep(1 / self._rate_hz)
            for number in self._rng.sample(range(self._alive), self._changes):
                old = self._sessions[number]
                tokens = Tokens(input=self._rng.randrange(100_000), output=900, context=800, limit=200_000)
                line = f"step {self._rng.randrange(1000)} of many"
                self._sessions[number] = msgspec.structs.replace(old, last_line=line, tokens=tokens)

    async def transcript(self, session: SessionId, since: Cursor = START, /) -> AsyncIterator[TranscriptUpdate]:
        yield EventBatch(events=(), cursor=since)
        await asyncio.Event().wait()


def _build_session(number: int, alive: bool, now: float) -> Session:
    return Session(
        id=session_id(number),
        name=f"row-{number:04d}",
        agent="scripted",
        mode=Mode.SDK,
        backend="scripted",
        state=SessionState.WORKING if alive else SessionState.ENDED,
        since=now - number,
        generation=1,
        last_line="Working on it",
        exit_code=None if alive else 0,
        host=HostProbe(pid=1, alive=True) if alive else None,
    )


if __name__ == "__main__":
    rows, alive, changes = map(int, sys.argv[1:4])
    Kasmon(gateway=MovingGateway(rows, alive, changes, float(sys.argv[4]))).run()
