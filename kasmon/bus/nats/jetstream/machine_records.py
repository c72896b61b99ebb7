"""What a machine publishes: its sessions, its logs, its signs of life, each signed with the machine's key.

The signature covers the subject, so that neither the server nor another member can make, change or move a record. The
epoch is incremented at each start of a machine's service. In an epoch, stored records are numbered without a gap: a
reader sees when it missed one, and that an old one is repeated.
"""

from enum import StrEnum
from typing import Final

import msgspec

from kasmon.bus.base import BusWelcome, Heartbeat, LogPart, SessionEntry, SessionRemoval
from kasmon.bus.nats.cluster import Role
from kasmon.bus.nats.identity import Identity
from kasmon.bus.nats.keys import is_signed, sign
from kasmon.bus.nats.signatures import verify_roster
from kasmon.errors import RefusedError

RECORD: Final = b"kasmon record\0"
FACTS_KEY: Final = "machine"
"""The key of the directory that has the machine's facts. Ids of sessions have 8 letters."""
LEASE_KEY: Final = "lease"
LEASE_S: Final = 10
"""How long a machine that stopped without saying so still counts as connected, in seconds."""


class MachineFacts(msgspec.Struct, frozen=True, tag="facts", tag_field="t"):
    """The machine's service, as it started."""

    welcome: BusWelcome
    is_complete: bool
    """Whether the directory has all its sessions, and no other."""


class MachineLease(msgspec.Struct, frozen=True, tag="lease", tag_field="t"):
    """The machine is connected. It is renewed, and expires on the server."""

    has_ended: bool = False
    """Whether the machine ended its service."""


class OrderState(StrEnum):
    WAITING = "waiting"
    """The machine has not begun."""
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """The command ended with another exit code than 0, or could not be started."""
    REFUSED = "refused"
    """It was not carried out."""
    UNSURE = "unsure"
    """The machine's service stopped while it was carried out."""


class OrderReport(msgspec.Struct, frozen=True, tag="order", tag_field="t"):
    """What became of an order (`kasmon.bus.nats.jetstream.orders`)."""

    plan: str
    task: str
    attempt: int
    state: OrderState
    epoch: int
    """That of the order."""
    at: float
    exit_code: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    why: str = ""


class MarksReport(msgspec.Struct, frozen=True, tag="marks", tag_field="t"):
    """The marks of the sessions, for one who asked; it is not stored."""

    output: bytes
    """JSON as `kasmon ls --json --marks` prints it, with the marks alone."""


RecordValue = (
    SessionEntry | SessionRemoval | LogPart | Heartbeat | MachineFacts | MachineLease | OrderReport | MarksReport
)


class MachineRecord(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    number: int
    """Counts the stored records of the epoch; a heartbeat has that of the last one before it."""
    last_part: int
    """The number of the last part of a log, this one included. Logs and directory are two streams of the server."""
    last_key: int
    """The number of the last change of the directory, this one included."""
    at: float
    value: RecordValue


class SignedRecord(msgspec.Struct, frozen=True, array_like=True):
    """A record as sent."""

    content: bytes
    signature: bytes


class InvalidRecordError(RefusedError):
    """A record that its machine did not sign. It is ignored."""


_encode = msgspec.msgpack.Encoder().encode
_signed = msgspec.msgpack.Decoder(SignedRecord)
_records = msgspec.msgpack.Decoder(MachineRecord)


def sign_record(seed: str, subject: str, record: MachineRecord) -> bytes:
    """Return *record* as sent under *subject*."""
    content = _encode(record)
    return _encode(SignedRecord(content, sign(seed, _signed_part(subject, content))))


def _signed_part(subject: str, content: bytes) -> bytes:
    return RECORD + subject.encode() + b"\0" + content


class RecordVerifier:
    """Decides which records are those of *machine*, by the list of members that the cluster signed."""

    def __init__(self, identity: Identity, machine: str) -> None:
        self._identity, self._machine = identity, machine
        self._signed_at = 0.0
        self._key = ""

    @property
    def is_member(self) -> bool:
        return bool(self._key)

    def update_roster(self, sent: bytes) -> None:
        """Use the list of members in *sent* from now on, unless it is older than the one in use.

        Raises:
            CommandRefusedError: if the cluster did not sign it.
        """
        roster = verify_roster(sent, self._identity.cluster_key, self._identity.cluster, self._identity.team)
        if roster.signed_at < self._signed_at:
            return
        role: Role = "machine"
        keys = (each.public_key for each in roster.members if (each.name, each.role) == (self._machine, role))
        self._signed_at, self._key = roster.signed_at, next(keys, "")

    def verify(self, subject: str, sent: bytes) -> MachineRecord:
        """Return the record in *sent*, which arrived under *subject*.

        Raises:
            InvalidRecordError: if the machine did not publish it there.
        """
        try:
            signed = _signed.decode(sent)
            if not is_signed(self._key, _signed_part(subject, signed.content), signed.signature):
                raise InvalidRecordError(f"a message under {subject!r} is not signed by {self._machine!r}.")
            return _records.decode(signed.content)
        except msgspec.MsgspecError as error:
            raise InvalidRecordError(f"a message under {subject!r} cannot be read: {error}.") from error
