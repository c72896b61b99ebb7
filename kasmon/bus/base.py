"""What one machine offers another: its sessions and their events, connections to its hosts, its commands, its files.

`LocalBus` offers this machine's own. `StreamBus` is another machine's over ssh, `NatsBus` over a cluster. All pass
`tests/bus/test_contract.py`.
The machine's own logs are the source of truth; a reader says how far it has read, and gets what is missing.
"""

import hashlib
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final, Protocol, runtime_checkable

import msgspec

from kasmon.errors import RemoteUnreachableError
from kasmon.model.commands import Ability
from kasmon.model.events import SessionCreated
from kasmon.model.permission import SessionId
from kasmon.sanitize import replace_controls
from kasmon.store.machines import HostPresence
from kasmon.supervisor.machines.link_client import CommandOutput, QueuedOrder

PROTOCOL: Final = 1
"""Incremented when an older end could misunderstand a newer one."""
HEARTBEAT_S: Final = 1.0
LATE_S: Final = 3.0
"""After this time without a sign of life a machine is late, in seconds."""
LOST_S: Final = 10.0
"""After this time without a sign of life it is unreachable, in seconds."""
BATCH_BYTES: Final = 256 * 1024
"""How many bytes of a log one update has at most; longer lines are split."""
TAIL_BYTES: Final = 1024
LONGEST_CONTROL: Final = 8
"""No sequence that `replace_controls` replaces is longer, in bytes."""


class BusWelcome(msgspec.Struct, frozen=True, tag="bus-welcome", tag_field="t"):
    """The first update."""

    kasmon: str
    protocol: int
    machine: str
    """The host name there."""
    abilities: tuple[Ability, ...]
    at: float = 0.0
    """The time there, in seconds since the epoch; 0 if it does not say it."""


def check_protocol(welcome: BusWelcome, machine: str) -> None:
    """Raise `RemoteUnreachableError` if the kasmon on *machine* speaks another version of the protocol."""
    if welcome.protocol != PROTOCOL:
        why = f"kasmon {welcome.kasmon} there speaks bus protocol {welcome.protocol}, this one {PROTOCOL}"
        raise RemoteUnreachableError(machine, why, is_registered=True)


class SessionEntry(msgspec.Struct, frozen=True, tag="entry", tag_field="t"):
    """A session exists there, or something but its log changed."""

    created: SessionCreated
    name: str
    viewed_at: float
    presence: HostPresence
    tags: tuple[str, ...] = ()


class SessionRemoval(msgspec.Struct, frozen=True, tag="removed", tag_field="t"):
    """A session was removed from the list there."""

    session: SessionId


class ListEnd(msgspec.Struct, frozen=True, tag="list-end", tag_field="t"):
    """All sessions were listed: what was not is gone."""


class LogPart(msgspec.Struct, frozen=True, tag="log", tag_field="t"):
    """Bytes of a session's log, which follow those that the reader has."""

    session: SessionId
    log: str
    """Identifies the file. With another one than before, the reader starts over; `offset` is 0 then."""
    offset: int
    content: bytes


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat", tag_field="t"):
    """The machine is there; sent every `HEARTBEAT_S` seconds, and after every part of a log."""

    at: float = 0.0
    """As in `BusWelcome`."""


class MachineAway(msgspec.Struct, frozen=True, tag="away", tag_field="t"):
    """The machine is not connected: what follows is what a cluster stored of it. Repeated while that is so."""

    why: str
    since: float


Update = BusWelcome | SessionEntry | SessionRemoval | ListEnd | LogPart | Heartbeat | MachineAway


class LogPosition(msgspec.Struct, frozen=True, array_like=True):
    """How far a reader has read one log."""

    log: str
    offset: int
    tail: str = ""
    """`tail_of` what is before the offset; empty if that is not known, as with an older kasmon."""


def tail_of(content: bytes) -> str:
    """Return a digest of the end of *content*: of its last record, at most `TAIL_BYTES` of it; empty without content.

    It tells a log that was restored from a backup, and has grown again, from the one that was read before. A copy, in
    which control characters are replaced, has the same one.
    """
    record = content[content.rfind(b"\n", 0, -1) + 1 :][-TAIL_BYTES - LONGEST_CONTROL :]
    return hashlib.blake2b(replace_controls(record)[-TAIL_BYTES:], digest_size=8).hexdigest() if record else ""


class Bus(Protocol):
    """One machine. Each method raises `RemoteUnreachableError` if it cannot be reached."""

    def updates(self, positions: Mapping[SessionId, LogPosition]) -> AsyncGenerator[Update, None]:
        """Yield a `BusWelcome`, each session, `ListEnd`, then what changes, and what *positions* lack of the logs.

        Logs of sessions that have not ended come first. A log's events come in order and exactly once. Ends only
        by an error or `aclose`. A bus that has a copy of the list may begin with `MachineAway`, and the copy; it
        yields all of it again, from `BusWelcome` on, once the machine is there.
        """
        ...

    async def connect(self, session: SessionId) -> socket.socket:
        """Return a connection to the host of *session*, as if to its socket.

        Raises:
            HostUnreachableError: if no host of it listens.
            RefusedError: if the owner does not allow it.
        """
        ...

    async def run(self, arguments: Sequence[str], stdin: bytes = b"") -> CommandOutput:
        """Run `kasmon` there with *arguments*, without a terminal, and return its output.

        Raises:
            RefusedError: if the owner does not allow it.
        """
        ...

    async def read_file(self, session: SessionId, name: str, offset: int = 0) -> bytes:
        """Return at most `BATCH_BYTES` of the file *name* in the session's folder from *offset* on; empty at its end.

        Raises:
            NotFoundError: if there is no such file.
            RefusedError: if *name* is no file that others may read.
        """
        ...

    async def aclose(self) -> None:
        """End all that is in progress; idempotent."""
        ...


class JoinedBus(Bus, Protocol):
    """A machine that is reached through a stream of records."""

    async def join(self, session: SessionId, client: socket.socket) -> None:
        """Connect *client* to the host of *session*, as if to its socket; this returns once it is connected.

        The connection has a descriptor of its own for *client*, so the caller closes its own at any time. An error
        leaves *client* as it is.

        Raises: as `connect`.
        """
        ...


async def connect_by_join(bus: JoinedBus, session: SessionId) -> socket.socket:
    """Return a connection to the host of *session*, as `Bus.connect`."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    try:
        with theirs:
            await bus.join(session, theirs)
    except BaseException:
        ours.close()
        raise
    return ours


@runtime_checkable
class QueueBus(Bus, Protocol):
    """A machine with a work queue, where commands wait while it is away."""

    async def run_order(self, order: QueuedOrder, arguments: Sequence[str], stdin: bytes = b"") -> CommandOutput:
        """As `run`, by *order*. The command must have the same effect when it is repeated.

        Raises:
            RefusedError: if the machine did not carry it out.
        """
        ...
