"""Runs a command of the person in a folder of this machine, by the person's shell."""

import asyncio
import codecs
import contextlib
import os
import shutil
import signal
from asyncio.subprocess import STDOUT
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from kasmon.errors import UnableError

OUTPUT_BYTES: Final = 256 * 1024
"""How much output is read; a command that prints more is ended."""
LINGER_S: Final = 1.0
"""How long output is read after the command has exited, in seconds: its background programs may hold it open."""
CHUNK_BYTES: Final = 16 * 1024
GUARDED: Final = (
    "/bin/sh",
    "-c",
    'exec 3<&0; ( (read -r _ <&3; kill -9 0) >/dev/null 2>&1 & ); exec "$0" -c "$1" 3<&- </dev/null',
)
"""Runs a command by a shell, and ends its process group when the pipe at its stdin closes: with our process.

What waits for that is no child of the command, which may wait for all of its own.
"""


async def run_in_folder(
    folder: str, command: str, report: Callable[[str], None], variables: Mapping[str, str] | None = None
) -> int:
    """Run *command* by the person's shell in *folder*, or the home folder, and return its exit code.

    A negative one is a signal's.

    *report* gets its output, stdout and stderr as they come, uncleaned. *variables* are its whole environment; default
    `os.environ`. Cancelling ends it with its child processes, and so does the end of this process, also by a signal.

    Raises:
        UnableError: if it cannot be started, or prints more than `OUTPUT_BYTES`.
    """
    shell = os.environ.get("SHELL") or "/bin/sh"
    folder = folder or str(Path.home())
    if await asyncio.to_thread(shutil.which, shell) is None:
        raise UnableError(f"{shell!r} cannot run {command!r} in {folder!r}: there is no such program.")
    readable, writable = os.pipe()
    guard, guards = os.pipe()
    reader = _OutputReader(readable, report)
    try:
        process = await asyncio.create_subprocess_exec(
            *(*GUARDED, shell, command),
            cwd=folder,
            env=variables,
            stdin=guard,
            stdout=writable,
            stderr=STDOUT,
            start_new_session=True,
        )
    except BaseException as error:
        reader.close()
        os.close(guards)
        if not isinstance(error, OSError | ValueError):
            raise
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UnableError(f"{shell!r} cannot run {command!r} in {folder!r}: {why}.") from error
    finally:
        os.close(writable)
        os.close(guard)
    exited = asyncio.create_task(process.wait())
    over = asyncio.create_task(reader.over.wait())
    try:
        await asyncio.wait([exited, over], return_when=asyncio.FIRST_COMPLETED)
        if reader.is_too_long:
            raise printed_too_much(command)
        code = await exited
        await asyncio.wait([over], timeout=LINGER_S)
        return code
    finally:
        over.cancel()
        reader.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        os.close(guards)
        await exited


def printed_too_much(command: str) -> UnableError:
    """Return the error for a *command* that was ended for its output."""
    return UnableError(f"{command!r} printed more than {OUTPUT_BYTES // 1024} KB and was ended.")


class _OutputReader:
    """Reports what comes through a pipe, until its end, or until it is too long. Opened on the running loop."""

    def __init__(self, pipe: int, report: Callable[[str], None]) -> None:
        self.over = asyncio.Event()
        self.is_too_long = False
        self._pipe, self._report, self._count, self._is_open = pipe, report, 0, True
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe, False)
        self._loop.add_reader(pipe, self._read)

    def _read(self) -> None:
        try:
            chunk = os.read(self._pipe, CHUNK_BYTES)
        except BlockingIOError:
            return
        self._count += len(chunk)
        self.is_too_long = self._count > OUTPUT_BYTES
        self._report(self._decode(chunk, final=not chunk))
        if not chunk or self.is_too_long:
            self._loop.remove_reader(self._pipe)
            self.over.set()

    def close(self) -> None:
        """Close the pipe; idempotent."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._pipe)
            os.close(self._pipe)
