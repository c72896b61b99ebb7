"""A leafnode on a laptop: real servers on loopback, of which that of the cluster is killed."""

import asyncio
import base64
import contextlib
import datetime as dt
import json
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from nats.aio.msg import Msg

from kasmon.bus.local import LocalBus
from kasmon.bus.nats import process
from kasmon.bus.nats.bus import open_nats_bus
from kasmon.bus.nats.certificates import KeyPair, make_ca, make_server_certificate
from kasmon.bus.nats.cluster import ClusterFolder, Role
from kasmon.bus.nats.connection import connect
from kasmon.bus.nats.creation import find_free_port
from kasmon.bus.nats.enrolment import revoke
from kasmon.bus.nats.identity import Identity, IdentityFile
from kasmon.bus.nats.jetstream.outbox import PositionFile
from kasmon.bus.nats.keys import make_seed, sign
from kasmon.bus.nats.leaf import check_leaf_port, create_leaf, load_reader, read_problem, through_leaf
from kasmon.bus.nats.machine import MachineServer, serve_until_refused
from kasmon.bus.nats.machine_client import open_command_bus
from kasmon.bus.nats.service import apply_changes
from kasmon.bus.nats.subjects import inbox, subject
from kasmon.cli.cluster import operations
from kasmon.errors import KasmonError, NotFoundError, RefusedError, RemoteUnreachableError, UnavailableError
from kasmon.model.events import MessageWritten
from kasmon.model.permission import SessionId
from kasmon.paths import Paths, user_paths
from tests.support.bus.buses import Reader
from tests.support.bus.cluster_service import ClusterUp
from tests.support.supervisor.env import NOW, Env, started
from tests.support.wait import LIMIT_S, auntil, until

pytestmark = pytest.mark.story

ME = SessionId("abcdefgh")
ENDED = (ConnectionError, ssl.SSLError)
"""What reading raises when the other end closes; a `TimeoutError` is an `OSError` too, but no end."""


@pytest.fixture(autouse=True)
def _no_blocked_loop() -> None:
    """These tests make and look at folders from their loop."""


class Laptop:
    """The cluster `c1` with the machines `gpu` and `lap`; `lap` has a leafnode, and an operator and a viewer there."""

    def __init__(self, state: Path) -> None:
        self.hub = ClusterUp(state / "hub", leaf_port=find_free_port())
        self.paths, self.elsewhere = (
            user_paths({"XDG_STATE_HOME": str(state / each), "XDG_CONFIG_HOME": str(state / each), "HOME": str(state)})
            for each in ("lap", "gpu")
        )
        self._services: list[subprocess.Popen[bytes]] = []

    def begin(self) -> None:
        self.hub.start()
        self.hub.wait()
        self.machine = self.hub.join("lap", "machine", self.paths)
        self.operator = self.hub.join("otto", "operator", self.paths)
        self.viewer = self.hub.join("vera", "viewer", self.elsewhere)
        self.gpu = self.hub.join("gpu", "machine", self.elsewhere)
        self.leaf: ClusterFolder = create_leaf(self.paths, "c1")
        self.start()
        asyncio.run(self._wait_for_members())

    async def _wait_for_members(self) -> None:
        """The leafnode has no list of members until the cluster has sent it the first."""
        local = through_leaf(self.paths, self.machine)
        assert local is not None
        async with asyncio.timeout(LIMIT_S):
            while True:
                with contextlib.suppress(UnavailableError):
                    await (await connect(local)).aclose()
                    return
                await asyncio.sleep(0.02)

    def start(self) -> None:
        self._services.append(process.start_service(self.leaf, self.paths))
        process.wait_until_up(self.leaf, self._services[-1])

    def stop(self) -> None:
        if self._services:
            process.stop_service(self.leaf)
        for each in self._services:
            each.wait()

    def close(self) -> None:
        self.stop()
        self.hub.stop()


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    laptop = Laptop(tmp_path_factory.mktemp("laptop"))
    try:
        laptop.begin()
        yield laptop
    finally:
        laptop.close()


