"""A plan here whose tasks work on the machines of a cluster: real processes and a real broker, which can be killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence

import psutil

from kasmon import system
from kasmon.bus.nats.creation import create_cluster
from kasmon.bus.nats.enrolment import join, make_join_token
from kasmon.bus.nats.process import read_server, start_service, wait_until_up
from kasmon.bus.nats.server_config import ROSTER_KEY
from kasmon.bus.nats.service import apply_changes
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import ABILITIES
from kasmon.model.plan.events import PlacementEnded, PlanFact, TaskFailed, decode
from kasmon.model.plan.parser import read
from kasmon.model.plan.progress import PlanRun
from kasmon.store.machines import Machine, write_drained, write_machine
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.machines.registration import start_links
from kasmon.supervisor.plans import start
from tests.support.bus.server_programs import need_server
from tests.support.git_repo import Repo
from tests.support.supervisor.env import Env, end
from tests.support.wait import until

CLUSTER = "c1"
CONFIG = """
default_agent = "scripted"
[agents.shell]
program = "/bin/sh"
[plans]
max_load = 0
believe = true
lost_machine_s = 20
[machine]
slots = {0}
"""
TASK = """
[[task]]
id = "t{0}"
run = "echo {0} $(git symbolic-ref --short HEAD) $PWD >> {1}"
retries = 20
"""


class ClusterPlan:
    """A plan of *tasks* that each append a line to a file, over *machines* of a cluster. `aclose` it."""

    def __init__(self, tasks: int, machines: Sequence[str], slots: int) -> None:
        need_server()
        self.here, self.machines = Env(), {name: Env() for name in machines}
        self.repo = Repo(self.here.folder / "shop")
        self.ledger = self.here.folder / "ledger"
        self.ledger.touch()
        for env in (self.here, *self.machines.values()):
            env.paths.config.mkdir(parents=True, exist_ok=True)
            (env.paths.config / "config.toml").write_text(CONFIG.format(slots))
        write_drained(self.here.paths, drained=True)
        text = 'machine = "any"\nadvance = "auto"\nwithout_check = "advance"\n'
        text += "".join(TASK.format(number, self.ledger) for number in range(1, tasks + 1))
        file = self.repo.folder.parent / "many.toml"
        plan = read(text, file.name)
        self.log: PlanLog = start.store_approved_plan(
            self.here.paths, plan, text, file, self.repo.folder, headless=True
        )
        self._folder = create_cluster(self.here.paths, CLUSTER, "127.0.0.1", 0)
        self._services: dict[str, subprocess.Popen[bytes]] = {}

    async def start(self) -> None:
        """Start the broker, the machines, and the plan's runner."""
        service = self._services[""] = start_service(self._folder, self.here.paths)
        wait_until_up(self._folder, service)
        key = self._folder.key(ROSTER_KEY)
        members = [("you", "operator", self.here), *((name, "machine", env) for name, env in self.machines.items())]
        tokens = [make_join_token(self._folder, name, role, "main", 60, key) for name, role, _ in members]  # type: ignore[arg-type]
        await apply_changes(self._folder)
        for token, (_, _, env) in zip(tokens, members, strict=True):
            await join(env.paths, token)
        for name in self.machines:
            self.serve(name)
            write_machine(self.here.paths, Machine(name=name, cluster=CLUSTER, added_at=time.time()))
        start_links(self.here.paths)
        self.run()

    def run(self) -> None:
        """Start the plan's runner, unless it runs."""
        start.run(self.here.paths, self.log)

    def serve(self, name: str) -> None:
        """Start the service of a machine, as its unit does."""
        self._services[name] = subprocess.Popen(
            [sys.executable, "-P", "-m", "kasmon", "bus", f"--cluster={CLUSTER}", f"--allow={','.join(ABILITIES)}"],
            env={**os.environ, **self.machines[name].paths.environment_variables()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def kill_runner(self) -> None:
        """It is started again as `kasmon recover` does."""
        end(lock_holder(self.log.lock) or 0)
        until(lambda: lock_holder(self.log.lock) is None, what="the end of the runner")
        self.run()

    def kill_broker(self) -> None:
        """Its service starts it again."""
        if (server := read_server(self._folder)) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(server.pid, signal.SIGKILL)

    def kill_service(self, name: str) -> None:
        """End what serves a machine; the tasks there continue."""
        self._services[name].kill()
        self._services[name].wait()
        self.serve(name)

    def kill_machine(self, name: str) -> None:
        """End all that runs on a machine, as a loss of power does."""
        self._services[name].kill()
        state = str(self.machines[name].paths.state.parent)
        for pid in psutil.pids():
            if pid != os.getpid() and system.HERE.read_variables(pid).get("XDG_STATE_HOME") == state:
                end(pid)
        self._services[name].wait()
        self.serve(name)

    def until(self, condition: Callable[[PlanRun], object], limit_s: float) -> PlanRun:
        """Wait until *condition* is true of how far it came, and return that."""

        def is_true() -> bool:
            self.log.more()
            return bool(condition(self.log.run))

        until(is_true, limit_s, what="a state of the plan")
        return self.log.run

    def facts(self) -> list[PlanFact]:
        return [decode(line) for line in (self.log.folder / "events.jsonl").read_bytes().splitlines()]

    def effects(self) -> Counter[tuple[str, int]]:
        """Task and attempt -> how often it took effect."""
        lines = (line.split() for line in self.ledger.read_text().splitlines())
        return Counter((f"t{number}", int(branch.rpartition(".a")[2])) for number, branch, _ in lines)

    def reported(self) -> Counter[tuple[str, int]]:
        """Task and attempt -> how often the plan's log says that it failed, or was ended on its machine."""
        return Counter(
            (fact.task, fact.attempt) for fact in self.facts() if isinstance(fact, PlacementEnded | TaskFailed)
        )

    def close(self) -> None:
        end(lock_holder(self.log.lock) or 0)
        for name in self.machines:
            end(lock_holder(self.here.paths.machine_lock(name)) or 0)
        for process in self._services.values():
            process.terminate()
        for process in self._services.values():
            process.wait(30)
        for env in (self.here, *self.machines.values()):
            env.close()
