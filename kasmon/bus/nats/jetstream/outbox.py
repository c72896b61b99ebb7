"""Publishes what a machine's bus says to JetStream: the directory of its sessions, their logs, and that it is there.

The machine's own logs are the source of truth. The outbox keeps how far the server has acknowledged each log, and
publishes the rest again after a restart or a lost server: readers, who know their offsets, drop what they have.
Each session is one key of the directory, which only this process changes: a second one for the same machine takes a
higher epoch, and the first one ends.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import msgspec
from nats.aio.msg import Msg

from kasmon import __version__
from kasmon.asyncio_tasks import TaskSet, end_tasks, wait_within
from kasmon.bus.base import (
    BATCH_BYTES,
    HEARTBEAT_S,
    PROTOCOL,
    BusWelcome,
    Heartbeat,
    ListEnd,
    LogPart,
    LogPosition,
    SessionEntry,
    SessionRemoval,
    tail_of,
)
from kasmon.bus.local import next_file
from kasmon.bus.nats.connection import FAILURES, Connection, explain
from kasmon.bus.nats.identity import Identity
from kasmon.bus.nats.jetstream.machine_records import (
    FACTS_KEY,
    LEASE_KEY,
    LEASE_S,
    InvalidRecordError,
    MachineFacts,
    MachineLease,
    MachineRecord,
    OrderReport,
    RecordValue,
    RecordVerifier,
    sign_record,
)
from kasmon.bus.nats.jetstream.marks_report import MARKS_KEY, MarksReader
from kasmon.bus.nats.jetstream.publisher import OutdatedKeyError, Publisher
from kasmon.bus.nats.jetstream.stored_messages import read_stream
from kasmon.bus.nats.server_config import EVENTS_BYTES
from kasmon.bus.nats.signatures import order_key
from kasmon.bus.nats.subjects import stream, subject
from kasmon.bus.stream import ServedBus
from kasmon.errors import KasmonError, RefusedError, UnavailableError
from kasmon.model.commands import Ability
from kasmon.model.permission import SessionId
from kasmon.paths import Paths, private_folder, read_json, write_private

log = logging.getLogger(__name__)

WINDOW: Final = 256
WINDOW_BYTES: Final = 8 * 1024 * 1024
"""How many messages, and bytes of logs, may be unacknowledged."""
MOST_ASKED: Final = 8
"""How many requests for marks are answered at the same time."""
ACK_S: Final = 10.0
RENEW_S: Final = 3.0
SILENT_S: Final = 1.5
"""After this time without a consistent state to report, a heartbeat is sent all the same."""
FIRST_WAIT_S, LAST_WAIT_S = 0.25, 15.0
BACKLOG_BYTES: Final = EVENTS_BYTES // 2
"""How much of logs that exist already is published at first; readers ask the machine for the rest."""
MESSAGE_ID, LAST_SEQUENCE, TTL = "Nats-Msg-Id", "Nats-Expected-Last-Subject-Sequence", "Nats-TTL"
REPORT_TTL_S: Final = 7 * 86400
"""How long it is known what became of an order."""
REMOVED_TTL_S: Final = 3600
"""How long the server keeps the record of a removed session; a reader that connects later does not see it listed."""


class AcknowledgedLogs(msgspec.Struct, frozen=True):
    epoch: int = 0
    positions: dict[SessionId, LogPosition] = {}


class PositionFile:
    """How far a cluster has acknowledged the logs of this machine."""

    def __init__(self, paths: Paths, cluster: str) -> None:
        self._path: Path = paths.state / "outbox" / f"{cluster}.json"

    def load(self) -> AcknowledgedLogs:
        """Return what was stored last; nothing if that cannot be read."""
        return read_json(self._path, AcknowledgedLogs, AcknowledgedLogs())

    def save(self, acknowledged: AcknowledgedLogs) -> None:
        private_folder(self._path.parent)
        write_private(self._path, msgspec.json.encode(acknowledged))


class LogRange(msgspec.Struct, frozen=True):
    """A request for bytes of a log that the server no longer has."""

    log: str
    offset: int
    end: int


class _Key(msgspec.Struct, frozen=True):
    sequence: int
    value: RecordValue | None


class _PendingMessage(msgspec.Struct, frozen=True):
    """A message that is not acknowledged yet."""

    acknowledged: "asyncio.Future[int] | None"
    """None: it was not published on purpose."""
    key: str = ""
    value: RecordValue | None = None
    session: SessionId = SessionId("")
    position: LogPosition = LogPosition("", 0)
    size: int = 0


class Outbox:
    """The publisher of one machine. `begin` takes an epoch; `run` publishes until it is cancelled."""

    def __init__(
        self,
        identity: Identity,
        open_bus: Callable[[], ServedBus],
        abilities: Collection[Ability],
        file: PositionFile | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """*open_bus*: returns the bus whose updates are published; *abilities*: what others may do here.

        *file*: where positions are kept; without one they are forgotten at the end.
        """
        self._now = now
        self._identity, self._open_bus, self._file = identity, open_bus, file
        self._abilities = tuple(abilities)
        self._connection: Connection | None = None
        self._publisher: Publisher | None = None
        self._keys: dict[str, _Key] = {}
        self.positions: dict[SessionId, LogPosition] = {}
        self._cut: set[SessionId] = set()
        """The sessions whose last part ended in the middle of a record."""
        self._logs: dict[SessionId, str] = {}
        self._sent: deque[_PendingMessage] = deque()
        self._sent_bytes = self._number = self._last_part = self._last_key = 0
        self._beat_at = 0.0
        self._is_saved = True
        self._interrupted = asyncio.Event()
        self._connections = 0
        self._key_lock = asyncio.Lock()
        """Held while the lease is renewed, an order is reported, or the directory is read."""
        self._bus: ServedBus | None = None
        self._marks, self._replying = MarksReader(), TaskSet()
        self._marks_asked = 0
        self.epoch = 0
        """0: the server has not given it one yet."""
        self.problem = ""
        """Why nothing is published now; empty while it is."""

    async def begin(self, connection: Connection) -> None:
        """Take the next epoch of this machine, on *connection*, which the outbox uses from then on.

        Raises:
            UnavailableError: if the server has no streams for it, or no space.
        """
        self._connection = connection
        if self._publisher is None:
            self._publisher = Publisher(connection)
            await self._publisher.open()
        stored = await self._read_directory()
        kept = await asyncio.to_thread(self._file.load) if self._file is not None else AcknowledgedLogs()
        # a lower epoch: the server lost its messages, or the cluster is a new one
        self.positions = dict(kept.positions) if kept.epoch <= stored else {}
        if 0 < kept.epoch < stored:  # it was restored from a backup, and the logs with it
            self.positions = {session: next_file(at) for session, at in self.positions.items()}
        self._logs = {session: at.log for session, at in self.positions.items()}
        epoch = max(stored, kept.epoch) + 1
        self._number = self._last_part = self._last_key = 0
        await self._put_now(FACTS_KEY, self._facts(is_complete=False), epoch=epoch)
        self.epoch, self._is_saved = epoch, False
        await self._save()
        await self._put_now(LEASE_KEY, MachineLease(), ttl_s=LEASE_S)
        await connection.subscribe(self._subject("log") + ".*", self._answer)

    async def _read_directory(self) -> int:
        """Learn the keys of this machine's directory; return the epoch there, 0 for none."""
        connection = self._require_connection()
        verifier = RecordVerifier(self._identity, self._identity.name)
        verifier.update_roster(connection.roster_message)
        epoch = 0
        keys: dict[str, _Key] = {}
        async with self._key_lock:
            async for message in read_stream(connection, stream("dir", self._identity.name)):
                key = message.subject.rpartition(".")[2]
                value: RecordValue | None = None
                with contextlib.suppress(InvalidRecordError):
                    record = verifier.verify(message.subject, message.content)
                    value = record.value
                    if key == FACTS_KEY:
                        epoch = record.epoch
                keys[key] = _Key(message.sequence, value)
            self._keys = keys
        return epoch

    def interrupt(self) -> None:
        """Publish again what is not acknowledged: the connection was lost."""
        self._interrupted.set()

    async def run(self) -> None:
        """Publish until cancelled; what fails is tried again.

        Raises:
            RefusedError: if another process serves this machine now.
        """
        wait_s = FIRST_WAIT_S
        timers = asyncio.create_task(self._run_timers())
        try:
            while True:
                since = time.monotonic()
                self._interrupted.clear()
                try:
                    await self._run_once()
                except (KasmonError, *FAILURES) as error:
                    if isinstance(error, RefusedError):
                        raise
                    if not isinstance(error, OutdatedKeyError):
                        self._note_problem(explain(error, self._identity))
                if time.monotonic() - since > LAST_WAIT_S:
                    wait_s = FIRST_WAIT_S
                await wait_within(random.uniform(wait_s / 2, wait_s), self._interrupted)
                wait_s = min(2 * wait_s, LAST_WAIT_S)
        finally:
            await end_tasks([timers])

    def reports(self) -> dict[str, OrderReport]:
        """Return what is recorded of the orders to this machine, by their keys."""
        return {key: each.value for key, each in self._keys.items() if isinstance(each.value, OrderReport)}

    async def report(self, report: OrderReport) -> None:
        """Record what became of an order, and return when the server has stored it.

        Raises:
            UnavailableError: if it does not.
        """
        key = order_key(report.plan, report.task, report.attempt, report.epoch)
        async with self._key_lock:
            await self._put_now(key, report, ttl_s=REPORT_TTL_S)

    async def end(self) -> None:
        """Tell readers that this machine ends its service, if the server can be reached."""
        await self._replying.aclose()
        if self.epoch and self._require_connection().client.is_connected:
            with contextlib.suppress(KasmonError, TimeoutError, *FAILURES):
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._put_now(LEASE_KEY, MachineLease(has_ended=True))

    # Publishing.

    async def _run_once(self) -> None:
        """Publish what the server lacks, then what happens, until something fails or `interrupt` is called."""
        self._connections += 1
        if not self.epoch:
            await self.begin(self._require_connection())
        elif await self._read_directory() > self.epoch:
            raise RefusedError(
                f"another process serves this machine as {self._identity.name!r} in {self._identity.cluster!r}.",
                hint="End one of them: `kasmon bus --cluster` must run once.",
            )
        following = asyncio.ensure_future(self._follow())
        interrupted = asyncio.ensure_future(self._interrupted.wait())
        try:
            await asyncio.wait([following, interrupted], return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
        finally:
            await end_tasks([following, interrupted])
            for sent in self._sent:
                if sent.acknowledged is not None:
                    sent.acknowledged.cancel()
            self._sent.clear()
            self._sent_bytes = 0
            await self._save()

    async def _follow(self) -> None:
        if "see" not in self._abilities:
            await self._interrupted.wait()
            return
        bus = self._bus = self._open_bus()
        listed: set[str] = set()
        is_complete = False
        published = 0
        try:
            async with contextlib.aclosing(bus.updates(self.positions)) as updates:
                async for update in updates:
                    match update:
                        case SessionEntry():
                            launch = msgspec.structs.replace(
                                update.created.launch, prompt=""
                            )  # the log has it redacted
                            created = msgspec.structs.replace(update.created, launch=launch)
                            listed.add(launch.session)
                            await self._put(launch.session, msgspec.structs.replace(update, created=created))
                        case SessionRemoval():
                            listed.discard(update.session)
                            await self._remove(update.session)
                        case LogPart():
                            published += len(update.content)
                            await self._publish_part(update, is_skipped=not is_complete and published > BACKLOG_BYTES)
                        case ListEnd():
                            entries = (key for key, each in self._keys.items() if isinstance(each.value, SessionEntry))
                            for key in set(entries) - listed:
                                await self._remove(SessionId(key))
                            is_complete = True
                            await self._settle(0)  # who sees that it is complete finds all of it
                            await self._put(FACTS_KEY, self._facts(is_complete=True))
                        case Heartbeat():
                            await self._beat()
                            await self._save()
                    await self._settle(WINDOW, WINDOW_BYTES)
        finally:
            self._bus = None
            await bus.aclose()

    async def _publish_part(self, part: LogPart, *, is_skipped: bool) -> None:
        tail = "" if part.session in self._cut else tail_of(part.content)  # of a part of a record it is another one
        (self._cut.discard if part.content.endswith(b"\n") else self._cut.add)(part.session)
        end = LogPosition(part.log, part.offset + len(part.content), tail)
        self._logs[part.session] = part.log
        future = None
        if not is_skipped:
            # Not the same one after a lost connection: a part that this held back until then would make the server
            # drop the repetition, and the last stored part would not be that at the end of the log.
            message_id = f"{self._identity.name}/{part.log}/{part.offset}/{self.epoch}.{self._connections}"
            future = await self._publish("ev", part.session, part, {MESSAGE_ID: message_id})
        self._sent.append(_PendingMessage(future, session=part.session, position=end, size=len(part.content)))
        self._sent_bytes += len(part.content)

    async def _put(self, key: str, value: RecordValue, ttl_s: int = 0) -> None:
        """Change one key of the directory, if it is as this process knows it; it is acknowledged later."""
        while any(sent.key == key for sent in self._sent):
            await self._settle(len(self._sent) - 1)
        known = self._keys.get(key, _Key(0, None))
        if known.value == value and key != LEASE_KEY:
            return
        future = await self._publish("dir", key, value, self._headers(known, ttl_s))
        self._sent.append(_PendingMessage(future, key=key, value=value))

    async def _put_now(self, key: str, value: RecordValue, *, epoch: int = 0, ttl_s: int = 0) -> None:
        """Like `_put`, but return when it is acknowledged."""
        known = self._keys.get(key, _Key(0, None))
        future = await self._publish("dir", key, value, self._headers(known, ttl_s), epoch)
        try:
            self._keys[key] = _Key(await self._wait_for(future), value)
        finally:
            future.cancel()

    @staticmethod
    def _headers(current: _Key, ttl_s: int) -> dict[str, str]:
        return {LAST_SEQUENCE: str(current.sequence)} | ({TTL: f"{ttl_s}s"} if ttl_s else {})

    async def _remove(self, session: SessionId) -> None:
        known = self._keys.get(session)
        if known is not None and not isinstance(known.value, SessionRemoval | None):
            await self._put(session, SessionRemoval(session), REMOVED_TTL_S)
        self.positions.pop(session, None)
        self._logs.pop(session, None)
        self._cut.discard(session)

    async def _publish(
        self, kind: str, part: str, value: RecordValue, headers: dict[str, str], epoch: int = 0
    ) -> "asyncio.Future[int]":
        self._number += 1
        if kind == "ev":
            self._last_part = self._number
        else:
            self._last_key = self._number
        to = self._subject(kind, part)
        record = self._record(value, epoch)
        assert self._publisher is not None
        return await self._publisher.publish(to, sign_record(self._identity.seed, to, record), headers)

    async def _settle(self, most: int, most_bytes: int = WINDOW_BYTES) -> None:
        """Handle acknowledgements, oldest first, until at most so many messages are unacknowledged."""
        while self._sent:
            sent = self._sent[0]
            if sent.acknowledged is not None:
                if not sent.acknowledged.done() and len(self._sent) <= most and self._sent_bytes <= most_bytes:
                    return
                sequence = await self._wait_for(sent.acknowledged)
                if sent.key:
                    self._keys[sent.key] = _Key(sequence, sent.value)
            if sent.session:
                self.positions[sent.session] = sent.position
                self._is_saved = False
            self._sent.popleft()
            self._sent_bytes -= sent.size
            self._note_problem(None)

    async def _wait_for(self, future: "asyncio.Future[int]") -> int:
        await asyncio.wait([future], timeout=ACK_S)
        if not future.done():
            raise UnavailableError(f"the cluster {self._identity.cluster!r} does not acknowledge what is published.")
        return future.result()

    async def _save(self) -> None:
        if not self._is_saved and self._file is not None and self.epoch:
            self._is_saved = True
            try:
                await asyncio.to_thread(self._file.save, AcknowledgedLogs(self.epoch, dict(self.positions)))
            except OSError as error:
                log.warning("cannot keep how far logs are published: %s", error)

    def _note_problem(self, error: KasmonError | None) -> None:
        problem = "" if error is None else error.message
        if problem and problem != self.problem:
            log.warning("nothing is published: %s", error)
        elif self.problem and not problem:
            log.warning("publishing again")
        self.problem = problem

    # Signs of life.

    async def _run_timers(self) -> None:
        renewed_at = time.monotonic()
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if not self.epoch:
                continue
            with contextlib.suppress(*FAILURES):
                if time.monotonic() - self._beat_at > SILENT_S:
                    await self._beat()
                if time.monotonic() - renewed_at > RENEW_S - HEARTBEAT_S / 2:
                    renewed_at = time.monotonic()
                    try:
                        async with self._key_lock:
                            await self._put_now(LEASE_KEY, MachineLease(), ttl_s=LEASE_S)
                    except OutdatedKeyError:
                        self.interrupt()  # which looks whether another process serves this machine
                    except KasmonError as error:
                        self._note_problem(error)

    async def _beat(self) -> None:
        self._beat_at = time.monotonic()
        to = self._subject("hb")
        record = self._record(Heartbeat())
        await self._require_connection().client.publish(to, sign_record(self._identity.seed, to, record))

    # Requests of readers.

    async def _answer(self, message: Msg) -> None:
        if message.subject.rpartition(".")[2] == MARKS_KEY:
            if self._marks_asked < MOST_ASKED:  # more are not answered
                self._marks_asked += 1
                self._replying.start(self._send_marks(message))  # it takes longer
        else:
            await self._send_range(message)

    async def _send_marks(self, message: Msg) -> None:
        """Answer with the marks of the sessions, or with nothing if others may not see these."""
        content = b""
        try:
            with contextlib.suppress(KasmonError, OSError, ValueError, KeyError, msgspec.MsgspecError):
                if (bus := self._bus) is not None and (report := await self._marks.read(bus.run)).output:
                    content = sign_record(self._identity.seed, message.subject, self._record(report))
            with contextlib.suppress(*FAILURES):
                await self._require_connection().client.publish(message.reply, content)
        finally:
            self._marks_asked -= 1

    async def _send_range(self, message: Msg) -> None:
        """Answer with bytes of a log that the server no longer has; one request after the other."""
        content = b""
        with contextlib.suppress(KasmonError, ValueError, msgspec.MsgspecError):
            session = SessionId(message.subject.rpartition(".")[2])
            wanted = msgspec.json.decode(message.data, type=LogRange)
            if (bus := self._bus) is not None and session in self._keys:
                size = max(0, min(wanted.end - wanted.offset, BATCH_BYTES))
                part = await asyncio.to_thread(bus.read_log, session, wanted.offset, size)
                if self._logs.get(session, "").partition(".")[0] == part.log:  # that file, which may have a number
                    part = msgspec.structs.replace(part, log=self._logs[session])
                content = sign_record(self._identity.seed, message.subject, self._record(part))
        with contextlib.suppress(*FAILURES):
            await self._require_connection().client.publish(message.reply, content)

    def _record(self, value: RecordValue, epoch: int = 0) -> MachineRecord:
        return MachineRecord(epoch or self.epoch, self._number, self._last_part, self._last_key, self._now(), value)

    def _facts(self, *, is_complete: bool) -> MachineFacts:
        welcome = BusWelcome(__version__, PROTOCOL, self._identity.name, self._abilities)
        return MachineFacts(welcome, is_complete)

    def _subject(self, kind: str, *parts: str) -> str:
        return subject(self._identity.cluster, kind, self._identity.name, *parts)

    def _require_connection(self) -> Connection:
        assert self._connection is not None
        return self._connection
