"""One open connection to a host, from the client's side: requests, unanswered frames, pushed frames."""

import asyncio
import contextlib
import itertools
import logging
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from kasmon.asyncio_tasks import wait_within
from kasmon.errors import HostUnreachableError, KasmonError, UsageError
from kasmon.host.rpc import control
from kasmon.host.rpc.codec import Unpacker, WireError, from_host, pack, rebuilt
from kasmon.host.rpc.frames import ANSWER_S, FailureReply, Frame, FromHost, Hello, NumberedFrame, Welcome

GOODBYE_S = 1.0
"""How long a closing link waits for unsent data."""
READ_BYTES = 256 * 1024

log = logging.getLogger(__name__)


class HostLink:
    """One open connection to a host. `send` may be called from any thread, the rest on the loop it was opened on."""

    def __init__(self, connected: socket.socket, name: str) -> None:
        self.on_push: Callable[[FromHost], None] = lambda frame: None
        """Called on the loop with each frame that is no answer."""
        self._on_close: Callable[[], None] = lambda: None
        self.welcome = Welcome(n=0, pid=0)
        self.is_open = True
        self._loop = asyncio.get_running_loop()
        self._socket = connected
        self._name = name
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[FromHost]] = {}
        self._unpacker = Unpacker()
        self._unsent = bytearray()
        self._all_sent = asyncio.Event()
        self._sending = threading.Lock()
        self._loop.add_reader(connected, self._read_socket)

    @property
    def on_close(self) -> Callable[[], None]:
        """Called once on the loop, when the host is gone or the link was closed; soon, if it was already."""
        return self._on_close

    @on_close.setter
    def on_close(self, callback: Callable[[], None]) -> None:
        self._on_close = callback
        if not self.is_open:
            self._loop.call_soon(callback)

    @classmethod
    async def open(cls, socket_path: Path, limit_s: float = ANSWER_S, *, as_agent: bool = False) -> "HostLink":
        """Connect to the host that listens at *socket_path* and greet it.

        Raises:
            HostUnreachableError: if no host listens there.
            TimedOutError: if it does not greet within *limit_s* seconds.
            ProtocolVersionError: if it speaks another version.
            RefusedError: if it refuses the connection.
        """
        name = socket_path.stem
        try:
            connected = await _connect(socket_path, limit_s)
        except TimeoutError as error:
            raise control.not_accepted(socket_path, limit_s) from error
        except OSError as error:
            raise HostUnreachableError(name, f"{error.strerror or error}") from error
        pid = control.peer_pid(connected)
        link = cls(connected, name)
        try:
            welcome = await link.ask(Hello(n=0, as_agent=as_agent), limit_s)
            if isinstance(welcome, Welcome):
                link.welcome = welcome
        except KasmonError as error:
            await link.aclose()
            raise await asyncio.to_thread(control.explain_error, socket_path, pid, error) from error
        except BaseException:
            await link.aclose()
            raise
        return link

    async def ask(self, frame: NumberedFrame, limit_s: float | None = None) -> FromHost:
        """Send *frame* under a number of its own and return the answer.

        The wait is *limit_s* seconds; by default as long as the host's welcome allows.

        Raises:
            KasmonError: the host's own error, rebuilt.
            UsageError: if *frame* contains what cannot be sent; nothing was sent.
            TimedOutError: if no answer came within *limit_s* seconds; it may still have been executed.
            HostUnreachableError: if the host exited meanwhile; likewise.
        """
        if not self.is_open:
            raise HostUnreachableError(self._name, "it is gone")
        limit_s = self.welcome.answer_s if limit_s is None else limit_s
        n = next(self._numbers)
        answer: asyncio.Future[FromHost] = self._loop.create_future()
        self._pending[n] = answer
        try:
            self._send(pack(msgspec.structs.replace(frame, n=n)))
            async with asyncio.timeout(limit_s):
                answered = await answer
        except TimeoutError as error:
            raise control.not_answered(self._name, limit_s) from error
        finally:
            self._pending.pop(n, None)
        if isinstance(answered, FailureReply):
            raise rebuilt(answered)
        return answered

    async def watch(self, frame: Frame, is_wanted: Callable[[FromHost], bool], limit_s: float) -> FromHost:
        """Send *frame*, and return the first pushed frame after it that *is_wanted*. Replaces `on_push`.

        Raises:
            TimedOutError: if none came within *limit_s* seconds.
        """
        wanted: asyncio.Future[FromHost] = self._loop.create_future()
        self.on_push = lambda push: wanted.set_result(push) if is_wanted(push) and not wanted.done() else None
        self._pending[-1] = wanted  # ends with the link
        try:
            self._send(pack(frame))
            async with asyncio.timeout(limit_s):
                return await wanted
        except TimeoutError as error:
            raise control.not_answered(self._name, limit_s) from error
        finally:
            self._pending.pop(-1)

    def send(self, frame: Frame) -> None:
        """Send *frame* at once, from any thread; never blocks. Does nothing on a closed link.

        A frame that cannot be sent is dropped and logged.
        """
        try:
            self._send(pack(frame))
        except UsageError as error:
            log.warning("%s", error)

    def _send(self, data: bytes) -> None:
        with self._sending:
            if not self.is_open:
                return
            sent = 0
            if not self._unsent:
                try:
                    sent = self._socket.send(data)
                except (BlockingIOError, InterruptedError):
                    pass
                except OSError:
                    self._call_soon(self._hang_up)
                    return
            if sent < len(data):
                if not self._unsent:
                    self._all_sent.clear()
                    self._call_soon(self._write_on)
                self._unsent += data[sent:]

    async def aclose(self) -> None:
        """Close the link; idempotent. Unsent frames get `GOODBYE_S` to leave."""
        if self._unsent and self.is_open:
            await wait_within(GOODBYE_S, self._all_sent)
        self._hang_up()

    def close(self) -> None:
        """Close the link at once, also once its loop has ended; unsent frames are lost."""
        if self._loop.is_closed():
            self.is_open = False
            self._socket.close()
        else:
            self._hang_up()

    def _call_soon(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: so is the link
            self._loop.call_soon_threadsafe(call)

    def _write_on(self) -> None:
        if self.is_open:
            self._loop.add_writer(self._socket, self._write_socket)

    def _write_socket(self) -> None:
        with self._sending:
            try:
                sent = self._socket.send(self._unsent)
                del self._unsent[:sent]
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._unsent.clear()
                self._call_soon(self._hang_up)
            if not self._unsent:
                self._loop.remove_writer(self._socket)
                self._all_sent.set()

    def _read_socket(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._hang_up()
            return
        try:
            for body in self._unpacker.feed(data):
                try:
                    frame = from_host.decode(body)
                except msgspec.DecodeError:
                    continue  # a newer host's frame, unknown to this version
                if isinstance(frame, NumberedFrame):
                    asked = self._pending.get(frame.n)
                    if asked is not None and not asked.done():
                        asked.set_result(frame)
                    continue
                try:
                    self.on_push(frame)
                except Exception as error:  # noqa: BLE001 - a listener's error must not close the link; the loop reports it
                    self._loop.call_exception_handler({"message": "on_push failed", "exception": error})
                if not self.is_open:
                    return
        except WireError:
            self._hang_up()

    def _hang_up(self) -> None:
        with self._sending:
            if not self.is_open:
                return
            self.is_open = False
            self._unsent.clear()
            self._all_sent.set()
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(HostUnreachableError(self._name, control.GONE))
        self._on_close()


async def _connect(path: Path, limit_s: float) -> socket.socket:
    """Connect to the socket at *path*. Raises `OSError`, `TimeoutError` among them, if no host listens there."""
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.setblocking(False)
    try:
        async with asyncio.timeout(limit_s):
            await asyncio.get_running_loop().sock_connect(connected, str(path))
    except BaseException:
        connected.close()
        raise
    return connected
