"""The relay's connection to a sandbox at the service: a command there joins each caller to the guest program.

Before a run, changes made here are copied in. Its answer is forwarded once the workspace here is up to date with the
sandbox, and names the files that are not. An agent's folders are copied in before each line of input, and out whenever
it is idle and before its end is reported. During a run, or while a client is joined to an agent, the sandbox's timeout
is extended: kasmon decides when an agent is paused. An unused sandbox is paused from here before its timeout, without
its credentials, which the service does not know. Where an agent got credentials, it is ended instead.
"""

import base64
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kasmon.errors import SandboxError
from kasmon.sandbox.e2b import guest_setup, service
from kasmon.sandbox.e2b.guest_setup import AGENT, KASMON, PYTHON, GuestFolder
from kasmon.sandbox.guest.frames import FrameReader, FrameTooLargeError, LineReader, encode_line, pack
from kasmon.sandbox.network.port_forward import LISTENS
from kasmon.sandbox.remote_guest import launch_spec
from kasmon.sandbox.remote_guest.folder_sync import FolderSync

if TYPE_CHECKING:
    import e2b

PORT_BLOCK_BYTES: Final = 1 << 16


class CommandStream:
    """A connection to *destination* inside, the path of a socket or a port; see `guest/stdio_join.py`."""

    def __init__(self, sandbox: "e2b.Sandbox", destination: str) -> None:
        command = f"{PYTHON} {KASMON}/main.py join {destination}"
        self._handle = sandbox.commands.run(command, background=True, stdin=True, timeout=0, retain_output=False)
        self.stderr = ""

    def send(self, data: bytes) -> None:
        self._handle.send_stdin(encode_line(data).decode("ascii"), service.REQUEST_S)

    def receive(self) -> Iterator[bytes]:
        """Yield what it sends; first empty bytes, if *destination* is a port."""
        lines = LineReader()
        for stdout, stderr, _ in self._handle:
            self.stderr += stderr or ""
            yield from lines.feed((stdout or "").encode())

    def require_success(self) -> None:
        """Wait for its end; raises the SDK's `CommandExitException` if it failed."""
        self._handle.wait()

    def close(self) -> None:
        """End it after what was sent."""
        self._handle.close_stdin(service.REQUEST_S)

    def kill(self) -> None:
        self._handle.kill()


class E2bPorts:
    """Connects to the ports of one sandbox, which is resumed for it."""

    def __init__(self, access: service.ServiceAccess, identity: str, timeout_s: int) -> None:
        self._access, self._identity, self._timeout_s = access, identity, timeout_s

    def connect(self, port: int) -> socket.socket:
        """Return a connection to 127.0.0.1:*port* inside; a `SandboxError` if nothing listens there."""
        sandbox = service.connect(self._access, self._identity, self._timeout_s)
        with service.converted_errors(f"cannot reach port {port}"):
            stream = CommandStream(sandbox, str(port))
            received = _receive(stream, port)
            next(received)
        caller_end, sandbox_end = socket.socketpair()
        threading.Thread(target=_forward_in, args=(sandbox_end, stream), daemon=True).start()
        threading.Thread(target=_forward_out, args=(sandbox_end, received), daemon=True).start()
        return caller_end

    def close(self) -> None:
        """Do nothing: the connector holds no resources."""


def _receive(stream: CommandStream, port: int) -> Iterator[bytes]:
    """Yield what `CommandStream.receive` does. Raises `SandboxError` if it cannot connect."""
    try:
        yield from stream.receive()
        stream.require_success()
    except service.sdk().CommandExitException as error:
        why = (stream.stderr.strip().splitlines() or ["it gives no reason"])[-1]
        raise SandboxError(f"cannot reach port {port}", why, LISTENS) from error


def _forward_in(sandbox_end: socket.socket, stream: CommandStream) -> None:
    with contextlib.suppress(Exception):  # the other direction ends too then
        while data := sandbox_end.recv(PORT_BLOCK_BYTES):
            stream.send(data)
        stream.close()


def _forward_out(sandbox_end: socket.socket, received: Iterator[bytes]) -> None:
    with sandbox_end, contextlib.suppress(Exception):  # the reader gets EOF
        for data in received:
            sandbox_end.sendall(data)
        sandbox_end.shutdown(socket.SHUT_RDWR)


BLOCK_BYTES: Final = 1 << 18
UNUSED_PART: Final = 0.9
"""The part of the service's timeout after which the relay pauses a sandbox without callers."""
MOST_SHOWN: Final = 8
"""Most sentences about files that were not copied, per answer."""
CHANGING: Final = frozenset({"execute", "save_state", "level"})
"""Requests that may change the workspace: it is fetched before their answer is forwarded."""
FINAL_ANSWERS: Final = frozenset({"result", "answer", "execute", "level"})
"""Answers that end a request; a client without request ids gets one without a type, which decodes as `execute`."""
FETCH_S: Final = 2.0
"""Least time between two fetches of the folders of an idle agent."""
LEAVE_S: Final = 1.5
MOST_REPORTED: Final = 100
TRIES: Final = 3
"""How often the report of an agent's end waits for its folders."""