@contextlib.asynccontextmanager
async def serving(env: Env, *identities: Identity) -> AsyncIterator[None]:
    """The sessions of *env*, served by each of *identities*, as `kasmon bus --cluster` does."""

    def serve(identity: Identity) -> "asyncio.Future[KasmonError]":
        file = PositionFile(env.paths, f"c1.{identity.leaf_of}")
        return asyncio.ensure_future(
            serve_until_refused(
                lambda: MachineServer(identity, lambda: LocalBus(env.paths), file=file), lambda: None, waits=True
            )
        )

    tasks = [serve(each) for each in identities]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def sees(identity: Identity, machine: str, env: Env) -> None:
    """Return when *identity* has read all of the machine's only session, which *env* has."""
    log = env.paths.log(ME).read_bytes()
    async with contextlib.aclosing(await open_nats_bus(identity, machine)) as bus:
        await Reader(bus).until(lambda copy: copy.is_complete and copy.logs.get(ME) == log)


def test_a_laptop_works_offline_and_the_cluster_has_it_all_afterwards(laptop: Laptop, env: Env) -> None:
    env.has(ME, started())
    local = through_leaf(laptop.paths, laptop.machine)
    assert local is not None

    async def work() -> None:
        await auntil(lambda: not read_problem(laptop.leaf))
        async with serving(env, laptop.machine, local):
            reader = load_reader(laptop.paths, "c1")
            assert ("lap", laptop.leaf.load().port) == (reader.leaf_of, reader.port)
            await until_served(reader, "lap")
            await until_served(laptop.viewer, "lap")
            async with contextlib.aclosing(await open_nats_bus(laptop.viewer, "lap")) as there:
                copy = Reader(there)
                await copy.until(lambda copy: copy.is_complete)
                await asyncio.to_thread(laptop.hub.kill)

                env.tells(ME, MessageWritten(at=NOW, text="offline"))
                await sees(reader, "lap", env)
        # the laptop is started again without the cluster
        await asyncio.to_thread(laptop.stop)
        await asyncio.to_thread(laptop.start)
        async with serving(env, laptop.machine, local):
            await until_served(reader, "lap")
            env.tells(ME, MessageWritten(at=NOW, text="still offline"))
            await sees(reader, "lap", env)
            with pytest.raises(RemoteUnreachableError):
                await sees(reader, "gpu", env)
            assert "cannot reach the cluster 'c1'" in read_problem(laptop.leaf)

            await asyncio.to_thread(laptop.hub.start)
            await asyncio.to_thread(laptop.hub.wait)
            await until_served(laptop.viewer, "lap")
            await sees(laptop.viewer, "lap", env)
            await auntil(lambda: not read_problem(laptop.leaf))

    asyncio.run(work())


async def until_served(identity: Identity, machine: str) -> None:
    """Return when *identity* finds that the *machine* serves now and has listed all."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(RemoteUnreachableError):
                async with contextlib.aclosing(await open_nats_bus(identity, machine)) as bus:
                    snapshot = await bus._snapshots().read()
                    if snapshot.is_connected and snapshot.facts is not None and snapshot.facts.is_complete:
                        return
            await asyncio.sleep(0.05)


def test_an_operator_reads_and_commands_other_machines_through_the_leafnode(laptop: Laptop, env: Env) -> None:
    env.has(ME, started())

    async def use() -> None:
        reader = load_reader(laptop.paths, "c1")
        async with serving(env, laptop.gpu):
            await until_served(reader, "gpu")
            async with contextlib.aclosing(await open_nats_bus(reader, "gpu")) as bus:
                copy = Reader(bus)
                await copy.until(lambda copy: copy.is_complete and ME in copy.logs)
                env.tells(ME, MessageWritten(at=NOW, text="live"))
                log = env.paths.log(ME).read_bytes()
                await copy.until(lambda copy: copy.logs[ME] == log)
            async with contextlib.aclosing(await open_command_bus(reader, "gpu")) as commands:
                assert "kasmon" in (await commands.run(["--version"])).stdout.decode()

    asyncio.run(use())


class RawLeaf:
    """A connection to the port for leafnodes that keeps to no permissions of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.lines: list[bytes] = []

    @staticmethod
    async def open(identity: Identity, port: int = 0) -> "RawLeaf":
        context = ssl.create_default_context(cadata=identity.ca)
        leaf = RawLeaf(
            *await asyncio.open_connection(
                identity.host, port or identity.leaf_port, ssl=context, server_hostname=identity.tls_name
            )
        )
        info = json.loads((await leaf._reader.readline()).removeprefix(b"INFO "))
        signature = base64.urlsafe_b64encode(sign(identity.seed, info["nonce"].encode())).decode().rstrip("=")
        greeting = {"nkey": identity.public_key, "sig": signature, "name": "hostile", "headers": True, "protocol": 1}
        leaf.send(f"CONNECT {json.dumps(greeting)}", "PING")
        return leaf

    def send(self, *lines: str) -> None:
        self._writer.write("".join(f"{line}\r\n" for line in lines).encode())

    def publish(self, subject: str, reply: str = "") -> None:
        self.send(f"LMSG {subject} {reply + ' ' if reply else ''}1", "x")

    async def read_until(self, start: bytes) -> None:
        """Read until a line begins with *start*; an empty one stands for the end."""
        async with asyncio.timeout(30):
            while True:
                line = await self._reader.readline()
                self.lines.append(line)
                if line.startswith(b"PING"):
                    self.send("PONG")
                if line.startswith(start) if start else not line:
                    return

    async def read_to_end(self) -> None:
        with contextlib.suppress(*ENDED):
            await self.read_until(b"")

    def close(self) -> None:
        self._writer.close()


