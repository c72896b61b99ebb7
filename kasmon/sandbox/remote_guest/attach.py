"""Attach the stdio proxy to its sandbox: create, find or resume the sandbox, and start the agent in it once.

On the stream to the process inside, bytes arrive exactly once, even if connections break: both directions are counted.
Input that the process has not taken is sent again on the next connection, from the position that the guest reports.
"""

import base64
import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from kasmon.errors import KasmonError, SandboxError, SandboxUnreachableError
from kasmon.model.sandbox.policy import SandboxRuntime
from kasmon.sandbox.guest.frames import FrameReader, FrameTooLargeError
from kasmon.sandbox.guest_client.connection import AgentConnection, AgentConnectionError, pack_request
from kasmon.sandbox.remote_guest import launch_spec
from kasmon.sandbox.remote_guest.launch_spec import AgentTier, RemoteLaunchSpec

PIECE_BYTES: Final = 1 << 15
MOST_BYTES: Final = 1 << 20
"""Maximum of untaken input; reading stops at it."""
HAS_BYTES: Final = 1 << 15
"""After so many bytes their receipt is acknowledged."""
CONNECT_S: Final = 5.0


class StreamFrame(msgspec.Struct):
    """A frame from the guest; only its shape is validated."""

    id: str = ""
    type: str = ""
    name: str = ""
    at: int = 0
    data: str = ""
    taken: int = 0
    code: int = 0
    pid: int = 0
    why: str = ""
    stderr: str = ""
    started: bool = False


class NoSuchRunError(Exception):
    """The guest does not know the process: it is gone, with its sandbox."""


class ProcessStream:
    """The stream of the process *run*. *said* is called with a stream's name and bytes, each once and in order."""

    def __init__(self, run: str, on_output: Callable[[str, bytes], None]) -> None:
        self.run = run
        self.code: int | None = None
        """The exit code of the process; None while it runs."""
        self.has: dict[str, int] = {}
        """How many bytes of each stream were received."""
        self._on_output = on_output
        self._acknowledged: dict[str, int] = {}
        self._pending = bytearray()
        self._taken: int | None = None
        """How many bytes of input the process took in total; None: not yet reported."""
        self._is_sending_input = False
        self._is_closed = self._is_close_sent = False
        self._connection: socket.socket | None = None
        self._frames = FrameReader()
        self.is_joined = False
        """Whether the guest has confirmed the process on this connection."""

    @property
    def has_room(self) -> bool:
        """Whether more input may be queued; if not, the caller waits until some was taken."""
        return len(self._pending) < MOST_BYTES

    def fileno(self) -> int:
        """Return the connection's descriptor, for `poll`; -1 if there is none."""
        return -1 if self._connection is None else self._connection.fileno()

    def connect(self, path: str) -> bool:
        """Connect to *path* and request the process; return whether that was possible."""
        self.disconnect()
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(CONNECT_S)
        try:
            connection.connect(path)
        except OSError:
            connection.close()
            return False
        connection.settimeout(None)
        self._connection, self._frames = connection, FrameReader()
        self.ask("process_join", has=self.has)
        return self._connection is not None

    def disconnect(self) -> None:
        """Close the connection. Idempotent."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self.is_joined, self._is_sending_input, self._is_close_sent = None, False, False, False

    def ask(self, what: str, **message: Any) -> None:
        """Send a request, if connected; its answer is not awaited."""
        if self._connection is None:
            return
        try:
            self._connection.sendall(pack_request({"id": what, "type": what, "run": self.run, **message}))
        except OSError:
            self.disconnect()

    def write(self, data: bytes) -> None:
        """Send *data* to the process, now or when it can take it."""
        self._pending += data
        self._send_pending()

    def close(self) -> None:
        """Close its stdin after the queued input."""
        self._is_closed = True
        self._send_pending()

    def read(self) -> None:
        """Handle data of the connection. Raises `NoSuchRunError` if the guest does not know the process."""
        assert self._connection is not None
        try:
            data = self._connection.recv(1 << 18)
        except OSError:
            data = b""
        if not data:
            self.disconnect()
            return
        try:
            frames = self._frames.feed(data)
        except FrameTooLargeError:
            self.disconnect()
            return
        for frame in frames:
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                self._handle_frame(msgspec.json.decode(frame, type=StreamFrame))
            if self.fileno() < 0:  # the frame closed the connection
                return

    def _handle_frame(self, answer: StreamFrame) -> None:
        if answer.id == "process_join":
            if answer.type != "answer":
                raise NoSuchRunError(answer.stderr)
            self.is_joined = True
            self._record_taken(answer.taken)
        elif answer.id == "process_tell" and answer.type == "answer":
            self._record_taken(answer.taken)
        elif answer.type == "stream":
            self._receive_output(answer)
        elif answer.type == "rest":
            self._acknowledge(1)
        elif answer.type == "ended":
            self.code = answer.code

    def _receive_output(self, answer: StreamFrame) -> None:
        has = self.has.get(answer.name, 0)
        with contextlib.suppress(ValueError):
            data = base64.b64decode(answer.data, validate=True)[max(0, has - answer.at) :]
            if data:
                self.has[answer.name] = max(has, answer.at) + len(data)
                self._on_output(answer.name, data)
        self._acknowledge(HAS_BYTES)

    def _acknowledge(self, least: int) -> None:
        for name, has in self.has.items():
            if has - self._acknowledged.get(name, 0) >= least:
                self._acknowledged[name] = has
                self.ask("process_has", stream=name, to=has)

    def _record_taken(self, taken: int) -> None:
        self._is_sending_input = False
        before = taken if self._taken is None else self._taken  # an earlier stdio proxy may have sent input
        del self._pending[: max(0, taken - before)]
        self._taken = max(taken, before)
        self._send_pending()

    def _send_pending(self) -> None:
        if self._connection is None or not self.is_joined or self._is_sending_input:
            return
        if self._pending:
            self._is_sending_input = True
            data = base64.b64encode(bytes(self._pending[:PIECE_BYTES])).decode("ascii")
            self.ask("process_tell", at=self._taken, data=data)
        elif self._is_closed and not self._is_close_sent:
            self._is_close_sent = True
            self.ask("process_close")


ANSWER_S: Final = 20.0


class NotStartedError(SandboxError):
    """The agent's program could not be started inside."""

    def __init__(self, why: str, status: int) -> None:
        self.status = status
        super().__init__("the agent was not started in its sandbox", why)


