"""The handshake timeout of an agent, and when it begins: a sandboxed agent has to be started inside first.

A virtual machine is started or copied, its files are copied in, and missing programs are installed. That takes up to
minutes and does not count against the agent.
"""

import asyncio
import contextlib
from typing import Final

from kasmon.errors import KasmonError
from kasmon.model.commands import Launch
from kasmon.paths import Paths, places

EMULATED_S: Final = 60.0
"""Additional time if the virtual machine runs without hardware acceleration, in seconds."""


def limit_s(launch: Launch, usual_s: float) -> float:
    """Return the limit for the agent of *launch* once it runs: the configured one or *usual_s*, more in a microvm."""
    if launch.handshake_s is not None:
        return launch.handshake_s
    return usual_s + (EMULATED_S if launch.sandbox == "microvm" else 0.0)


async def wait_for_start(launch: Launch, front: int, where: Paths | None = None) -> None:
    """Return once the agent behind process *front* runs, if its sandbox has to start first; or once *front* ended.

    *where*: the kasmon folders that it belongs to, by default those of the environment.
    """
    if launch.sandbox not in (None, "jail"):
        from kasmon.sandbox.agent.identify import wait_for_agent  # imported late: only for a sandbox

        with contextlib.suppress(KasmonError):
            await asyncio.to_thread(wait_for_agent, where or places(), launch.session, front)
