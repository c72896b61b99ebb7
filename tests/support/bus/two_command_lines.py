"""Two kasmons of a test's own: what runs `there` is listed `here`, through a link."""

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import psutil

from kasmon.bus.nats.identity import IdentityFile
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import ABILITIES
from kasmon.store.machines import Machine, read_presence, write_machine
from kasmon.supervisor.machines.registration import start_link
from tests.support.bus.cluster_server import CLUSTER, ClusterServer
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import ForkServer
from tests.support.host.sshd import Sshd
from tests.support.wait import until

MACHINE = "gpu-1"
LIMIT_S = 100.0


class TwoCommandLines:
    """The kasmon `here`, where the kasmon `there` is registered as the machine gpu-1. Close it."""

    def __init__(self, fork_server: ForkServer | None = None, way: Literal["stream", "ssh", "nats"] = "stream") -> None:
        """*way*: how the link reaches it: a pipe to its process, a real sshd, or a real NATS server."""
        self.here, self.there = Cli(fork_server), Cli(fork_server)
        self._ending = contextlib.ExitStack()
        variables = [f"{name}={value}" for name, value in self.there.environment.items()]
        command = ("env", *variables, sys.executable, "-P", "-m", "kasmon")
        self.here.paths.make()
        machine = Machine(name=MACHINE, command=command)
        if way != "stream":
            root = Path(tempfile.mkdtemp(prefix="kt-", dir="/tmp"))
            self._ending.callback(shutil.rmtree, root, ignore_errors=True)
            machine = self._join_over_ssh(root, command) if way == "ssh" else self._join_over_nats(root, command)
        write_machine(self.here.paths, machine)
        self.connect()

    def _join_over_ssh(self, root: Path, command: tuple[str, ...]) -> Machine:
        box = Sshd(root)
        self._ending.callback(box.close)
        self.here.paths.config.mkdir(parents=True, exist_ok=True)
        self.here.paths.config_file.write_text(box.config)
        return Machine(name=MACHINE, ssh="box", command=command)

    def _join_over_nats(self, root: Path, command: tuple[str, ...]) -> Machine:
        cluster = ClusterServer(root, members=((MACHINE, "machine", "main"), ("otto", "operator", "main")))
        self._ending.callback(cluster.stop)
        cluster.start()
        IdentityFile(self.there.paths, CLUSTER, "machine").save(cluster.identity(MACHINE, "machine"))
        IdentityFile(self.here.paths, CLUSTER, "operator").save(cluster.identity("otto", "operator"))
        allowed = ("--allow", ",".join(ABILITIES))
        serving = subprocess.Popen([*command, "bus", "--cluster", CLUSTER, *allowed], stdin=subprocess.DEVNULL)
        self._ending.callback(serving.wait)
        self._ending.callback(serving.terminate)
        return Machine(name=MACHINE, cluster=CLUSTER)

    def connect(self) -> None:
        """Start the link, and wait until it is connected."""
        start_link(self.here.paths, MACHINE)
        until(self._is_connected, LIMIT_S, what="the link")

    def _is_connected(self) -> bool:
        presence = read_presence(self.here.paths, MACHINE)
        return bool(self.link) and presence.link == self.link and not presence.why

    @property
    def link(self) -> int:
        """The pid of the link; 0 if it does not run."""
        return lock_holder(self.here.paths.machine_lock(MACHINE)) or 0

    def cut(self) -> None:
        """End the link, as a crash would, with what it runs; also one that was started and took its place."""
        until(self._has_no_link, LIMIT_S, what="the end of the link")

    def _has_no_link(self) -> bool:
        """End the link, if there is one."""
        if not (pid := self.link):
            return True
        with contextlib.suppress(psutil.NoSuchProcess):
            link = psutil.Process(pid)
            for process in (link, *link.children(recursive=True)):
                process.send_signal(signal.SIGKILL)
        return False

    def session(self, session: str) -> Any:
        """The session, as it is listed here; None if it is not."""
        return next((each for each in self.here.json("ls")["sessions"] if each["id"] == session), None)

    def new(self, name: str, script: str = "say hi", *more: str) -> str:
        """Start a scripted session there; its id, once it is listed here and the turn is over."""
        session = self.there.new(name, script, *more)
        self.until(session, lambda known: known is not None and known["state"] == "idle")
        return session

    def until(self, session: str, condition: Callable[[Any], object]) -> Any:
        """Wait until *condition* is true of the session as it is listed here, and return it."""
        until(lambda: condition(self.session(session)), LIMIT_S, what="the session in its state")
        return self.session(session)

    def close(self) -> None:
        if self.link:
            self.cut()
        self._ending.close()
        self.here.close()
        self.there.close()
