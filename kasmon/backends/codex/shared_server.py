"""A codex app-server that listens on a unix socket: kasmon is one of its clients, codex's own screen may be another.

Over its stdin, codex ends with its host. A server that listens does not, so a guard ends it when the host has died.
"""

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Final

from kasmon import system
from kasmon.asyncio_tasks import cancel_and_wait
from kasmon.backends.codex.web_socket import WebSocketChannel
from kasmon.backends.common.agent_start import AgentStart
from kasmon.backends.common.child_process import ChildProcess

LISTEN_S: Final = 15.0
"""How long a codex may take to listen, in seconds; one that takes longer is started without a socket."""
LOOK_S: Final = 0.02
GUARD: Final = ("/bin/sh", "-c", 'read -r _; kill -15 "-$1" && sleep 2; kill -9 "-$1"', "sh")
"""Ends the process group that its argument names when its stdin closes: when the host has ended."""


def screen_argv(program: str, thread: str, path: Path) -> tuple[str, ...]:
    """Return the command of codex's own screen that shows the conversation *thread* of the server at *path*."""
    return (program, "resume", thread, "--remote", f"unix://{path}")


def find_screen(path: Path) -> int | None:
    """Return a process that `screen_argv` started for the server at *path*; None if there is none. Blocks."""
    address = f"unix://{path}"
    for pid in system.HERE.list_pids():
        arguments = system.HERE.read_arguments(pid)
        if "--remote" in arguments and address in arguments:
            return pid
    return None


class SharedServer:
    """The running server *child*, which listens at *path*, and kasmon's connection to it."""

    def __init__(
        self, child: ChildProcess, path: Path, guard: asyncio.subprocess.Process, drain: "asyncio.Task[None]"
    ) -> None:
        self.child = child
        self._path, self._guard, self._drain = path, guard, drain
        self._channel: WebSocketChannel | None = None

    @property
    def channel(self) -> WebSocketChannel:
        """The connection; there is one once `start_server` has returned."""
        assert self._channel is not None
        return self._channel

    async def connect(self) -> bool:
        """Connect to the server as soon as it listens; return whether it does within `LISTEN_S` seconds."""
        deadline = time.monotonic() + LISTEN_S
        while self.child.is_running and time.monotonic() < deadline:
            with contextlib.suppress(OSError):  # which a TimeoutError is
                async with asyncio.timeout(deadline - time.monotonic()):
                    self._channel = await WebSocketChannel.connect(self._path, self.child.scan_soon)
                return True
            await asyncio.sleep(LOOK_S)
        return False

    def terminate(self) -> None:
        """Ask the server to end: it does not end by itself when its last client leaves."""
        if self.child.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child.pid, signal.SIGTERM)

    async def aclose(self) -> None:
        """Release the connection to the server, which has ended, and remove its socket. Idempotent."""
        if self._channel is not None:
            await self._channel.aclose()
        if self._guard.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._guard.kill()
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        await self._guard.wait()
        await cancel_and_wait(self._drain)
        await asyncio.to_thread(_remove_socket, self._path)


def _remove_socket(path: Path) -> None:
    """Remove the socket *path*, and where codex put it: in a folder of its own, with a lock, behind a link. Blocks."""
    with contextlib.suppress(OSError):
        target = path.resolve()
        folder = target.parent.stat()
        if path.is_symlink() and folder.st_uid == os.getuid() and folder.st_mode & 0o777 == 0o700:
            for each in (target, target.with_name(f"{target.name}.lock")):
                with contextlib.suppress(OSError):
                    if each.lstat().st_uid == os.getuid():
                        each.unlink()
    path.unlink(missing_ok=True)


async def start_server(start: AgentStart, path: Path) -> SharedServer | None:
    """Start the app-server of *start* so that it listens at *path*; None if it does not listen there.

    An older codex has no such option; one with a wrong config ends. Then no process is left.

    Raises:
        LaunchError: if it cannot be started.
    """
    await asyncio.to_thread(_remove_socket, path)
    child = await start._replace(argv=(*start.argv, "--listen", f"unix://{path}")).run()
    server, is_listening = None, False
    try:
        guard = await asyncio.create_subprocess_exec(
            *GUARD,
            str(child.pid),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={},  # it needs none, and a host's variables include keys
            start_new_session=True,
        )
        server = SharedServer(child, path, guard, asyncio.create_task(_drain(child)))
        is_listening = await server.connect()
        return server if is_listening else None
    finally:
        if not is_listening:
            await child.end()
            if server is not None:
                await server.aclose()


async def _drain(child: ChildProcess) -> None:
    """Read what the server prints: its protocol is on the socket, but a full pipe would stop it."""
    async for _ in child.lines():
        pass
