"""Tests whether a port in here accepts connections."""

import errno
import socket
from collections.abc import Callable

from kasmon.sandbox.guest.event_loop import WRITABLE, EventLoop

LIMIT_S = 1.0


def probe(loop: EventLoop, port: int, tell: Callable[[bool], None]) -> None:
    """Call *tell* within a second with whether 127.0.0.1 accepts a connection at *port*."""
    stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    stream.setblocking(False)

    def finish(taken: bool) -> None:
        loop.cancel(timer)
        loop.forget(stream.fileno())
        stream.close()
        tell(taken)

    timer = loop.after(LIMIT_S, lambda: finish(False))
    try:
        begun = stream.connect_ex(("127.0.0.1", port))
    except (OSError, OverflowError):
        begun = errno.EINVAL
    if begun in (0, errno.EINPROGRESS):
        loop.watch(stream.fileno(), lambda: finish(not stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)), WRITABLE)
    else:
        finish(False)
