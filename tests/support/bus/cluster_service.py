"""A cluster whose service runs as a process, as `kasmon cluster up` starts it."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kasmon.bus.nats import process
from kasmon.bus.nats.cluster import ClusterFolder, Role, Team
from kasmon.bus.nats.creation import create_cluster
from kasmon.bus.nats.enrolment import join, make_join_token
from kasmon.bus.nats.identity import Identity
from kasmon.bus.nats.server_config import ROSTER_KEY
from kasmon.bus.nats.service import apply_changes
from kasmon.paths import Paths, user_paths
from tests.support.bus.server_programs import need_server


class ClusterUp:
    """A cluster whose service runs, as `kasmon cluster up` starts it."""

    def __init__(
        self,
        state: Path,
        port: int = 0,
        leaf_port: int = 0,
        servers: Sequence[str] = (),
        teams: Sequence[Team] = (Team("main"), Team("small", 8 * 1024**2)),
    ) -> None:
        need_server()
        self.paths = user_paths({"XDG_STATE_HOME": str(state), "XDG_CONFIG_HOME": str(state), "HOME": str(state)})
        self.folder: ClusterFolder = create_cluster(
            self.paths, "c1", "127.0.0.1", port, teams=teams, servers=servers, leaf_port=leaf_port
        )
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self) -> "subprocess.Popen[bytes]":
        self._started.append(process.start_service(self.folder, self.paths))
        return self._started[-1]

    def wait(self) -> None:
        process.wait_until_up(self.folder, self._started[-1])

    def kill(self) -> None:
        """End the server and the service, as a crash of their machine would."""
        server, service = process.read_server(self.folder), process.service_pid(self.folder)
        assert server is not None
        assert service
        os.kill(service, signal.SIGKILL)
        os.kill(server.pid, signal.SIGKILL)
        self._started[-1].wait()

    def join(self, name: str, role: Role, where: Paths) -> Identity:
        """Have *where* join as *name*."""
        text = make_join_token(self.folder, name, role, "main", 5, self.folder.key(ROSTER_KEY))

        async def become() -> Identity:
            assert await apply_changes(self.folder)
            return await join(where, text)

        return asyncio.run(become())

    def stop(self) -> None:
        process.stop_service(self.folder)
        for each in self._started:
            each.wait()
