"""The bus of another machine over NATS: its list and its logs from JetStream, for operators and viewers of its team.

Connections, commands and files go to the machine itself, as signed commands of an operator. Viewers have none of them:
of commands only the output of the one that lists marks.
"""

import asyncio
import contextlib
import logging
import math
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Final

import msgspec
from nats.aio.msg import Msg

from kasmon.bus.base import (
    HEARTBEAT_S,
    Heartbeat,
    ListEnd,
    LogPart,
    LogPosition,
    MachineAway,
    SessionEntry,
    SessionRemoval,
    Update,
    check_protocol,
    connect_by_join,
)
from kasmon.bus.nats.connection import FAILURES, Connection, connect
from kasmon.bus.nats.identity import Identity
from kasmon.bus.nats.jetstream.machine_records import (
    LEASE_S,
    MachineFacts,
    MachineLease,
    MachineRecord,
    OrderReport,
    RecordVerifier,
)
from kasmon.bus.nats.jetstream.marks_report import ask_for_marks
from kasmon.bus.nats.jetstream.order_queue import OrderQueue
from kasmon.bus.nats.jetstream.orders import OUTPUT_BYTES
from kasmon.bus.nats.jetstream.outbox import LogRange
from kasmon.bus.nats.jetstream.snapshot import MachineSnapshot, MachineSnapshotReader
from kasmon.bus.nats.jetstream.stored_messages import read_stream
from kasmon.bus.nats.machine_client import open_command_bus
from kasmon.bus.nats.signatures import COMMAND_S, CommandRefusedError
from kasmon.bus.nats.subjects import check_name, roster_subject, stream, subject
from kasmon.bus.stream import StreamBus
from kasmon.errors import (
    HostUnreachableError,
    KasmonError,
    RefusedError,
    RemoteUnreachableError,
    TimedOutError,
    UnavailableError,
)
from kasmon.model.permission import SessionId
from kasmon.supervisor.machines.link_client import COMMAND_S as COMMAND_LIMIT_S
from kasmon.supervisor.machines.link_client import MARKS_COMMAND, CommandOutput, QueuedOrder

log = logging.getLogger(__name__)

GAP_S: Final = 1.0
"""How long a record that is missing may still arrive; after that all is read again."""
UNREAD: Final = 20_000
"""How many records may wait for the reader."""
RETRY_S: Final = 5.0
LONGEST_ORDER: Final = 400 * 1024
"""A message of the server has the command's input in base64, twice."""
LIST_S: Final = 60.0
"""How long a machine may take to list its sessions."""
NOT_CONNECTED: Final = "it is not connected to the cluster"
MISSING_LOG: Final = "the cluster has only its last events, and its machine is away"


async def open_nats_bus(identity: Identity, machine: str) -> "NatsBus":
    """Connect to the cluster, to read what it has of *machine*, which need not be connected.

    Raises:
        RemoteUnreachableError: if the cluster cannot be reached, or has no such machine.
        UsageError: if *machine* is no valid name.
    """
    bus = NatsBus(identity, check_name(machine, "a machine"))
    try:
        await bus.open()
    except BaseException as error:
        await bus.aclose()
        if isinstance(error, KasmonError):
            raise RemoteUnreachableError(
                machine, error.message.rstrip("."), hint=error.hint or "`kasmon cluster status`"
            ) from error
        raise
    return bus


