"""Starts the hosts of structured sessions by fork, from one process that has imported what they share. Linux only.

A fork takes a millisecond and shares its memory; a new Python takes 200 ms and 17 MB. The server starts with the first
host, serves clients whose processes would give a child the same environment, limits and namespaces, and exits once its
last host has ended and no request came for `IDLE_S`. Nothing depends on it: its hosts live on when it is killed, and
without it `spawn` starts a host in a new Python.

A request is one message with two descriptors (the host's stdin and its output): its arguments as JSON. The replies are
lines: `stale` if kasmon's files have changed since they were imported; else the host's pid, and later its exit code.
"""

import contextlib
import gc
import json
import os
import resource
import select
import socket
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final

from kasmon import system
from kasmon.errors import TimedOutError
from kasmon.host.rpc.peer import is_ours
from kasmon.paths import Paths, user_paths
from kasmon.process_identity import started_at
from kasmon.system.linux import read_inherited, set_title

IDLE_S: Final = 2.0
"""How long a server without hosts waits for a request."""
CHECK_S: Final = 0.5
"""The interval at which an idle server looks whether its socket is still there."""
REPLY_S: Final = 2.0
"""How long a client waits for a running server to fork a host, whose backend it may have to import first."""
START_S: Final = 10.0
"""How long a client waits for a server that it has just started."""
REQUEST_BYTES: Final = 4096
TITLE_BYTES: Final = 200
"""The room in the command line for the arguments of a host, so that `ps` shows which one a process is."""
SHARED: Final = (
    "kasmon.host.structured.host",
    "kasmon.repository.turn_trees",
    "concurrent.futures.thread",
    "encodings.ascii",
)
"""The modules that every host imports sooner or later."""
ONE_ARENA: Final = {"MALLOC_ARENA_MAX": "1"}
"""Set for a server and its hosts alone: else glibc reserves a heap for each thread, half a megabyte in each host."""


