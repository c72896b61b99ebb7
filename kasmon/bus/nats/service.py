"""The service of a cluster: runs the NATS server, creates its streams, signs the list of members, and admits members.

One process holds the lock of the cluster's folder. Without it the server still works, but no member can join, and
machines refuse commands when their list of members expires.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any, Final

import msgspec

from kasmon.asyncio_tasks import end_tasks, wait_within
from kasmon.boot_id import boot
from kasmon.bus.nats import certificates
from kasmon.bus.nats.cluster import Cluster, ClusterFolder, Member
from kasmon.bus.nats.connection import Connection, connect, explain_jetstream
from kasmon.bus.nats.creation import render_peer, renew_certificate, renew_peer_certificate, write_configuration
from kasmon.bus.nats.enrolment import JoinReply, admit, close_token, withdraw
from kasmon.bus.nats.identity import Identity
from kasmon.bus.nats.leaf import end_leafs, follow_hub
from kasmon.bus.nats.process import ServerRecord, end_server, read_server
from kasmon.bus.nats.server import ServerProgram, check_configuration, last_error, start_server, stop_server
from kasmon.bus.nats.server_config import (
    ACCOUNTS,
    ENROLMENT,
    ROSTER_KEY,
    SYSTEM,
    WORKER,
    account,
    build_server_name,
    roster_configuration,
    stream_configurations,
    worker_configuration,
)
from kasmon.bus.nats.signatures import Roster, sign_roster, sign_text
from kasmon.bus.nats.subjects import (
    ROSTER,
    certificate_subject,
    configuration_subject,
    enrolment_subject,
    roster_subject,
    stream,
)
from kasmon.errors import KasmonError, RefusedError, TimedOutError, UnavailableError
from kasmon.host.rpc.host_lock import HostLock
from kasmon.paths import write_private
from kasmon.process_identity import started_at

SIGN_S: Final = 30.0
"""How often the list of members is signed again; a tenth of its life."""
START_S: Final = 15.0
LONGEST_WAIT_S: Final = 30.0
SERVERS_S: Final = 0.5
"""How often is looked whether enough servers are up."""
STREAM_EXISTS: Final = 10058
"""JetStream's code for a stream that exists with another configuration."""

log = logging.getLogger(__name__)


async def apply_changes(folder: ClusterFolder, removed: Sequence[Member] = ()) -> bool:
    """Have the running server use the cluster as it is stored now; return whether one runs.

    Args:
        folder: the cluster's.
        removed: members that were removed since: their leafnodes end too.

    Members that were removed are disconnected, machines get their streams, each team its signed list of members.

    Raises:
        KasmonError: if the server refuses it.
    """
    await asyncio.to_thread(write_configuration, folder)
    if (record := await asyncio.to_thread(read_server, folder)) is None:
        return False
    if (await asyncio.to_thread(folder.load)).servers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGHUP)  # a request could be answered by another server
    else:
        async with _open(folder, SYSTEM) as system:
            server = json.loads((await system.request("$SYS.REQ.SERVER.PING.IDZ", b"")).data)["id"]
            answer = json.loads((await system.request(f"$SYS.REQ.SERVER.{server}.RELOAD", b"")).data)
            if error := answer.get("error"):
                raise KasmonError(f"the NATS server refused its configuration: {error.get('description')}.")
    await _end_leafs(folder, removed)
    await publish_rosters(folder, updates_streams=False)
    return True


async def _end_leafs(folder: ClusterFolder, removed: Sequence[Member]) -> None:
    """End the leafnodes of this server in the accounts of *removed* members; each further server does it itself."""
    accounts = {account(each.team, ACCOUNTS[each.role]) for each in removed}
    cluster = await asyncio.to_thread(folder.load)
    if not accounts or not cluster.leaf_port:
        return
    async with _open(folder, SYSTEM) as system:
        await end_leafs(system, build_server_name(cluster.name, 1 if cluster.servers else 0), accounts)


