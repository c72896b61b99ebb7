"""A connection of a member: what each failure says, and that a lost connection is made again."""

import asyncio
import contextlib
import datetime as dt
import json
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from kasmon.asyncio_tasks import end_tasks
from kasmon.bus.nats import certificates, connection
from kasmon.bus.nats.connection import connect
from kasmon.bus.nats.identity import Identity
from kasmon.bus.nats.keys import make_seed, public_key
from kasmon.bus.nats.server import ServerProgram, start_server
from kasmon.bus.nats.server_config import DIRECT_GET
from kasmon.bus.nats.subjects import stream, subject
from kasmon.errors import KasmonError, RefusedError, UnavailableError
from tests.support.bus.cluster_server import CLUSTER, ClusterServer, open_cluster
from tests.support.bus.server_programs import old_server
from tests.support.wait import LIMIT_S, auntil, until

DAY = dt.timedelta(days=1)
StartServer = Callable[..., Identity]


@pytest.fixture
def start(cluster: ClusterServer, tmp_path: Path) -> Iterator[StartServer]:
    """Starts a further server with the cluster's configuration, changed; returns a member's identity for it."""
    processes: list[subprocess.Popen[bytes]] = []

    def run(
        change: Callable[[dict[str, Any]], object] = lambda _: None,
        program: ServerProgram = cluster.program,
        certificate: certificates.KeyPair | None = None,
    ) -> Identity:
        changed = json.loads(cluster.folder.configuration.read_text())
        changed |= {"port": -1, "log_file": str(tmp_path / "log"), "ports_file_dir": str(tmp_path)}
        changed["jetstream"]["store_dir"] = str(tmp_path / "jetstream")
        if certificate is not None:
            (tmp_path / "cert.pem").write_bytes(certificate.certificate)
            (tmp_path / "cert.key").write_bytes(certificate.key)
            changed["tls"] |= {"cert_file": str(tmp_path / "cert.pem"), "key_file": str(tmp_path / "cert.key")}
        change(changed)
        (tmp_path / "server.conf").write_text(json.dumps(changed))
        processes.append(start_server(program, tmp_path / "server.conf"))
        port = until(lambda: read_port(tmp_path), what="the server's port")
        return msgspec.structs.replace(cluster.identity("m1", "machine"), port=port)

    yield run
    for process in processes:
        process.kill()
        process.wait()


def read_port(ports: Path) -> int | None:
    """The port in the file that the server writes into *ports*; None until it has."""
    for file in ports.glob("*.ports"):
        with contextlib.suppress(ValueError, KeyError):
            return int(json.loads(file.read_text())["nats"][0].rpartition(":")[2])
    return None


def certificate_of(cluster: ClusterServer, now: dt.datetime, days: int = 1) -> certificates.KeyPair:
    ca = certificates.KeyPair(cluster.folder.ca.read_bytes(), cluster.folder.ca_key.read_bytes())
    return certificates.make_server_certificate(ca, CLUSTER, now, days)


def fail(identity: Identity, at: float | None = None) -> KasmonError:
    """The error of connecting as *identity*, at the time *at*."""

    async def attempt() -> None:
        connection = await connect(identity, now=None if at is None else lambda: at)
        await connection.aclose()

    with pytest.raises(KasmonError) as raised:
        asyncio.run(attempt())
    return raised.value


def test_no_server(cluster: ClusterServer) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        error = fail(msgspec.structs.replace(cluster.identity("m1", "machine"), port=unused.getsockname()[1]))

    assert isinstance(error, UnavailableError)
    assert "cannot reach the cluster 'c1' at '127.0.0.1:" in error.message
    assert "kasmon cluster status" in error.hint


def test_a_server_that_is_not_a_cluster(start: StartServer) -> None:
    error = fail(start(lambda changed: changed.pop("tls")))

    assert "is not that of a kasmon cluster: it does not begin with TLS" in error.message


def test_an_older_server(start: StartServer) -> None:
    """The one that Debian 12 has, where it can be had: `make old-nats-server`."""

    def as_then(changed: dict[str, Any]) -> None:
        changed["tls"].pop("handshake_first")
        changed["tls"].pop("min_version")
        changed.pop("logfile_size_limit")

    error = fail(start(as_then, old_server()))

    assert "is version 2.9.10, which is too old: it has no expiry of single keys and no delete markers" in error.message
    assert "2.11 or newer" in error.hint


def test_no_jetstream(start: StartServer) -> None:
    def without(changed: dict[str, Any]) -> None:
        changed.pop("jetstream")
        for account in changed["accounts"].values():
            account.pop("jetstream", None)

    error = fail(start(without))

    assert "has JetStream off, or no streams of this cluster" in error.message
    assert "kasmon cluster up" in error.hint


