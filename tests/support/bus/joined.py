"""Two kasmons of one machine, the second registered in the first as `far`: real processes, without ssh."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import psutil

from kasmon.bus.nats.identity import IdentityFile
from kasmon.config import Config
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import ABILITIES, Mode
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.store.machines import Machine, Presence, read_presence, write_machine
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.machines.registration import start_link
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.create import NewSession
from tests.support.bus.buses import command_of
from tests.support.bus.cluster_server import CLUSTER, ClusterServer
from tests.support.host.sshd import Sshd
from tests.support.supervisor.env import Env, end
from tests.support.wait import until

Value = TypeVar("Value")
NAME = "far"
CLOCK = """
import sys, time
real = time.time
time.time = lambda: real() + {}
from kasmon.__main__ import main
sys.exit(main())
"""


class JoinedKasmons:
    """`near` shows the sessions of `far`. Close it."""

    def __init__(self, inside: Sequence[str] = ()) -> None:
        """*inside*: the beginning of the command that serves `far` to a cluster."""
        self.near, self.far, self.inside = Env(), Env(), inside
        self._serving: subprocess.Popen[bytes] | None = None
        self._box: Sshd | None = None
        self._cluster: ClusterServer | None = None

    def join(self, ahead_s: float = 0.0) -> None:
        """Register `far`, and wait until it is connected. The clock of the process that serves it is *ahead_s* off."""
        command = command_of(self.far.paths)
        if ahead_s:
            command = (*command[: command.index("-m")], "-c", CLOCK.format(ahead_s))
        self._register(Machine(name=NAME, command=command))

    def join_over_ssh(self, box: Sshd) -> None:
        """Register `far`, which *box* leads to, and wait until it is connected."""
        self._box = box
        self.near.paths.config.mkdir(parents=True)
        (self.near.paths.config / "config.toml").write_text(box.config)
        self._register(Machine(name=NAME, ssh="box", command=command_of(self.far.paths)))

    def join_over_nats(self, cluster: ClusterServer) -> None:
        """Have `far` serve its sessions to *cluster*, register it, and wait until it is connected."""
        self._cluster = cluster
        IdentityFile(self.far.paths, CLUSTER, "machine").save(cluster.identity(NAME, "machine"))
        IdentityFile(self.near.paths, CLUSTER, "operator").save(cluster.identity("otto", "operator"))
        self.serve()
        self._register(Machine(name=NAME, cluster=CLUSTER))

    def serve(self) -> None:
        """Start what serves `far` to the cluster, once the one before has ended."""
        if self._serving is not None:
            self._serving.wait()
        argv = [*self.inside, *command_of(self.far.paths), "bus", "--cluster", CLUSTER, "--allow", ",".join(ABILITIES)]
        self._serving = subprocess.Popen(argv, stdin=subprocess.DEVNULL)

    def _register(self, machine: Machine) -> None:
        write_machine(self.near.paths, machine, is_new=True)
        start_link(self.near.paths, NAME)
        self.until_connected()

    def cut(self) -> None:
        """End what `far` is reached by, its sshd or the server of the cluster, and the connection, until `heal`."""
        if self._box is not None:
            self._box.shut()
        for process in self._line():
            process.kill()
        if self._cluster is not None:
            self._cluster.stop()

    def stall(self) -> None:
        """Let nothing through to `far` from now on, without a sign of that."""
        for process in self._line():
            process.suspend()

    def heal(self) -> None:
        if self._box is not None:
            self._box.open()
        if self._cluster is not None:
            self._cluster.start()
            self.serve()
        self.until_connected()

    def _line(self) -> list[psutil.Process]:
        """The processes that carry the bus: that of `far` in a cluster, or those that the link started."""
        if self._serving is not None:
            return [psutil.Process(self._serving.pid)]
        return psutil.Process(self.link_pid).children(recursive=True)

    @property
    def presence(self) -> Presence:
        return read_presence(self.near.paths, NAME)

    def until_connected(self) -> None:
        until(lambda: self.link_pid and not self.presence.why and self.presence.kasmon, what="the connection")

    @property
    def link_pid(self) -> int:
        return lock_holder(self.near.paths.machine_lock(NAME)) or 0

    def bus_process(self) -> psutil.Process:
        """The process that serves `far`."""

        def find() -> psutil.Process | None:
            children = psutil.Process(self.link_pid).children(recursive=True)
            return next((each for each in children if "--stdio" in each.cmdline()), None)

        return until(find, what="a process that serves the bus")

    async def begin(self, name: str = "docs", **more: object) -> SessionId:
        """Start a scripted session in `far`."""
        new = NewSession(**({"name": name, "agent": "scripted", "mode": Mode.SDK, "workdir": "/"} | more))  # type: ignore[arg-type]
        return await session_operations.create(self.far.paths, Config(), new)

    def shown(self, session: SessionId, condition: Callable[[Session], object] = lambda session: True) -> Session:
        """The session as `near` shows it, once *condition* is true of it."""

        def find() -> Session | None:
            seen = read_fleet(self.near.paths).get(session)
            return seen if seen is not None and condition(seen) else None

        return until(find, what=f"a state of {session}")

    def has_whole_log(self, session: SessionId) -> bool:
        """Whether the copy of its log is complete."""
        copy, log = (env.paths.log(session) for env in (self.near, self.far))
        return copy.exists() and copy.read_bytes() == log.read_bytes()

    def close(self) -> None:
        pid = self.link_pid
        if pid:
            os.kill(pid, signal.SIGTERM)
            until(lambda: not self.link_pid, what="the end of the link")
            end(pid)
        if self._serving is not None:
            self._serving.terminate()
            self._serving.send_signal(signal.SIGCONT)
            self._serving.wait()
        self.near.close()
        self.far.close()


@contextlib.contextmanager
def joined_over(way: str) -> Iterator[JoinedKasmons]:
    """`near` shows the sessions of `far` over `stream` (a pipe), a real sshd (`ssh`) or a real NATS server (`nats`)."""
    root = Path(tempfile.mkdtemp(prefix="kj-", dir="/tmp"))
    with contextlib.ExitStack() as ending:
        ending.callback(shutil.rmtree, root)
        if way == "ssh":
            box = Sshd(root)
            ending.callback(box.close)
        elif way == "nats":
            cluster = ClusterServer(root, members=((NAME, "machine", "main"), ("otto", "operator", "main")))
            ending.callback(cluster.stop)
            cluster.start()
        joined = JoinedKasmons()
        ending.callback(joined.close)
        if way == "ssh":
            joined.join_over_ssh(box)
        elif way == "nats":
            joined.join_over_nats(cluster)
        else:
            joined.join()
        yield joined
