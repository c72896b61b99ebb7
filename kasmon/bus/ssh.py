"""A bus over ssh: one long-lived `ssh DEST kasmon bus --stdio` a machine, with the user's own config and keys."""

import asyncio
import contextlib
import getpass
import shlex
import socket
from collections.abc import Sequence
from typing import Final

from kasmon.asyncio_tasks import complete
from kasmon.bus.base import BusWelcome
from kasmon.bus.stream import StreamBus
from kasmon.errors import RemoteUnreachableError
from kasmon.host.rpc.peer import PEER
from kasmon.sandbox.guest.frames import LIMIT_BYTES
from kasmon.store.machines import Machine
from kasmon.tmux.remote.ssh import OPTIONS, ssh_environment

ENDING_S: Final = 2.0
"""How long ssh may take to end when it is asked to, and then when it is killed, in seconds."""
GREETING: Final = b"kasmon bus\n"
"""Printed before the first frame: what a login shell printed before it is skipped."""
GREETING_S: Final = 30.0
PREAMBLE_BYTES: Final = 64 * 1024
"""How much a login may print before the greeting."""


async def open_bus(machine: Machine, ssh: Sequence[str] = ("ssh",)) -> StreamBus:
    """Connect to *machine*.

    Raises:
        RemoteUnreachableError: if ssh, or kasmon there, cannot be run; it names the reason.
    """
    argv = [*machine.command, "bus", "--stdio", *_introduce_user()]
    if machine.ssh:
        argv = [*ssh, *OPTIONS, "-T", "--", machine.ssh, f"exec {shlex.join(argv)}"]
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=pipe, stdout=pipe, stderr=pipe, env=ssh_environment(), cwd="/", start_new_session=True
        )
    except OSError as error:
        raise _unreachable(machine, f"{argv[0]!r} cannot be run: {error.strerror}") from error
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(GREETING_S):
            if not await _skip_preamble(process.stdout):
                raise _unreachable(machine, await _explain_end(process))
    except BaseException as error:
        await complete(_end(process))
        if isinstance(error, TimeoutError):
            raise _unreachable(machine, f"it did not respond within {GREETING_S:g} s") from error
        raise
    draining = asyncio.create_task(_drain(process))

    async def end() -> None:
        await _end(process)
        draining.cancel()  # a process that ssh left, such as one that shares its connection, may keep stderr open
        await asyncio.wait([draining])

    return StreamBus(machine.name, process.stdout, process.stdin, end)


def _introduce_user() -> tuple[str, ...]:
    """Return the option that says who uses the bus; none if that is unknown."""
    try:
        user = f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # the system has no name for this user
        return ()
    return ("--from", user) if PEER.fullmatch(user) else ()


async def check_machine(machine: Machine, ssh: Sequence[str] = ("ssh",)) -> BusWelcome:
    """Connect to *machine*, and return how it introduces itself.

    Raises:
        RemoteUnreachableError: if that fails, or the kasmon there speaks another version of the bus protocol.
        RefusedError: if its owner does not let this user see its sessions.
    """
    try:
        async with (
            contextlib.aclosing(await open_bus(machine, ssh)) as bus,
            contextlib.aclosing(bus.updates({})) as updates,
            asyncio.timeout(GREETING_S),
        ):
            welcome = await anext(updates)
    except TimeoutError as error:
        raise _unreachable(machine, f"it did not say anything within {GREETING_S:g} s") from error
    if not isinstance(welcome, BusWelcome):
        raise _unreachable(machine, "it sent what kasmon does not understand")
    return welcome


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Read what ssh prints, so that it never waits for a reader."""
    assert process.stderr is not None
    while await process.stderr.read(LIMIT_BYTES):
        pass


async def _skip_preamble(stdout: asyncio.StreamReader) -> bool:
    """Read up to the greeting, and return whether it came."""
    read = 0
    while read < PREAMBLE_BYTES:
        try:
            line = await stdout.readline()
        except ValueError:  # longer than the reader's limit
            return False
        if line.endswith(GREETING):
            return True
        if not line:
            return False
        read += len(line)
    return False


async def _explain_end(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    lines = (await process.stderr.read(LIMIT_BYTES)).decode("utf-8", "replace").strip().splitlines()
    code = await process.wait()
    why = lines[-1].strip().rstrip(".") if lines else ""
    if code in (126, 127):
        return f"kasmon cannot be run there ({why or f'exit code {code}'})"
    return why or f"ssh ended with exit code {code}"


async def _end(process: asyncio.subprocess.Process) -> None:
    """End ssh; what it runs there ends with its stdin.

    `Process.wait` also waits for the end of the pipes (https://github.com/python/cpython/issues/119710, until Python
    3.13): for whatever else holds them, and for what is not read. So each wait has a limit.
    """
    for end in (process.terminate, process.kill):
        with contextlib.suppress(ProcessLookupError):
            end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDING_S):
                await process.wait()
                break
    process._transport.close()  # type: ignore[attr-defined]  # its pipes, as far as they are open still


def _unreachable(machine: Machine, why: str) -> RemoteUnreachableError:
    """Return the error that names the ssh destination of *machine*, not its name here."""
    ssh = f"Run `ssh {machine.ssh}` to see the cause: kasmon enters no password and accepts no new host key."
    return RemoteUnreachableError(machine.name, why, hint=ssh if machine.ssh else "", is_registered=True)
