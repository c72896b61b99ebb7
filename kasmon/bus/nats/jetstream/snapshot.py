"""What a cluster has stored of one machine: its facts, its sessions, and how far their logs go."""

import asyncio
import contextlib
import datetime as dt
import logging
import time
from typing import Final

import msgspec

from kasmon.bus.base import LogPart, SessionEntry, SessionRemoval
from kasmon.bus.nats.connection import Connection
from kasmon.bus.nats.jetstream.machine_records import (
    FACTS_KEY,
    LEASE_KEY,
    LEASE_S,
    InvalidRecordError,
    MachineFacts,
    MachineLease,
    MachineRecord,
    OrderReport,
    RecordVerifier,
)
from kasmon.bus.nats.jetstream.stored_messages import read_last, read_newest, read_stream
from kasmon.bus.nats.subjects import stream, subject
from kasmon.model.permission import SessionId

log = logging.getLogger(__name__)

STORE_S: Final = 0.5
"""How long the server may take to store what was published."""


class MachineSnapshot(msgspec.Struct):
    """What the cluster has stored of a machine."""

    facts: MachineFacts | None = None
    is_connected: bool = False
    away_since: float = 0.0
    entries: dict[SessionId, SessionEntry] = {}
    reports: list[OrderReport] = []
    last_parts: dict[SessionId, LogPart] = {}
    epoch: int = 0
    number: int = 0
    """That of the last record of the epoch."""
    read_part: int = 0
    read_key: int = 0
    """The numbers of the last part of a log and of the last change of the directory that were read,"""
    last_part: int = 0
    last_key: int = 0
    """and those that exist."""

    def note(self, record: MachineRecord, *, is_part: bool) -> None:
        if record.epoch < self.epoch:
            return
        if record.epoch > self.epoch:
            self.epoch = record.epoch
            self.number = self.read_part = self.read_key = self.last_part = self.last_key = 0
        self.number = max(self.number, record.number)
        self.last_part, self.last_key = max(self.last_part, record.last_part), max(self.last_key, record.last_key)
        if is_part:
            self.read_part = max(self.read_part, record.number)
        else:
            self.read_key = max(self.read_key, record.number)

    @property
    def is_whole(self) -> bool:
        """Whether all that the machine had published was found: the server stores the two streams one by one."""
        return self.read_part >= self.last_part and self.read_key >= self.last_key


class MachineSnapshotReader:
    """Reads what the cluster has of *machine*, as far as *verifier* accepts it."""

    def __init__(self, connection: Connection, verifier: RecordVerifier, machine: str) -> None:
        self._connection, self._verifier = connection, verifier
        self._cluster, self._machine = connection.identity.cluster, machine

    async def read(self) -> MachineSnapshot:
        """Return what is stored; all that was published before, unless the server stores it later than `STORE_S`.

        Raises:
            UnavailableError: if the server has no streams of the machine, or does not answer.
        """
        until = time.monotonic() + STORE_S
        while True:
            snapshot = MachineSnapshot()
            await self._read_directory(snapshot)
            await self._read_last_parts(snapshot)
            if snapshot.is_whole or time.monotonic() > until:
                return snapshot
            await asyncio.sleep(STORE_S / 20)

    async def _read_directory(self, snapshot: MachineSnapshot) -> None:
        async for message in read_stream(self._connection, stream("dir", self._machine)):
            key = message.subject.rpartition(".")[2]
            if message.is_marker:
                snapshot.entries.pop(SessionId(key), None)
                if key == LEASE_KEY:
                    snapshot.away_since = _seconds(message.stored_at) - LEASE_S
                continue
            if (record := self.verify(message.subject, message.content)) is None:
                continue
            snapshot.note(record, is_part=False)
            match record.value:
                case MachineFacts() if key == FACTS_KEY:
                    snapshot.facts = record.value
                case MachineLease() if key == LEASE_KEY:
                    snapshot.is_connected = not record.value.has_ended
                    snapshot.away_since = record.at if record.value.has_ended else 0.0
                case OrderReport():
                    snapshot.reports.append(record.value)
                case SessionEntry() if key == record.value.created.launch.session:
                    snapshot.entries[record.value.created.launch.session] = record.value
                case SessionRemoval() if key == record.value.session:
                    snapshot.entries.pop(record.value.session, None)  # removed since its entry was read

    async def _read_last_parts(self, snapshot: MachineSnapshot) -> None:
        events = stream("ev", self._machine)
        messages = await read_last(self._connection, events, [self.events_of(session) for session in snapshot.entries])
        newest = await read_newest(self._connection, events, f"{subject(self._cluster, 'ev', self._machine)}.>")
        for message in (*messages, *([] if newest is None else [newest])):
            record = self.verify(message.subject, message.content)
            if record is not None and isinstance(record.value, LogPart):
                snapshot.note(record, is_part=True)
                if message.subject == self.events_of(record.value.session):
                    snapshot.last_parts[record.value.session] = record.value

    def events_of(self, session: SessionId) -> str:
        return subject(self._cluster, "ev", self._machine, session)

    def verify(self, subject: str, content: bytes) -> MachineRecord | None:
        """Return the record that arrived under *subject*; None if the machine did not publish it."""
        try:
            return self._verifier.verify(subject, content)
        except InvalidRecordError as error:
            log.warning("%s", error)
            return None


def _seconds(text: str) -> float:
    """Return the time *text*, RFC 3339 with nanoseconds, in seconds since the epoch; 0 for what is none."""
    with contextlib.suppress(ValueError):
        return dt.datetime.fromisoformat(text[:19]).replace(tzinfo=dt.UTC).timestamp()
    return 0.0
