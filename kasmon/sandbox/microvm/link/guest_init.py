"""The first process of a machine: runs as root, is the only one connected to the host end, and runs the guest agent.

It runs no user code. The guest agent is that of every sandbox and listens on a socket; each connection outside is
joined to it. Before a run's result is passed on, changes in the mirrored folders are sent, so a client that has the
result has the files. It forwards proxy connections out, and connections to ports inside. When it ends, so does the
machine.
"""

import compileall
import contextlib
import ctypes
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
from collections.abc import Callable

from kasmon.sandbox.guest.mux import INSIDE, OUT, ConnectionMux, door, to_port
from kasmon.sandbox.guest.mux_frames import ASK, CALL, CLOSE, DATA, OPEN, PIECE, SAID, MuxRecordReader, packed, told
from kasmon.sandbox.microvm.link.folder_changes import FolderChanges
from kasmon.sandbox.microvm.link.folder_mirror import FolderMirror

USER = 1000
CODE = "/opt/kasmon"
AGENT = f"{CODE}/main.py"
SOCKET = "/opt/agent.sock"
READ_BYTES = 1 << 16
AGENT_S = 10.0
DEAF_S = "0.5"
"""Seconds: how long code runs before it is interrupted, on a processor that may be emulated; see `interpreter.py`."""
MS_RDONLY, MS_SAFE, MS_REMOUNT, MS_BIND = 1, 2 | 4, 32, 4096
"""Flags of `mount`; safe: nosuid and nodev."""
BLKFLSBUF = 0x1261
PROGRAMS, THERE = "/dev/vdc", "/opt/programs"
MANY = 1000
WITHOUT_END = 1 << 62
"""Only the disk is the limit."""
QUIET = (b'"type":"stream"', b'"type":"began"', b'"type":"answer"', b'"type":"part"')
"""Frames of the agent that are not the result of a run."""
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
"""The variables by which `init` has freed memory cleared."""


class AgentLink:
    """One connection to the agent, for one client outside."""

    def __init__(self) -> None:
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.connect(SOCKET)
        self.stream.setblocking(False)
        self.out = bytearray()
        self.frame = bytearray()
        self.is_held = False
        """Whether its client does not read; then the agent's output is not read either, and it drops what it can."""