@pytest.mark.parametrize(
    ("since", "why", "hint"),
    [
        (-10 * DAY, "its certificate has expired, or the clock of this machine is ahead", "date -u"),
        (10 * DAY, "its certificate is not valid yet", "clock of this machine is behind"),
    ],
)
def test_a_certificate_out_of_its_time(
    cluster: ClusterServer, start: StartServer, since: dt.timedelta, why: str, hint: str
) -> None:
    error = fail(start(certificate=certificate_of(cluster, dt.datetime.now(dt.UTC) + since)))

    assert isinstance(error, UnavailableError)
    assert why in error.message
    assert hint in error.hint


def test_a_certificate_of_another_authority(start: StartServer) -> None:
    now = dt.datetime.now(dt.UTC)
    other = certificates.make_server_certificate(certificates.make_ca(CLUSTER, now), CLUSTER, now)

    error = fail(start(certificate=other))

    assert "is not signed by the authority of this cluster" in error.message
    assert "someone in the middle" in error.hint


def test_a_certificate_with_another_name(cluster: ClusterServer) -> None:
    error = fail(msgspec.structs.replace(cluster.identity("m1", "machine"), tls_name="c2.cluster.kasmon"))

    assert "its certificate has another name" in error.message


@pytest.mark.parametrize(("seconds", "direction"), [(86400, "ahead of"), (-86400, "behind")])
def test_a_clock_that_is_a_day_off(cluster: ClusterServer, seconds: int, direction: str) -> None:
    error = fail(cluster.identity("m1", "machine"), time.time() + seconds)

    assert f"s {direction} the cluster's" in error.message
    assert "date -u" in error.hint


def test_a_member_that_the_cluster_does_not_know(cluster: ClusterServer) -> None:
    error = fail(msgspec.structs.replace(cluster.identity("m1", "machine"), seed=make_seed()))

    assert isinstance(error, RefusedError)
    assert "does not know 'm1': it was removed" in error.message
    assert "kasmon machines join TOKEN" in error.hint


def test_a_server_with_another_cluster_s_key_for_its_list(cluster: ClusterServer) -> None:
    other = public_key(make_seed())

    error = fail(msgspec.structs.replace(cluster.identity("m1", "machine"), cluster_key=other))

    assert "the list of members is not signed by the cluster" in error.message


async def test_a_subject_that_the_role_does_not_allow_fails_at_once(cluster: ClusterServer) -> None:
    viewer = await connect(cluster.identity("vera", "viewer"))
    try:
        with pytest.raises(RefusedError, match=r"'vera' may not send to 'k.c1.cmd.M1.x'.*role is viewer"):
            await viewer.request("k.c1.cmd.M1.x", b"x", timeout_s=60)
    finally:
        await viewer.aclose()


async def test_a_full_store(cluster: ClusterServer) -> None:
    machine, service = await connect(cluster.identity("m2", "machine")), await cluster.connect_service()
    try:
        name = stream("ev", "m2")
        info = json.loads((await service.request(f"$JS.API.STREAM.INFO.{name}", b"")).data)
        small = info["config"] | {"max_bytes": 1000, "discard": "new"}
        await service.request(f"$JS.API.STREAM.UPDATE.{name}", json.dumps(small).encode())

        with pytest.raises(UnavailableError, match=r"has no space left: maximum bytes exceeded.*Nothing is lost"):
            await machine.publish(subject(CLUSTER, "ev", "m2", "s1"), b"x" * 2000)
        await service.request(f"$JS.API.STREAM.UPDATE.{name}", json.dumps(info["config"]).encode())
        await machine.publish(subject(CLUSTER, "ev", "m2", "s1"), b"x" * 2000)
    finally:
        await machine.aclose()
        await service.aclose()


def test_a_member_continues_to_read_after_the_server_was_killed(tmp_path: Path) -> None:
    """It is told when the connection is lost and when it is back, and what was acknowledged is still there."""
    with open_cluster(tmp_path) as server:
        asyncio.run(_kill_and_read(server))


async def _kill_and_read(server: ClusterServer) -> None:
    told: list[str] = []

    async def note(what: str) -> None:
        told.append(what)

    viewer = await connect(
        server.identity("vera", "viewer"), rewatch=lambda: note("rewatch"), lost=lambda: note("lost")
    )
    machine = await connect(server.identity("m1", "machine"))
    sent = subject(CLUSTER, "ev", "m1", "s1")
    await machine.publish(sent, b"before")

    await asyncio.to_thread(server.stop)
    await auntil(lambda: told == ["lost"])
    with pytest.raises(KasmonError):
        await machine.request(subject(CLUSTER, "ev", "m1", "s2"), b"", timeout_s=0.1)
    await asyncio.to_thread(server.start)
    await auntil(lambda: told == ["lost", "rewatch"])

    stored = await viewer.request(f"{DIRECT_GET}.{stream('ev', 'm1')}.{sent}", b"")
    assert b"before" == stored.data
    await auntil(lambda: machine.client.is_connected)
    await machine.publish(sent, b"after")
    stored = await viewer.request(f"{DIRECT_GET}.{stream('ev', 'm1')}.{sent}", b"")
    assert b"after" == stored.data
    await viewer.aclose()
    await machine.aclose()


