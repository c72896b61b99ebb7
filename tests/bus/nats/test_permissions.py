"""What a member of each role may do, tried against a real server with the configuration that `render` makes."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import product
from typing import Final

import msgspec
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error

from kasmon.bus.nats.cluster import Role
from kasmon.bus.nats.connection import Connection, connect
from kasmon.bus.nats.keys import make_seed
from kasmon.bus.nats.server_config import ACK, DIRECT_GET, NEXT, WORKER
from kasmon.bus.nats.signatures import CommandRefusedError, CommandVerifier
from kasmon.bus.nats.subjects import ROSTER, inbox, roster_subject, stream, subject
from kasmon.errors import RefusedError, UnavailableError
from tests.support.bus.cluster_server import CLUSTER, ClusterServer
from tests.support.wait import auntil

ROLES: Final[tuple[tuple[str, Role], ...]] = (("m1", "machine"), ("vera", "viewer"), ("otto", "operator"))
TRICK_S: Final = 0.2


class Members:
    """Connections of members, each with the refusals that the server sent to it."""

    def __init__(self, cluster: ClusterServer, stack: AsyncExitStack) -> None:
        self._cluster, self._stack = cluster, stack
        self.refusals: dict[Connection, list[str]] = {}

    async def connect(self, name: str, role: Role, team: str = "main") -> Connection:
        connection = await connect(self._cluster.identity(name, role, team))
        self._stack.push_async_callback(connection.aclose)
        refusals = self.refusals[connection] = []

        async def keep(error: Exception) -> None:
            refusals.append(str(error))

        connection.client._error_cb = keep
        return connection

    async def service(self) -> Connection:
        connection = await self._cluster.connect_service()
        self._stack.push_async_callback(connection.aclose)
        return connection

    async def may_publish(self, member: Connection, subject: str, reply: str = "") -> bool:
        await member.client.publish(subject, b"x", reply=reply)
        return await self._is_allowed(member)

    async def may_subscribe(self, member: Connection, subject: str) -> bool:
        subscription = await member.client.subscribe(subject)
        is_allowed = await self._is_allowed(member)
        await subscription.unsubscribe()
        return is_allowed

    async def _is_allowed(self, member: Connection) -> bool:
        """The server answers a ping after what it refused before."""
        await member.flush()
        refused = [each for each in self.refusals[member] if "permissions violation" in each]
        self.refusals[member].clear()
        return not refused


@pytest.fixture
async def members(cluster: ClusterServer) -> AsyncIterator[Members]:
    async with AsyncExitStack() as stack:
        yield Members(cluster, stack)


async def collect(member: Connection, subject: str) -> list[Msg]:
    """The messages under *subject*, as they arrive."""
    arrived: list[Msg] = []

    async def keep(message: Msg) -> None:
        arrived.append(message)

    await member.subscribe(subject, keep)
    await member.flush()
    return arrived


def on(kind: str, machine: str, *parts: str) -> str:
    return subject(CLUSTER, kind, machine, *parts)


async def test_a_machine_publishes_below_its_own_name_only(members: Members) -> None:
    machine = await members.connect("m1", "machine")

    await machine.publish(on("ev", "m1", "s1"), b"event")
    await machine.publish(on("dir", "m1", "s1"), b"row")
    assert await members.may_publish(machine, on("hb", "m1"))
    assert await members.may_publish(machine, f"{DIRECT_GET}.{stream('dir', 'm1')}", machine.client.new_inbox())
    for refused in (
        f"{DIRECT_GET}.{stream('dir', 'm2')}",
        on("log", "m1", "s1"),
        on("tasks", "m1", "x"),
        f"{NEXT}.{stream('tasks', 'm2')}.{WORKER}",
        f"{ACK}.{stream('tasks', 'm2')}.{WORKER}.1.1.1.1.0",
        on("ev", "m2", "s1"),
        on("dir", "m2", "s1"),
        on("hb", "m2"),
        on("ev", "m1"),
        on("cmd", "m1", "x"),
        on("cmd", "m2", "x"),
        roster_subject(CLUSTER),
        f"k.{CLUSTER}.enrol.x",
        "k.other.ev.m1.s1",
        "$JS.API.STREAM.DELETE.ev_m1",
        f"{DIRECT_GET}.{stream('ev', 'm1')}",
        "$SYS.REQ.SERVER.PING",
    ):
        assert not await members.may_publish(machine, refused), refused


async def test_a_machine_reads_its_own_commands_and_answers_only(members: Members) -> None:
    machine = await members.connect("m1", "machine")

    assert await members.may_subscribe(machine, on("cmd", "m1", "x"))
    assert await members.may_subscribe(machine, on("log", "m1", "x"))
    assert await members.may_subscribe(machine, on("cmd", "m1") + ".>")
    for refused in (
        on("cmd", "m2", "x"),
        on("log", "m2", "x"),
        f"k.{CLUSTER}.cmd.>",
        on("ev", "m2", "s1"),
        f"k.{CLUSTER}.>",
        ">",
        "_INBOX.>",
    ):
        assert not await members.may_subscribe(machine, refused), refused


async def test_a_viewer_reads_everything_of_its_team_and_sends_no_command(members: Members) -> None:
    viewer, machine = await members.connect("vera", "viewer"), await members.connect("m1", "machine")
    live, beats = await collect(viewer, on("ev", "m1") + ".>"), await collect(viewer, on("hb", "m1"))

    await machine.publish(on("ev", "m1", "seen"), b"event")
    await machine.send(on("hb", "m1"), b"beat")
    assert await members.may_publish(viewer, on("log", "m1", "seen"), viewer.client.new_inbox())
    stored = await viewer.request(f"{DIRECT_GET}.{stream('ev', 'm1')}.{on('ev', 'm1', 'seen')}", b"")
    await viewer.flush()

    assert (b"event", [b"event"], [b"beat"]) == (stored.data, [each.data for each in live], [b.data for b in beats])
    for refused in (
        on("cmd", "m1", "x"),
        on("tasks", "m1", "x"),
        on("ev", "m1", "x"),
        on("hb", "m1"),
        roster_subject(CLUSTER),
        "$JS.API.STREAM.DELETE.ev_m1",
        "$JS.API.CONSUMER.CREATE.ev_m1",
        "$JS.API.STREAM.MSG.DELETE.ev_m1",
        "$JS.API.INFO",
    ):
        assert not await members.may_publish(viewer, refused), refused
    for refused in (on("cmd", "m1", "x"), f"k.{CLUSTER}.>", ">"):
        assert not await members.may_subscribe(viewer, refused), refused


async def test_an_operator_sends_commands_and_gets_each_reply(members: Members) -> None:
    operator, machine = await members.connect("otto", "operator"), await members.connect("m1", "machine")

    async def reply(message: Msg) -> None:
        for part in (b"1", b"2", b"3"):
            await machine.send(message.reply, part)

    await machine.subscribe(on("cmd", "m1") + ".>", reply)
    await machine.flush()
    own = operator.client.new_inbox()
    replies = await collect(operator, own)
    await operator.client.publish(on("cmd", "m1", "prompt"), b"x", reply=own)
    await auntil(lambda: len(replies) == 3)

    assert [b"1", b"2", b"3"] == [each.data for each in replies]
    for refused in (on("ev", "m1", "x"), roster_subject(CLUSTER), "$JS.API.STREAM.DELETE.ev_m1", "$JS.API.INFO"):
        assert not await members.may_publish(operator, refused), refused


async def test_a_command_to_a_machine_that_is_not_there_fails_at_once(members: Members) -> None:
    operator = await members.connect("otto", "operator")

    with pytest.raises(UnavailableError, match="is not connected"):
        await operator.request(on("cmd", "m2", "prompt"), b"x", timeout_s=30)


@pytest.mark.parametrize(
    ("name", "role", "other"),
    [("vera", "viewer", "viktor"), ("otto", "operator", "olga"), ("m1", "machine", "m2")],
)
async def test_no_member_reads_the_answers_to_another_one(
    cluster: ClusterServer, members: Members, name: str, role: Role, other: str
) -> None:
    member = await members.connect(name, role)
    prefix = inbox(cluster.identity(other, role).public_key)

    assert await members.may_subscribe(member, inbox(member.identity.public_key) + ".x")
    for refused in (f"{prefix}.>", f"{prefix}.x", "_INBOX.>", "*.x", "_R_.>"):
        assert not await members.may_subscribe(member, refused), refused


async def test_a_team_sees_nothing_of_another_team(members: Members) -> None:
    """Both have a machine and an operator of the same names."""
    machine, operator = await members.connect("m1", "machine"), await members.connect("otto", "operator", "other")
    live = await collect(operator, on("ev", "m1") + ".>")
    commands = await collect(machine, on("cmd", "m1") + ".>")

    await machine.publish(on("ev", "m1", "hidden"), b"event")
    stored = await operator.request(f"{DIRECT_GET}.{stream('ev', 'm1')}.{on('ev', 'm1', 'hidden')}", b"")
    with pytest.raises(UnavailableError):
        await operator.request(on("cmd", "m1", "x"), b"x")

    assert ("404", [], []) == ((stored.headers or {}).get("Status"), live, commands)


async def test_a_reply_subject_turns_no_right_to_read_into_another_right(members: Members) -> None:
    """Within one account the server sends a reply to any subject, with a message of the asker's choice: a reader could
    have a stream deleted (an empty message is such a request) or a command delivered."""
    service, machine = await members.service(), await members.connect("m1", "machine")
    commands = await collect(machine, on("cmd", "m1") + ".>")
    victim = {"name": "victim", "subjects": ["victim"], "storage": "file"}
    await service.request("$JS.API.STREAM.CREATE.victim", json.dumps(victim).encode())
    await machine.publish(on("ev", "m1", "empty"), b"")
    read = f"{DIRECT_GET}.{stream('ev', 'm1')}.{on('ev', 'm1', 'empty')}"

    rights = {
        "vera": [read, on("log", "m1", "asked")],
        "otto": [read, on("log", "m1", "asked"), on("cmd", "m1", "asked")],
        "m1": [f"{DIRECT_GET}.{ROSTER}.{roster_subject(CLUSTER)}", f"{DIRECT_GET}.{stream('dir', 'm1')}"],
    }
    for name, role in ROLES:
        member = await members.connect(name, role)
        replies = ("$JS.API.STREAM.DELETE.victim", on("cmd", "m1", "trick"), on("ev", "m1", "trick"))
        for asked, reply in product(rights[name], replies):
            await member.client.publish(asked, b"", reply=reply)
        await member.flush()
    await asyncio.sleep(TRICK_S)

    info = json.loads((await service.request("$JS.API.STREAM.INFO.victim", b"")).data)
    stored = await service.request(f"{DIRECT_GET}.{stream('ev', 'm1')}.{on('ev', 'm1', 'trick')}", b"")
    assert "error" not in info
    assert "404" == (stored.headers or {}).get("Status")
    tricks = [each for each in commands if each.subject == on("cmd", "m1", "trick")]
    verifier = CommandVerifier(CLUSTER, "main", machine.identity.cluster_key, "m1", "1")
    verifier.update_roster(machine.roster_message)
    for each in tricks:  # the list of members, and what a machine has in its own directory
        with pytest.raises(CommandRefusedError):
            verifier.verify(each.data, time.time())

    await service.client.publish(read, b"", reply="$JS.API.STREAM.DELETE.victim")
    await service.flush()
    await asyncio.sleep(TRICK_S)
    info = json.loads((await service.request("$JS.API.STREAM.INFO.victim", b"")).data)
    assert "error" in info, "in its own account the trick works"


async def test_a_stranger_and_a_client_without_a_key_are_refused(cluster: ClusterServer) -> None:
    stranger = msgspec.structs.replace(cluster.identity("m1", "machine"), seed=make_seed())
    with pytest.raises(RefusedError, match="does not know 'm1'"):
        await connect(stranger)

    client = Client()
    with pytest.raises(Error, match="Authorization Violation"):
        await client.connect(
            f"tls://{stranger.address}",
            tls=ssl.create_default_context(cadata=stranger.ca),
            tls_hostname=stranger.tls_name,
            tls_handshake_first=True,
            allow_reconnect=False,
        )
    await client.close()


async def test_each_member_reads_the_list_of_members(members: Members) -> None:
    for name, role in ROLES:
        member = await members.connect(name, role)
        roster = await member.read_roster()
        assert {"m1", "m2", "vera", "viktor", "otto", "olga"} == {each.name for each in roster.members}
        assert {"main"} == {each.team for each in roster.members}
