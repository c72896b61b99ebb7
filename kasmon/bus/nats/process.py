"""The processes of a cluster on this machine: its service and the NATS server that the service runs."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

import msgspec

from kasmon.bus.nats.cluster import ClusterFolder
from kasmon.bus.nats.server import last_lines
from kasmon.errors import UnavailableError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.paths import Paths, open_regular, read_json
from kasmon.process_identity import is_running

STOP_S: Final = 15.0
START_S: Final = 30.0


class ServerRecord(msgspec.Struct, frozen=True):
    """The process of the NATS server; not a name or an id alone."""

    pid: int
    started: float
    boot: str
    is_ready: bool = False
    """Whether members can connect and join."""

    def is_running(self) -> bool:
        return is_running(self.pid, self.started, self.boot)


def read_server(folder: ClusterFolder) -> ServerRecord | None:
    """Return the server that runs; None if none does."""
    record = read_json(folder.processes, ServerRecord, None)
    return record if record is not None and record.is_running() else None


def end_server(folder: ClusterFolder) -> bool:
    """End the server whose service is gone, and return whether there was one.

    Raises:
        UnavailableError: if it does not end.
    """
    if (record := read_server(folder)) is None:
        return False
    end_process(record.pid, record.is_running)
    return True


def end_process(pid: int, is_alive: Callable[[], bool]) -> None:
    """Have process *pid* end, and wait.

    Raises:
        UnavailableError: if it does not in time.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + STOP_S
    while is_alive():
        if time.monotonic() > until:
            raise UnavailableError(f"process {pid} does not end.", hint=f"`kill -9 {pid}` ends it.")
        time.sleep(0.02)


def service_pid(folder: ClusterFolder) -> int | None:
    """Return the process of the service; None if none runs."""
    return lock_holder(folder.service_lock)


def stop_service(folder: ClusterFolder) -> bool:
    """End the service with its server, and a server without service; return whether anything ran.

    Raises:
        UnavailableError: if it does not end.
    """
    pid = service_pid(folder)
    if pid:
        end_process(pid, lambda: service_pid(folder) == pid)
    return end_server(folder) or bool(pid)


def service_command(name: str) -> list[str]:
    """Return the command that runs the service of the cluster *name* in the foreground."""
    return [sys.executable, "-P", "-m", "kasmon", "cluster", "up", "--foreground", "--cluster", name]


def start_service(folder: ClusterFolder, paths: Paths) -> "subprocess.Popen[bytes]":
    """Start the service in a session of its own; `wait_until_up` waits for it."""
    log = open_regular(folder.service_log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        return subprocess.Popen(
            service_command(folder.path.name),
            env={**os.environ, **paths.environment_variables()},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder.path,
            start_new_session=True,
        )
    finally:
        os.close(log)


def wait_until_up(folder: ClusterFolder, service: "subprocess.Popen[bytes] | None" = None) -> ServerRecord:
    """Wait until members can connect, and return the server; *service*: the process, if this one started it.

    Raises:
        UnavailableError: if it ends, or does not start in time.
    """
    until = time.monotonic() + START_S
    while (record := read_server(folder)) is None or not record.is_ready:
        why = next(last_lines(folder.service_log), "") if service is not None and service.poll() is not None else ""
        if why := why or ("it takes too long" if time.monotonic() > until else ""):
            raise UnavailableError(
                f"the cluster {folder.path.name!r} did not start: {why}.",
                hint=f"Its log is {str(folder.service_log)!r}.",
            )
        time.sleep(0.02)
    return record