class _RelayMessage(msgspec.Struct):
    type: str = "execute"
    data: str = ""


class RelayedSandbox:
    """One sandbox. Each caller has its own thread."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._access = msgspec.convert(settings["access"], service.ServiceAccess)
        self._identity = str(settings["remote"])
        self._folders = tuple(
            GuestFolder(name, path, FolderSync(folder, Path(note))) for name, path, folder, note in settings["folders"]
        )
        self._keeps, self._session_folder = bool(settings["keeps"]), Path(settings["session_folder"])
        self._reported: set[str] = set()
        self._timeout_s, self._prolong_s = int(settings["timeout_s"]), float(settings["prolong_s"])
        self._path, self._volatile, self._names = settings["path"], list(settings["volatile"]), list(settings["names"])
        self._busy = self._callers = 0
        self._used_at = time.monotonic()
        self._lock, self._sync_lock = threading.Lock(), threading.Lock()
        self._differences: tuple[str, ...] = ()
        self._used, self._idle = threading.Event(), threading.Event()
        self._failed = 0
        threading.Thread(target=self._prolong, daemon=True).start()
        threading.Thread(target=self._pause_unused, daemon=True).start()
        threading.Thread(target=self._fetch_when_idle, daemon=True).start()
        threading.Thread(target=service.sdk, daemon=True).start()  # the SDK takes longest to load

    def join(self, caller: socket.socket, /) -> None:
        """Carry data between *caller* and the guest program; a paused sandbox is resumed for it."""
        with self._lock:
            self._callers += 1
        try:
            self._join(caller)
        finally:
            with self._lock:
                self._callers -= 1
                self._used_at = time.monotonic()

    def leave(self) -> None:
        """Return once no file is being copied, or after `LEAVE_S`."""
        self._sync_lock.acquire(timeout=LEAVE_S)

    def _join(self, caller: socket.socket) -> None:
        sandbox = service.connect(self._access, self._identity, self._timeout_s)
        stream = CommandStream(sandbox, AGENT)
        before, after = lambda: self._prepare_request(sandbox), lambda: self._fetch_changes(sandbox)
        connection = _CallerConnection(caller, before, after, lambda event: self._on_event(event, sandbox))

        def write() -> None:
            connection.send(stream.send)
            with contextlib.suppress(Exception):  # it may be gone, with its sandbox or before
                stream.kill()

        writes = threading.Thread(target=write, daemon=True)
        writes.start()
        try:
            for data in stream.receive():
                connection.receive(data)
        finally:
            connection.leave()
            writes.join()
            with self._lock:
                self._busy -= connection.unanswered + connection.works

    def _pause_unused(self) -> None:
        """Pause it once it had no caller for almost as long as the service's timeout; once after each use."""
        most_s, paused_at = self._timeout_s * UNUSED_PART, 0.0
        while True:
            time.sleep(max(0.1, self._used_at + most_s - time.monotonic()))
            used_at = self._used_at
            if self._callers:
                self._used_at = time.monotonic()
            elif used_at == paused_at:
                time.sleep(most_s)
            elif time.monotonic() >= used_at + most_s:
                with contextlib.suppress(SandboxError):
                    self._pause()
                paused_at = used_at

    def _pause(self) -> None:
        """Let the service pause it, or end it where its memory may not be stored. Raises `SandboxError`."""
        if self._volatile or self._names or not self._keeps:
            sandbox = service.connect(self._access, self._identity, self._timeout_s)
            with self._sync_lock:
                if not self._keeps:
                    guest_setup.fetch_folders(sandbox, self._folders)
                else:
                    guest_setup.delete_credentials(sandbox, self._volatile, self._names)
        if not self._callers:
            (service.pause if self._keeps else service.kill)(self._access, self._identity)

    def _prepare_request(self, sandbox: "e2b.Sandbox") -> None:
        """Raises: SandboxError: if changes made here cannot be copied in; nothing runs then."""
        with self._lock:
            self._busy += 1
        self._used.set()
        with self._sync_lock:
            self._differences += guest_setup.send_folders(sandbox, self._folders)

    def _fetch_changes(self, sandbox: "e2b.Sandbox") -> str:
        """Return what the user should know of the workspace, each sentence once."""
        with self._sync_lock:
            found = (*self._differences, *guest_setup.fetch_folders(sandbox, self._folders))
            fresh = [each for each in found if each not in self._reported]
            self._reported |= {*fresh}
            self._differences = ()
        with self._lock:
            self._busy -= 1
        more = f" {len(fresh) - MOST_SHOWN} more files were not fetched either." if len(fresh) > MOST_SHOWN else ""
        return " ".join(fresh[:MOST_SHOWN]) + more

    def _on_event(self, event: str, sandbox: "e2b.Sandbox") -> None:
        """Handle a client that joins an agent, a line of input, idleness, or its end; a failure is tried again."""
        if event == "joined":
            with self._lock:
                self._busy += 1
            self._used.set()
        elif event == "told":
            with self._sync_lock, contextlib.suppress(SandboxError):  # sent with the next line
                self._report_differences(guest_setup.send_folders(sandbox, self._folders))
        elif event == "rests":
            self._idle.set()
        elif self._failed < TRIES:
            self._failed += 1
            with self._sync_lock:
                self._report_differences(guest_setup.fetch_folders(sandbox, self._folders))
            self._failed = 0

    def _report_differences(self, sentences: Iterable[str]) -> None:
        """Report differences between an agent's folders on both sides to its host, each once."""
        fresh = [each for each in sentences if each not in self._reported][: MOST_REPORTED - len(self._reported)]
        self._reported |= {*fresh}
        if fresh:
            launch_spec.add_differences(self._session_folder, fresh)

    def _fetch_when_idle(self) -> None:
        while True:
            self._idle.wait()
            self._idle.clear()
            with contextlib.suppress(SandboxError):  # tried again the next time
                sandbox = service.connect(self._access, self._identity, self._timeout_s)
                with self._sync_lock:
                    self._report_differences(guest_setup.fetch_folders(sandbox, self._folders))
            time.sleep(FETCH_S)

    def _prolong(self) -> None:
        while True:
            self._used.wait()
            if not self._busy:
                self._used.clear()
                continue
            with contextlib.suppress(SandboxError):
                service.extend_timeout(self._access, self._identity, self._timeout_s)
            time.sleep(self._prolong_s)


