"""How long an agent may take to introduce itself, and from when on: one in a sandbox has to get there first.

A virtual machine is started or copied, its files are put into it, and its programs, where they are not there yet: that
takes up to minutes, and is no fault of the agent's.
"""

import asyncio
import contextlib
from typing import Final

from kasmon.errors import KasmonError
from kasmon.model.commands import Launch
from kasmon.paths import Paths, places

EMULATED_S: Final = 60.0
"""So much longer it may take where no hardware carries the processor that it runs on."""


def limit_s(launch: Launch, usual_s: float) -> float:
    """How long the agent of *launch* may take once it runs: what a person set, else *usual_s*, or more in a microvm."""
    if launch.handshake_s is not None:
        return launch.handshake_s
    return usual_s + (EMULATED_S if launch.sandbox == "microvm" else 0.0)


async def arrived(launch: Launch, front: int, where: Paths | None = None) -> None:
    """Return once the agent behind process *front* runs, where its sandbox has to begin first; or *front* ended.

    *where*: the kasmon that it belongs to, by default that of the environment.
    """
    if launch.sandbox not in (None, "jail"):
        from kasmon.sandbox.agent.identify import wait_for_agent  # only where there is a sandbox

        with contextlib.suppress(KasmonError):
            await asyncio.to_thread(wait_for_agent, where or places(), launch.session, front)
