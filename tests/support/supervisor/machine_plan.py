"""A plan here whose tasks work on other machines: each a kasmon of its own behind a link, with real processes."""

import contextlib
import os
import signal
from collections.abc import Callable, Sequence

import psutil

from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.plan.events import PlanFact, decode
from kasmon.model.plan.parser import read
from kasmon.model.plan.progress import PlanRun
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.store.machines import Machine, write_drained, write_machine
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.machines.registration import start_link
from kasmon.supervisor.plans import start
from tests.support.bus.buses import command_of
from tests.support.git_repo import Repo
from tests.support.supervisor.env import Env, end
from tests.support.wait import until

SHELL = '[agents.shell]\nprogram = "/bin/sh"\n'
"""A shell that starts at once, whatever the user's own does."""
CONFIG = f'default_agent = "scripted"\n{SHELL}[plans]\nmax_load = 0\nbelieve = true\n'


class MachinePlan:
    """The plan *text* in a repository here, and the registered *machines*. Close it.

    Tasks that may run on any machine run on one of these, unless this one is no longer drained.
    """

    def __init__(self, text: str, machines: Sequence[str] = ("gpu-1", "gpu-2")) -> None:
        self.here, self.machines = Env(), {name: Env() for name in machines}
        self.repo = Repo(self.here.folder / "shop")
        self._configure(self.here, CONFIG)
        write_drained(self.here.paths, drained=True)
        for name, env in self.machines.items():
            config = f'{SHELL}[machine]\nlabels = ["{name.partition("-")[0]}", "{name}"]\n'
            self._configure(env, config)
            write_machine(self.here.paths, Machine(name=name, command=command_of(env.paths)))
            start_link(self.here.paths, name)
        file = self.repo.folder.parent / "tidy.toml"
        plan = read(text, file.name)
        self.log: PlanLog = start.store_approved_plan(
            self.here.paths, plan, text, file, self.repo.folder, headless=False
        )

    def _configure(self, env: Env, text: str) -> None:
        env.paths.config.mkdir(parents=True, exist_ok=True)
        (env.paths.config / "config.toml").write_text(text)

    def start(self) -> None:
        """Start its runner."""
        start.run(self.here.paths, self.log)

    def kill_runner(self) -> None:
        end(lock_holder(self.log.lock) or 0)
        until(lambda: lock_holder(self.log.lock) is None, what="the end of all threads of the runner")

    def until(self, condition: Callable[[PlanRun], object], limit_s: float = 200.0) -> PlanRun:
        """Wait until *condition* is true of how far it came, and return that."""

        def is_true() -> bool:
            self.log.more()
            return bool(condition(self.log.run))

        try:
            until(is_true, limit_s, what="a state of the plan")
        except TimeoutError:
            log = (self.log.folder / "host.log").read_text()
            raise AssertionError("\n".join((*map(str, self.facts()), log))) from None
        return self.log.run

    def run(self) -> PlanRun:
        """Run it to its end."""
        self.start()
        return self.until(lambda now: now.state == "ended")

    def facts(self) -> list[PlanFact]:
        return [decode(line) for line in (self.log.folder / "events.jsonl").read_bytes().splitlines()]

    def sessions(self, machine: str = "") -> list[Session]:
        """The sessions of one machine, as it shows them; else of all."""
        found: list[Session] = []
        for name, env in self.machines.items():
            found += read_fleet(env.paths).sessions if machine in ("", name) else []
        return found

    def paths(self, machine: str) -> Paths:
        return self.machines[machine].paths

    def kill_tmux_host(self, machine: str) -> None:
        """End the host of the terminals of *machine*, as a crash would."""
        end(lock_holder(self.paths(machine).tmux_host_lock) or 0)

    def kill_bus(self, machine: str) -> None:
        """End the process that serves *machine*, as a cut line would; the link connects again."""
        link = lock_holder(self.here.paths.machine_lock(machine)) or 0
        for process in psutil.Process(link).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def cut(self, machine: str) -> None:
        """End the link to *machine*; it cannot be started again until `reconnect`."""
        link = lock_holder(self.here.paths.machine_lock(machine)) or 0
        write_machine(self.here.paths, Machine(name=machine, command=("false",)))
        with contextlib.suppress(ProcessLookupError):
            os.kill(link, signal.SIGTERM)
        end(link)
        start_link(self.here.paths, machine)

    def reconnect(self, machine: str) -> None:
        write_machine(self.here.paths, Machine(name=machine, command=command_of(self.paths(machine))))
        start_link(self.here.paths, machine)

    def branch(self, name: str) -> list[str]:
        """The files of a branch here."""
        return self.repo.git("ls-tree", "-r", "--name-only", name).split()

    def close(self) -> None:
        self.kill_runner()
        for name in self.machines:
            link = lock_holder(self.here.paths.machine_lock(name)) or 0
            if link:
                os.kill(link, signal.SIGTERM)
                until(lambda name=name: lock_holder(self.here.paths.machine_lock(name)) is None)  # type: ignore[misc]
        for env in (self.here, *self.machines.values()):
            env.close()
