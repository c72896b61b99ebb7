"""What a cluster has of a machine: published by its outbox, read by operators and viewers, also while it is away.

What every bus promises is in tests/bus/test_contract.py, which runs over NATS too.
"""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import MappingProxyType

import msgspec
import pytest
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from kasmon.bus.base import BATCH_BYTES, BusWelcome, Heartbeat, LogPart, LogPosition, MachineAway, SessionEntry
from kasmon.bus.clock_offset import SAMPLES, ClockOffset
from kasmon.bus.local import LocalBus
from kasmon.bus.nats import bus as nats_bus
from kasmon.bus.nats.bus import NatsBus, open_nats_bus
from kasmon.bus.nats.connection import connect
from kasmon.bus.nats.identity import IdentityFile
from kasmon.bus.nats.jetstream import outbox
from kasmon.bus.nats.jetstream.machine_records import MachineRecord, RecordVerifier, sign_record
from kasmon.bus.nats.jetstream.outbox import PositionFile
from kasmon.bus.nats.jetstream.snapshot import MachineSnapshotReader
from kasmon.bus.nats.machine import MachineServer
from kasmon.bus.nats.server_config import stream_configurations
from kasmon.bus.nats.subjects import stream, subject
from kasmon.errors import RefusedError, RemoteUnreachableError
from kasmon.model.events import MessageWritten, SessionForgotten, TurnStarted
from kasmon.model.permission import SessionId
from kasmon.store.machines import HostPresence
from tests.support.bus.buses import Reader
from tests.support.bus.cluster_server import CLUSTER, ClusterServer
from tests.support.supervisor.env import NOW, Env, started
from tests.support.wait import auntil

pytestmark = pytest.mark.story

ME, OTHER = SessionId("abcdefgh"), SessionId("bcdefghi")


@pytest.fixture
async def cluster(cluster: ClusterServer) -> ClusterServer:
    """The shared one, with nothing of m1."""
    await cluster.clear("m1")
    return cluster


@contextlib.asynccontextmanager
async def serving(cluster: ClusterServer, env: Env, name: str = "m1") -> AsyncIterator[MachineServer]:
    """The machine *name*, which keeps how far it has published."""
    file = PositionFile(env.paths, CLUSTER)
    server = MachineServer(cluster.identity(name, "machine"), lambda: LocalBus(env.paths), file=file)
    await server.start()
    try:
        yield server
    finally:
        await server.aclose()


@contextlib.asynccontextmanager
async def reading(
    cluster: ClusterServer, name: str = "m1", positions: Mapping[SessionId, LogPosition] = MappingProxyType({})
) -> AsyncIterator[tuple[NatsBus, Reader]]:
    """A viewer's bus to the machine *name*."""
    async with contextlib.aclosing(await open_nats_bus(cluster.identity("vera", "viewer"), name)) as bus:
        reader = Reader(bus, positions)
        yield bus, reader
        await reader.aclose()


def has_log(env: Env, session: SessionId = ME) -> bytes:
    return env.paths.log(session).read_bytes()


async def messages(cluster: ClusterServer, name: str) -> int:
    """How many messages the stream *name* ever got."""
    service = await cluster.connect_service()
    info = json.loads((await service.request(f"$JS.API.STREAM.INFO.{name}", b"")).data)
    await service.aclose()
    return int(info["state"]["last_seq"])


async def test_a_viewer_is_refused_commands_for_operators(cluster: ClusterServer, env: Env) -> None:
    env.has(ME, started())
    async with serving(cluster, env), reading(cluster) as (bus, reader):
        await reader.until(lambda copy: copy.is_complete and copy.logs.get(ME) == has_log(env))
        for asked in (bus.connect(ME), bus.run(["ls"]), bus.read_file(ME, "host.log")):
            with pytest.raises(RefusedError, match="as a viewer: only operators answer"):
                await asked


