"""The marks of a machine's sessions for a viewer of its cluster, who has no command run there.

A viewer asks for them where it asks for parts of logs. The machine signs the answer, and reads them at most every
`AGAIN_S` seconds, however many ask.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from kasmon.bus.nats.connection import Connection
from kasmon.bus.nats.jetstream.machine_records import MarksReport
from kasmon.bus.nats.jetstream.snapshot import MachineSnapshotReader
from kasmon.bus.nats.signatures import COMMAND_S
from kasmon.bus.nats.subjects import subject
from kasmon.errors import RefusedError
from kasmon.supervisor.machines.link_client import MARKS_COMMAND, CommandOutput

MARKS_KEY: Final = "marks"
"""In a request for a part of a log this is in the place of the session's id, which has 8 letters."""
AGAIN_S: Final = 10.0
ANSWER_S: Final = 30.0
"""How long the machine may take to read them, in seconds."""
MOST_BYTES: Final = 400 * 1024
"""Of the first sessions only, if all need more. A server accepts messages of 1 MiB."""
FIELDS: Final = ("id", "branch", "pull_request", "collisions", "sharers")
"""The fields of a session's JSON object that are sent."""


class MarksReader:
    """Reads the marks of this machine's sessions for others."""

    def __init__(self) -> None:
        self._reading = asyncio.Lock()
        self._read_at = -AGAIN_S
        self._report = MarksReport(b"")

    async def read(self, run: Callable[[Sequence[str]], Awaitable[CommandOutput]]) -> MarksReport:
        """Return them; *run* runs a command of kasmon here.

        Raises:
            ValueError: if the command fails.
        """
        async with self._reading:
            if time.monotonic() >= self._read_at + AGAIN_S:
                self._report, self._read_at = MarksReport(b""), time.monotonic()  # also if it fails
                self._report = MarksReport(_shorten((await run(MARKS_COMMAND)).stdout))
            return self._report


def _shorten(output: bytes) -> bytes:
    """Return the JSON *output* of `MARKS_COMMAND` with the marks alone, at most `MOST_BYTES` of them."""
    listed = msgspec.json.decode(output, type=dict[str, Any])["sessions"]
    sessions = [{name: each[name] for name in FIELDS if each.get(name)} for each in listed]
    while len(short := msgspec.json.encode({"sessions": sessions})) > MOST_BYTES:
        sessions = sessions[: len(sessions) // 2]
    return short


async def ask_for_marks(connection: Connection, snapshots: MachineSnapshotReader, machine: str) -> CommandOutput:
    """Return what `MARKS_COMMAND` prints on *machine*, as far as it concerns marks.

    Raises:
        UnavailableError: if it is not connected.
        TimedOutError: if it does not answer in time.
        RefusedError: if its owner does not show them, or its kasmon cannot.
    """
    asked = subject(connection.identity.cluster, "log", machine, MARKS_KEY)
    answer = await connection.request(asked, b"", timeout_s=ANSWER_S)
    record = snapshots.verify(asked, answer.data) if answer.data else None
    if record is None or not isinstance(record.value, MarksReport) or abs(time.time() - record.at) > COMMAND_S:
        raise RefusedError(f"{machine!r} does not show the marks of its sessions to viewers.")
    return CommandOutput(exit_code=0, stdout=record.value.output, stderr=b"")
