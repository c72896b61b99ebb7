"""A relay process that listens for a sandbox and joins each connection to the guest inside.

It is started with the sandbox, outlives its starter, and ends by SIGTERM. On stdin it gets a line of JSON: `transport`
(the module that connects to the guest), `path`, `listening` and `ready` (descriptors), and that module's own fields.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from kasmon.boot_id import boot
from kasmon.errors import SandboxError
from kasmon.model.sandbox.policy import SandboxRuntime
from kasmon.paths import SOCKET_PATH_BYTES
from kasmon.sandbox.shared.processes import READY, gone, listen, lives, send_signal, start_helper, started_at

READY_S: Final = 20.0
END_S: Final = 5.0
LOOK_S: Final = 10.0
"""How often it checks whether its socket still exists."""
GIVEN: Final = ("PATH", "LC_ALL", "LANG", "PYTHONPATH", "E2B_CONNECTION_RETRIES")
"""Variables that a relay inherits, if set."""
CALLERS: Final = 32
"""Maximum simultaneous connections: each costs a process inside. Further ones are closed."""
LEAVE_S: Final = 3.0
"""How long an ending relay waits for its open connections, in seconds."""


class RelayTransport(Protocol):
    """The connection to one sandbox's guest; a transport module's `open_sandbox` makes it from the relay's input."""

    def join(self, caller: socket.socket, /) -> None:
        """Carry bytes between *caller* and the guest until one of them ends. Runs in a thread."""


@runtime_checkable
class RelayCleanup(Protocol):
    """A transport with work that must not be interrupted by the end of the process."""

    def leave(self) -> None:
        """Finish the work and return, soon."""


def start(transport: str, path: Path, config: Mapping[str, Any]) -> SandboxRuntime:
    """Start a relay with the module *transport*, listening at *path*; return its runtime. May raise `SandboxError`."""
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        why = f"the path of its socket, {str(path)!r}, has more than {SOCKET_PATH_BYTES} bytes"
        raise SandboxError("cannot create a sandbox", why, "Set XDG_RUNTIME_DIR to a folder with a shorter name.")
    try:
        with listen(path) as listening:
            given, files = {**config, "transport": transport, "path": str(path)}, {"listening": listening.fileno()}
            pid = start_helper("kasmon.sandbox.remote_guest.relay", given, files, GIVEN, READY_S)
    except OSError as error:
        raise SandboxError("the sandbox cannot be reached", f"its relay did not start: {error}") from error
    return SandboxRuntime(pid=pid, started=started_at(pid) or 0.0, boot=boot(), socket=str(path))


def is_there(runtime: SandboxRuntime) -> bool:
    return lives(runtime.pid, runtime.started, runtime.boot)


def end_relay(runtime: SandboxRuntime | None) -> None:
    """End the relay of *runtime*, if alive, and remove its socket. Raises `SandboxError` if it does not end."""
    if runtime is None:
        return
    if is_there(runtime):
        send_signal(runtime.pid, signal.SIGTERM, runtime.started)
        if not gone(runtime.pid, runtime.started, END_S):
            send_signal(runtime.pid, signal.SIGKILL, runtime.started)
            if not gone(runtime.pid, runtime.started, END_S):
                raise SandboxError(
                    "the sandbox was not removed completely", f"its relay, process {runtime.pid}, does not end"
                )
    if runtime.socket:
        Path(runtime.socket).unlink(missing_ok=True)


def serve() -> None:
    config = json.loads(sys.stdin.readline())
    transport: RelayTransport = import_module(config["transport"]).open_sandbox(config)
    listening = socket.socket(fileno=config["listening"])
    callers: dict[threading.Thread, socket.socket] = {}
    signal.signal(signal.SIGTERM, lambda *_: _shut_down(transport, callers))
    os.write(config["ready"], READY)
    os.close(config["ready"])
    path, listening_at = config["path"], Path(config["path"]).stat().st_ino
    listening.settimeout(config.get("look_s", LOOK_S))
    while True:
        try:
            caller = listening.accept()[0]
        except TimeoutError:
            if _inode(path) != listening_at:  # its starter died before recording it: unreachable
                _shut_down(transport, callers)
            continue
        caller.setblocking(True)
        for thread in [each for each in callers if not each.is_alive()]:
            del callers[thread]
        if len(callers) >= CALLERS:
            caller.close()
            continue
        thread = threading.Thread(target=_join_caller, args=(transport, caller), daemon=True)
        callers[thread] = caller
        thread.start()


def _join_caller(transport: RelayTransport, caller: socket.socket) -> None:
    with caller, contextlib.suppress(Exception):  # on any error the caller's connection closes, and it retries
        if not _has_disconnected(caller):
            transport.join(caller)


def _has_disconnected(caller: socket.socket) -> bool:
    """Whether *caller* disconnected before it was joined; joining costs a process inside."""
    looks = select.poll()
    looks.register(caller, 0)
    return bool(looks.poll(0))


def _inode(path: str) -> int:
    try:
        return Path(path).stat().st_ino
    except OSError:
        return 0


def _shut_down(transport: RelayTransport, callers: Mapping[threading.Thread, socket.socket]) -> None:
    """Close all connections, wait until they have ended inside or the time is over, and exit."""
    until = time.monotonic() + LEAVE_S
    for caller in callers.values():
        with contextlib.suppress(OSError):
            caller.shutdown(socket.SHUT_RDWR)
    for thread in callers:
        thread.join(max(0.0, until - time.monotonic()))
    if isinstance(transport, RelayCleanup):
        transport.leave()
    os._exit(0)


if __name__ == "__main__":
    serve()
