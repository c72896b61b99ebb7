"""A cluster of three servers: real processes on loopback, of which one is killed."""

import asyncio
import contextlib
import datetime as dt
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kasmon.bus.local import LocalBus
from kasmon.bus.nats import process
from kasmon.bus.nats.bus import open_nats_bus
from kasmon.bus.nats.certificates import (
    RENEW_S,
    KeyPair,
    check_renewed,
    make_ca,
    make_key,
    make_server_certificate,
    public_part,
    server_name,
    sign_certificate,
)
from kasmon.bus.nats.cluster import Team
from kasmon.bus.nats.connection import connect
from kasmon.bus.nats.creation import create_cluster
from kasmon.bus.nats.enrolment import revoke
from kasmon.bus.nats.identity import Identity
from kasmon.bus.nats.leaf import create_leaf, through_leaf
from kasmon.bus.nats.machine import MachineServer
from kasmon.bus.nats.server_config import ROSTER_KEY, account
from kasmon.bus.nats.service import apply_changes, service_identity
from kasmon.bus.nats.signatures import CommandRefusedError, read_signed_text, sign_text
from kasmon.bus.nats.subjects import stream
from kasmon.errors import KasmonError, RemoteUnreachableError, UsageError
from kasmon.model.events import MessageWritten
from kasmon.model.permission import SessionId
from kasmon.paths import Paths, user_paths
from tests.bus.nats.test_leaf import RawLeaf, sees
from tests.support.bus.buses import Reader
from tests.support.bus.cluster_service import ClusterUp
from tests.support.bus.server_programs import LEAF, free_ports
from tests.support.supervisor.env import NOW, Env, started
from tests.support.wait import LIMIT_S, auntil, until

ME = SessionId("abcdefgh")


class ThreeServers(ClusterUp):
    """The cluster `c1`, with its service and both further servers."""

    def __init__(self, state: Path) -> None:
        first, *others = free_ports(3)
        super().__init__(state, first, first + LEAF, [f"127.0.0.1:{port}" for port in others], [Team("main")])
        self._age(self.folder.peers / "2")
        self._peers = [self._start_peer(number) for number in (2, 3)]

    def _age(self, peer: Path) -> None:
        """Give a further server a certificate that expires in a month."""
        authority = KeyPair(self.folder.ca.read_bytes(), self.folder.ca_key.read_bytes())
        old = make_server_certificate(authority, "c1", dt.datetime.now(dt.UTC), 30, ["127.0.0.1"])
        (peer / "server.key").write_bytes(old.key)
        (peer / "server.pem").write_bytes(old.certificate)

    def expires_at(self, number: int) -> float:
        """When the certificate that a server shows expires."""
        context = ssl.create_default_context(cafile=str(self.folder.ca))
        at = self.folder.load().servers[number - 1]
        with (
            socket.create_connection((at.host, at.port)) as plain,
            context.wrap_socket(plain, server_hostname=server_name("c1")) as connection,
        ):
            shown = connection.getpeercert()
            assert shown is not None
            return ssl.cert_time_to_seconds(str(shown["notAfter"]))

    def _start_peer(self, number: int) -> "subprocess.Popen[bytes]":
        argv = [sys.executable, "-P", "-m", "kasmon", "cluster", "serve", str(self.folder.peers / str(number))]
        environment = {**os.environ, **self.paths.environment_variables()}
        return subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self) -> None:
        super().stop()
        for each in self._peers:
            each.terminate()
        for each in self._peers:
            each.wait()


@pytest.fixture(autouse=True)
def _no_blocked_loop() -> None:
    """This test makes and looks at folders from its loop."""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ThreeServers]:
    servers = ThreeServers(tmp_path)
    try:
        servers.start()
        servers.wait()
        yield servers
    finally:
        servers.stop()


@pytest.mark.faults
def test_a_cluster_continues_without_one_of_three_servers(servers: ThreeServers, env: Env, tmp_path: Path) -> None:
    machine = servers.join("m1", "machine", Paths(state=tmp_path / "m1", config=tmp_path))
    viewer = servers.join("vera", "viewer", Paths(state=tmp_path / "vera", config=tmp_path))
    env.has(ME, started())

    # the second server got a new certificate, for a key that it made itself
    until(lambda: servers.expires_at(2) > time.time() + RENEW_S, 60, what="a new certificate")

    async def use() -> None:
        served = MachineServer(machine, lambda: LocalBus(env.paths))
        await served.start()
        service = await connect(service_identity(servers.folder, account("main", "data")))
        info = json.loads((await service.request(f"$JS.API.STREAM.INFO.{stream('ev', 'm1')}", b"")).data)
        await service.aclose()
        assert 2 == len(info["cluster"]["replicas"]), "each message is stored three times"

        await asyncio.to_thread(servers.kill)
        env.tells(ME, MessageWritten(at=NOW, text="with two servers"))
        log = env.paths.log(ME).read_bytes()
        await auntil(lambda: (at := served.outbox.positions.get(ME)) is not None and at.offset == len(log), 60)
        async with contextlib.aclosing(await open_nats_bus(viewer, "m1")) as bus:
            await Reader(bus).until(lambda copy: copy.is_complete and copy.logs.get(ME) == log)

        await asyncio.to_thread(servers.start)
        await asyncio.to_thread(servers.wait)
        later = await asyncio.to_thread(
            servers.join, "later", "viewer", Paths(state=tmp_path / "later", config=tmp_path)
        )
        address = servers.folder.load().servers[1]
        await until_admitted(later, address.port)
        await served.aclose()

    asyncio.run(use())


