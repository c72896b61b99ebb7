"""A leafnode: a NATS server on a machine of a cluster, which has that machine's streams in its own JetStream domain.

The machine's service publishes to it and, while it can, to the cluster. Each has epochs and orders of its own, so that
nothing is copied between the two. Readers on the machine connect to the leafnode. What concerns other machines, it
passes to the cluster, as the member that reads and with that member's permissions.
"""

import asyncio
import contextlib
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

import msgspec
from nats.aio.msg import Msg

from kasmon.bus.nats.cluster import ClusterFolder, Member, Role, Team
from kasmon.bus.nats.connection import CONNECT_S, FAILURES, Connection, connect, explain, tls_context
from kasmon.bus.nats.creation import create_cluster, write_configuration
from kasmon.bus.nats.identity import Identity, IdentityFile
from kasmon.bus.nats.process import read_server
from kasmon.bus.nats.server_config import READERS
from kasmon.bus.nats.signatures import CommandRefusedError, verify_roster
from kasmon.bus.nats.subjects import roster_subject
from kasmon.errors import KasmonError, NotFoundError, RefusedError
from kasmon.paths import Paths, write_private

log = logging.getLogger(__name__)

LEAF_BYTES: Final = 256 * 1024**2
"""Enough for the streams of one machine; while one is changed, the server counts it twice."""
LEAFS_S: Final = 0.5
FIRST_WAIT_S, LAST_WAIT_S = 0.5, 10.0
LOST: Final = "the connection to the cluster is lost."


def create_leaf(paths: Paths, cluster: str, port: int = 0) -> ClusterFolder:
    """Make the folder of a leafnode of *cluster*, which this machine joined; the service of a cluster runs it.

    Raises:
        NotFoundError: if this machine did not join as a machine.
        RefusedError: if the cluster accepts no leafnodes, or there is a folder already.
    """
    machine = IdentityFile(paths, cluster, "machine").load()
    if not machine.leaf_port:
        raise RefusedError(
            f"the cluster {cluster!r} accepted no leafnodes when this machine joined.",
            hint="`kasmon cluster init --leaf-port 7422` makes a cluster that does.",
        )
    if ClusterFolder(paths, cluster).state.exists():
        raise RefusedError(
            f"this machine has the cluster {cluster!r}, or a leafnode of it, already.",
            hint=f"`kasmon cluster up --cluster {cluster}` starts it.",
        )
    folder = create_cluster(
        paths, cluster, "127.0.0.1", port, teams=(Team(machine.team, LEAF_BYTES),), leaf_of=machine.name
    )
    if machine.ca:
        write_private(folder.hub_ca, machine.ca.encode())
    update_members(folder, {each.public_key for each in _identities(folder)})
    return folder


def through_leaf(paths: Paths, identity: Identity) -> Identity | None:
    """Return how *identity* connects to this machine's leafnode; None if there is none."""
    folder = ClusterFolder(paths, identity.cluster)
    try:
        cluster = folder.load()
    except NotFoundError:
        return None
    if not cluster.leaf_of:
        return None
    return msgspec.structs.replace(
        identity,
        host=cluster.host,
        port=cluster.port,
        tls_name=cluster.tls_name,
        ca=folder.ca.read_text(),
        servers=(),
        leaf_port=0,
        leaf_of=cluster.leaf_of,
    )


def load_reader(paths: Paths, cluster: str) -> Identity:
    """Return the identity that reads the machines of *cluster*: that of an operator, else that of a viewer.

    It connects to this machine's leafnode while that runs.

    Raises:
        NotFoundError: if this machine has neither.
        KasmonError: if the file cannot be read.
    """
    operator = IdentityFile(paths, cluster, "operator")
    identity = (operator if operator.path.exists() else IdentityFile(paths, cluster, "viewer")).load()
    server = read_server(ClusterFolder(paths, cluster))
    return identity if server is None or not server.is_ready else through_leaf(paths, identity) or identity


def update_members(folder: ClusterFolder, keys: Collection[str]) -> bool:
    """Let those members of this machine whose public keys are *keys* use the leafnode; return whether that is new.

    A running server uses it when it is started again.
    """
    members = tuple(
        Member(each.name, role, each.team, each.public_key, 0.0)
        for each in _identities(folder)
        if each.public_key in keys and (role := each.role) is not None
    )
    if members == folder.load().members:
        return False
    with folder.change() as change:
        change.cluster = msgspec.structs.replace(change.cluster, members=members)
    write_configuration(folder)
    return True


def _identities(folder: ClusterFolder) -> list[Identity]:
    """Return the members of this machine; the machine itself is the first."""
    roles: tuple[Role, ...] = ("machine", *READERS)
    found = []
    for role in roles:
        with contextlib.suppress(NotFoundError):
            found.append(IdentityFile(folder.paths, folder.path.name, role).load())
    return found