async def publish_rosters(folder: ClusterFolder, *, updates_streams: bool = True) -> None:
    """Create missing streams, delete those of removed machines, and publish each team's list of members, signed now.

    With *updates_streams* those that exist get the configuration of this version, which takes a request for each.
    """
    cluster = await asyncio.to_thread(folder.load)
    if cluster.servers:
        await _publish_configurations(folder, cluster)
    for team in cluster.teams:
        async with _open(folder, account(team.name, "data")) as connection:
            await _create_stream(connection, roster_configuration(cluster.name, cluster.replicas))
            members = tuple(member for member in cluster.members if member.team == team.name)
            wanted = [
                configuration
                for member in members
                if member.role == "machine"
                for configuration in stream_configurations(cluster.name, member.name, cluster.replicas)
            ]
            existing = await _list_streams(connection)
            for name in existing - {ROSTER, *(each["name"] for each in wanted)}:
                # that of a removed machine: it uses space, and another machine may get the name
                await connection.request(f"$JS.API.STREAM.DELETE.{name}", b"")
            for configuration in wanted:
                if updates_streams or configuration["name"] not in existing:
                    await _create_stream(connection, configuration)
            for member in members:
                if member.role == "machine" and (updates_streams or stream("tasks", member.name) not in existing):
                    await _create_worker(connection, member.name)
            if cluster.leaf_of:
                continue  # the list of the cluster is passed on
            roster = Roster(cluster=cluster.name, team=team.name, members=members, signed_at=time.time())
            seed = await asyncio.to_thread(folder.seed, ROSTER_KEY)
            await connection.publish(roster_subject(cluster.name), sign_roster(seed, roster))


async def _publish_configurations(folder: ClusterFolder, cluster: Cluster) -> None:
    """Send each further server its configuration; one that is down gets it later, as this is repeated."""
    seed = await asyncio.to_thread(folder.seed, ROSTER_KEY)
    async with _open(folder, SYSTEM) as system:
        for number in range(2, cluster.replicas + 1):
            text = await asyncio.to_thread(render_peer, folder, cluster, number)
            await system.send(configuration_subject(cluster.name, number), sign_text(seed, text, time.time()))


async def _cancel(tasks: Sequence["asyncio.Task[Any]"]) -> None:
    """End *tasks*, and log what failed."""
    await end_tasks(tasks)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the service failed and is started again", exc_info=error)


async def _list_streams(connection: Connection) -> set[str]:
    """Return the names of all streams; the server lists at most 1,024 at once."""
    names: set[str] = set()
    while True:
        query = json.dumps({"offset": len(names)}).encode()
        answer = json.loads((await connection.request("$JS.API.STREAM.NAMES", query)).data)
        names.update(answer.get("streams") or ())
        if not answer.get("streams") or len(names) >= answer["total"]:
            return names


async def _create_stream(connection: Connection, configuration: dict[str, Any]) -> None:
    """Create the stream, or give it this configuration."""
    name, content = configuration["name"], json.dumps(configuration).encode()
    answer = json.loads((await connection.request(f"$JS.API.STREAM.CREATE.{name}", content)).data)
    if answer.get("error", {}).get("err_code") == STREAM_EXISTS:
        answer = json.loads((await connection.request(f"$JS.API.STREAM.UPDATE.{name}", content)).data)
    if error := answer.get("error"):
        raise explain_jetstream(error, connection.identity)


async def _create_worker(connection: Connection, machine: str) -> None:
    """Create the consumer of the machine's work queue, or give it this configuration."""
    content = json.dumps(worker_configuration(machine)).encode()
    subject = f"$JS.API.CONSUMER.CREATE.{stream('tasks', machine)}.{WORKER}"
    if error := json.loads((await connection.request(subject, content)).data).get("error"):
        raise explain_jetstream(error, connection.identity)


@contextlib.asynccontextmanager
async def _open(folder: ClusterFolder, of_account: str) -> AsyncIterator[Connection]:
    identity = await asyncio.to_thread(service_identity, folder, of_account)
    async with contextlib.aclosing(await connect(identity)) as connection:
        yield connection


