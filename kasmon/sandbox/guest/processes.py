"""Processes for clients outside: each has a run name and serves one client at a time, which may reconnect.

    process_start   run, argv, variables, workdir, columns and rows (on a terminal) or neither (on pipes), notes
    process_join    run, has: stream -> the offset up to which the client has it; later data is sent as it arrives
    process_has     run, stream, to: data before this offset may be dropped; is not answered
    process_tell    run, at, data: for its stdin, with its offset; the answer says how many bytes were ever accepted
    process_close   run: closes its stdin
    process_resize  run, columns, rows
    process_signal  run, number

Starting a run again by its name returns the existing one. The client that joined last gets the output; when it leaves,
the one before it that is still connected: a broken connection may be detected after its replacement has joined.

    stream          name, at, data
    rest            it is idle, with no output for a moment; sent less often than output
    ended           code, once all output was sent; a signal is negative
"""

import base64
import contextlib
import errno
import os
import time
from collections.abc import Callable

from kasmon.sandbox.guest.children import build_environment
from kasmon.sandbox.guest.client import GuestConnection, InvalidRequestError, JsonObject, number, texts
from kasmon.sandbox.guest.event_loop import EventLoop, Timer
from kasmon.sandbox.guest.interpreter_state import unpacked
from kasmon.sandbox.guest.process import TAKEN, GuestProcess, OutputBuffer, Size

PIECE_BYTES = 1 << 15
FULL_BYTES = 1 << 18
"""With more unread input than this, `process_tell` is answered only once it is less."""
REST_S = 0.3
LONGEST_S = 5.0
"""A process with continuous output is reported as `rest` at this interval."""
NOTES = "notes"
NOTES_BYTES = 1 << 20
MOST_CELLS = 10_000


class ProcessClient:
    """A client of a process, and up to which offset it was sent each stream."""

    def __init__(self, client: GuestConnection, sent: dict[str, int]) -> None:
        self.client, self.sent = client, sent
        self.knows_end = False


class ProcessRun:
    """One process, its notes file, and its clients."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self.process: GuestProcess
        self._notes, self._notes_file, self._notes_path = OutputBuffer(), -1, ""
        self._joined: list[ProcessClient] = []
        self._rests: Timer | None = None
        self._said_at = self._since = 0.0
        self._owed: list[Callable[[], None]] = []

    def streams(self) -> dict[str, OutputBuffer]:
        return {**self.process.streams, NOTES: self._notes}

    def begin(self, argv: list[str], variables: dict[str, str], workdir: str, size: Size | None, notes: str) -> None:
        if notes:
            self._open_notes(notes)
        self.process = GuestProcess(self._loop, argv, build_environment(variables), workdir, size, self._handle_message)

    def _open_notes(self, path: str) -> None:
        """Create *path* as a FIFO, so that notes are read at once."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
        os.mkfifo(path, 0o600)
        self._notes_file, self._notes_path = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC), path
        self._loop.watch(self._notes_file, self._read_notes)

    def _read_notes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._note(os.read(self._notes_file, PIECE_BYTES))
        self._handle_message(NOTES)

    def _note(self, data: bytes) -> None:
        if self._notes.held + len(data) <= NOTES_BYTES:
            self._notes.add(data)

    def _close_notes(self) -> None:
        """Read the remaining notes, and remove the FIFO: a writer would block without a reader. Idempotent."""
        if self._notes_file < 0:
            return
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._notes_file, PIECE_BYTES):
                self._note(data)
        self._loop.forget(self._notes_file)
        os.close(self._notes_file)
        self._notes_file = -1
        with contextlib.suppress(OSError):
            os.unlink(self._notes_path)  # noqa: PTH108

    def join(self, client: GuestConnection, has: dict[str, int]) -> None:
        sent: dict[str, int] = {}
        for name, stream in self.streams().items():
            to = has.get(name, stream.begin)
            if name == NOTES:
                stream.forget(to)
            else:
                self.process.acknowledge(name, to)
            sent[name] = stream.begin
        self._joined = [each for each in self._joined if each.client is not client] + [ProcessClient(client, sent)]
        self._send()

    def drop_client(self, client: GuestConnection) -> None:
        self._joined = [each for each in self._joined if each.client is not client]
        self._send()

    def acknowledge(self, stream: str, to: int) -> None:
        if stream == NOTES:
            self._notes.forget(to)
        elif stream in self.process.streams:
            self.process.acknowledge(stream, to)

    def write_input(self, at: int, data: bytes, answer: Callable[[], None]) -> None:
        self.process.write_input(at, data)
        self._owed.append(answer)
        self._settle()

    def _settle(self) -> None:
        """Answer the pending `process_tell` requests, once the process has read most of its input."""
        if len(self.process.stdin.waiting) <= FULL_BYTES:
            owed, self._owed = self._owed, []
            for answer in owed:
                answer()

    def _handle_message(self, stream: str) -> None:
        if stream == TAKEN:
            self._settle()
            return
        if not stream:
            self._close_notes()
        self._said_at = time.monotonic()
        if self._rests is None and stream:
            self._since = self._said_at
            self._rests = self._loop.after(REST_S, self._rest)
        self._send()

    def _rest(self) -> None:
        now = time.monotonic()
        self._rests = None
        if now - self._said_at < REST_S and now - self._since < LONGEST_S:
            self._rests = self._loop.after(REST_S, self._rest)
        elif self._joined:
            self._joined[-1].client.send({"type": "rest"})

    def _send(self) -> None:
        if not self._joined or not hasattr(self, "process"):
            return
        last = self._joined[-1]
        for name, stream in self.streams().items():
            while data := stream.since(max(last.sent[name], stream.begin), PIECE_BYTES):
                at = max(last.sent[name], stream.begin)
                packed = base64.b64encode(data).decode("ascii")
                last.client.send({"type": "stream", "name": name, "at": at, "data": packed})
                last.sent[name] = at + len(data)
        is_over = all(stream.is_over for stream in self.process.streams.values())
        if self.process.code is not None and is_over and not last.knows_end:
            last.knows_end = True
            last.client.send({"type": "ended", "code": self.process.code})

    def end(self) -> None:
        self.process.end()
        self._loop.cancel(self._rests)
        self._close_notes()