def test_a_leafnode_gets_no_right_that_its_member_lacks(laptop: Laptop) -> None:
    """Each refused subject ends the connection; subscriptions with wildcards deliver what the member may read."""
    viewer, gpu = laptop.viewer, laptop.gpu

    async def attack() -> None:
        machine, operator = await connect(gpu), await connect(laptop.operator)
        arrived: list[str] = []

        async def keep(message: Msg) -> None:
            arrived.append(message.subject)

        await machine.subscribe(subject("c1", "cmd", "gpu") + ".>", keep)
        await machine.flush()
        for refused in (
            subject("c1", "cmd", "gpu", "x"),
            subject("c1", "ev", "gpu", "x"),
            subject("c1", "tasks", "gpu", "x"),
            "k.c1.roster",
            "$JS.API.STREAM.DELETE.ev_gpu",
            "$JS.API.CONSUMER.CREATE.ev_gpu",
            "$SYS.REQ.SERVER.PING",
        ):
            leaf = await RawLeaf.open(viewer)
            await leaf.read_until(b"PONG")
            leaf.publish(refused, f"{inbox(viewer.public_key)}.r")
            await leaf.read_to_end()
            assert any(refused.encode() in each for each in leaf.lines if each.startswith(b"-ERR")), refused
            leaf.close()

        leaf = await RawLeaf.open(viewer)
        await leaf.read_until(b"PONG")
        leaf.send("LS+ >", f"LS+ {inbox(operator.identity.public_key)}.>", "LS+ k.c1.cmd.>", "LS+ _R_.>", "LS+ k.c1.>")
        read = f"k.c1.get.ev_gpu.{subject('c1', 'ev', 'gpu', 'seen')}"
        leaf.publish(read, "$JS.API.STREAM.DELETE.ev_gpu")
        leaf.publish(read, subject("c1", "cmd", "gpu", "trick"))
        leaf.send("PING")
        await leaf.read_until(b"PONG")
        with contextlib.suppress(KasmonError):
            await operator.request(subject("c1", "cmd", "gpu", "x"), b"", timeout_s=0.5)
        await operator.read_roster()
        await machine.publish(subject("c1", "ev", "gpu", "seen"), b"event")
        await leaf.read_until(b"LMSG " + subject("c1", "ev", "gpu", "seen").encode())
        leaf.send("PING")
        await leaf.read_until(b"PONG")

        delivered = {line.split()[1] for line in leaf.lines if line.startswith((b"LMSG", b"HMSG"))}
        assert {subject("c1", "ev", "gpu", "seen").encode()} == delivered
        assert [subject("c1", "cmd", "gpu", "x")] == arrived
        leaf.close()
        await machine.aclose()
        await operator.aclose()

    asyncio.run(attack())


