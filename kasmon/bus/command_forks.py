"""Runs kasmon's own commands by fork, from one process that has imported what they share.

A fork takes some milliseconds of processor time, a new Python that imports the same half a second. A plan runs several
commands on a machine for each of its tasks. The process (`kasmon.cli.task.command_server`) is started with the first
command, and ends with this one, or once there was none for `IDLE_S`.

A request is one message: the arguments as JSON, with the descriptors of stdin, stdout, stderr and the status. There the
command writes its pid and, at its end, its exit code, each a line; the end of the file before the first is a request
that was not begun, and can be repeated: the process ended, or kasmon's files have changed since it imported them.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

from kasmon.host.rpc.fork_server import TITLE_BYTES
from kasmon.paths import Paths
from kasmon.supervisor.machines.link_client import CommandOutput

IDLE_S: Final = 30.0
"""How long the process waits for another command."""
REQUEST_BYTES: Final = 32768
TRIES: Final = 3
TITLE: Final = "-" * TITLE_BYTES
"""Room in the command line, so that `ps` shows which command a process is."""


class CommandForks:
    """The commands of the kasmon in *paths*. Used on one event loop."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._connection: socket.socket | None = None
        self._sending = asyncio.Lock()
        self._running = 0
        self._idle: asyncio.TimerHandle | None = None
        self._close: weakref.finalize[..., CommandForks] | None = None

    async def run(self, arguments: Sequence[str], stdin: bytes) -> CommandOutput | None:
        """Run `kasmon` with *arguments*; None if that cannot be done by fork. Cancelling this terminates the command.

        Raises:
            OSError: if no process or file can be created.
        """
        message = json.dumps(list(arguments)).encode()
        if len(message) > REQUEST_BYTES:
            return None
        self._running += 1
        if self._idle is not None:
            self._idle.cancel()
        try:
            for _ in range(TRIES):
                async with self._sending:
                    sent = await asyncio.to_thread(self._send, message, stdin)
                try:
                    if (code := await _wait(sent.status)) is not None:
                        return await asyncio.to_thread(sent.read, code)
                finally:
                    sent.close()
            return None
        finally:
            self._running -= 1
            if not self._running:
                self._idle = asyncio.get_running_loop().call_later(IDLE_S, self.close)

    def _send(self, message: bytes, stdin: bytes) -> "_SentCommand":
        """Send a request. Blocks."""
        status, status_writer = os.pipe()
        os.set_blocking(status, False)
        sent = _SentCommand(status, tempfile.TemporaryFile(), tempfile.TemporaryFile())  # noqa: SIM115 - `close`
        try:
            with tempfile.TemporaryFile() as given:
                given.write(stdin)
                given.seek(0)
                descriptors = [given.fileno(), sent.stdout.fileno(), sent.stderr.fileno(), status_writer]
                try:
                    socket.send_fds(self._connect(), [message], descriptors)
                except (BrokenPipeError, ConnectionResetError):
                    self.close()  # the process has ended: another one is started
                    socket.send_fds(self._connect(), [message], descriptors)
        except BaseException:
            sent.close()
            raise
        finally:
            os.close(status_writer)
        return sent

    def _connect(self) -> socket.socket:
        """Return the connection to the process, which is started if there is none."""
        if self._connection is None:
            self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                child = subprocess.Popen(
                    [*(sys.executable, "-P", "-m", "kasmon", "host", "--commands"), str(theirs.fileno()), TITLE],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd=Path.home(),
                    env={**os.environ, **self._paths.environment_variables(), "NO_COLOR": "1"},
                    pass_fds=(theirs.fileno(),),
                )
            threading.Thread(target=child.wait, name=f"reaps {child.pid}", daemon=True).start()
            self._close = weakref.finalize(self, self._connection.close)
        return self._connection

    def close(self) -> None:
        """End the process; its commands end by themselves. Idempotent."""
        if self._close is not None:
            self._close()
        self._connection = self._close = None


class _SentCommand(NamedTuple):
    status: int
    stdout: IO[bytes]
    stderr: IO[bytes]

    def read(self, exit_code: int) -> CommandOutput:
        self.stdout.seek(0)
        self.stderr.seek(0)
        return CommandOutput(exit_code=exit_code, stdout=self.stdout.read(), stderr=self.stderr.read())

    def close(self) -> None:
        os.close(self.status)
        self.stdout.close()
        self.stderr.close()


async def _wait(status: int) -> int | None:
    """Return the exit code that a command writes to *status*; None if it never began."""
    lines = b""
    try:
        while lines.count(b"\n") < 2:
            await _wait_until_readable(status)
            if not (data := os.read(status, 64)):
                return -signal.SIGKILL if lines else None
            lines += data
    except asyncio.CancelledError:
        if lines:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(lines.split()[0]), signal.SIGTERM)
        raise
    return int(lines.split()[1])


async def _wait_until_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
