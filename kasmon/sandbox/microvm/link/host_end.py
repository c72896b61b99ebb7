"""The host end of a machine: a process that starts QEMU; each ends when the other does.

It listens for connections to the guest agent and multiplexes them over the one connection to the machine. It does the
same for connections to ports inside, and for those from inside to the egress proxy, which is a separate process. It
holds the outside of the mirrored folders, and handles kasmon's requests: greet the machine, fill its folders, and
quiesce the connection before the machine is paused to disk. It runs as the machine's user.
"""

import contextlib
import fcntl
import json
import os
import secrets
import select
import signal
import socket
import sys
import time
from collections.abc import Callable

from kasmon.sandbox.guest.frames import FrameReader
from kasmon.sandbox.guest.mux import (
    AGENT,
    CONNECT,
    CONTENT,
    EGRESS,
    MESSAGE,
    OUTSIDE,
    RECORD_BYTES,
    REQUEST,
    ConnectionMux,
    connect_path,
    pack_message,
    pack_record,
    parse_record,
)
from kasmon.sandbox.microvm.link.folder_changes import FolderChanges
from kasmon.sandbox.microvm.link.folder_mirror import FolderMirror, MirrorReceiver

READ_BYTES = 1 << 16
BEHIND_BYTES = 8 * 1024 * 1024
"""With so much data unsent to the machine, clients are not read."""
BUFFERS_BYTES = 1024 * 1024
"""More than fits in the buffers of the machine's end of the connection."""

JsonObject = dict[str, object]


def serve() -> None:
    """Run the host end for the machine that stdin describes, until it ends."""
    with open(0, "rb", closefd=False) as file:
        told_words = json.loads(file.read())
    if os.fork():  # detach from the starter
        os._exit(0)
    VmHostEnd(told_words).run()


