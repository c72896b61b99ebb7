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

from kasmon.sandbox.guest.frames import FrameReader, FrameTooLargeError, pack_json
from kasmon.sandbox.guest.mux import (
    AGENT,
    CONNECT,
    CONTENT,
    EGRESS,
    INSIDE,
    MESSAGE,
    RECORD_BYTES,
    REQUEST,
    ConnectionMux,
    MuxConnection,
    connect_path,
    connect_port,
    listen_for_proxy,
    pack_message,
    pack_record,
    parse_record,
)
from kasmon.sandbox.microvm.link.folder_changes import FolderChanges
from kasmon.sandbox.microvm.link.folder_mirror import FolderMirror, MirrorReceiver

USER = 1000
CODE = "/opt/kasmon"
PROGRAM = f"{CODE}/main.py"
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


class GuestInit:
    def __init__(self) -> None:
        self.port = os.open(glob.glob("/dev/vport*")[0], os.O_RDWR | os.O_NONBLOCK)  # noqa: PTH207
        self.records = FrameReader(RECORD_BYTES)
        self.trees = {
            "workspace": FolderChanges("workspace", "/mnt/workspace"),
            "home": FolderChanges("home", "/mnt/home"),
        }
        self.receiver = MirrorReceiver({name: open_mirror(tree) for name, tree in self.trees.items()})
        self.poll = select.poll()
        self.agent = 0
        self.mux = ConnectionMux(
            lambda kind, channel, content: self.send(pack_record(kind, channel, content)),
            INSIDE,
            lambda to: connect_path(to, AGENT, SOCKET) if to == AGENT else connect_port(to),
            self.send_changes_before_result,
        )
        self.has_egress = self.has_programs = False
        self.woken, wake = os.pipe()
        for end in (self.woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        compileall.compile_dir(CODE, quiet=2)  # the sandbox's user cannot write there, and runs it repeatedly
        self.agent = start_agent()
        self.poll.register(self.port, select.POLLIN)
        self.poll.register(self.woken, select.POLLIN)
        self.poll.register(self.mux, select.POLLIN)
        self.send(pack_message(MESSAGE, {"tell": "ready"}))
        while True:
            for file, _ in self.poll.poll():
                if file == self.port:
                    self.read_host()
                elif file == self.woken:
                    self.reap()
                elif file == self.mux.fileno():
                    self.mux.serve()

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

    def read_host(self) -> None:
        try:
            data = os.read(self.port, READ_BYTES)
        except BlockingIOError:
            return
        if not data:  # not connected yet
            time.sleep(0.001)
            return
        for frame in self.records.feed(data):
            kind, channel, content = parse_record(frame)
            if kind == CONTENT:
                self.receiver.append(content)
            elif kind == REQUEST:
                self.handle_request(json.loads(content))
            elif kind >= CONNECT:
                self.mux.handle_record(kind, channel, content)

    def handle_request(self, message: dict[str, object]) -> None:
        answer: dict[str, object] = {"tell": "answer", "id": message.get("id")}
        try:
            if message["do"] == "hello":
                answer |= self.hello(message)
            elif message["do"] == "freeze":
                for tree in self.trees.values():
                    tree.send_changes(self.send)
                self.mux.suspend()
                os.sync()
                with open("/proc/sys/vm/drop_caches", "w") as file:  # noqa: PTH123
                    file.write("1")
            elif message["do"] == "mirror":
                self.receiver.handle_change(message)
                return
            elif message["do"] == "taken":
                answer |= {"not_taken": self.receiver.pop_faults(), "apart": self.receiver.pop_conflicts()}
            elif message["do"] == "fresh":
                for tree in self.trees.values():
                    tree.forget()
                return
            elif message["do"] == "tell":
                for tree in self.trees.values():
                    tree.send_changes(self.send)
                    if message.get("manifest"):
                        self.send_manifest(tree)
        except (OSError, KeyError, ValueError) as error:
            answer["why"] = repr(error)
        self.send(pack_message(MESSAGE, answer))

    def mount_folder(self, name: str, at: str, *, writable: bool) -> None:
        """Mount a folder of the outside at the path *at*, read-only unless *writable*."""
        root = f"/mnt/{name}"
        for folder in (root, at):
            os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        os.chown(root, USER, USER)
        _mount(root, at, MS_BIND)
        _mount("none", at, MS_BIND | MS_REMOUNT | MS_SAFE | (0 if writable else MS_RDONLY))
        tree = self.trees[name] = FolderChanges(name, root)
        tree.tells = writable
        self.receiver.mirrors[name] = open_mirror(tree)

    def mount_programs(self) -> None:
        """Mount the programs of the outside read-only, each at its path."""
        with open(PROGRAMS, "rb") as disk:  # noqa: PTH123
            fcntl.ioctl(disk, BLKFLSBUF)  # drop cached blocks of its former content
        os.mkdir(THERE, mode=0o700)  # noqa: PTH102
        _mount(PROGRAMS, THERE, MS_RDONLY | MS_SAFE, "ext4")
        with open(f"{THERE}/places.json", "rb") as file:  # noqa: PTH123
            paths: dict[str, str] = json.loads(file.read())
        for name, at in paths.items():
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

    def send_manifest(self, tree: FolderChanges) -> None:
        """Send what the outside has of *tree*, to a host end that was not there before."""
        entries = list(tree.manifest())
        for at in range(0, len(entries), MANY):
            self.send(pack_message(MESSAGE, {"tell": "known", "tree": tree.name, "entries": entries[at : at + MANY]}))
        self.send(pack_message(MESSAGE, {"tell": "level", "tree": tree.name}))

    def hello(self, message: dict[str, object]) -> dict[str, object]:
        """Handle a greeting, at first or after a pause: mounts, network access, time and entropy."""
        if message.get("is_another"):
            self.mux.close_all()  # earlier clients will reconnect
        folders: dict[str, dict[str, object]] = message.get("folders") or {}  # type: ignore[assignment]
        for name in folders.keys() - self.trees.keys():
            self.mount_folder(name, str(folders[name]["at"]), writable=bool(folders[name]["writable"]))
        if message.get("programs") and not self.has_programs:
            self.mount_programs()
        self.mux.resume()
        if message.get("way_out") and not self.has_egress:
            self.mux.listen(listen_for_proxy(), EGRESS)
            self.has_egress = True
        now = float(str(message["now"]))
        lag_s = now - time.time()
        time.clock_settime(time.CLOCK_REALTIME, now)
        chance = bytes.fromhex(str(message["chance"]))
        with open("/dev/urandom", "wb", buffering=0) as pool:  # noqa: PTH123
            with contextlib.suppress(OSError):
                fcntl.ioctl(pool, RNDADDENTROPY, struct.pack("ii", len(chance) * 8, len(chance)) + chance)
            with contextlib.suppress(OSError):
                fcntl.ioctl(pool, RNDRESEEDCRNG)
        if message.get("is_another"):
            with socket.socket(socket.AF_UNIX) as agent:
                agent.settimeout(AGENT_S)
                agent.connect(SOCKET)
                agent.sendall(pack_json({"type": "renew", "id": ""}))
                agent.recv(READ_BYTES)
        return {"lag_s": lag_s}

    # From the agent.

    def send_changes_before_result(self, connection: MuxConnection, data: bytes) -> None:
        """Send the changes in the mirrored folders if *data* of the agent completes the result of a run."""
        if connection.destination != AGENT:
            return
        try:
            frames = connection.frames.feed(data)
        except FrameTooLargeError as error:
            raise OSError(str(error)) from error
        if any(not any(marker in frame[:124] for marker in QUIET) for frame in frames):
            for tree in self.trees.values():
                tree.send_changes(self.send)


def _mount(source: str, target: str, flags: int, kind: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), target.encode(), kind.encode() or None, flags, None):
        fault = ctypes.get_errno()
        raise OSError(fault, os.strerror(fault), target)