open_sandbox = RelayedSandbox
"""Called by `remote_guest/relay.py`."""


class _CallerConnection:
    """One caller: its requests are forwarded at once; answers to requests that change files wait for those files."""

    def __init__(
        self,
        caller: socket.socket,
        before_request: Callable[[], None],
        after_answer: Callable[[], str],
        on_event: Callable[[str], None],
    ) -> None:
        self._caller, self._before_request = caller, before_request
        self._fetch_changes, self._on_event = after_answer, on_event
        self._in, self._out = FrameReader(), FrameReader()
        self.unanswered = 0
        """How many requests that may change the workspace are unanswered."""
        self.works = False
        """Whether the caller has joined an agent."""

    def send(self, write: Callable[[bytes], None]) -> None:
        with contextlib.suppress(Exception):  # the other direction ends too then
            is_valid = True
            while data := self._caller.recv(BLOCK_BYTES):
                try:
                    for frame in self._in.feed(data) if is_valid else ():
                        self._prepare(_decode(frame))
                except FrameTooLargeError:  # the guest program refuses that itself, and disconnects
                    is_valid = False
                write(data)
        self.leave()

    def _prepare(self, message: _RelayMessage) -> None:
        """Do what the request *message* requires before it is forwarded."""
        if message.type in CHANGING:
            self.unanswered += 1
            self._before_request()
        elif message.type == "process_join" and not self.works:
            self.works = True
            self._on_event("joined")
        elif message.type == "process_tell" and is_line(message.data):
            self._on_event("told")

    def receive(self, data: bytes) -> None:
        for frame in self._out.feed(data):
            kind = _decode(frame).type if self.unanswered or self.works else ""
            if self.unanswered and kind in FINAL_ANSWERS:
                frame = _add_hint(frame, self._fetch_changes())
                self.unanswered -= 1
            elif kind == "rest":
                self._on_event("rests")
            elif kind == "ended":
                self._on_event("ended")
            self._caller.sendall(pack(frame))

    def leave(self) -> None:
        with contextlib.suppress(OSError):
            self._caller.shutdown(socket.SHUT_RDWR)


def _add_hint(frame: bytes, more: str) -> bytes:
    answer = msgspec.json.decode(frame) if more else None
    if not isinstance(answer, dict) or answer.get("type") == "answer":
        return frame
    return msgspec.json.encode({**answer, "hint": f"{answer.get('hint') or ''} {more}".strip()})


def is_line(data: str) -> bool:
    """Whether *data*, in base64, contains a line end: input on which an agent starts to work."""
    try:
        raw = base64.b64decode(data, validate=True)
    except ValueError:
        return False
    return b"\r" in raw or b"\n" in raw


def _decode(frame: bytes) -> _RelayMessage:
    try:
        return msgspec.json.decode(frame, type=_RelayMessage)
    except msgspec.MsgspecError:
        return _RelayMessage(type="")
