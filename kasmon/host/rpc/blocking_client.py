"""One open connection to a host without an event loop: its coroutines block."""

import contextlib
import functools
import itertools
import socket
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from kasmon.errors import HostUnreachableError, KasmonError
from kasmon.host.rpc import control
from kasmon.host.rpc.codec import Unpacker, WireError, from_host, pack, rebuilt
from kasmon.host.rpc.frames import ANSWER_S, FailureReply, Frame, FromHost, Hello, NumberedFrame, Welcome

READ_BYTES = 256 * 1024


class BlockingLink:
    """As `HostLink`, for code that asks one thing after another."""

    def __init__(self, connected: socket.socket, name: str) -> None:
        self.welcome = Welcome(n=0, pid=0)
        self._socket = connected
        self._name = name
        self._numbers = itertools.count(1)
        self._unpacker = Unpacker()

    @classmethod
    async def open(cls, socket_path: Path, limit_s: float = ANSWER_S) -> "BlockingLink":
        """Connect to the host that listens at *socket_path* and greet it; raises as `HostLink.open`."""
        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.settimeout(limit_s)
            connected.connect(str(socket_path))
            link = cls(connected, socket_path.stem)
            welcome = await link.ask(Hello(n=0), limit_s)
            if isinstance(welcome, Welcome):
                link.welcome = welcome
        except TimeoutError as error:
            connected.close()
            raise control.not_accepted(socket_path, limit_s) from error
        except OSError as error:
            connected.close()
            raise HostUnreachableError(socket_path.stem, f"{error.strerror or error}") from error
        except KasmonError as error:
            pid = control.peer_pid(connected)
            connected.close()
            raise control.explain_error(socket_path, pid, error) from error
        except BaseException:
            connected.close()
            raise
        return link

    async def ask(
        self, frame: Frame, limit_s: float | None = None, is_wanted: Callable[[FromHost], bool] | None = None
    ) -> FromHost:
        """Send *frame* under a number of its own and return the answer; raises as `HostLink.ask`.

        *is_wanted*: send it as it is instead, and return the first frame after it that *is_wanted*.
        """
        limit_s = self.welcome.answer_s if limit_s is None else limit_s
        deadline = time.monotonic() + limit_s
        if is_wanted is None:
            n = next(self._numbers)
            frame = msgspec.structs.replace(frame, n=n)
            is_wanted = functools.partial(_has_number, n)
        data = pack(frame)
        try:
            self._socket.settimeout(limit_s)
            self._socket.sendall(data)
            received = b""
            while True:
                for body in self._unpacker.feed(received):
                    with contextlib.suppress(msgspec.DecodeError):  # a newer host's frame, unknown to this version
                        if is_wanted(reply := from_host.decode(body)):
                            if isinstance(reply, FailureReply):
                                raise rebuilt(reply)
                            return reply
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                if not (received := self._socket.recv(READ_BYTES)):
                    raise EOFError
        except TimeoutError as error:
            raise control.not_answered(self._name, limit_s) from error
        except (OSError, EOFError, WireError) as error:
            raise HostUnreachableError(self._name, control.GONE) from error

    async def watch(self, frame: Frame, is_wanted: Callable[[FromHost], bool], limit_s: float) -> FromHost:
        """Send *frame*, and return the first frame after it that *is_wanted*; raises as `HostLink.watch`."""
        return await self.ask(frame, limit_s, is_wanted)

    async def aclose(self) -> None:
        """Close the link; idempotent."""
        self._socket.close()


def _has_number(n: int, frame: FromHost) -> bool:
    return isinstance(frame, NumberedFrame) and frame.n == n
