"""Sends sandbox commands to the agent, and streams a run's output to the client without waiting for it."""

import asyncio
import threading
from typing import Final

from kasmon.backends.base import SandboxedAgentControl
from kasmon.host.rpc.connection import ClientConnection
from kasmon.host.rpc.frames import CommandResult, RunOutputChunk
from kasmon.model.commands import Run, SandboxCommand

BEHIND: Final = 256 * 1024
"""How many characters of each stream wait for a client; of more it gets the newest, and how much was skipped."""
SOON_S, LATE_S = 0.02, 0.1
"""How often a run's output is pushed, while there is more and while there is not. For a run that ends sooner, the
answer alone has the output."""


async def execute(
    agent: SandboxedAgentControl, connection: ClientConnection, n: int, command: SandboxCommand
) -> CommandResult:
    """Execute *command*, which *connection* numbered *n*, and return the answer.

    Raises:
        KasmonError: the agent's error.
    """
    if not isinstance(command, Run):
        return CommandResult(n=n, outcome=await agent.change_sandbox(command))
    stream = RunStream(connection, command.id)
    try:
        ran = await agent.run(command, stream.add)
    finally:
        stream.close()
    return CommandResult(n=n, ran=ran)


class RunStream:
    """One run's output for one client. `take` may be called from any thread."""

    def __init__(self, connection: ClientConnection, run: str) -> None:
        self._connection = connection
        self._run = run
        self._lock = threading.Lock()
        self._waiting = {"stdout": "", "stderr": ""}
        self._skipped = 0
        self._is_live = False
        self._pause_s = SOON_S
        self._timer = asyncio.get_running_loop().call_later(SOON_S, self._push)

    def add(self, name: str, text: str) -> None:
        """Add *text*, which was written to the stream *name*."""
        with self._lock:
            waiting = self._waiting.get(name, "") + text
            self._skipped += max(0, len(waiting) - BEHIND)
            self._waiting[name] = waiting[-BEHIND:]

    def close(self) -> None:
        """Push the rest of an output that was shown in parts."""
        self._timer.cancel()
        if self._is_live:
            self._connection.push(self._printed, key=("printed", self._run))

    def _push(self) -> None:
        self._is_live = True
        self._pause_s = min(self._pause_s * 2, LATE_S)
        if any(self._waiting.values()):
            self._pause_s = SOON_S
            self._connection.push(self._printed, key=("printed", self._run))
        self._timer = asyncio.get_running_loop().call_later(self._pause_s, self._push)

    def _printed(self) -> RunOutputChunk | None:
        with self._lock:
            frame = RunOutputChunk(
                run=self._run, stdout=self._waiting["stdout"], stderr=self._waiting["stderr"], skipped=self._skipped
            )
            self._waiting, self._skipped = {"stdout": "", "stderr": ""}, 0
        return frame if frame.stdout or frame.stderr or frame.skipped else None
