"""A cluster with members of each role, and its real NATS server on a free port of loopback."""

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from kasmon.boot_id import boot
from kasmon.bus.nats.cluster import ClusterFolder, Member, Role, Team
from kasmon.bus.nats.connection import Connection, connect
from kasmon.bus.nats.creation import create_cluster, write_configuration
from kasmon.bus.nats.identity import Identity
from kasmon.bus.nats.keys import make_seed, public_key
from kasmon.bus.nats.process import ServerRecord
from kasmon.bus.nats.server import ServerProgram, start_server
from kasmon.bus.nats.server_config import ROSTER_KEY, account, stream_configurations
from kasmon.bus.nats.service import publish_rosters, service_identity
from kasmon.errors import UnavailableError
from kasmon.paths import Paths, write_private
from kasmon.process_identity import started_at
from tests.support.bus.server_programs import need_server

CLUSTER: Final = "c1"
MEMBERS: Final[tuple[tuple[str, Role, str], ...]] = (
    ("m1", "machine", "main"),
    ("m2", "machine", "main"),
    ("vera", "viewer", "main"),
    ("viktor", "viewer", "main"),
    ("otto", "operator", "main"),
    ("olga", "operator", "main"),
    ("m1", "machine", "other"),
    ("otto", "operator", "other"),
)
START_S: Final = 60.0


class ClusterServer:
    """The folder of the cluster, the keys of its members, and its server while it runs."""

    def __init__(
        self, state: Path, *, members: tuple[tuple[str, Role, str], ...] = MEMBERS, host: str = "127.0.0.1"
    ) -> None:
        self.program: ServerProgram = need_server()
        self.paths = Paths(state=state, config=state)
        self.folder: ClusterFolder = create_cluster(self.paths, CLUSTER, host, 0, teams=(Team("main"), Team("other")))
        self.seeds: dict[tuple[str, str, str], str] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self._common: Identity = service_identity(self.folder, ROSTER_KEY)
        for name, role, team in members:
            self.add_member(name, role, team)

    def add_member(self, name: str, role: Role, team: str = "main") -> None:
        seed = self.seeds[name, role, team] = make_seed()
        member = Member(name, role, team, public_key(seed), time.time())
        with self.folder.change() as change:
            change.cluster = msgspec.structs.replace(change.cluster, members=(*change.cluster.members, member))
        write_configuration(self.folder)

    def identity(self, name: str, role: Role, team: str = "main") -> Identity:
        seed = self.seeds[name, role, team]
        return msgspec.structs.replace(self._common, name=name, role=role, team=team, seed=seed)

    async def connect_service(self, team: str = "main") -> Connection:
        return await connect(await asyncio.to_thread(service_identity, self.folder, account(team, "data")))

    async def clear(self, machine: str) -> None:
        """Give *machine* new streams: its sessions in another test had the same ids, and their logs the same numbers of
        files and the same content, which the old ones would drop as repeated."""
        service = await self.connect_service()
        for configuration in stream_configurations(CLUSTER, machine):
            await service.request(f"$JS.API.STREAM.DELETE.{configuration['name']}", b"")
        await service.aclose()
        await publish_rosters(self.folder)

    def start(self) -> None:
        """Start the server, with its streams."""
        self.process = start_server(self.program, self.folder.configuration)
        record = ServerRecord(self.process.pid, started_at(self.process.pid) or 0.0, boot())
        write_private(self.folder.processes, msgspec.json.encode(record))
        asyncio.run(self._wait())

    async def _wait(self) -> None:
        async with asyncio.timeout(START_S):
            while True:
                try:
                    await publish_rosters(self.folder)
                except UnavailableError:
                    assert self.process is not None
                    assert self.process.poll() is None, self.folder.server_log.read_text()
                    await asyncio.sleep(0.02)
                else:
                    return

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def open_cluster(state: Path) -> Iterator[ClusterServer]:
    """A cluster of its own, whose server runs."""
    server = ClusterServer(state)
    try:
        server.start()
        yield server
    finally:
        server.stop()