async def test_an_unreachable_machine_is_shown_from_the_clusters_copy_until_it_is_back(
    cluster: ClusterServer, env: Env
) -> None:
    env.has(ME, started(), MessageWritten(at=NOW, text="hello"), name="docs")
    async with serving(cluster, env), reading(cluster) as (_, reader):
        await reader.until(lambda copy: copy.is_complete and copy.logs.get(ME) == has_log(env))
    left_at = time.time()

    async with reading(cluster) as (_, reader):
        copy = await reader.until(lambda copy: copy.is_complete)
        away = copy.order[0]
        assert isinstance(away, MachineAway)
        assert "not connected" in away.why
        assert abs(away.since - left_at) < 30
        assert ("docs", has_log(env)) == (copy.entries[ME].name, copy.logs[ME])
        assert copy.welcome is None

        env.tells(ME, TurnStarted(at=NOW + 1))
        async with serving(cluster, env):
            copy = await reader.until(lambda copy: copy.welcome and copy.heartbeats and copy.logs[ME] == has_log(env))
            at = [type(update) for update in copy.order].index(BusWelcome)
            assert SessionEntry in [type(update) for update in copy.order[at:]], "all is listed again"
        copy = await reader.until(lambda copy: isinstance(copy.order[-1], MachineAway))


async def test_a_machine_publishes_only_new_events_after_a_restart(cluster: ClusterServer, env: Env) -> None:
    env.has(ME, started(), MessageWritten(at=NOW, text="x" * BATCH_BYTES))  # a record in two parts
    env.has(OTHER, started())
    async with serving(cluster, env), reading(cluster) as (_, reader):
        await reader.until(lambda copy: copy.is_complete and len(copy.logs) == 2)
        beats = reader.copy.heartbeats
        await reader.until(lambda copy: copy.heartbeats > beats + 1)
    before = await messages(cluster, stream("ev", "m1"))
    env.tells(ME, TurnStarted(at=NOW + 1))
    env.says(SessionForgotten(at=NOW, session=OTHER))

    async with serving(cluster, env), reading(cluster) as (_, reader):
        copy = await reader.until(lambda copy: copy.is_complete and copy.logs.get(ME) == has_log(env))
        assert [ME] == list(copy.entries), "what was removed while it was away is not listed"

    assert before + 1 == await messages(cluster, stream("ev", "m1"))


async def test_a_session_that_is_removed_while_the_directory_is_read_is_not_in_it(
    cluster: ClusterServer, env: Env
) -> None:
    env.has(ME, started())
    env.has(OTHER, started())
    async with serving(cluster, env), reading(cluster) as (_, reader):
        await reader.until(lambda copy: copy.is_complete and len(copy.logs) == 2)
        identity = cluster.identity("vera", "viewer")
        async with contextlib.aclosing(await connect(identity)) as connection:
            verifier = RecordVerifier(identity, "m1")
            verifier.update_roster(connection.roster_message)
            subscribe, queries = connection.subscribe, 0

            async def remove_and_subscribe(subject: str, handler: Callable[[Msg], Awaitable[None]]) -> Subscription:
                nonlocal queries
                queries += 1
                if queries == 2:  # the entries were read, the end of the stream was not
                    env.says(SessionForgotten(at=NOW, session=OTHER))
                    await reader.until(lambda copy: OTHER in copy.removed)
                return await subscribe(subject, handler)

            connection.subscribe = remove_and_subscribe  # type: ignore[method-assign]  # one connection, not the class
            snapshot = await MachineSnapshotReader(connection, verifier, "m1").read()

    assert queries > 2
    assert [ME] == list(snapshot.entries)


@pytest.mark.parametrize("restores_positions", [True, False])
async def test_a_machine_that_was_restored_from_a_backup_publishes_its_logs_again(
    cluster: ClusterServer, env: Env, restores_positions: bool
) -> None:
    """Its logs are older than what it published, and maybe what it knows of that too."""
    env.has(ME, started())
    async with serving(cluster, env), reading(cluster) as (_, reader):
        await reader.until(lambda copy: copy.is_complete and copy.logs.get(ME) == has_log(env))
    files = [env.paths.log(ME), *[env.paths.state / "outbox" / f"{CLUSTER}.json"] * restores_positions]
    backup = [file.read_bytes() for file in files]
    env.tells(ME, MessageWritten(at=NOW, text="lost"))
    async with serving(cluster, env), reading(cluster) as (_, reader):
        before = await reader.until(lambda copy: copy.is_complete and copy.logs.get(ME) == has_log(env))

    for file, content in zip(files, backup, strict=True):
        file.write_bytes(content)
    env.tells(ME, MessageWritten(at=NOW, text="done instead"), TurnStarted(at=NOW))

    service = await cluster.connect_service()
    async with serving(cluster, env), reading(cluster, positions=before.positions) as (_, reader):
        copy = await reader.until(lambda copy: copy.is_complete and copy.logs.get(ME) == has_log(env))
        assert f"{before.positions[ME].log}.1" == copy.positions[ME].log
    async with serving(cluster, env):
        await service.request(f"$JS.API.STREAM.PURGE.{stream('ev', 'm1')}", b"")
        env.tells(ME, MessageWritten(at=NOW, text="after"))
        async with reading(cluster) as (_, reader):  # what the cluster no longer has comes from the machine
            again = await reader.until(lambda copy: copy.is_complete and copy.logs.get(ME) == has_log(env))
            assert copy.positions[ME].log == again.positions[ME].log
    await service.aclose()


