"""The control protocol that every version of a host understands: status, hand over, stop. Its bytes never change.

The frames of `frames` belong to one protocol version; these do not. A frame is 8 bytes and a payload:

| bytes | value |
|---|---|
| 4 | `KSMN` |
| 1 | the kind: 1 status, 2 hand over, 3 stop; answers: 0x80 done, 0x81 refused |
| 1 | 0 |
| 2 | the payload's length, big-endian |
| n | the payload: a JSON object in UTF-8, or nothing |

A client sends one such frame first on a new connection to the host's socket; the host answers with one and closes. A
request has no payload. `done` carries a `HostStatus`, `refused` an object with `error`. Fields are only added. `KSMN`
as a length exceeds every version's limit, so a host without this protocol closes the connection.

- *status* changes nothing.
- *hand over*: the host leaves the session to the next one, and exits. The tmux host first finishes typed prompts;
  agents in tmux run on. A structured host first lets the turn end, then ends its agent, which is resumed by its id.
- *stop*: the host exits now; a structured agent ends with it, agents in tmux run on.

The answer comes at once. The host has exited when its lock (`host_lock`) is free.
"""

import contextlib
import socket
import struct
import time
from enum import IntEnum
from pathlib import Path
from typing import Final

import msgspec

from kasmon import __version__, system
from kasmon.errors import HostUnreachableError, KasmonError, ProtocolVersionError, RefusedError, TimedOutError
from kasmon.host.rpc.frames import VERSION
from kasmon.paths import TMUX_HOST_SOCKET

MAGIC: Final = b"KSMN"
HEADER: Final = struct.Struct(">4sBBH")
ANSWER_S: Final = 5.0
HAND_OVER_S: Final = 40.0
"""How long a host that has only typed prompts to finish may take to exit, in seconds."""
GONE: Final = "it exited; it is unknown whether this was done"
TRIES: Final = 3
RETRY_S: Final = 0.05
"""A host that closes the connection may be exiting: it is asked again after this time, `TRIES` times in all."""


class ControlKind(IntEnum):
    """The kind of a control frame; the numbers never change."""

    STATUS = 1
    HAND_OVER = 2
    STOP = 3
    DONE = 0x80
    REFUSED = 0x81


class HostStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status that a host of any version reports."""

    protocol: int
    kasmon: str
    pid: int
    session: str = ""
    """The id of its session; empty for the shared tmux host."""
    is_busy: bool = False
    """Whether it has to finish something before it can hand over."""
    is_asking: bool = False
    """Whether that waits for a user's answer, which only a client of the host's own version can give."""
    is_leaving: bool = False
    """Whether it was asked to hand over."""


def build_frame(kind: int, payload: bytes = b"") -> bytes:
    return HEADER.pack(MAGIC, kind, 0, len(payload)) + payload


def build_refusal(error: str) -> bytes:
    import json  # only here: a client that is not refused does not load it

    return build_frame(ControlKind.REFUSED, json.dumps({"error": error}).encode())


def parse_request(data: bytes) -> int | None:
    """Return the kind of the request that *data* begins with; None while it is not complete."""
    if len(data) < HEADER.size:
        return None
    _, kind, _, length = HEADER.unpack_from(data)
    return int(kind) if len(data) >= HEADER.size + length else None


def request(path: Path, kind: ControlKind, limit_s: float = ANSWER_S, *, pid: int = 0) -> HostStatus | None:
    """Send *kind* to the host that listens at *path*; None if it does not know control frames. Blocks.

    *pid*: the process that it is meant for; 0 for whichever listens there.

    Raises:
        RefusedError: the host's reason for a refusal.
        HostUnreachableError: if no host listens there, or one with another *pid*.
        TimedOutError: if no answer came within *limit_s* seconds.
    """
    for _ in range(TRIES):
        try:
            answer = _exchange(path, build_frame(kind), limit_s, pid)
        except TimeoutError as error:
            raise TimedOutError(f"the host {host_name(path)!r} did not respond within {limit_s:g} s.") from error
        except OSError as error:
            raise HostUnreachableError(host_name(path), error.strerror or str(error)) from error
        if answer:
            return _parse_answer(path, answer)
        time.sleep(RETRY_S)
    return None


def version_error(path: Path, pid: int) -> ProtocolVersionError | None:
    """Return the error for the host *pid* at *path* if its version is another one; None if it is this one. Blocks.

    With 0 as *pid* it is whichever listens there.

    Raises:
        HostUnreachableError, TimedOutError: as `request`.
    """
    status = request(path, ControlKind.STATUS, pid=pid)
    if status is None:
        return ProtocolVersionError(host_name(path), pid, None, "", VERSION, __version__)
    if status.protocol == VERSION:
        return None
    return ProtocolVersionError(host_name(path), status.pid, status.protocol, status.kasmon, VERSION, __version__)


def explain_error(path: Path, pid: int, error: KasmonError) -> KasmonError:
    """Return the error to raise instead of *error*, with which the host *pid* at *path* refused the connection. Blocks.

    That is a `ProtocolVersionError` if the host's control status shows another version, or if it refused without
    knowing control frames. A host that only closed the connection may be exiting, and one that is silent is only slow.
    If another process listens there by now, it is a `HostUnreachableError`: what the old host said counts no more.
    """
    if isinstance(error, TimedOutError):
        return error
    try:
        other = version_error(path, pid)
    except HostUnreachableError as gone:
        return gone
    except TimedOutError:
        return error
    if other is None or (other.host_version is None and isinstance(error, HostUnreachableError)):
        return error
    return other


def not_accepted(path: Path, limit_s: float) -> TimedOutError:
    return TimedOutError(f"the host {path.stem!r} did not accept the connection within {limit_s:g} s.")


def not_answered(name: str, limit_s: float) -> TimedOutError:
    """Return the error for the host *name*, which did not answer a request."""
    return TimedOutError(
        f"the host {name!r} did not respond within {round(limit_s, 2):g} s.", hint="It is unknown whether it was done."
    )


def host_name(path: Path) -> str:
    """Return the name of the host that listens at *path*: its session's id, or `tmux` for the shared one."""
    return "tmux" if path.name == TMUX_HOST_SOCKET else path.stem


def peer_pid(connected: socket.socket) -> int:
    """Return the process at the other end; 0 if the system does not report it."""
    with contextlib.suppress(OSError):
        return system.HERE.identify_peer(connected).pid
    return 0


def _exchange(path: Path, frame: bytes, limit_s: float, pid: int) -> bytes:
    """Return the answer of the host at *path* to *frame*; empty if it closed the connection. Raises as `request`."""
    deadline, answer = time.monotonic() + limit_s, b""
    with socket.socket(socket.AF_UNIX) as connected:
        connected.settimeout(limit_s)
        connected.connect(str(path))
        if pid and peer_pid(connected) not in (0, pid):
            raise HostUnreachableError(host_name(path), f"process {pid} no longer listens there")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connected.sendall(frame)
            while parse_request(answer) is None:
                connected.settimeout(max(0.01, deadline - time.monotonic()))
                if not (more := connected.recv(65536)):
                    return b""
                answer += more
            return answer
    return b""


def _parse_answer(path: Path, answer: bytes) -> HostStatus | None:
    """Return the status in *answer*; None if it is no control frame."""
    magic, kind, _, length = HEADER.unpack_from(answer)
    payload = answer[HEADER.size : HEADER.size + length]
    if magic != MAGIC or kind not in (ControlKind.DONE, ControlKind.REFUSED):
        return None
    try:
        if kind == ControlKind.DONE:
            return msgspec.json.decode(payload, type=HostStatus)
        import json  # likewise

        why = str(json.loads(payload).get("error", ""))
    except (ValueError, AttributeError) as error:
        raise HostUnreachableError(host_name(path), f"its answer cannot be read: {error}") from error
    raise RefusedError(why or f"the host {host_name(path)!r} refused without a reason.")