class Processes:
    """Request handlers: each takes a request, and returns its answer or sends that later."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._runs: dict[str, ProcessRun] = {}
        self.acts: dict[str, Callable[[GuestConnection, JsonObject], JsonObject | None]] = {
            "process_start": self._start,
            "process_join": self._join,
            "process_has": self._acknowledge,
            "process_tell": self._write_input,
            "process_close": self._close,
            "process_resize": self._resize,
            "process_signal": self._signal,
        }

    @property
    def living(self) -> list[GuestProcess]:
        return [run.process for run in self._runs.values()]

    def drop_client(self, client: GuestConnection) -> None:
        for run in self._runs.values():
            run.drop_client(client)

    def end(self) -> None:
        for run in self._runs.values():
            run.end()
        self._runs.clear()

    def _start(self, client: GuestConnection, message: JsonObject) -> JsonObject:
        name = message.get("run")
        if not isinstance(name, str) or not name:
            raise InvalidRequestError("'run' is a text")
        if name in self._runs:
            return {"pid": self._runs[name].process.pid, "started": False}
        argv, workdir = texts(message, "argv"), str(message.get("workdir") or "/")
        variables = message.get("variables") or {}
        notes = message.get("notes") or ""
        if not argv or not isinstance(variables, dict) or not isinstance(notes, str):
            raise InvalidRequestError("'argv' are texts, 'variables' names and texts, 'notes' a path")
        if "\0" in "".join([*argv, workdir, notes, *map(str, variables), *map(str, variables.values())]):
            raise InvalidRequestError("a text contains a NUL")
        run = ProcessRun(self._loop)
        try:
            run.begin(argv, {str(key): str(value) for key, value in variables.items()}, workdir, _size(message), notes)
        except OSError as error:
            return {"pid": 0, "why": f"{error.filename or argv[0]}: {error.strerror}", "code": _code(error)}
        self._runs[name] = run
        return {"pid": run.process.pid, "started": True}

    def _join(self, client: GuestConnection, message: JsonObject) -> None:
        run = self._run(message)
        has = message.get("has") or {}
        if not isinstance(has, dict):
            raise InvalidRequestError("'has' are streams and numbers")
        counted = {str(name): int(number(has, name, 0, 1 << 62)) for name in has}
        client.send({"id": message.get("id"), "type": "answer", "taken": run.process.stdin.end})
        run.join(client, counted)

    def _acknowledge(self, client: GuestConnection, message: JsonObject) -> None:
        self._run(message).acknowledge(str(message.get("stream")), int(number(message, "to", 0, 1 << 62)))

    def _write_input(self, client: GuestConnection, message: JsonObject) -> None:
        run, at = self._run(message), int(number(message, "at", 0, 1 << 62))
        name = message.get("id")
        try:
            run.write_input(
                at,
                unpacked(message.get("data")),
                lambda: client.send({"id": name, "type": "answer", "taken": run.process.stdin.end}),
            )
        except ValueError as error:
            raise InvalidRequestError(str(error)) from error

    def _close(self, client: GuestConnection, message: JsonObject) -> JsonObject:
        self._run(message).process.close()
        return {}

    def _resize(self, client: GuestConnection, message: JsonObject) -> JsonObject:
        run, size = self._run(message), _size(message)
        if size is None:
            raise InvalidRequestError("a terminal has columns and rows")
        run.process.resize(size)
        return {}

    def _signal(self, client: GuestConnection, message: JsonObject) -> JsonObject:
        self._run(message).process.signal(int(number(message, "number", 0, 64)))
        return {}

    def _run(self, message: JsonObject) -> ProcessRun:
        run = self._runs.get(str(message.get("run")))
        if run is None:
            raise InvalidRequestError("there is no such run")
        return run


def _size(message: JsonObject) -> Size | None:
    columns, rows = (int(number(message, key, 0, MOST_CELLS)) for key in ("columns", "rows"))
    return (columns, rows) if columns and rows else None


def _code(error: OSError) -> int:
    return 126 if error.errno in (errno.EACCES, errno.EPERM) else 127
