"""Run a task's check: an approved shell command, in the task's folder, with limited time and output.

Its process waits until its identity is logged. So no check outlives its runner unnoticed: the next runner ends it.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from kasmon.backends.common.child_process import signal_name
from kasmon.backends.common.process_family import ProcessFamily
from kasmon.boot_id import boot
from kasmon.launch import RUN
from kasmon.model.plan.events import TaskChecked, TaskChecking
from kasmon.model.plan.plan import CHECK_LIMIT_S
from kasmon.process_identity import is_running, started_at
from kasmon.sanitize import clean_block

KEPT_BYTES: Final = 16_384
"""How much of the end of its output is kept."""
READS: Final = 16
"""After this many blocks, a flood of output yields to other callbacks of the loop."""
GATE: Final = 'read -r go && exec /bin/sh -c "$1" </dev/null'
"""What a check's process runs first; if its stdin closes before a line arrives, it ends."""


async def run_check(
    task: str,
    attempt: int,
    command: str,
    folder: str,
    variables: Mapping[str, str],
    begins: Callable[[TaskChecking], Awaitable[None]],
    limit_s: float = CHECK_LIMIT_S,
) -> TaskChecked:
    """Run *command* by `sh` in *folder*, end all that it started, and return its result as an event.

    *begins* logs the process before *command* runs; if *begins* raises, the error is raised and nothing was run.
    """
    began = time.monotonic()

    def build_result(ok: bool, exit_code: int | None, why: str, output: bytes) -> TaskChecked:
        text = clean_block(output.decode("utf-8", "replace"))
        took_s = time.monotonic() - began
        return TaskChecked(
            at=time.time(), task=task, attempt=attempt, ok=ok, exit_code=exit_code, why=why, output=text, took_s=took_s
        )

    mark, tail = secrets.token_hex(8), bytearray()
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
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
            stdout=write_end,
            stderr=write_end,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        os.close(read_end)
        reason = error.strerror or error if isinstance(error, OSError) else error
        return build_result(False, None, f"could not be started: {reason}", b"")
    finally:
        os.close(write_end)
    loop = asyncio.get_running_loop()
    loop.add_reader(read_end, _drain, loop, read_end, tail)
    try:
        start_time = await asyncio.to_thread(started_at, process.pid)
        checking = TaskChecking(
            at=time.time(),
            task=task,
            attempt=attempt,
            pid=process.pid,
            pid_started=start_time,
            pid_boot=await asyncio.to_thread(boot),
            mark=mark,
        )
        await begins(checking)
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
        async with asyncio.timeout(limit_s):
            code = await process.wait()
    except TimeoutError:
        return build_result(False, None, f"it took longer than {limit_s:g} s", bytes(tail))
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await asyncio.to_thread(ProcessFamily(process.pid, mark).end)
        _drain(loop, read_end, tail)
        loop.remove_reader(read_end)
        os.close(read_end)
    why = "" if code >= 0 else f"it was ended by {signal_name(-code)}"
    return build_result(code == 0, code if code >= 0 else None, why, bytes(tail))


def runs_check(check: TaskChecking) -> bool:
    """Whether the process of *check* runs on this machine."""
    return bool(check.pid) and is_running(check.pid, check.pid_started, check.pid_boot)


def end_orphaned_check(orphan: TaskChecking) -> None:
    """End the check *orphan*, left by an earlier runner, with all that it started, if it still runs; blocks."""
    if not orphan.pid or (orphan.pid_boot and orphan.pid_boot != boot()):
        return
    if runs_check(orphan):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(orphan.pid, signal.SIGKILL)
    if orphan.mark:
        ProcessFamily(orphan.pid, orphan.mark).end()


def _drain(loop: asyncio.AbstractEventLoop, pipe: int, tail: bytearray) -> None:
    """Read what is in *pipe*; append it to *tail*, of which the last `KEPT_BYTES` stay.

    The pipe is non-blocking: a child left by the check that keeps the other end open blocks nothing.
    """
    for _ in range(READS):
        try:
            block = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return
        if not block:
            loop.remove_reader(pipe)
            return
        tail += block
        del tail[:-KEPT_BYTES]