@pytest.mark.faults
def test_a_leafnode_reconnects_to_another_server_and_a_removed_member_to_none(
    servers: ThreeServers, env: Env, tmp_path: Path
) -> None:
    gpu = servers.join("gpu", "machine", Paths(state=tmp_path / "gpu", config=tmp_path))
    lap = user_paths({name: str(tmp_path / "lap") for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "HOME")})
    servers.join("lap", "machine", lap)
    viewer = servers.join("vera", "viewer", lap)
    env.has(ME, started())
    leaf = create_leaf(lap, "c1")
    service = process.start_service(leaf, lap)
    process.wait_until_up(leaf)
    local = through_leaf(lap, viewer)
    assert local is not None
    assert len({each.port for each in viewer.leaf_servers}) == 3

    async def use() -> None:
        served = MachineServer(gpu, lambda: LocalBus(env.paths))
        await served.start()
        await until_seen(local, env)

        await asyncio.to_thread(servers.kill)
        env.tells(ME, MessageWritten(at=NOW, text="with two servers"))
        await until_seen(local, env)

        await asyncio.to_thread(servers.start)
        await asyncio.to_thread(servers.wait)
        second, third = viewer.leaf_servers[1:]
        hostile = [await RawLeaf.open(viewer, second.port), await RawLeaf.open(viewer, third.port)]
        for each in hostile:
            await each.read_until(b"PONG")
        assert await apply_changes(servers.folder, await asyncio.to_thread(revoke, servers.folder, "vera"))
        async with asyncio.timeout(LIMIT_S):
            for each in hostile:
                await each.read_to_end()
                each.close()
        await served.aclose()

    try:
        asyncio.run(use())
    finally:
        process.stop_service(leaf)
        service.wait()


async def until_seen(local: Identity, env: Env) -> None:
    """Return once the leafnode is connected to a server that knows its reader, and the servers have a leader."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(RemoteUnreachableError):
                await sees(local, "gpu", env)
                return
            await asyncio.sleep(0.1)


async def until_admitted(member: Identity, port: int) -> None:
    """Connect as *member* to the server at *port*, once that has the configuration with it."""
    async with asyncio.timeout(60):
        while True:
            try:
                connection = await connect(msgspec.structs.replace(member, port=port, servers=()))
            except KasmonError:
                await asyncio.sleep(0.1)
            else:
                await connection.aclose()
                return


def test_a_configuration_that_the_cluster_did_not_sign_is_refused(tmp_path: Path) -> None:
    where = Paths(state=tmp_path, config=tmp_path)
    folder, other = create_cluster(where, "c1", "127.0.0.1", 0), create_cluster(where, "c2", "127.0.0.1", 0)
    key = folder.key(ROSTER_KEY)

    assert ("text", 7.0) == read_signed_text(sign_text(folder.seed(ROSTER_KEY), "text", 7.0), key)
    for sent in (b"x", sign_text(other.seed(ROSTER_KEY), "text", 7.0)):
        with pytest.raises(CommandRefusedError):
            read_signed_text(sent, key)


@pytest.mark.parametrize("given", [["192.0.2.8"], ["192.0.2.8", "192.0.2.8"], ["192.0.2.8", "192.0.2.9:x"]])
def test_a_cluster_has_one_server_or_three(tmp_path: Path, given: list[str]) -> None:
    with pytest.raises(UsageError, match=r"one server, or 3 at different addresses|no address of a server"):
        create_cluster(Paths(state=tmp_path, config=tmp_path), "c1", "127.0.0.1", 4222, servers=given)


def test_a_new_certificate_is_refused_if_it_is_not_the_authority_s_or_has_another_key() -> None:
    now = dt.datetime.now(dt.UTC)
    authority, stranger, key = make_ca("c1", now), make_ca("c1", now), make_key()
    check_renewed(sign_certificate(authority, "c1", now, public_part(key)), authority.certificate, key)

    with pytest.raises(ValueError, match="did not sign it"):
        check_renewed(sign_certificate(stranger, "c1", now, public_part(key)), authority.certificate, key)
    with pytest.raises(ValueError, match="another key"):
        check_renewed(sign_certificate(authority, "c1", now, public_part(make_key())), authority.certificate, key)
    for content in (b"", b"x", key):
        with pytest.raises(ValueError):  # noqa: PT011  # of the library
            sign_certificate(authority, "c1", now, content)
        with pytest.raises(ValueError):  # noqa: PT011  # of the library
            check_renewed(content, authority.certificate, key)