class GuestInit:
    def __init__(self) -> None:
        self.port = os.open(glob.glob("/dev/vport*")[0], os.O_RDWR | os.O_NONBLOCK)  # noqa: PTH207
        self.records = MuxRecordReader()
        self.trees = {
            "workspace": FolderChanges("workspace", "/mnt/workspace"),
            "home": FolderChanges("home", "/mnt/home"),
        }
        self.mirrors = {name: mirrored(tree) for name, tree in self.trees.items()}
        self.mirror: FolderMirror | None = None
        self.faults: list[str] = []
        self.poll = select.poll()
        self.connections: dict[int, AgentLink] = {}
        self.channels: dict[int, int] = {}
        self.agent = 0
        self.frozen = False
        self.ways = ConnectionMux(
            lambda kind, channel, content: self.send(packed(kind, channel, content)), INSIDE, to_port
        )
        self.has_way_out = self.has_programs = False
        self.woken, wake = os.pipe()
        for end in (self.woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        compileall.compile_dir(CODE, quiet=2)  # the sandbox's user cannot write there, and runs it repeatedly
        self.agent = begin_agent()
        self.poll.register(self.port, select.POLLIN)
        self.poll.register(self.woken, select.POLLIN)
        self.poll.register(self.ways, select.POLLIN)
        self.send(told(SAID, {"tell": "ready"}))
        while True:
            for file, events in self.poll.poll():
                if file == self.port:
                    self.hear()
                elif file == self.woken:
                    self.reap()
                elif file == self.ways.fileno():
                    self.ways.serve()
                elif file in self.channels:
                    self.serve(self.channels[file], events)

    def send(self, data: bytes) -> None:
        """Send all of *data*; blocks until the host end reads it."""
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
                    print(f"the guest program ended ({ended[1]})", flush=True)  # noqa: T201
                    os._exit(1)

    # From outside.

    def hear(self) -> None:
        try:
            data = os.read(self.port, READ_BYTES)
        except BlockingIOError:
            return
        if not data:  # not connected yet
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
            elif kind == PIECE:
                self.keep(lambda mirror, content=content: mirror.append(content))  # type: ignore[misc]
            elif kind == ASK:
                self.handle_request(json.loads(content))
            elif kind >= CALL:
                self.ways.handle_record(kind, channel, content)

    def handle_request(self, words: dict[str, object]) -> None:
        answer: dict[str, object] = {"tell": "answer", "id": words.get("id")}
        try:
            if words["do"] == "hello":
                answer |= self.hello(words)
            elif words["do"] == "freeze":
                for tree in self.trees.values():
                    tree.tell(self.send)
                self.close_all()
                self.ways.rest()
                self.frozen = True
                os.sync()
                with open("/proc/sys/vm/drop_caches", "w") as file:  # noqa: PTH123
                    file.write("1")
            elif words["do"] in ("hold", "go"):
                if connection := self.connections.get(int(str(words["channel"]))):
                    connection.is_held = words["do"] == "hold"
                    self.listen(connection)
                return
            elif words["do"] == "mirror":
                self.take(words)
                return
            elif words["do"] == "taken":
                answer |= {
                    "not_taken": self.faults,
                    "apart": [said for each in self.mirrors.values() for said in each.told()],
                }
                self.faults = []
            elif words["do"] == "fresh":
                for tree in self.trees.values():
                    tree.forget()
                return
            elif words["do"] == "tell":
                for tree in self.trees.values():
                    tree.tell(self.send)
                    if words.get("manifest"):
                        self.tell_known(tree)
        except (OSError, KeyError, ValueError) as error:
            answer["why"] = repr(error)
        self.send(told(SAID, answer))

    def see(self, name: str, at: str, *, writable: bool) -> None:
        """Mount a folder of the outside at the path *at*, read-only unless *writable*."""
        root = f"/mnt/{name}"
        for folder in (root, at):
            os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        os.chown(root, USER, USER)
        _mount(root, at, MS_BIND)
        _mount("none", at, MS_BIND | MS_REMOUNT | MS_SAFE | (0 if writable else MS_RDONLY))
        tree = self.trees[name] = FolderChanges(name, root)
        tree.tells = writable
        self.mirrors[name] = mirrored(tree)

    def bring(self) -> None:
        """Mount the programs of the outside read-only, each at its path."""
        with open(PROGRAMS, "rb") as disk:  # noqa: PTH123
            fcntl.ioctl(disk, BLKFLSBUF)  # drop cached blocks of its former content
        os.mkdir(THERE, mode=0o700)  # noqa: PTH102
        _mount(PROGRAMS, THERE, MS_RDONLY | MS_SAFE, "ext4")
        with open(f"{THERE}/places.json", "rb") as file:  # noqa: PTH123
            places: dict[str, str] = json.loads(file.read())
        for name, at in places.items():
            source = f"{THERE}/{name}"
            if at == source:
                continue
            above = os.path.dirname(at)  # noqa: PTH120
            if os.path.isdir(source):  # noqa: PTH112
                os.makedirs(at, mode=0o700, exist_ok=True)  # noqa: PTH103
            elif not os.path.isdir(above):  # noqa: PTH112
                os.makedirs(above, mode=0o700)  # noqa: PTH103
                os.chmod(above, 0o755)  # noqa: PTH101
            if not os.path.isdir(source):  # noqa: PTH112
                with open(at, "ab"):  # noqa: PTH123
                    pass
            _mount(source, at, MS_BIND)
            _mount("none", at, MS_BIND | MS_REMOUNT | MS_SAFE | MS_RDONLY)
        self.has_programs = True

    def take(self, words: dict[str, object]) -> None:
        """Apply an outside change to its folder; failures are reported once all was received."""
        if words["tell"] == "whole":
            self.keep(lambda mirror: mirror.complete())
            return
        self.mirror = self.mirrors[str(words["tree"])]
        self.keep(lambda mirror: mirror.take(words))

    def keep(self, act: Callable[[FolderMirror], None]) -> None:
        """Call *act* with the current mirror; if it fails, the rest of that file is skipped."""
        if self.mirror:
            try:
                act(self.mirror)
            except OSError as error:
                self.faults.append(f"{self.mirror.name}: {error.strerror or error}")
                self.mirror = None

    def tell_known(self, tree: FolderChanges) -> None:
        """Send what the outside has of *tree*, to a host end that was not there before."""
        entries = list(tree.manifest())
        for at in range(0, len(entries), MANY):
            self.send(told(SAID, {"tell": "known", "tree": tree.name, "entries": entries[at : at + MANY]}))
        self.send(told(SAID, {"tell": "level", "tree": tree.name}))

    def hello(self, words: dict[str, object]) -> dict[str, object]:
        """Handle a greeting, at first or after a pause: mounts, network access, time and entropy."""
        if words.get("is_another") or self.frozen:
            for channel in list(self.connections):  # earlier clients will reconnect
                self.end_channel(channel)
        self.frozen = False
        folders: dict[str, dict[str, object]] = words.get("folders") or {}  # type: ignore[assignment]
        for name in folders.keys() - self.trees.keys():
            self.see(name, str(folders[name]["at"]), writable=bool(folders[name]["writable"]))
        if words.get("programs") and not self.has_programs:
            self.bring()
        self.ways.go_on()
        if words.get("way_out") and not self.has_way_out:
            self.ways.listen(door(), OUT)
            self.has_way_out = True
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
            with AgentLink().stream as agent:
                agent.settimeout(AGENT_S)
                content = json.dumps({"type": "renew", "id": ""}).encode()
                agent.sendall(len(content).to_bytes(4, "big") + content)
                agent.recv(READ_BYTES)
        return {"lag_s": lag_s}

    def close_all(self) -> None:
        """Close all connections to the agent."""
        for channel in list(self.connections):
            self.close(channel)

    def open(self, channel: int) -> None:
        try:
            connection = AgentLink()
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
            self.listen(connection)
            return
        except OSError:
            self.end_channel(channel)
            return
        self.listen(connection)

    def listen(self, connection: AgentLink) -> None:
        events = (0 if connection.is_held else select.POLLIN) | (select.POLLOUT if connection.out else 0)
        self.poll.modify(connection.stream, events)

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
            self.end_channel(channel)
            return
        if self.ends_a_run(connection, data):
            for tree in self.trees.values():
                tree.tell(self.send)
        self.send(packed(DATA, channel, data))

    def end_channel(self, channel: int) -> None:
        self.close(channel)
        self.send(packed(CLOSE, channel))

    def ends_a_run(self, connection: AgentLink, data: bytes) -> bool:
        """Whether *data* completes the result of a run."""
        ended, frame = False, connection.frame
        frame += data
        while len(frame) >= 4 and len(frame) >= (size := 4 + int.from_bytes(frame[:4], "big")):
            start = bytes(frame[4:128])
            ended = ended or not any(word in start for word in QUIET)
            del frame[:size]
        return ended


def _mount(source: str, target: str, flags: int, kind: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), target.encode(), kind.encode() or None, flags, None):
        fault = ctypes.get_errno()
        raise OSError(fault, os.strerror(fault), target)


def mirrored(tree: FolderChanges) -> FolderMirror:
    """Return the receiving end for the folder of *tree*."""
    handle = os.open(tree.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    return FolderMirror(tree, handle, WITHOUT_END, owner=USER, is_outside=False)


def begin_agent() -> int:
    """Start the guest agent as the sandbox's user; return its pid once it is ready."""
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
            program, own = "/usr/bin/python3", files | {"KASMON_DEAF_S": DEAF_S}
            os.execve(program, [program, "-s", "-P", "-S", AGENT], VARIABLES | CAREFUL | own)
        finally:
            os._exit(1)
    os.close(ready)
    listening.close()
    if os.read(heard, 1) != b"R":
        os._exit(1)
    os.close(heard)
    return pid


def _processes() -> int:
    """Return the process limit of the sandbox's user, from the kernel command line."""
    with open("/proc/cmdline") as file:  # noqa: PTH123
        words = dict(word.partition("=")[::2] for word in file.read().split())
    return int(words.get("kasmon.processes", "256"))