def open_mirror(tree: FolderChanges) -> FolderMirror:
    """Return the receiving end for the folder of *tree*."""
    handle = os.open(tree.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    return FolderMirror(tree, handle, WITHOUT_END, owner=USER, is_outside=False)


def start_agent() -> int:
    """Start the guest agent as the sandbox's user; return its pid once it is ready."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(SOCKET)
    listening.listen(64)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            for file in (listening.fileno(), writer):
                os.set_inheritable(file, True)
            most = _processes()
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
            os.setgroups([])
            os.setgid(USER)
            os.setuid(USER)
            os.setsid()
            os.umask(0o022)
            os.chdir("/workspace")
            files = {"KASMON_LISTEN_FD": str(listening.fileno()), "KASMON_READY_FD": str(writer)}
            program, own = "/usr/bin/python3", files | {"KASMON_DEAF_S": DEAF_S}
            os.execve(program, [program, "-s", "-P", "-S", PROGRAM], VARIABLES | CAREFUL | own)
        finally:
            os._exit(1)
    os.close(writer)
    listening.close()
    if os.read(reader, 1) != b"R":
        os._exit(1)
    os.close(reader)
    return pid


def _processes() -> int:
    """Return the process limit of the sandbox's user, from the kernel command line."""
    with open("/proc/cmdline") as file:  # noqa: PTH123
        options = dict(option.partition("=")[::2] for option in file.read().split())
    return int(options.get("kasmon.processes", "256"))
