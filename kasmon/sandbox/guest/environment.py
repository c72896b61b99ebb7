"""The guest's clock, volatile files, services (each keeps the end of its output) and ports."""

import contextlib
import errno
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping

from kasmon.sandbox.guest.children import build_environment, end_family, end_members, spawn
from kasmon.sandbox.guest.client import GuestConnection, InvalidRequestError, JsonObject, number
from kasmon.sandbox.guest.event_loop import WRITABLE, EventLoop
from kasmon.sandbox.guest.interpreter_state import unpacked
from kasmon.sandbox.guest.outcome import ended
from kasmon.sandbox.guest.private_folder import program
from kasmon.sandbox.guest.turn import TruncatingBuffer

WORDS_BYTES = 8 * 1024


class GuestService:
    """A process in its own session; its stdin is /dev/null."""

    def __init__(self, loop: EventLoop, start: str, variables: Mapping[str, str]) -> None:
        self._loop = loop
        self._said = TruncatingBuffer(WORDS_BYTES)
        self._ours, theirs = os.pipe()
        os.set_blocking(self._ours, False)
        try:
            argv = [program("bash"), "--noprofile", "--norc", "-c", start]
            self.pid = spawn(argv, build_environment(variables), {1: theirs, 2: theirs})
        except OSError:
            os.close(self._ours)
            raise
        finally:
            os.close(theirs)
        self._session = self.pid
        self.how = ""
        loop.watch(self._ours, self._read_output)

    def handle_exit(self, status: int) -> None:
        self.pid = 0
        self.how = ended(os.waitstatus_to_exitcode(status))

    def end(self) -> None:
        if self.pid:
            end_family(self.pid)
        end_members(self._session)
        self._loop.forget(self._ours)
        os.close(self._ours)
        if self.pid:
            os.waitpid(self.pid, 0)
            self.handle_exit(int(signal.SIGKILL))

    def state(self) -> dict[str, object]:
        return {"pid": self.pid, "ended": self.how, "said": self._said.text()[0]}

    def forget_output(self) -> None:
        """Delete its output so far."""
        self._said = TruncatingBuffer(WORDS_BYTES)

    def _read_output(self) -> None:
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:
            return
        if data:
            self._said.add(data)
        else:
            self._loop.forget(self._ours)


DRIFT_S = 0.5
"""A clock that is off by less is left alone: it is the machine's own, or accurate enough."""
PROBE_S = 1.0
WRITE_FLAGS = os.O_WRONLY | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class GuestEnvironment:
    """Request handlers: each takes a request, and returns its answer or sends that later."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self.services: dict[str, GuestService] = {}

    def set_clock(self, client: GuestConnection, message: JsonObject) -> JsonObject:
        now = number(message, "now", 0.0, 1e11)
        drift_s = now - time.time()
        if abs(drift_s) < DRIFT_S:
            return {"set": False, "drift_s": drift_s}
        try:
            time.clock_settime(time.CLOCK_REALTIME, now)
        except OSError as error:
            return {"set": False, "drift_s": drift_s, "why": error.strerror}
        return {"set": True, "drift_s": drift_s}

    def write_volatile(self, client: GuestConnection, message: JsonObject) -> JsonObject:
        path = message.get("path")
        if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
            raise InvalidRequestError("'path' is a whole path")
        write_file(path, unpacked(message.get("data")), int(number(message, "mode", 0o600, 0o777)))
        return {}

    def spawn(self, client: GuestConnection, message: JsonObject) -> JsonObject:
        name, start = message.get("name"), message.get("start")
        variables = message.get("variables") or {}
        if not isinstance(name, str) or not isinstance(start, str) or not isinstance(variables, dict) or "\0" in start:
            raise InvalidRequestError("'name' and 'start' are texts")
        before = self.services.get(name)
        if before and before.pid and message.get("again") is not True:
            return {"pid": before.pid, "started": False}
        if before:
            before.end()
        self.services[name] = GuestService(
            self._loop, start, {str(key): str(value) for key, value in variables.items()}
        )
        return {"pid": self.services[name].pid, "started": True}

    def probe(self, client: GuestConnection, message: JsonObject) -> None:
        port = int(number(message, "port", 0, 65535))
        probe_port(
            self._loop, port, lambda taken: client.send({"id": message.get("id"), "type": "answer", "listening": taken})
        )


def report_confinement() -> JsonObject:
    """Return kernel, boot id, network devices, user and capabilities; each is empty where the kernel gives none."""
    system = os.uname()
    status = dict(line.partition(":")[::2] for line in _read("/proc/self/status").splitlines())
    devices = [line.partition(":")[0].strip() for line in _read("/proc/net/dev").splitlines() if ":" in line]
    return {
        "kernel": f"{system.release} {system.version}",
        "boot": _read("/proc/sys/kernel/random/boot_id").strip(),
        "devices": devices,
        "user": os.getuid(),
        "capabilities": status.get("CapEff", "").strip(),
    }


def _read(path: str) -> str:
    try:
        with open(path) as file:  # noqa: PTH123 - pathlib is a third of the start
            return file.read()
    except OSError:
        return ""


def probe_port(loop: EventLoop, port: int, report: Callable[[bool], None]) -> None:
    """Call *report* within a second with whether 127.0.0.1 accepts a connection at *port*."""
    stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    stream.setblocking(False)

    def finish(taken: bool) -> None:
        loop.cancel(timer)
        loop.forget(stream.fileno())
        stream.close()
        report(taken)

    timer = loop.after(PROBE_S, lambda: finish(False))
    try:
        begun = stream.connect_ex(("127.0.0.1", port))
    except (OSError, OverflowError):
        begun = errno.EINVAL
    if begun in (0, errno.EINPROGRESS):
        loop.watch(stream.fileno(), lambda: finish(not stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)), WRITABLE)
    else:
        finish(False)


def write_file(path: str, data: bytes, mode: int) -> None:
    """Write *data* to *path* with *mode*; absent folders are created with mode 0700.

    Raises:
        OSError: if that fails; the file at *path* is unchanged then.
    """
    folder = os.path.dirname(path) or "."  # noqa: PTH120
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    new = f"{path}.{os.urandom(4).hex()}"
    try:
        with open(os.open(new, WRITE_FLAGS | os.O_CREAT, 0o600), "wb") as file:  # noqa: PTH123
            file.write(data)
            os.fchmod(file.fileno(), mode)
        os.replace(new, path)  # noqa: PTH105
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new)  # noqa: PTH108
        raise
