"""The first process of a machine: root, the only one that speaks with the door outside, and the agent's keeper.

It runs no code of anybody. The agent inside is the one of every sandbox and listens on a socket; whoever connects
outside gets a connection to it. Before it passes on what came of a run, it tells what changed in the mirrored folders:
so whoever has an answer has the files. Its end is the machine's.
"""

import compileall
import contextlib
import fcntl
import glob
import json
import os
import resource
import select
import signal
import socket
import struct
import time

from kasmon.sandbox.microvm.line.records import ASK, CLOSE, DATA, OPEN, PIECE, SAID, Records, packed, told
from kasmon.sandbox.microvm.line.trees import Tree

USER = 1000
CODE = "/opt/kasmon"
AGENT = f"{CODE}/agent.py"
SOCKET = "/opt/agent.sock"
READ_BYTES = 1 << 16
AGENT_S = 10.0
QUIET = (b'"type":"stream"', b'"type":"began"', b'"type":"answer"', b'"type":"part"')
"""What the agent says that is no outcome of a run."""
RNDADDENTROPY, RNDRESEEDCRNG = 0x40085203, 0x5207
VARIABLES = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
    "HOME": "/home/sandbox",
    "USER": "sandbox",
    "LOGNAME": "sandbox",
    "SHELL": "/bin/bash",
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",
}
CAREFUL = {name: os.environ.get(name, "") for name in ("PYTHONMALLOC", "GLIBC_TUNABLES")}
"""What the machine's first file says of memory that is given back."""


class Connection:
    """One connection to the agent, for one outside."""

    def __init__(self) -> None:
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.connect(SOCKET)
        self.stream.setblocking(False)
        self.out = bytearray()
        self.frame = bytearray()


