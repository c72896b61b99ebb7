"""Awaits new panes until they have announced themselves, all of them together."""

import asyncio
import math
from typing import TYPE_CHECKING, Final

from kasmon.asyncio_tasks import wait_within
from kasmon.backends.tmux.server_connection import ServerConnection
from kasmon.errors import KasmonError
from kasmon.tmux.formats import PaneFacts

if TYPE_CHECKING:
    from kasmon.backends.tmux.agent import TmuxAgent

FIRST_S, LONGEST_S, LIMIT_S = 0.010, 0.500, 10.0
"""The interval of the first two checks, of later ones at most, and the time limit of all, in seconds."""

SETTLED_S: Final = 0.3
"""An agent reads once it has printed something, and then nothing for this long;"""
SILENT_S: Final = 3.0
"""or if it has not printed anything for this long;"""
RESTLESS_S: Final = 10.0
"""or if it still prints after this time."""
SETTLE_CHECK_S: Final = 0.05


class PaneReadiness:
    """Polls the awaited panes: after 10 ms, then at doubling intervals up to 500 ms.

    A new waiter resets the interval for all.
    """

    def __init__(self, line: ServerConnection) -> None:
        self._line = line
        self._awaited: dict[str, tuple[str, asyncio.Future[PaneFacts | None]]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._again = asyncio.Event()

    async def wait_for_pane(self, session: str, nonce: str) -> PaneFacts | None:
        """Return the pane of *session* once it has announced *nonce*, or is dead for a reason that tmux knows.

        None if it did neither within 10 s, no longer exists, or if tmux does not answer.
        """
        seen: asyncio.Future[PaneFacts | None] = asyncio.get_running_loop().create_future()
        self._awaited[session] = (nonce, seen)
        self._again.set()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._poll())
        try:
            async with asyncio.timeout(LIMIT_S):
                return await seen
        except TimeoutError:
            return None
        finally:
            if self._awaited.get(session) == (nonce, seen):
                del self._awaited[session]

    async def _poll(self) -> None:
        pause_s = FIRST_S
        while self._awaited:
            try:
                panes = await self._line.panes()
            except KasmonError:
                panes = {}
            for session, (nonce, seen) in self._awaited.items():
                facts = panes.get(session)
                if facts is None or facts.ready == nonce or facts.has_exit_status:
                    _settle(seen, facts)
            pause_s = FIRST_S if await wait_within(pause_s, self._again) else min(pause_s * 2, LONGEST_S)
            self._again.clear()


def _settle(seen: asyncio.Future[PaneFacts | None], facts: PaneFacts | None) -> None:
    if not seen.done():
        seen.set_result(facts)


async def wait_until_settled(agent: "TmuxAgent") -> None:
    """Return when *agent* reports a state other than starting, or else seems to read; in `RESTLESS_S` at most."""
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    while (agent.is_starting or not agent.reports_state) and (silent_s := loop.time() - began_at) < RESTLESS_S:
        if agent.is_starting:
            pass
        elif agent.printed_at == -math.inf:
            if silent_s >= SILENT_S:
                break
        elif loop.time() - agent.printed_at >= SETTLED_S:
            break
        await asyncio.sleep(SETTLE_CHECK_S)