class ForkedHost:
    """A host that the fork server started, like the `Popen` of one that was started without it."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        connection.setblocking(False)
        self.pid = pid
        self.returncode: int | None = None
        self._connection = connection.detach()
        weakref.finalize(self, os.close, self._connection)

    def poll(self) -> int | None:
        """Return the exit code; None while the host runs, 0 also if the server ended and the host is gone."""
        if self.returncode is None:
            try:
                reply = os.read(self._connection, 64)
            except BlockingIOError:
                return None
            except OSError:
                reply = b""
            if reply:
                self.returncode = int(reply)
            elif started_at(self.pid) is None:
                self.returncode = 0
        return self.returncode

    def wait(self, timeout_s: float) -> int:
        """Return the exit code. Raises `TimedOutError` if it still runs after *timeout_s* seconds."""
        readable = select.poll()
        readable.register(self._connection, select.POLLIN)
        readable.poll(timeout_s * 1000)
        if (code := self.poll()) is None:
            raise TimedOutError(f"the host with pid {self.pid} did not exit in time.")
        return code


def socket_path(where: Paths, environment: Mapping[str, str]) -> Path:
    """Return the socket of the server whose forks are like a new process that gets *environment* from this one."""
    inherited = [
        sorted(environment.items()),
        [resource.getrlimit(each) for each in sorted(_limits())],
        os.getpriority(os.PRIO_PROCESS, 0),
        [os.geteuid(), os.getegid(), sorted(os.getgroups())],
        *read_inherited(),
        [sys.executable, str(Path(__file__))],
    ]
    return where.runtime / f"{_digest(json.dumps(inherited).encode())[:8]}.fork"


def _digest(data: bytes) -> str:
    try:
        from _blake2 import blake2s  # `hashlib`'s own; the library loads OpenSSL too, which takes 5 ms
    except ImportError:
        from hashlib import blake2s
    return blake2s(data).hexdigest()


def _limits() -> set[int]:
    return {value for name, value in vars(resource).items() if name.startswith("RLIMIT_")}


def request(
    connection: socket.socket, arguments: Sequence[str], stdin: IO[bytes], output: IO[bytes], limit_s: float
) -> ForkedHost | None:
    """Ask the server at the other end of *connection* for a host; None, and a closed connection, if it starts none.

    Raises:
        OSError: if it ended meanwhile, or does not answer within *limit_s* seconds.
    """
    reply = b""
    try:
        connection.settimeout(limit_s)
        socket.send_fds(connection, [json.dumps(list(arguments)).encode()], [stdin.fileno(), output.fileno()])
        reply = connection.recv(64)
    finally:
        if not reply.strip().isdigit():
            connection.close()
    return ForkedHost(connection, int(reply)) if reply.strip().isdigit() else None


def main(arguments: list[str]) -> int:
    """Serve the connection with the descriptor `arguments[0]`, and the clients of the socket at `arguments[1]`.

    Returns in the server when it ends, and in each host when that has ended.
    """
    if os.fork():  # the server is no child of its starter, which may be anything
        os._exit(0)
    for name in ONE_ARENA:  # glibc has read it; no agent inherits it
        os.environ.pop(name, None)
    server = ForkServer(socket.socket(fileno=int(arguments[0])), Path(arguments[1]))
    host = server.run()
    if host is None:
        return 0
    from kasmon.host.structured import host as structured

    return structured.main(host)


class ForkServer:
    """One server. It has no threads, so that a fork is a copy of all of it."""

    def __init__(self, first: socket.socket, path: Path) -> None:
        self._listener: socket.socket | None = listen(path)
        self._path = path
        self._clients = [first]
        self._hosts: dict[int, tuple[int, socket.socket]] = {}
        """By descriptor of its process: its pid, and the client that gets its exit code."""
        self._imported: dict[str, tuple[int, int]] = {}

    def run(self) -> list[str] | None:
        """Serve until there is nothing to do; return None, or in a new host the arguments it was requested with."""
        idle_since = time.monotonic()
        self._import(*SHARED)
        while True:
            left_s = idle_since + IDLE_S - time.monotonic()
            if not self._hosts and not self._clients and (left_s <= 0 or not self._path.exists()):
                self._stop_listening()
                return None
            readable = select.poll()  # `select` fails with descriptors above 1,023: some 500 hosts
            clients = {client.fileno(): client for client in self._clients}
            for descriptor in (*self._listening, *clients, *self._hosts):
                readable.register(descriptor, select.POLLIN)
            for descriptor, _ in readable.poll(None if self._hosts else CHECK_S * 1000):
                idle_since = time.monotonic()
                if descriptor in self._hosts:
                    self._reap(descriptor)
                elif (client := clients.get(descriptor)) is None:
                    self._accept()
                else:
                    self._clients.remove(client)
                    if (host := self._serve(client)) is not None:
                        return host

    @property
    def _listening(self) -> list[int]:
        return [] if self._listener is None else [self._listener.fileno()]

    def _accept(self) -> None:
        if self._listener is None:  # a client that came before found it to be stale
            return
        client, _ = self._listener.accept()
        if is_ours(system.HERE.identify_peer(client)):
            self._clients.append(client)
        else:
            client.close()

    def _serve(self, client: socket.socket) -> list[str] | None:
        """Fork the host that *client* requests; return its arguments in that host, None in the server."""
        try:
            message, descriptors, _, _ = socket.recv_fds(client, REQUEST_BYTES, 2)
        except OSError:
            message, descriptors = b"", []
        if len(descriptors) != 2:
            client.close()
            return None
        arguments: list[str] = json.loads(message)
        self._import_for(arguments[0])
        if any(version_of(file) != version for file, version in self._imported.items()):
            self._stop_listening()  # first: the client will have another server listen there
            with contextlib.suppress(OSError):  # it has left
                client.send(b"stale\n")
            client.close()
        elif pid := os.fork():
            self._hosts[os.pidfd_open(pid)] = pid, client
            with contextlib.suppress(OSError):  # it has left
                client.send(b"%d\n" % pid)
        else:
            become_host(arguments, *descriptors)
            return arguments
        for each in descriptors:
            os.close(each)
        return None

    def _reap(self, descriptor: int) -> None:
        pid, client = self._hosts.pop(descriptor)
        os.close(descriptor)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with contextlib.suppress(OSError):
            client.send(b"%d\n" % code)
        client.close()

    def _import_for(self, session: str) -> None:
        """Import what the host of *session* will import; an error in that is the host's to report."""
        from kasmon.host.structured.host import load_session
        from kasmon.model.permission import SessionId

        try:
            _, backend = load_session(user_paths(), SessionId(session))
            agent = type(backend).__module__.rpartition(".")[0] + ".agent"
            if find_spec(agent) is not None:
                self._import(agent)
        except Exception:  # noqa: BLE001 - the host meets it again, and logs it as the reason of its end
            pass

    def _import(self, *modules: str) -> None:
        for each in modules:
            import_module(each)
        files = [file for each in tuple(sys.modules.values()) if (file := getattr(each, "__file__", None))]
        new = {file: version_of(file) for file in files if file not in self._imported}
        if new:
            self._imported |= new
            gc.collect()
            gc.freeze()  # a collection in a host would write to these pages, and end their sharing

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._path.unlink(missing_ok=True)
            self._listener.close()
            self._listener = None


def version_of(file: str) -> tuple[int, int]:
    """Return when *file* was last changed, in ns, and its size."""
    try:
        status = os.stat(file)  # noqa: PTH116 - of some hundred files, before each fork
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def listen(path: Path) -> socket.socket:
    """Listen at *path*, where no server does: its starter has the lock."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(os.fspath(path))
    listener.listen(128)
    return listener


def become_host(arguments: list[str], stdin: int, output: int) -> None:
    """Make this fork of the server what a new host process would be."""
    os.setsid()
    for descriptor, standard in ((stdin, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, standard)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    set_title(["host", *arguments])
