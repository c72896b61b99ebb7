"""When a started program reads its input: it may discard earlier input."""

import asyncio
import math
from typing import Final, Protocol

SETTLED_S: Final = 0.3
"""An agent reads once it has printed something, and then nothing for this long;"""
SILENT_S: Final = 3.0
"""or if it has not printed anything for this long;"""
RESTLESS_S: Final = 10.0
"""or if it still prints after this time."""
LOOK_S: Final = 0.05


class StartingAgent(Protocol):
    """An agent that starts."""

    @property
    def reports_state(self) -> bool:
        """Whether any source reports its state."""
        ...

    @property
    def printed_at(self) -> float:
        """When it last printed, by the loop's clock; minus infinity before that."""
        ...


async def settled(agent: StartingAgent) -> None:
    """Return when *agent* reports its state, or else seems to read."""
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    while not agent.reports_state and (silent_s := loop.time() - began_at) < RESTLESS_S:
        if agent.printed_at == -math.inf:
            if silent_s >= SILENT_S:
                break
        elif loop.time() - agent.printed_at >= SETTLED_S:
            break
        await asyncio.sleep(LOOK_S)
