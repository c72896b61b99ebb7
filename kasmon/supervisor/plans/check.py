"""A task's check: a shell command that a person agreed to, run where the task worked, bounded in time and output.

Its process waits until it is noted who it is. So no check outlives its runner unknown: the next one ends it.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from kasmon.backends.common.process_family import ProcessFamily
from kasmon.backends.tmux.termination import signal_name
from kasmon.boot_id import boot
from kasmon.launch import RUN
from kasmon.model.plan.events import TaskChecked, TaskChecking
from kasmon.model.plan.plan import CHECK_LIMIT_S
from kasmon.process_identity import is_running, started_at
from kasmon.sanitize import clean_block

KEPT_BYTES: Final = 16_384
"""How much of the end of what it prints is kept."""
READS: Final = 16
"""A flood leaves the loop to others after so many blocks."""
GATE: Final = 'read -r go && exec /bin/sh -c "$1" </dev/null'
"""What a check's process does first; where nobody says go any more, it ends."""


async def run_check(
    task: str,
    attempt: int,
    command: str,
    folder: str,
    variables: Mapping[str, str],
    begins: Callable[[TaskChecking], Awaitable[None]],
    limit_s: float = CHECK_LIMIT_S,
) -> TaskChecked:
    """The fact of what *command* found, run by `sh` in *folder*. All that it started is ended with it.

    *begins* notes the process before it runs *command*; what it raises is raised, and nothing was run then.
    """
    began = time.monotonic()

    def found(ok: bool, exit_code: int | None, why: str, output: bytes) -> TaskChecked:
        said = clean_block(output.decode("utf-8", "replace"))
        took_s = time.monotonic() - began
        return TaskChecked(
            at=time.time(), task=task, attempt=attempt, ok=ok, exit_code=exit_code, why=why, output=said, took_s=took_s
        )

    mark, kept = secrets.token_hex(8), bytearray()
    theirs, ours = os.pipe()
    os.set_blocking(theirs, False)
    try:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            GATE,
            "/bin/sh",
            command,
            cwd=folder,
            env=dict(variables) | {RUN: mark},
            stdin=asyncio.subprocess.PIPE,
            stdout=ours,
            stderr=ours,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        os.close(theirs)
        reason = error.strerror or error if isinstance(error, OSError) else error
        return found(False, None, f"could not be started: {reason}", b"")
    finally:
        os.close(ours)
    loop = asyncio.get_running_loop()
    loop.add_reader(theirs, _drain, loop, theirs, kept)
    try:
        born = await asyncio.to_thread(started_at, process.pid)
        noted = TaskChecking(
            at=time.time(),
            task=task,
            attempt=attempt,
            pid=process.pid,
            pid_started=born,
            pid_boot=await asyncio.to_thread(boot),
            mark=mark,
        )
        await begins(noted)
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
        async with asyncio.timeout(limit_s):
            code = await process.wait()
    except TimeoutError:
        return found(False, None, f"it took longer than {limit_s:g} s", bytes(kept))
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await asyncio.to_thread(ProcessFamily(process.pid, mark).end)
        _drain(loop, theirs, kept)
        loop.remove_reader(theirs)
        os.close(theirs)
    why = "" if code >= 0 else f"it was ended by {signal_name(-code)}"
    return found(code == 0, code if code >= 0 else None, why, bytes(kept))


def end_left(left: TaskChecking) -> None:
    """End the check that a runner before us *left*, with all that it started, if it still runs; blocks."""
    if not left.pid or (left.pid_boot and left.pid_boot != boot()):
        return
    if is_running(left.pid, left.pid_started):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(left.pid, signal.SIGKILL)
    if left.mark:
        ProcessFamily(left.pid, left.mark).end()


def _drain(loop: asyncio.AbstractEventLoop, pipe: int, kept: bytearray) -> None:
    """Read what stands in *pipe*; the last `KEPT_BYTES` of all that it held stay in *kept*.

    It is a pipe of our own: whoever keeps its other end open, a child that the check left behind, keeps nobody waiting.
    """
    for _ in range(READS):
        try:
            block = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return
        if not block:
            loop.remove_reader(pipe)
            return
        kept += block
        del kept[:-KEPT_BYTES]