async def follow_hub(folder: ClusterFolder, publish: Callable[[bytes], Awaitable[None]]) -> None:
    """Give each list of members that the cluster signs to *publish*, until the members of this machine change.

    Why the cluster cannot be reached is in the log, and in the file `hub_problem`.
    """
    wait_s = FIRST_WAIT_S
    while True:
        since = time.monotonic()
        if await _RosterFollower(folder, publish).run():
            return
        wait_s = FIRST_WAIT_S if time.monotonic() - since > LAST_WAIT_S else min(2 * wait_s, LAST_WAIT_S)
        await asyncio.sleep(random.uniform(wait_s / 2, wait_s))


class _RosterFollower:
    """One attempt to follow the lists of members, as one member of this machine after the other."""

    def __init__(self, folder: ClusterFolder, publish: Callable[[bytes], Awaitable[None]]) -> None:
        self._folder, self._publish = folder, publish
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue()

    async def run(self) -> bool:
        """Return whether the members of this machine changed."""
        removed: list[RefusedError] = []
        for identity in await asyncio.to_thread(_identities, self._folder):
            try:
                return await self._follow(identity)
            except RefusedError as error:  # the next one may read the list
                removed.append(error)
            except KasmonError as error:
                await self._note(str(error))
                return False
        await self._note(str(removed[0]) if removed else "")
        return await asyncio.to_thread(update_members, self._folder, ())

    async def _follow(self, identity: Identity) -> bool:
        await check_leaf_port(identity)
        opening = connect(identity, rewatch=lambda: self._note(""), lost=lambda: self._note(LOST), now=time.time)
        async with contextlib.aclosing(await opening) as connection:
            await connection.subscribe(roster_subject(identity.cluster), self._handle)
            await connection.flush()
            self._arrived.put_nowait(connection.roster_message)
            await self._note("")
            while True:
                arrived = asyncio.ensure_future(self._arrived.get())
                waited: list[asyncio.Future[Any]] = [arrived, connection.refusal]
                try:
                    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    arrived.cancel()
                if connection.refusal.done():
                    raise connection.refusal.result()
                sent = arrived.result()
                with contextlib.suppress(CommandRefusedError):
                    roster = verify_roster(sent, identity.cluster_key, identity.cluster, identity.team)
                    await self._publish(sent)
                    if await asyncio.to_thread(
                        update_members, self._folder, {each.public_key for each in roster.members}
                    ):
                        return True

    async def _handle(self, message: Msg) -> None:
        self._arrived.put_nowait(message.data)

    async def _note(self, problem: str) -> None:
        file = self._folder.hub_problem
        if problem != await asyncio.to_thread(read_problem, self._folder):
            log.warning("%s", problem or "connected to the cluster")
            await asyncio.to_thread(write_private, file, problem.encode())


def read_problem(folder: ClusterFolder) -> str:
    """Return why the leafnode is not connected to its cluster; empty if it is."""
    try:
        return folder.hub_problem.read_text()
    except OSError:
        return ""


async def check_leaf_port(identity: Identity) -> None:
    """Connect to a port for leafnodes as the server of a leafnode would, whose own log is for experts.

    Raises:
        UnavailableError: if none can be reached, or the first one's certificate is refused.
    """
    context = await asyncio.to_thread(tls_context, identity)
    problems = []
    for address in identity.leaf_servers:
        try:
            async with asyncio.timeout(CONNECT_S):
                _, writer = await asyncio.open_connection(
                    address.host, address.port, ssl=context, server_hostname=address.host
                )
        except FAILURES as error:
            problems.append(explain(error, address))
        else:
            writer.transport.abort()  # `close` waits for the other end, and the loop may end before it answers
            return
    raise problems[0]


async def end_leafs(system: Connection, server_name: str, accounts: Collection[str]) -> None:
    """End the leafnodes of a server in *accounts*. Those of other members connect again.

    nats-server 2.15 ends no leafnode when its configuration is reloaded, and does not say whose one is. It is done
    twice, because a server that is told to reload by a signal can let one in before it has.

    Raises:
        KasmonError: if the server does not answer.
    """
    query = json.dumps({"server_name": server_name, "exact_match": True}).encode()
    for _ in range(2):
        found = json.loads((await system.request("$SYS.REQ.SERVER.PING.LEAFZ", query)).data)
        for leaf in found["data"].get("leafs") or ():
            if leaf["account"] in accounts:
                kick = json.dumps({"cid": leaf["id"]}).encode()
                await system.request(f"$SYS.REQ.SERVER.{found['server']['id']}.KICK", kick)
        await asyncio.sleep(LEAFS_S)