class VmHostEnd:
    def __init__(self, config: JsonObject) -> None:
        self._ours, theirs = socket.socketpair()
        self._ours.setblocking(False)
        os.set_inheritable(theirs.fileno(), True)
        lock = int(str(config["lock"]))
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._report_ready(config, {"why": "another machine of this session is running"})
            os._exit(1)
        argv = [str(argument).replace("{line}", str(theirs.fileno())) for argument in config["argv"]]  # type: ignore[attr-defined]
        for file in config["files"]:  # type: ignore[attr-defined]
            os.set_inheritable(file, True)
        ends_with_us = ["/usr/bin/setpriv", "--pdeathsig", "KILL", "--"]
        self._qemu = os.posix_spawn(
            ends_with_us[0], [*ends_with_us, *argv], {"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            setsigdef=(signal.SIGPIPE, signal.SIGINT),
        )  # fmt: skip
        theirs.close()
        for file in config["files"]:  # type: ignore[attr-defined]
            os.close(file)
        self._control = self._listener(config["control"])
        most = int(str(config["most_bytes"]))
        handles: dict[str, int] = config["trees"]  # type: ignore[assignment]
        self._trees = {
            name: FolderChanges(name, f"/proc/self/fd/{handle}", REQUEST, do="mirror")
            for name, handle in handles.items()
        }
        read_only: list[str] = config["read_only"]  # type: ignore[assignment]
        writable = {name: handle for name, handle in handles.items() if name not in read_only}
        self._receiver = MirrorReceiver(
            {name: FolderMirror(self._trees[name], handle, most) for name, handle in writable.items()}
        )
        self._records, self._out = FrameReader(RECORD_BYTES), bytearray()
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._requests: dict[str, socket.socket | None] = {}
        self._request_buffers: dict[int, bytearray] = {}
        self._leveling: set[str] = set()
        self._left: dict[str, list[str]] = {}
        self._is_ready = False
        self._until_ready: list[socket.socket] = []
        gate = str(config["gate"])
        self._mux = ConnectionMux(
            lambda kind, channel, content: self._send(pack_record(kind, channel, content)),
            OUTSIDE,
            lambda destination: connect_path(destination, EGRESS, gate),
        )
        self._mux.listen(self._listener(config["listen"]), AGENT)
        self._mux.listen_for_destination(self._listener(config["ports"]), self._mux.connect)
        self._report_ready(config, {"qemu": self._qemu})

    def _report_ready(self, message: JsonObject, answer: JsonObject) -> None:
        handle = int(str(message["ready"]))
        os.write(handle, json.dumps(answer).encode() + b"\n")
        os.close(handle)

    def _listener(self, handle: object) -> socket.socket:
        listening = socket.socket(fileno=int(str(handle)))
        listening.setblocking(False)
        return listening

    def run(self) -> None:
        self._watch(self._ours, lambda events: self._serve_machine(events))
        self._watch(self._control, lambda _: self._accept_requests())
        self._handlers[self._mux.fileno()] = lambda _: self._serve_connections()
        self._poll.register(self._mux, select.POLLIN)
        while True:
            for file, events in self._poll.poll():
                if handler := self._handlers.get(file):
                    handler(events)

    def _watch(self, stream: socket.socket, handler: Callable[[int], None]) -> None:
        self._handlers[stream.fileno()] = handler
        self._poll.register(stream, select.POLLIN)

    def _forget(self, stream: socket.socket) -> None:
        if self._handlers.pop(stream.fileno(), None):
            self._poll.unregister(stream)
        stream.close()

    # The machine.

    def _serve_machine(self, events: int) -> None:
        if events & select.POLLOUT:
            self._flush()
        if not events & (select.POLLIN | select.POLLHUP | select.POLLERR):
            return
        try:
            data = self._ours.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._shut_down()
        try:
            for frame in self._records.feed(data):
                self._handle_record(*parse_record(frame))
        except (ValueError, KeyError) as error:
            print(f"unexpected message from the machine: {error!r}", file=sys.stderr, flush=True)  # noqa: T201
            self._shut_down()

    def _shut_down(self) -> None:
        """Kill the machine, which ended or sent invalid data, and exit."""
        with contextlib.suppress(OSError):
            os.kill(self._qemu, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._qemu, 0)
        os._exit(0)

    def _handle_record(self, kind: int, channel: int, content: bytes) -> None:
        if kind == CONTENT:
            self._receiver.append(content)
        elif kind == MESSAGE:
            self._handle_message(json.loads(content))
        elif kind >= CONNECT:
            self._mux.handle_record(kind, channel, content)

    def _serve_connections(self) -> None:
        """Serve the multiplexed connections, unless the machine is far behind."""
        if len(self._out) > BEHIND_BYTES:
            self._flush()
            time.sleep(0.001)
            return
        self._mux.serve()

    def _handle_message(self, message: JsonObject) -> None:
        what = message["tell"]
        if what == "ready":
            self._is_ready = True
            for stream in self._until_ready:
                self._answer(stream, {})
        elif what == "answer":
            name = str(message.get("id"))
            if name in self._leveling:
                self._level(name)
                return
            asking = self._requests.pop(name, None)
            if name in self._left:
                message = {
                    **message,
                    "left": self._left.pop(name)[:8],
                    "apart": [*message.get("apart", []), *self._receiver.pop_conflicts()],  # type: ignore[misc]
                }
            if asking is not None:
                self._answer(asking, {**message, "faults": self._receiver.pop_faults()[:8]})
        elif what in ("known", "level"):
            self._record_manifest(self._trees[str(message["tree"])], message)
        else:
            self._receiver.handle_change(message)

    def _record_manifest(self, tree: FolderChanges, message: JsonObject) -> None:
        """Record what the machine already had before this host end started."""
        if tree.is_level:
            return
        if message["tell"] == "level":
            tree.is_level = True
        else:
            tree.record_manifest(message["entries"])  # type: ignore[arg-type]

    def _level(self, name: str) -> None:
        """Send changes outside, after all changes inside were received."""
        self._leveling.discard(name)
        self._left[name] = [why for tree in self._trees.values() for why in tree.send_changes(self._send_whole)]
        self._send(pack_message(REQUEST, {"do": "taken", "id": name}))

    def _send(self, data: bytes) -> None:
        self._out += data
        self._flush()

    def _flush(self) -> None:
        try:
            while self._out:
                del self._out[: self._ours.send(memoryview(self._out)[:READ_BYTES].tobytes())]
        except BlockingIOError:
            self._poll.modify(self._ours, select.POLLIN | select.POLLOUT)
            return
        except OSError:
            self._shut_down()
        self._poll.modify(self._ours, select.POLLIN)

    def _send_whole(self, data: bytes) -> None:
        """Do as `_send`, but wait until the machine is not far behind."""
        self._send(data)
        while len(self._out) > BEHIND_BYTES:
            waits = select.poll()
            waits.register(self._ours, select.POLLIN | select.POLLOUT)
            for _, events in waits.poll():
                self._serve_machine(events)

    # Requests from kasmon.

    def _accept_requests(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while True:
                stream = self._control.accept()[0]
                stream.setblocking(False)
                self._request_buffers[stream.fileno()] = bytearray()
                self._watch(stream, lambda _, stream=stream: self._read_request(stream))  # type: ignore[misc]

    def _read_request(self, stream: socket.socket) -> None:
        try:
            data = stream.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        held = self._request_buffers[stream.fileno()]
        held += data
        if not data:
            del self._request_buffers[stream.fileno()]
            self._until_ready = [each for each in self._until_ready if each is not stream]
            self._requests = {name: each for name, each in self._requests.items() if each is not stream}
            self._forget(stream)
        elif b"\n" in held:
            line, _, rest = bytes(held).partition(b"\n")
            held[:] = rest
            self._handle_request(stream, json.loads(line))

    def _handle_request(self, stream: socket.socket, message: JsonObject) -> None:
        if message["do"] == "wait":
            if self._is_ready:
                self._answer(stream, {})
            else:
                self._until_ready.append(stream)
            return
        if message["do"] == "freeze":
            self._mux.suspend()
        if message["do"] == "hello":
            self._mux.resume()
        if message["do"] == "refresh" and all(tree.is_sent() for tree in self._trees.values()):
            self._answer(stream, {"left": [], "apart": self._receiver.pop_conflicts()})
            return
        if message["do"] == "freeze":  # overwrite the connection's buffers
            self._send_whole(pack_record(CONTENT, 0, bytes(BUFFERS_BYTES)))
        name = secrets.token_hex(4)
        self._requests[name] = stream
        if message["do"] == "fill":
            self._send(pack_message(REQUEST, {"do": "fresh"}))
            self._level(name)
        elif message["do"] == "refresh":
            self._leveling.add(name)
            is_new = not all(tree.is_level for tree in self._trees.values())
            self._send(pack_message(REQUEST, {"do": "tell", "id": name, "manifest": is_new}))
        else:
            self._send(pack_message(REQUEST, {**message, "id": name}))

    def _answer(self, stream: socket.socket, message: JsonObject) -> None:
        with contextlib.suppress(OSError):
            stream.sendall(json.dumps(message).encode() + b"\n")