class Steward:
    def __init__(self) -> None:
        self.port = os.open(glob.glob("/dev/vport*")[0], os.O_RDWR | os.O_NONBLOCK)  # noqa: PTH207
        self.records = Records()
        self.trees = {
            "workspace": Tree("workspace", "/workspace", USER),
            "home": Tree("home", "/home/sandbox", USER),
        }
        self.filling: Tree | None = None
        self.poll = select.poll()
        self.connections: dict[int, Connection] = {}
        self.channels: dict[int, int] = {}
        self.agent = 0
        self.frozen = False
        self.woken, wake = os.pipe()
        for end in (self.woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        compileall.compile_dir(CODE, quiet=2)  # the sandbox's user cannot, and starts it again and again
        self.agent = begin_agent()
        self.poll.register(self.port, select.POLLIN)
        self.poll.register(self.woken, select.POLLIN)
        self.send(told(SAID, {"tell": "ready"}))
        while True:
            for file, events in self.poll.poll():
                if file == self.port:
                    self.hear()
                elif file == self.woken:
                    self.reap()
                elif file in self.channels:
                    self.serve(self.channels[file], events)

    def send(self, data: bytes) -> None:
        """Send all of *data*; waits for whoever reads it."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.port, view[: 1 << 15]) :]
            except BlockingIOError:
                waits = select.poll()
                waits.register(self.port, select.POLLOUT)
                waits.poll()

    def reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.woken, 4096)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self.agent:
                    print(f"the agent ended ({ended[1]})", flush=True)  # noqa: T201
                    os._exit(1)

    # From outside.

    def hear(self) -> None:
        try:
            data = os.read(self.port, READ_BYTES)
        except BlockingIOError:
            return
        if not data:  # nobody is there yet
            time.sleep(0.001)
            return
        for kind, channel, content in self.records.feed(data):
            if kind == OPEN:
                self.open(channel)
            elif kind == DATA and channel in self.connections:
                self.connections[channel].out += content
                self.flush(channel)
            elif kind == CLOSE:
                self.close(channel)
            elif kind == PIECE and self.filling:
                self.filling.piece(content)
            elif kind == ASK:
                self.asked(json.loads(content))

    def asked(self, words: dict[str, object]) -> None:
        answer: dict[str, object] = {"tell": "answer", "id": words.get("id")}
        try:
            if words["do"] == "hello":
                answer |= self.hello(words)
            elif words["do"] == "freeze":
                for tree in self.trees.values():
                    tree.tell(self.send)
                self.part()
                self.frozen = True
                os.sync()
                with open("/proc/sys/vm/drop_caches", "w") as file:  # noqa: PTH123
                    file.write("1")
            elif words["do"] == "put":
                self.filling = self.trees[str(words["tree"])]
                self.filling.put(words)
                return
            elif words["do"] == "filled":
                for tree in self.trees.values():
                    tree.settle()
                self.filling = None
        except (OSError, KeyError, ValueError) as error:
            answer["why"] = repr(error)
        self.send(told(SAID, answer))

    def hello(self, words: dict[str, object]) -> dict[str, object]:
        """Somebody is there, for the first time or after a sleep; what time it is there, and some chance."""
        if words.get("is_another") or self.frozen:
            self.part()
        self.frozen = False
        now = float(str(words["now"]))
        lag_s = now - time.time()
        time.clock_settime(time.CLOCK_REALTIME, now)
        chance = bytes.fromhex(str(words["chance"]))
        with open("/dev/urandom", "wb", buffering=0) as pool:  # noqa: PTH123
            with contextlib.suppress(OSError):
                fcntl.ioctl(pool, RNDADDENTROPY, struct.pack("ii", len(chance) * 8, len(chance)) + chance)
            with contextlib.suppress(OSError):
                fcntl.ioctl(pool, RNDRESEEDCRNG)
        if words.get("is_another"):
            with Connection().stream as agent:
                agent.settimeout(AGENT_S)
                content = json.dumps({"type": "renew", "id": ""}).encode()
                agent.sendall(len(content).to_bytes(4, "big") + content)
                agent.recv(READ_BYTES)
        return {"lag_s": lag_s}

    def part(self) -> None:
        """End all connections to the agent."""
        for channel in list(self.connections):
            self.close(channel)

    def open(self, channel: int) -> None:
        try:
            connection = Connection()
        except OSError:
            self.send(packed(CLOSE, channel))
            return
        self.connections[channel] = connection
        self.channels[connection.stream.fileno()] = channel
        self.poll.register(connection.stream, select.POLLIN)

    def close(self, channel: int) -> None:
        connection = self.connections.pop(channel, None)
        if connection:
            self.poll.unregister(connection.stream)
            del self.channels[connection.stream.fileno()]
            connection.stream.close()

    # From the agent.

    def flush(self, channel: int) -> None:
        connection = self.connections[channel]
        try:
            while connection.out:
                del connection.out[: connection.stream.send(memoryview(connection.out)[:READ_BYTES].tobytes())]
        except BlockingIOError:
            self.poll.modify(connection.stream, select.POLLIN | select.POLLOUT)
            return
        except OSError:
            self.gone(channel)
            return
        self.poll.modify(connection.stream, select.POLLIN)

    def serve(self, channel: int, events: int) -> None:
        connection = self.connections[channel]
        if events & select.POLLOUT:
            self.flush(channel)
        if channel not in self.connections or not events & (select.POLLIN | select.POLLHUP | select.POLLERR):
            return
        try:
            data = connection.stream.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.gone(channel)
            return
        if self.ends_a_run(connection, data):
            for tree in self.trees.values():
                tree.tell(self.send)
        self.send(packed(DATA, channel, data))

    def gone(self, channel: int) -> None:
        self.close(channel)
        self.send(packed(CLOSE, channel))

    def ends_a_run(self, connection: Connection, data: bytes) -> bool:
        """Whether the last byte of what came of a run is in *data*."""
        ended, frame = False, connection.frame
        frame += data
        while len(frame) >= 4 and len(frame) >= (size := 4 + int.from_bytes(frame[:4], "big")):
            start = bytes(frame[4:128])
            ended = ended or not any(word in start for word in QUIET)
            del frame[:size]
        return ended


def begin_agent() -> int:
    """Start the agent inside, as the sandbox's user; returns once it is ready."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(SOCKET)
    listening.listen(64)
    heard, ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            for file in (listening.fileno(), ready):
                os.set_inheritable(file, True)
            most = _processes()
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
            os.setgroups([])
            os.setgid(USER)
            os.setuid(USER)
            os.setsid()
            os.umask(0o022)
            os.chdir("/workspace")
            files = {"KASMON_LISTEN_FD": str(listening.fileno()), "KASMON_READY_FD": str(ready)}
            program = "/usr/bin/python3"
            os.execve(program, [program, "-s", "-P", "-S", AGENT], VARIABLES | CAREFUL | files)
        finally:
            os._exit(1)
    os.close(ready)
    listening.close()
    if os.read(heard, 1) != b"R":
        os._exit(1)
    os.close(heard)
    return pid


def _processes() -> int:
    """How many processes the sandbox's user may have, as the machine was told."""
    with open("/proc/cmdline") as file:  # noqa: PTH123
        words = dict(word.partition("=")[::2] for word in file.read().split())
    return int(words.get("kasmon.processes", "256"))