async def test_data_missing_in_the_cluster_comes_from_the_machine_or_is_reported_missing(
    cluster: ClusterServer, env: Env
) -> None:
    env.has(ME, started())
    service = await cluster.connect_service()
    async with serving(cluster, env):
        async with reading(cluster) as (_, reader):
            await reader.until(lambda copy: copy.is_complete and copy.logs.get(ME) == has_log(env))
            await service.request(f"$JS.API.STREAM.PURGE.{stream('ev', 'm1')}", b"")
            env.tells(ME, MessageWritten(at=NOW, text="after"))
            await reader.until(lambda copy: copy.logs.get(ME) == has_log(env))
        async with reading(cluster) as (_, reader):
            await reader.until(lambda copy: copy.is_complete and copy.logs.get(ME) == has_log(env))
            await reader.until(lambda copy: copy.heartbeats > 2)
    await service.aclose()

    async with reading(cluster) as (_, reader):
        copy = await reader.until(lambda copy: copy.is_complete)
        assert ME not in copy.logs
        assert "its machine is away" in copy.entries[ME].presence.unreadable


async def measure_clock(cluster: ClusterServer) -> float:
    """Return how far the clock of m1 is ahead, as a link measures it by what arrives."""
    clock, beats, asked_at = ClockOffset(), 0, time.time()
    async with contextlib.aclosing(await open_nats_bus(cluster.identity("vera", "viewer"), "m1")) as bus:
        async with asyncio.timeout(60):
            async for update in bus.updates({}):
                if isinstance(update, BusWelcome):
                    clock.begin(asked_at, update.at, time.time())
                elif isinstance(update, Heartbeat):
                    clock.add(update.at, time.time())
                    beats += 1
                if beats > SAMPLES:
                    break
    return clock.value_s


@pytest.mark.parametrize("ahead_s", [0.0, 40.0, -40.0])
async def test_a_machine_sends_its_time_with_each_heartbeat(
    cluster: ClusterServer, env: Env, ahead_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "HEARTBEAT_S", 0.2)
    identity = cluster.identity("m1", "machine")
    async with contextlib.aclosing(
        MachineServer(identity, lambda: LocalBus(env.paths), now=lambda: time.time() + ahead_s)
    ) as server:
        await server.start()
        assert ahead_s == pytest.approx(await measure_clock(cluster), abs=2)


