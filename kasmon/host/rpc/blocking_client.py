"""One request to a running host, without asyncio, whose import takes as long as the rest of `kasmon answer`."""

import contextlib
import socket
import time

import msgspec

from kasmon.errors import HostUnreachableError, TimedOutError
from kasmon.host.rpc.codec import Unpacker, WireError, from_host, pack
from kasmon.host.rpc.errors import rebuilt
from kasmon.host.rpc.frames import ANSWER_S, FailureReply, FromHost, Hello, NumberedFrame, Welcome
from kasmon.model.commands import Mode
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths

READ_BYTES = 256 * 1024
GONE = "it exited; it is unknown whether this was done"
APART = frozenset({SessionState.ENDED, SessionState.LOST, SessionState.PAUSED})


def ask(places: Paths, session: Session, frame: NumberedFrame) -> FromHost | None:
    """Return the answer of *session*'s host to *frame*, as `HostLink.ask`.

    None if no host of this version runs, or the session needs more than that: nothing was sent, and
    `connect.link` does what is needed.

    Raises:
        KasmonError: the host's own error, rebuilt.
        UsageError: if *frame* contains what cannot be sent; nothing was sent.
        TimedOutError: if no answer came within the time that the host asks for; it may still have been executed.
        HostUnreachableError: if the host exited meanwhile; likewise.
    """
    is_apart = session.mode is Mode.INTERPRETER or session.handed_over or session.is_orphaned or session.state in APART
    if is_apart or (places.has_runtime and places.runtime.is_symlink()):
        return None
    path = places.tmux_host_socket if session.mode is Mode.TMUX else places.socket(session.id)
    data = pack(msgspec.structs.replace(frame, n=2))
    with socket.socket(socket.AF_UNIX) as connected:
        try:
            connected.settimeout(ANSWER_S)
            connected.connect(str(path))
            welcome = _exchange(connected, pack(Hello(n=1)), 1, ANSWER_S)
        except (OSError, EOFError, WireError):
            return None
        if not isinstance(welcome, Welcome):
            return None
        try:
            answer = _exchange(connected, data, 2, welcome.answer_s)
        except TimeoutError as error:
            raise TimedOutError(
                f"the host {path.stem!r} did not respond within {round(welcome.answer_s, 2):g} s.",
                hint="It is unknown whether it was done.",
            ) from error
        except (OSError, EOFError, WireError) as error:
            raise HostUnreachableError(path.stem, GONE) from error
    if isinstance(answer, FailureReply):
        raise rebuilt(answer)
    return answer


def _exchange(connected: socket.socket, data: bytes, n: int, limit_s: float) -> FromHost:
    """Send *data*, and return the answer with the number *n*.

    Raises:
        TimeoutError: if it did not come within *limit_s* seconds.
        EOFError, OSError, WireError: if the connection ended, or cannot be used.
    """
    deadline, unpacker = time.monotonic() + limit_s, Unpacker()
    connected.settimeout(limit_s)
    connected.sendall(data)
    while True:
        connected.settimeout(max(0.001, deadline - time.monotonic()))
        if not (more := connected.recv(READ_BYTES)):
            raise EOFError
        for body in unpacker.feed(more):
            with contextlib.suppress(msgspec.DecodeError):  # a newer host's frame, unknown to this version
                frame = from_host.decode(body)
                if isinstance(frame, NumberedFrame) and frame.n == n:
                    return frame
