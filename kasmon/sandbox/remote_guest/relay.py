"""A process that listens in a sandbox's place: whoever connects to its socket is joined to the agent inside.

It is started with the sandbox, goes on when we end, and ends by SIGTERM. On its stdin it gets one line of JSON: `way`
(the module that knows how to get inside), `path`, `listening` and `ready` (handles), and what that module wants.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
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
from kasmon.sandbox.shared.processes import gone, lives, send, started_at

READY_S: Final = 20.0
END_S: Final = 5.0
LOOK_S: Final = 10.0
"""So often it looks whether its socket still is where it was."""
GIVEN: Final = ("PATH", "LC_ALL", "LANG", "PYTHONPATH", "E2B_CONNECTION_RETRIES")
"""Variables that a relay has, where we have them."""
CALLERS: Final = 32
"""Who comes when so many are joined finds the door closed: each costs a process inside."""
LEAVE_S: Final = 3.0
"""How long a relay that is to end waits for those who are joined by it, in seconds."""


class RelayTransport(Protocol):
    """How to get inside one sandbox; its module's `way` makes it of what the relay was given."""

    def join(self, caller: socket.socket, /) -> None:
        """Carry what *caller* says to the agent inside, and back, until one of them ends. Runs in a thread."""
        ...


@runtime_checkable
class RelayCleanup(Protocol):
    """A way that is at something which its process is not to end in the midst of."""

    def leave(self) -> None:
        """Return, soon, when it is at nothing more."""
        ...


def started(way: str, path: Path, given: Mapping[str, Any]) -> SandboxRuntime:
    """Start a relay by the module *way* that listens at *path*; where the sandbox is reached from then on.

    Raises:
        SandboxError: if it does not come up, or *path* is too long for a socket.
    """
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        why = f"the path of its socket, {str(path)!r}, has more than {SOCKET_PATH_BYTES} bytes"
        raise SandboxError("cannot create a sandbox", why, "Set XDG_RUNTIME_DIR to a folder with a shorter name.")
    ready, tells = os.pipe()
    try:
        with _listening(path) as listening:
            told = {**given, "way": way, "path": str(path), "listening": listening.fileno(), "ready": tells}
            child = _popen((listening.fileno(), tells))
            assert child.stdin is not None
            with contextlib.suppress(BrokenPipeError), child.stdin:
                child.stdin.write(json.dumps(told).encode() + b"\n")
        os.close(tells)
        tells = -1
        threading.Thread(target=child.wait, name=f"reaps relay {child.pid}", daemon=True).start()
        if not select.select([ready], [], [], READY_S)[0] or os.read(ready, 1) != b"R":
            child.kill()
            raise SandboxError("the sandbox cannot be reached", "its relay did not start")
    except OSError as error:
        raise SandboxError("the sandbox cannot be reached", str(error)) from error
    finally:
        os.close(ready)
        if tells >= 0:
            os.close(tells)
    return SandboxRuntime(pid=child.pid, started=started_at(child.pid) or 0.0, boot=boot(), socket=str(path))


def is_there(runtime: SandboxRuntime) -> bool:
    """Whether the relay of *runtime* lives."""
    return lives(runtime.pid, runtime.started, runtime.boot)


def ended(runtime: SandboxRuntime | None) -> None:
    """End the relay of *runtime*, if it lives; its socket is gone then. Idempotent.

    Raises:
        SandboxError: if it does not end.
    """
    if runtime is None:
        return
    if is_there(runtime):
        send(runtime.pid, signal.SIGTERM, runtime.started)
        if not gone(runtime.pid, runtime.started, END_S):
            send(runtime.pid, signal.SIGKILL, runtime.started)
            if not gone(runtime.pid, runtime.started, END_S):
                raise SandboxError(
                    "the sandbox was not removed completely", f"its relay, process {runtime.pid}, does not end"
                )
    if runtime.socket:
        Path(runtime.socket).unlink(missing_ok=True)


def _listening(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    old = os.umask(0o177)
    try:
        listening.bind(os.fspath(path))
    except OSError:
        listening.close()
        raise
    finally:
        os.umask(old)
    listening.listen(64)
    return listening


def _popen(handles: tuple[int, ...]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "kasmon.sandbox.remote_guest.relay"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=None if os.environ.get("KASMON_DEV") else subprocess.DEVNULL,
        cwd="/",
        env={name: os.environ[name] for name in GIVEN if name in os.environ},
        pass_fds=handles,
        start_new_session=True,
    )


def serve() -> None:
    """Be the relay."""
    given = json.loads(sys.stdin.readline())
    way: RelayTransport = import_module(given["way"]).way(given)
    listening = socket.socket(fileno=given["listening"])
    callers: dict[threading.Thread, socket.socket] = {}
    signal.signal(signal.SIGTERM, lambda *_: _leave(way, callers))
    os.write(given["ready"], b"R")
    os.close(given["ready"])
    path, listening_at = given["path"], Path(given["path"]).stat().st_ino
    listening.settimeout(given.get("look_s", LOOK_S))
    while True:
        try:
            caller = listening.accept()[0]
        except TimeoutError:
            if _inode(path) != listening_at:  # whoever started us died before that was noted, and nobody comes any more
                _leave(way, callers)
            continue
        caller.setblocking(True)
        for thread in [each for each in callers if not each.is_alive()]:
            del callers[thread]
        if len(callers) >= CALLERS:
            caller.close()
            continue
        thread = threading.Thread(target=_joined, args=(way, caller), daemon=True)
        callers[thread] = caller
        thread.start()


def _joined(way: RelayTransport, caller: socket.socket) -> None:
    with caller, contextlib.suppress(Exception):  # whatever it was: the caller sees its line end, and tries again
        if not _has_left(caller):
            way.join(caller)


def _has_left(caller: socket.socket) -> bool:
    """Whether *caller* is gone before he was joined; a way inside costs a process there."""
    looks = select.poll()
    looks.register(caller, 0)
    return bool(looks.poll(0))


def _inode(path: str) -> int:
    try:
        return Path(path).stat().st_ino
    except OSError:
        return 0


def _leave(way: RelayTransport, callers: Mapping[threading.Thread, socket.socket]) -> None:
    """End ourselves, and what stands inside for each caller before that, where it ends in time."""
    until = time.monotonic() + LEAVE_S
    for caller in callers.values():
        with contextlib.suppress(OSError):
            caller.shutdown(socket.SHUT_RDWR)
    for thread in callers:
        thread.join(max(0.0, until - time.monotonic()))
    if isinstance(way, RelayCleanup):
        way.leave()
    os._exit(0)


if __name__ == "__main__":
    serve()