class GuestAttachment(NamedTuple):
    """The sandbox of a stdio proxy, with the agent running."""

    tier: AgentTier
    runtime: SandboxRuntime
    run: str
    marks: tuple[str, str]
    notices: tuple[str, ...] = ()
    lost: str = ""
    is_running: bool = False
    """Whether the agent was running already."""
    context: bytes = b""


def attach(tier: AgentTier, spec: RemoteLaunchSpec, size: "tuple[int, int] | None") -> GuestAttachment:
    """Return the sandbox with the agent of *spec*, on a terminal of *size* (columns, rows) or pipes. Blocks minutes.

    Raises:
        NotStartedError: if its program cannot be started; nothing of the sandbox is left.
        SandboxUnreachableError: if the service that runs it cannot be reached; it is unchanged.
        KasmonError: if no sandbox can be created; nothing of it is left.
    """
    lost = ""
    if spec.joins:
        try:
            return _attach_existing(tier, spec)
        except SandboxUnreachableError:  # its state is unknown: nothing is lost by waiting
            raise
        except (KasmonError, OSError, AgentConnectionError) as error:
            why = getattr(error, "message", str(error)).rstrip(".")
            lost = f"its memory snapshot could not be resumed ({why}): memory lost, files kept"
            tier.destroy(spec.policy, None)
            spec = msgspec.structs.replace(spec, run=secrets.token_hex(8))
    runtime = tier.create_for_agent(spec.policy, spec.program_launch)
    try:
        context = _start_agent(spec, runtime, size)
    except BaseException as error:
        with contextlib.suppress(KasmonError):
            tier.destroy(spec.policy, runtime)
        if isinstance(error, AgentConnectionError):
            raise SandboxError("the agent was not started in its sandbox", str(error)) from error
        raise
    notices = (*spec.program_launch.notices, *runtime.notices)
    return GuestAttachment(
        tier=tier, runtime=runtime, run=spec.run, marks=spec.marks, notices=notices, lost=lost, context=context
    )


def _attach_existing(tier: AgentTier, spec: RemoteLaunchSpec) -> GuestAttachment:
    """Return the running agent, or resume its snapshot. Raises `KasmonError` or `AgentConnectionError`."""
    known = launch_spec.load_status(Path(spec.session_folder))
    if known is None or known.run != spec.run:
        raise SandboxError("it is unknown", "there is no record of it")
    runtime, paused = launch_spec.find_paused(tier, spec.policy, known.runtime)
    runtime = tier.resume(spec.policy, runtime, paused)
    launch_spec.end_wait(Path(spec.session_folder))
    return GuestAttachment(tier=tier, runtime=runtime, run=spec.run, marks=known.marks, is_running=True)


def _start_agent(spec: RemoteLaunchSpec, runtime: SandboxRuntime, size: "tuple[int, int] | None") -> bytes:
    """Copy the launch files inside and start the program; return the context that was copied.

    Raises:
        NotStartedError, SandboxError, AgentConnectionError: if that fails.
    """
    context = Path(spec.context).read_bytes() if spec.context else b""
    # tmux reports the terminal type only to this process; a shell without it assumes a dumb terminal
    of_terminal = {name: value for name, value in os.environ.items() if size and name in ("TERM", "COLORTERM")}
    files = [(each.path, each.content, each.mode) for each in spec.files]
    if context:
        files.append((launch_spec.CONTEXT, context, 0o644))
    connection = AgentConnection(runtime.socket, ANSWER_S)
    with contextlib.closing(connection):
        for path, content, mode in files:
            reply = _send_request(connection, "write_volatile", launch_spec.build_file_request(path, content, mode))
            if reply.type != "answer":
                raise SandboxError(f"{path!r} could not be copied into the sandbox", reply.stderr)
        message = {
            "run": spec.run,
            "argv": spec.program_launch.argv,
            "variables": {**spec.program_launch.variables, **of_terminal},
            "workdir": spec.program_launch.workdir,
            "columns": size[0] if size else 0,
            "rows": size[1] if size else 0,
            "notes": launch_spec.NOTES if spec.notes else "",
        }
        reply = _send_request(connection, "process_start", message)
    if not reply.pid:
        raise NotStartedError(reply.why or reply.stderr or "it gives no reason", reply.code or 1)
    return context


def _send_request(connection: AgentConnection, what: str, message: Mapping[str, Any]) -> StreamFrame:
    connection.send(pack_request({"id": what, "type": what, **message}), ANSWER_S)
    until = time.monotonic() + ANSWER_S
    try:
        return connection.receive(StreamFrame, until)
    except TimeoutError as error:
        raise AgentConnectionError("it does not respond", is_sent=True) from error