def server_context(cluster: ClusterServer) -> ssl.SSLContext:
    pair = certificate_of(cluster, dt.datetime.now(dt.UTC))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pem").write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(Path(folder) / "pem")
    return context


async def test_a_connection_that_is_cancelled_while_it_opens_is_closed(cluster: ClusterServer) -> None:
    accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    context = await asyncio.to_thread(server_context, cluster)
    async with await asyncio.start_server(
        lambda *both: accepted.put_nowait(both), "127.0.0.1", 0, ssl=context
    ) as server:
        port = server.sockets[0].getsockname()[1]
        connecting = asyncio.create_task(
            connect(msgspec.structs.replace(cluster.identity("vera", "viewer"), port=port))
        )
        reader, writer = await accepted.get()
        info = {"server_id": "S", "version": "2.12.0", "proto": 1, "nonce": "abc", "headers": True, "max_payload": 1024}
        writer.write(b"INFO %s\r\n" % json.dumps(info).encode())
        await reader.readuntil(b"PING\r\n")

        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting

        async with asyncio.timeout(LIMIT_S):
            with contextlib.suppress(OSError):
                assert b"" == await reader.read()
        writer.transport.abort()


class ReloadingServer:
    """A server before that of *cluster*; it refuses the connections *refused*, counted from 1, as one that reloads."""

    def __init__(self, cluster: ClusterServer, identity: Identity, refused: Container[int]) -> None:
        self.connections = 0
        self._cluster, self._identity, self._refused = cluster, identity, refused
        self._open: list[asyncio.StreamWriter] = []
        self._serving: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        context = await asyncio.to_thread(server_context, self._cluster)
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=context)
        self.identity = msgspec.structs.replace(self._identity, port=self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.drop()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def drop(self) -> None:
        """End all connections."""
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.append(asyncio.current_task())  # type: ignore[arg-type]  # it runs in one
        self.connections += 1
        is_refused = self.connections in self._refused
        context = ssl.create_default_context(cadata=self._identity.ca)
        there = await asyncio.open_connection(
            self._identity.host, self._identity.port, ssl=context, server_hostname=self._identity.tls_name
        )
        self._open += [writer, there[1]]
        writer.write(await there[0].readline())
        if is_refused:
            await reader.readuntil(b"PING\r\n")
            writer.write(b"-ERR 'Authorization Violation'\r\n")
            await writer.drain()
            there[1].transport.abort()
            writer.close()
            return
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def test_a_client_that_connects_during_a_reload_is_not_taken_for_removed(cluster: ClusterServer) -> None:
    async with ReloadingServer(cluster, cluster.identity("vera", "viewer"), {1, 3}) as server:
        connection = await connect(server.identity)
        assert 2 == server.connections

        server.drop()
        await auntil(lambda: server.connections == 4 and connection.client.is_connected)

        assert not connection.refusal.done()
        await connection.aclose()


async def test_a_client_that_is_refused_twice_is_removed(cluster: ClusterServer) -> None:
    async with ReloadingServer(cluster, cluster.identity("vera", "viewer"), range(2, 9)) as server:
        connection = await connect(server.identity)

        server.drop()

        assert "was removed" in str(await connection.refusal)
        assert 3 == server.connections
        with pytest.raises(RefusedError, match="was removed"):
            await connect(server.identity)


async def test_attempts_to_reconnect_are_further_and_further_apart(cluster: ClusterServer) -> None:
    connection = await connect(cluster.identity("vera", "viewer"))
    await connection.aclose()

    waits = [connection.next_wait_s() for _ in range(12)]

    assert all(0.125 * 2**at <= wait <= 0.25 * 2**at for at, wait in enumerate(waits[:7])), waits
    assert all(15 <= wait <= 30 for wait in waits[7:]), waits
    assert len(set(waits)) == len(waits)


def test_a_process_that_uses_nats_does_not_load_aiohttp() -> None:
    """It would take 11 MB in each link of a machine; nats-py loads it for web sockets."""
    code = "import sys, kasmon.bus.nats.bus, kasmon.bus.nats.machine; print('aiohttp' in sys.modules); import aiohttp"

    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)

    assert "False\n" == done.stdout


async def test_a_client_publishes_although_the_server_reads_nothing(
    cluster: ClusterServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it waits until the connection is made again, or for ever if that is closed."""
    monkeypatch.setattr(connection, "REQUEST_S", 0.01)
    service = await cluster.connect_service()
    monkeypatch.setattr(service.client._transport, "drain", asyncio.Event().wait)

    async def publish() -> None:
        for _ in range(5):  # more than the client keeps before it waits
            await service.client.publish("x", bytes(service.client.max_payload))

    publishing = asyncio.create_task(publish())
    try:
        await auntil(publishing.done, 20.0, "the end of the publish")
        publishing.result()
    finally:
        await service.aclose()
        await end_tasks([publishing])