class NatsBus:
    """One machine of a cluster. `open_nats_bus` returns one."""

    def __init__(self, identity: Identity, machine: str) -> None:
        self._identity, self._machine = identity, machine
        self._verifier = RecordVerifier(identity, machine)
        self._connection: Connection | None = None
        self._reader: MachineSnapshotReader | None = None
        self._arrived: asyncio.Queue[MachineRecord | None] = asyncio.Queue(UNREAD)
        """What the machine published since the connection began; None when that is lost."""
        self._why = ""
        """Why nothing more arrives; empty before that."""
        self._positions: dict[SessionId, LogPosition] = {}
        self._listed: dict[SessionId, SessionEntry] = {}
        self._epoch = self._seen = 0
        self._retry_at = math.inf
        """When a log is read again that could not be."""
        self._away: MachineAway | None = None
        """What is reported while the machine is not connected."""
        """The number of the last record that was processed, in this epoch."""
        self._commands: StreamBus | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Connect. Raises what `open_nats_bus` explains."""
        connection = self._connection = await connect(self._identity, lost=self._lose, now=time.time)
        self._reader = MachineSnapshotReader(connection, self._verifier, self._machine)
        await self._update_roster(connection.roster_message)
        if not self._verifier.is_member:
            raise RefusedError(f"the cluster {self._identity.cluster!r} has no machine {self._machine!r} in your team.")

    async def updates(self, positions: Mapping[SessionId, LogPosition]) -> AsyncGenerator[Update, None]:
        self._positions = dict(positions)
        connection = self._require_connection()
        try:
            await self._watch(connection)
            async for update in self._read_all():
                yield update
            async for update in self._follow():
                yield update
        except FAILURES as error:
            raise RemoteUnreachableError(self._machine, self._why or str(error), is_registered=True) from error
        except KasmonError as error:
            if isinstance(error, RemoteUnreachableError):
                raise
            raise RemoteUnreachableError(self._machine, error.message.rstrip("."), hint=error.hint) from error

    async def connect(self, session: SessionId) -> socket.socket:
        return await connect_by_join(self, session)

    async def join(self, session: SessionId, client: socket.socket) -> None:
        async with self._use_commands() as commands:
            await commands.join(session, client)

    async def run(self, arguments: Sequence[str], stdin: bytes = b"") -> CommandOutput:
        """As `Bus` says; a viewer has the output of `MARKS_COMMAND` only, as far as it concerns marks."""
        if self._identity.role == "viewer" and tuple(arguments) == MARKS_COMMAND:
            try:
                return await ask_for_marks(self._require_connection(), self._snapshots(), self._machine)
            except (UnavailableError, TimedOutError) as error:
                why = error.message.rstrip(".")
                raise RemoteUnreachableError(self._machine, why, is_registered=True) from error
        async with self._use_commands() as commands:
            return await commands.run(arguments, stdin)

    async def read_file(self, session: SessionId, name: str, offset: int = 0) -> bytes:
        async with self._use_commands() as commands:
            return await commands.read_file(session, name, offset)

    async def run_order(self, order: QueuedOrder, arguments: Sequence[str], stdin: bytes = b"") -> CommandOutput:
        """As `Bus` says; a command that is too long for the queue does not wait there."""
        self._check_operator()
        try:
            async with asyncio.timeout(COMMAND_LIMIT_S):
                if order.is_withdrawn:
                    await self._queue().place(order, ())
                elif len(stdin) <= LONGEST_ORDER:
                    report = await self._queue().carry_out(order, arguments, stdin)
                    if report.exit_code is None:
                        raise RefusedError(f"{self._machine} did not carry out an order: {report.why}.")
                    if len(report.stdout) < OUTPUT_BYTES:
                        return CommandOutput(exit_code=report.exit_code, stdout=report.stdout, stderr=report.stderr)
                    # the report has its end only
        except (RefusedError, RemoteUnreachableError):
            raise
        except (KasmonError, *FAILURES) as error:
            why = error.message.rstrip(".") if isinstance(error, KasmonError) else "the order was not confirmed in time"
            raise RemoteUnreachableError(self._machine, why, is_registered=True) from error
        return await self.run(arguments, stdin)

    async def order(self, plan: str, task: str, attempt: int, arguments: Sequence[str], stdin: bytes = b"") -> None:
        """Have the machine run `kasmon` with *arguments* for an attempt at a task, now or once it is there.

        It is carried out at most once, by the run of the machine's service that published last; `orders` says what
        became of it. Placing it again does not double it.

        Raises:
            RefusedError: if this member is no operator.
            UnavailableError: if the server does not store it; place it again.
        """
        self._check_operator()
        await self._queue().place(QueuedOrder(plan=plan, task=task, attempt=attempt), arguments, stdin)

    async def orders(self) -> list[OrderReport]:
        """Return what became of the orders to this machine in the last week, and those that wait."""
        return await self._queue().read_all()

    async def aclose(self) -> None:
        self._why = self._why or "the connection was closed here"
        self._end_arrivals()
        await self._close_commands()
        if self._connection is not None:
            await self._connection.aclose()

    # Commands.

    def _queue(self) -> OrderQueue:
        return OrderQueue(self._require_connection(), self._snapshots(), self._machine)

    def _check_operator(self) -> None:
        if self._identity.role != "operator":
            raise RefusedError(
                f"you see the sessions of {self._identity.cluster!r} as a viewer: only operators answer, send and run.",
                hint="An operator's token allows it: `kasmon cluster token --role operator` on the cluster's machine.",
            )

    @contextlib.asynccontextmanager
    async def _use_commands(self) -> AsyncIterator[StreamBus]:
        """Yield the bus for commands; it is opened again if the machine could not be reached."""
        self._check_operator()
        try:
            async with self._opening:
                if self._commands is None:
                    self._commands = await open_command_bus(self._identity, self._machine)
            yield self._commands
        except HostUnreachableError:
            raise
        except RemoteUnreachableError:
            await self._close_commands()
            raise

    async def _close_commands(self) -> None:
        commands, self._commands = self._commands, None
        if commands is not None:
            await commands.aclose()

    # What arrives.

    async def _watch(self, connection: Connection) -> None:
        cluster, machine = self._identity.cluster, self._machine

        async def update_roster(message: Msg) -> None:
            await self._update_roster(message.data)

        await connection.subscribe(roster_subject(cluster), update_roster)
        for kind in ("ev", "dir"):
            await connection.subscribe(subject(cluster, kind, machine) + ".>", self._receive)
        await connection.subscribe(subject(cluster, "hb", machine), self._receive)
        await connection.flush()

    async def _update_roster(self, sent: bytes) -> None:
        try:
            self._verifier.update_roster(sent)
        except CommandRefusedError as error:
            log.warning("%s", error)

    async def _receive(self, message: Msg) -> None:
        record = self._snapshots().verify(message.subject, message.data)
        if record is None:
            return
        if self._arrived.qsize() >= UNREAD - 1:
            self._why = "it publishes more than can be read"
            self._end_arrivals()
            return
        self._arrived.put_nowait(record)

    async def _lose(self) -> None:
        self._why = self._why or f"the connection to the cluster {self._identity.cluster!r} is lost"
        self._end_arrivals()

    def _end_arrivals(self) -> None:
        with contextlib.suppress(asyncio.QueueFull):
            self._arrived.put_nowait(None)

    async def _wait_for_record(self, wait_s: float) -> MachineRecord | None:
        """Return the next record; None if none arrives in time. Raises `RemoteUnreachableError`."""
        arrived: MachineRecord | None = None
        if not self._why:
            try:
                async with asyncio.timeout(wait_s):
                    arrived = await self._arrived.get()
            except TimeoutError:
                return None
        if arrived is None:
            raise RemoteUnreachableError(self._machine, self._why, is_registered=True)
        return arrived

    async def _follow(self) -> AsyncIterator[Update]:
        """Yield what happens, in the order in which the machine published it."""
        early: dict[int, MachineRecord] = {}
        beat_at, beat_number, missing_since = 0.0, -1, time.monotonic()
        while True:
            record = await self._wait_for_record(HEARTBEAT_S)
            if record is not None and self._is_news(record):
                if self._away is not None or record.epoch > self._epoch:
                    async for update in self._read_all():
                        yield update
                    early.clear()
                    beat_number = -1
                elif isinstance(record.value, Heartbeat):
                    if record.at > beat_at:
                        beat_at, beat_number = record.at, record.number
                elif record.number > self._seen:
                    early[record.number] = record
            if self._away is not None:
                yield self._away
                continue
            while True:
                if 0 <= beat_number <= self._seen:
                    beat_number = -1
                    yield Heartbeat(beat_at)
                if (following := early.pop(self._seen + 1, None)) is None:
                    break
                self._seen += 1
                async for update in self._apply(following):
                    yield update
            now = time.monotonic()
            if not early and beat_number < 0 and now < self._retry_at:
                missing_since = now
            elif now > min(missing_since + GAP_S, self._retry_at):
                self._retry_at = math.inf
                async for update in self._read_all():
                    yield update
                for number in sorted(number for number in early if number > self._seen):
                    self._seen = number
                    async for update in self._apply(early[number]):
                        yield update
                early.clear()
                self._seen = max(self._seen, beat_number)  # what was not found does not exist

    def _is_news(self, record: MachineRecord) -> bool:
        """Whether *record* is of this run of the machine's service or a later one, and was published now."""
        return record.epoch >= self._epoch and abs(time.time() - record.at) <= COMMAND_S

    async def _apply(self, record: MachineRecord) -> AsyncIterator[Update]:
        match record.value:
            case SessionEntry() as entry:
                if entry != self._listed.get(entry.created.launch.session):
                    self._listed[entry.created.launch.session] = entry
                    yield entry
            case SessionRemoval(session):
                self._positions.pop(session, None)
                if self._listed.pop(session, None) is not None:
                    yield record.value
            case LogPart() as part if part.session in self._listed:
                if (lacking := self._advance(part)) is not None:
                    yield lacking
                elif not self._has(part):
                    async for update in self._read_log(part, self._listed[part.session]):
                        yield update
            case MachineLease(has_ended=True):
                self._away = MachineAway(NOT_CONNECTED, record.at)
                yield self._away

    # Reading what is stored.

    async def _read_all(self) -> AsyncIterator[Update]:
        """Yield what the cluster has and the reader lacks: all the list, if it is another run of the service."""
        snapshot = await self._snapshots().read()
        if snapshot.is_connected and not (snapshot.facts is not None and snapshot.facts.is_complete):
            async for update in self._wait_for_list(snapshot):
                yield update
            snapshot = await self._snapshots().read()
        if snapshot.facts is None:
            self._away = MachineAway("it has not published anything yet", snapshot.away_since)
            yield self._away
            return
        is_new = self._away is not None or snapshot.epoch > self._epoch
        self._epoch, self._seen = snapshot.epoch, snapshot.number
        self._away = None if snapshot.is_connected else MachineAway(NOT_CONNECTED, snapshot.away_since)
        if self._away is not None:
            yield self._away
        elif is_new:
            check_protocol(snapshot.facts.welcome, self._machine)
            yield snapshot.facts.welcome
        if is_new:
            self._listed = {}
        for session in self._listed.keys() - snapshot.entries.keys():
            del self._listed[session]
            yield SessionRemoval(session)
        for entry in sorted(snapshot.entries.values(), key=lambda each: each.presence.host is None):
            session = entry.created.launch.session
            if entry != self._listed.get(session):
                self._listed[session] = entry
                yield entry
            if (last := snapshot.last_parts.get(session)) is None or self._has(last):
                continue
            if (lacking := self._advance(last)) is not None:
                yield lacking
                continue
            async for update in self._read_log(last, entry):
                yield update
        yield ListEnd()

    async def _wait_for_list(self, snapshot: MachineSnapshot) -> AsyncIterator[Update]:
        """Wait while the machine lists its sessions."""
        until = time.monotonic() + LIST_S
        while (record := await self._wait_for_record(LEASE_S)) is not None and time.monotonic() < until:
            if isinstance(record.value, MachineFacts) and record.epoch >= snapshot.epoch and record.value.is_complete:
                return
            if isinstance(record.value, Heartbeat):
                yield Heartbeat(record.at)

    # Logs.

    def _has(self, part: LogPart) -> bool:
        """Whether the reader has *part* already."""
        at = self._positions.get(part.session, LogPosition("", 0))
        return at.log == part.log and at.offset >= part.offset + len(part.content)

    def _advance(self, part: LogPart) -> LogPart | None:
        """Return what the reader lacks of *part*, if that follows what it has, and note that it has it."""
        at = self._positions.get(part.session, LogPosition("", 0))
        known = at.offset if at.log == part.log else 0
        content = part.content[max(0, known - part.offset) :]
        if part.offset > known or not content:
            return None
        self._positions[part.session] = LogPosition(part.log, known + len(content))
        return LogPart(part.session, part.log, known, content)

    async def _read_log(self, last: LogPart, entry: SessionEntry) -> AsyncIterator[Update]:
        """Yield what the reader lacks of a log up to *last*: from the server, else from the machine.

        Without the machine the session becomes unreadable: later parts alone are no log.
        """
        ahead: dict[int, LogPart] = {}
        stored = read_stream(
            self._require_connection(), stream("ev", self._machine), self._snapshots().events_of(last.session)
        )
        async with contextlib.aclosing(stored):
            async for message in stored:
                record = self._snapshots().verify(message.subject, message.content)
                part = None if record is None else record.value
                if not isinstance(part, LogPart) or part.log != last.log or part.session != last.session:
                    continue
                if not self._has(part):
                    ahead[part.offset] = part
                while (following := self._pop_following(ahead)) is not None:
                    yield following
        for offset in sorted(ahead):
            async for update in self._fill(ahead[offset]):
                yield update
        async for update in self._fill(last):
            yield update
        if not self._has(last):
            presence = msgspec.structs.replace(entry.presence, unreadable=MISSING_LOG)
            yield msgspec.structs.replace(entry, presence=presence)
            self._listed.pop(last.session, None)
            self._retry_at = time.monotonic() + RETRY_S

    def _pop_following(self, ahead: dict[int, LogPart]) -> LogPart | None:
        """Return what the reader lacks of one of *ahead*, which are keyed by offset, and take it out of there.

        A part that a lost connection held back is stored after later ones.
        """
        for offset in sorted(ahead):
            if (lacking := self._advance(ahead[offset])) is not None:
                del ahead[offset]
                return lacking
            if not self._has(ahead[offset]):
                return None
            del ahead[offset]
        return None

    async def _fill(self, part: LogPart) -> AsyncIterator[Update]:
        """Yield what the reader lacks up to the end of *part*, if it can be had."""
        while not self._has(part):
            lacking = self._advance(part) or await self._ask_for_range(part)
            if lacking is None:
                return
            yield lacking

    async def _ask_for_range(self, part: LogPart) -> LogPart | None:
        """Return what the reader lacks before *part*, or its beginning, from the machine; None without it."""
        at = self._positions.get(part.session, LogPosition("", 0))
        wanted = LogRange(part.log, at.offset if at.log == part.log else 0, part.offset)
        asked = subject(self._identity.cluster, "log", self._machine, part.session)
        try:
            answer = await self._require_connection().request(asked, msgspec.json.encode(wanted))
        except KasmonError as error:
            log.info("%s", error)
            return None
        record = self._snapshots().verify(asked, answer.data)
        found = None if record is None else record.value
        if not isinstance(found, LogPart) or (found.session, found.log) != (part.session, part.log):
            return None
        return self._advance(found)

    def _snapshots(self) -> MachineSnapshotReader:
        assert self._reader is not None
        return self._reader

    def _require_connection(self) -> Connection:
        assert self._connection is not None
        return self._connection