def service_identity(folder: ClusterFolder, of_account: str) -> Identity:
    """Return the identity of the service in one of the accounts."""
    cluster = folder.load()
    return Identity(
        cluster=cluster.name,
        team=of_account.removesuffix(".data"),
        name=f"the service ({of_account})",
        role=None,
        host=cluster.host if cluster.listen in ("0.0.0.0", "::") else cluster.listen,
        port=cluster.port,
        tls_name=cluster.tls_name or cluster.host,
        ca=folder.ca.read_text() if folder.ca.exists() else "",
        cluster_key=folder.key(ROSTER_KEY),
        seed=folder.seed(of_account),
    )


class ClusterService:
    """Runs the server of one cluster until it is stopped."""

    def __init__(self, folder: ClusterFolder, program: ServerProgram) -> None:
        self._folder, self._program = folder, program
        self._record = ServerRecord(0, 0.0, "")

    async def run(self, stop: asyncio.Event) -> None:
        """Run until *stop* is set. The record of the server says when members can connect.

        A server that ends is started again.

        Raises:
            RefusedError: if another process runs this cluster, or the server refuses the configuration.
            UnavailableError: if the server does not start the first time.
        """
        lock = HostLock(self._folder.service_lock)
        if not await asyncio.to_thread(lock.acquire):
            raise RefusedError(
                f"the cluster {self._folder.path.name!r} is up already.", hint="`kasmon cluster status` shows it."
            )
        try:
            await self._run(stop)
        finally:
            lock.let_go()

    async def _run(self, stop: asyncio.Event) -> None:
        await asyncio.to_thread(self._prepare)
        wait_s = 1.0
        is_first = True
        while not stop.is_set():
            process = await asyncio.to_thread(self._start)
            since = time.monotonic()
            try:
                await self._serve(process, stop)
            except KasmonError as error:
                if is_first:
                    raise
                log.error("%s", error)
            finally:
                await asyncio.shield(asyncio.to_thread(self._end, process))
            is_first = False
            if time.monotonic() - since > LONGEST_WAIT_S:
                wait_s = 1.0
            if not stop.is_set():
                log.warning("the NATS server ended; it is started again in %.0f s", wait_s)
                await wait_within(wait_s, stop)
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _prepare(self) -> None:
        """End a server that an earlier service left, renew the certificate, and have the configuration checked."""
        end_server(self._folder)
        cluster = self._folder.load()
        if (
            cluster.has_own_ca
            and certificates.expires_at(self._folder.certificate.read_bytes()) - time.time() < certificates.RENEW_S
        ):
            renew_certificate(self._folder)
        write_configuration(self._folder)
        if why := check_configuration(self._program, self._folder.configuration):
            raise RefusedError(f"the NATS server refuses its configuration: {why}.")

    def _start(self) -> "subprocess.Popen[bytes]":
        process = start_server(self._program, self._folder.configuration)
        record = ServerRecord(process.pid, started_at(process.pid) or 0.0, boot())
        write_private(self._folder.processes, msgspec.json.encode(record))
        self._record = record
        return process

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        stop_server(process)
        self._folder.processes.unlink(missing_ok=True)

    async def _serve(self, process: "subprocess.Popen[bytes]", stop: asyncio.Event) -> None:
        """Admit members until the server ends or *stop* is set."""
        async with contextlib.aclosing(await self._connect_when_up(process)) as enrolment:
            await self._publish_first(process, stop)
            queue: asyncio.Queue[Any] = asyncio.Queue(maxsize=64)
            subject = enrolment_subject(self._folder.path.name, "*")
            await enrolment.subscribe(subject, queue.put)
            await enrolment.flush()
            ready = msgspec.structs.replace(self._record, is_ready=True)
            await asyncio.to_thread(write_private, self._folder.processes, msgspec.json.encode(ready))
            is_leaf = bool((await asyncio.to_thread(self._folder.load)).leaf_of)
            tasks: list[asyncio.Task[Any]] = [
                asyncio.create_task(work)
                for work in (
                    asyncio.to_thread(process.wait),
                    stop.wait(),
                    self._admit_members(enrolment, queue),
                    self._sign_certificates(),
                    follow_hub(self._folder, self._publish_roster) if is_leaf else self._sign_rosters(),
                )
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            process.terminate()
            await _cancel(tasks)

    async def _connect_when_up(self, process: "subprocess.Popen[bytes]") -> Connection:
        until = time.monotonic() + START_S
        identity = await asyncio.to_thread(service_identity, self._folder, ENROLMENT)
        while True:
            try:
                return await connect(identity)
            except UnavailableError as error:
                if process.poll() is not None:
                    why = await asyncio.to_thread(last_error, self._folder.server_log)
                    raise UnavailableError(
                        f"the NATS server ended at once: {why or f'exit code {process.returncode}'}.",
                        hint=f"Its log is {str(self._folder.server_log)!r}.",
                    ) from error
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(0.05)

    async def _publish_first(self, process: "subprocess.Popen[bytes]", stop: asyncio.Event) -> None:
        """Publish the lists of members; with several servers that takes two, so wait for another one."""
        has_several = bool((await asyncio.to_thread(self._folder.load)).servers)
        while True:
            try:
                return await publish_rosters(self._folder)
            except (UnavailableError, TimedOutError) as error:
                if not has_several or process.poll() is not None or stop.is_set():
                    raise
                log.warning("waiting for the other servers: %s", error)
            await asyncio.sleep(SERVERS_S)

    async def _admit_members(self, enrolment: Connection, queue: "asyncio.Queue[Any]") -> None:
        """Answer each request to join. The server is told of the new member before, and of the used token after it."""
        while True:
            message = await queue.get()
            token = message.subject.rpartition(".")[2]
            reply = await asyncio.to_thread(admit, self._folder, token, message.data)
            try:
                if not reply.refusal:
                    await apply_changes(self._folder)
            except KasmonError as error:
                log.error("%s", error)
                await asyncio.to_thread(withdraw, self._folder, token)
                reply = JoinReply(error.message, error.hint)
            if message.reply:
                await self._try(enrolment.send(message.reply, msgspec.json.encode(reply)))
            if not reply.refusal:
                await asyncio.to_thread(close_token, self._folder, token)
                await self._try(apply_changes(self._folder))

    async def _publish_roster(self, sent: bytes) -> None:
        """Store the list of members that the cluster signed in the leafnode."""
        team = (await asyncio.to_thread(self._folder.load)).teams[0]
        async with _open(self._folder, account(team.name, "data")) as connection:
            await connection.publish(roster_subject(self._folder.path.name), sent)

    async def _sign_rosters(self) -> None:
        """Sign the lists of members again and again, and have the server forget tokens that expired."""
        while True:
            await asyncio.sleep(SIGN_S)
            cluster = await asyncio.to_thread(self._folder.load)
            is_old = cluster.without_expired(time.time()) is not cluster
            await self._try(
                apply_changes(self._folder) if is_old else publish_rosters(self._folder, updates_streams=False)
            )

    async def _sign_certificates(self) -> None:
        """Sign the certificates for which the further servers ask, whose private keys stay there."""
        asked: asyncio.Queue[Any] = asyncio.Queue(maxsize=64)
        async with _open(self._folder, SYSTEM) as system:
            await system.subscribe(certificate_subject(self._folder.path.name, "*"), asked.put)
            while True:
                message = await asked.get()
                try:
                    certificate = await asyncio.to_thread(renew_peer_certificate, self._folder, message.data)
                except ValueError as error:
                    log.warning("no certificate for a server: %s", error)
                else:
                    await self._try(system.send(message.reply, certificate))

    async def _try(self, work: Awaitable[object]) -> None:
        try:
            await work
        except KasmonError as error:
            log.error("%s", error)