def shift_clock(seconds: int) -> dict[str, str]:
    """Return the variables with which a program's clock is ahead by *seconds*.

    The command `faketime` itself forks: it would leave the program alive when it is terminated.
    """
    library = subprocess.run(
        ["faketime", "-f", "+0s", "printenv", "LD_PRELOAD"], check=True, capture_output=True, text=True
    )
    return {"LD_PRELOAD": library.stdout.strip(), "FAKETIME": f"+{seconds}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


@pytest.mark.skipif(shutil.which("faketime") is None, reason="faketime is not installed (Debian: faketime)")
async def test_a_machine_whose_clock_is_ahead_is_measured(cluster: ClusterServer, env: Env) -> None:
    stored = IdentityFile(env.paths, CLUSTER, "machine")
    await asyncio.to_thread(stored.save, cluster.identity("m1", "machine"))
    argv = [sys.executable, "-P", "-m", "kasmon", "bus", "--cluster", CLUSTER]
    variables = {**os.environ, **env.paths.environment_variables(), **await asyncio.to_thread(shift_clock, 40)}
    process = await asyncio.create_subprocess_exec(*argv, env=variables, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        assert b"serving as 'm1'" in await process.stderr.readline()
        assert pytest.approx(40, abs=2) == await measure_clock(cluster)
    finally:
        process.terminate()
        await process.wait()


async def test_only_the_machine_can_publish_in_its_name(cluster: ClusterServer, env: Env) -> None:
    """Not even the server: what m2 signed, what was changed and what is old is ignored."""
    env.has(ME, started(), name="docs")
    service = await cluster.connect_service()
    row = subject(CLUSTER, "dir", "m1", OTHER)
    async with serving(cluster, env), reading(cluster) as (bus, reader):
        copy = await reader.until(lambda copy: copy.is_complete and copy.logs.get(ME) == has_log(env))
        created = msgspec.structs.replace(
            copy.entries[ME].created, launch=msgspec.structs.replace(copy.entries[ME].created.launch, session=OTHER)
        )
        forged = SessionEntry(created, "forged", 0.0, HostPresence())
        record = MachineRecord(1_000_000, 1, 0, 1, time.time(), forged)
        by_other = sign_record(cluster.identity("m2", "machine").seed, row, record)
        moved = sign_record(cluster.identity("m1", "machine").seed, subject(CLUSTER, "dir", "m2", OTHER), record)
        for sent in (by_other, moved, by_other[:-9], b"\xc1", b""):
            await service.publish(row, sent)
        async with reading(cluster) as (_, other):
            copy = await other.until(lambda copy: copy.is_complete and copy.heartbeats > 1)
            assert [ME] == list(copy.entries)
        own = sign_record(cluster.identity("m1", "machine").seed, row, msgspec.structs.replace(record, epoch=0))
        assert bus._snapshots().verify(row, own) is not None, "the same record is accepted with its machine's signature"
    await service.request(f"$JS.API.STREAM.PURGE.{stream('dir', 'm1')}", json.dumps({"filter": row}).encode())
    await service.aclose()


async def test_a_repeated_heartbeat_of_an_unreachable_machine_is_ignored(cluster: ClusterServer, env: Env) -> None:
    async with serving(cluster, env, "m2"), reading(cluster, "m2") as (bus, reader):
        await reader.until(lambda copy: copy.heartbeats > 1)
        epoch = bus._epoch
    async with reading(cluster, "m2") as (bus, reader):
        await reader.until(lambda copy: copy.is_complete)
        old = MachineRecord(epoch, 9, 0, 9, time.time() - 3600, Heartbeat())
        assert not bus._is_news(old)
        assert bus._is_news(msgspec.structs.replace(old, at=time.time()))
        assert not bus._is_news(msgspec.structs.replace(old, at=time.time(), epoch=epoch - 1))


async def test_a_second_process_for_a_machine_ends_the_first(cluster: ClusterServer, env: Env) -> None:
    async with serving(cluster, env) as first, serving(cluster, env):
        async with asyncio.timeout(40):
            error = await first.wait_until_refused()

    assert isinstance(error, RefusedError)
    assert "another process serves this machine as 'm1'" in str(error)


@pytest.mark.parametrize("protocol", [0, 2])
async def test_a_machine_whose_bus_has_another_protocol_is_refused_with_its_version(
    cluster: ClusterServer, env: Env, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that gets another version of kasmon while it is read."""
    env.has(ME, started())
    async with reading(cluster) as (_, first):
        async with serving(cluster, env):
            await first.until(lambda copy: copy.welcome and copy.heartbeats)
        monkeypatch.setattr(outbox, "PROTOCOL", protocol)
        monkeypatch.setattr(outbox, "__version__", "9.9")
        async with serving(cluster, env), reading(cluster) as (_, second):
            for reader in (first, second):
                with pytest.raises(
                    RemoteUnreachableError, match=rf"kasmon 9\.9 there speaks bus protocol {protocol}, "
                ):
                    await reader.until(lambda copy: copy.welcome and copy.welcome.protocol == protocol)
            assert (None, {}) == (second.copy.welcome, second.copy.entries)


async def test_a_machine_that_publishes_more_than_can_be_read_is_disconnected(
    cluster: ClusterServer, env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_bus, "UNREAD", 50)
    m1 = cluster.identity("m1", "machine")
    async with serving(cluster, env) as server, reading(cluster) as (bus, reader):
        await reader.until(lambda copy: copy.heartbeats)
        flooding, to = await connect(m1), subject(CLUSTER, "hb", "m1")
        for number in range(200):
            beat = MachineRecord(server.outbox.epoch, number, 0, 0, time.time(), Heartbeat())
            await flooding.client.publish(to, sign_record(m1.seed, to, beat))
        await flooding.flush()
        await flooding.aclose()
        await auntil(lambda: bus._why or bus._arrived.qsize() > 100)
        assert bus._arrived.qsize() <= 50
        with pytest.raises(RemoteUnreachableError, match="it publishes more than can be read"):
            await reader.until(lambda copy: False)
        async with reading(cluster) as (_, again):
            await again.until(lambda copy: copy.is_complete)


async def test_a_machine_of_no_team_member_is_named(cluster: ClusterServer) -> None:
    with pytest.raises(RemoteUnreachableError, match="has no machine 'nosuch' in your team"):
        await open_nats_bus(cluster.identity("vera", "viewer"), "nosuch")


async def test_out_of_order_parts_of_a_log_are_put_in_order(cluster: ClusterServer, env: Env) -> None:
    """As after a lost connection: the client sends what it held back before the outbox repeats what was lost."""
    env.has(ME, started(), MessageWritten(at=NOW, text="second"), MessageWritten(at=NOW, text="third"))
    seed = cluster.identity("m1", "machine").seed
    service = await cluster.connect_service()
    async with serving(cluster, env), reading(cluster) as (bus, reader):
        copy = await reader.until(lambda copy: copy.is_complete and copy.logs.get(ME) == has_log(env))
        epoch, inode = bus._epoch, copy.positions[ME].log
    await service.request(f"$JS.API.STREAM.PURGE.{stream('ev', 'm1')}", b"")
    content, to = has_log(env), subject(CLUSTER, "ev", "m1", ME)
    for number, (first, end) in enumerate(((200, 250), (100, 200), (0, 100), (150, 250), (250, len(content)))):
        part = LogPart(ME, inode, first, content[first:end])
        await service.publish(to, sign_record(seed, to, MachineRecord(epoch, number, number, 0, time.time(), part)))
    await service.aclose()

    async with reading(cluster) as (_, reader):
        copy = await reader.until(lambda copy: copy.is_complete)
        assert content == copy.logs[ME]


async def test_a_killed_server_loses_nothing_and_both_sides_reconnect(own_cluster: ClusterServer, env: Env) -> None:
    env.has(ME, started())
    async with serving(own_cluster, env):
        async with reading(own_cluster) as (_, reader):
            await reader.until(lambda copy: copy.is_complete and copy.logs.get(ME) == has_log(env))
            await asyncio.to_thread(own_cluster.stop)
            with pytest.raises(RemoteUnreachableError, match="connection to the cluster 'c1' is lost"):
                await reader.until(lambda copy: False)
        env.tells(ME, MessageWritten(at=NOW, text="while the server was down"))
        await asyncio.to_thread(own_cluster.start)
        async with reading(own_cluster) as (_, reader):
            await reader.until(lambda copy: copy.welcome and copy.is_complete and copy.logs.get(ME) == has_log(env))


async def test_a_full_store_is_reported_and_publishing_goes_on_when_there_is_space(
    cluster: ClusterServer, env: Env
) -> None:
    env.has(ME, started())
    service = await cluster.connect_service()
    (events, *_) = stream_configurations(CLUSTER, "m1")
    full = json.dumps(events | {"discard": "new", "max_bytes": 1}).encode()
    async with serving(cluster, env) as server, reading(cluster) as (_, reader):
        await reader.until(lambda copy: copy.is_complete and copy.logs.get(ME) == has_log(env))
        await service.request(f"$JS.API.STREAM.UPDATE.{events['name']}", full)
        env.tells(ME, MessageWritten(at=NOW, text="while the store was full"))
        await reader.until(lambda copy: copy.logs.get(ME) == has_log(env))  # live all the same
        await auntil(lambda: "has no space left" in server.outbox.problem)
        beats = reader.copy.heartbeats
        await reader.until(lambda copy: copy.heartbeats > beats + 2)
        await service.request(f"$JS.API.STREAM.UPDATE.{events['name']}", json.dumps(events).encode())
        await auntil(lambda: not server.outbox.problem)
    async with reading(cluster) as (_, reader):
        copy = await reader.until(lambda copy: copy.is_complete)
        assert copy.logs[ME] == has_log(env)
    await service.aclose()