def test_a_second_revoke_ends_the_leafnodes_of_a_member_whose_first_revoke_was_killed(
    laptop: Laptop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles: tuple[Role, ...] = get_args(Role)
    olga = [laptop.hub.join("olga", role, Paths(state=tmp_path / role, config=tmp_path)) for role in roles]
    monkeypatch.setenv("XDG_STATE_HOME", str(laptop.hub.paths.state.parent))

    async def watch() -> None:
        leafs = [await RawLeaf.open(each) for each in olga]
        for each in leafs:
            await each.read_until(b"PONG")
        assert len(olga) == len(await asyncio.to_thread(revoke, laptop.hub.folder, "olga"))  # a killed one did no more
        with pytest.raises(NotFoundError, match="no member 'olga'"):
            await asyncio.to_thread(operations.revoke, "olga", "", "c1", False)
        for each in leafs:
            await each.read_to_end()
            each.close()

    asyncio.run(watch())


def test_a_removed_operator_is_disconnected_at_the_leafnode_too(laptop: Laptop) -> None:
    reader = load_reader(laptop.paths, "c1")

    async def watch() -> None:
        local, hostile = await connect(reader), await RawLeaf.open(laptop.operator)
        await hostile.read_until(b"PONG")
        gone = await asyncio.to_thread(revoke, laptop.hub.folder, "otto")
        assert await apply_changes(laptop.hub.folder, gone)
        await hostile.read_to_end()
        async with asyncio.timeout(LIMIT_S):
            error = await local.refusal
        assert "does not know 'otto': it was removed" in error.message
        with contextlib.suppress(*ENDED):  # it may be closed before it was read
            again = await RawLeaf.open(laptop.operator)
            await again.read_to_end()
            assert any(b"Authorization Violation" in each for each in again.lines)
            again.close()
        hostile.close()
        await local.aclose()

    asyncio.run(watch())
    assert ["lap"] == [each.name for each in laptop.leaf.load().members]


def test_a_removed_machine_gets_the_reason_at_its_leafnode(laptop: Laptop) -> None:
    local = through_leaf(laptop.paths, laptop.machine)
    assert local is not None

    async def watch() -> None:
        connection = await connect(local)
        for name in ("otto", "lap"):  # an operator who is still a member goes on reading for the leafnode
            with contextlib.suppress(NotFoundError):
                assert await apply_changes(laptop.hub.folder, await asyncio.to_thread(revoke, laptop.hub.folder, name))
        async with asyncio.timeout(30):
            error = await connection.refusal
        assert "does not know 'lap': it was removed" in error.message
        await connection.aclose()

    asyncio.run(watch())
    until(lambda: "does not know 'lap': it was removed" in read_problem(laptop.leaf), what="the reason")


def test_a_leafnode_needs_a_machine_that_joined_a_cluster_with_a_port_for_it(laptop: Laptop, tmp_path: Path) -> None:
    where = Paths(state=tmp_path, config=tmp_path)
    with pytest.raises(NotFoundError, match="machines join"):
        create_leaf(where, "c1")
    IdentityFile(where, "c1", "machine").save(msgspec.structs.replace(laptop.machine, leaf_port=0))
    with pytest.raises(RefusedError, match=r"accepted no leafnodes.*--leaf-port"):
        create_leaf(where, "c1")
    with pytest.raises(RefusedError, match="already"):
        create_leaf(laptop.paths, "c1")


@pytest.mark.parametrize(
    ("days_ago", "host", "why"),
    [
        (900, "127.0.0.1", "its certificate has expired"),
        (-9, "127.0.0.1", "its certificate is not valid yet"),
        (0, "192.0.2.7", "its certificate has another name"),
    ],
)
def test_a_certificate_that_the_leafnode_refuses_is_explained(
    laptop: Laptop, tmp_path: Path, days_ago: int, host: str, why: str
) -> None:
    now = dt.datetime.now(dt.UTC)
    authority = make_ca("c1", now - dt.timedelta(days=1000))
    made = make_server_certificate(authority, "c1", now - dt.timedelta(days=days_ago), hosts=[host])

    with pytest.raises(UnavailableError, match=why):
        asyncio.run(ask(laptop.machine, authority, made, tmp_path))


async def ask(identity: Identity, authority: KeyPair, made: KeyPair, folder: Path) -> None:
    """Have *identity* look at a server with the certificate *made*."""
    pem = folder / "server.pem"
    pem.write_bytes(made.certificate + made.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem)

    async def ignore(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(ignore, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        await check_leaf_port(msgspec.structs.replace(identity, leaf_port=port, ca=authority.certificate.decode()))


def test_a_port_for_leafnodes_that_is_closed_is_explained(laptop: Laptop) -> None:
    closed = msgspec.structs.replace(laptop.machine, leaf_port=find_free_port())

    with pytest.raises(UnavailableError, match=rf"cannot reach the cluster 'c1' at '127.0.0.1:{closed.leaf_port}'"):
        asyncio.run(check_leaf_port(closed))


def test_a_leafnode_without_credentials_is_refused(laptop: Laptop) -> None:
    async def attempt() -> list[bytes]:
        leaf = await RawLeaf.open(msgspec.structs.replace(laptop.viewer, seed=make_seed()))
        await leaf.read_to_end()
        leaf.close()
        return leaf.lines

    assert any(b"Authorization Violation" in each for each in asyncio.run(attempt()))
