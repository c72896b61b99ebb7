"""Fifty agents of every kind over one kasmon, and what was done to them by whom: the ground that chaos acts on."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import psutil

from kasmon.bench.dashboard.prompt_delivery import command, install_rules
from kasmon.config import Config
from kasmon.errors import KasmonError, LogMissingError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Mode
from kasmon.model.events import Event
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import private_folder, write_private
from kasmon.process_identity import started_at
from kasmon.sandbox import tiers
from kasmon.store.event_log import EventLog
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sandboxes import sandbox_operations
from kasmon.supervisor.sandboxes.create import NewSandbox
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.session_operations import create
from tests.support.chaos.promises import HOSTILE, Answered, Kept, Leaving, Process
from tests.support.cli.fork_server import KASMON
from tests.support.tui.dashboard import Dashboard, Home

CLOCK: Final = Path(__file__).parent / "clock"
HOSTILE_NAMES: Final = ("#(touch {0}/ran)", "[@click=app.quit]x[/]", "$(touch {0}/ran)", "-t 'x'", "\u202egnp.exe")
TOLD: Final = '# written by a person\n[ui]\ntheme = "nord"  # stays\n'
TALK: Final = "say {}"
PLAN: Final = """
agent = "scripted"
mode = "sdk"
without_check = "advance"
[[task]]
prompt = "ask the first\\nsay one"
[[task]]
needs = [1]
prompt = "ask the second\\nsay two"
"""
COMMAND_S: Final = 60.0
NO_INOTIFY: Final = ("unshare", "--user", "--map-root-user", "sh", "-c")
"""Runs a command in a user namespace of its own; as nobody it has the same files."""
Result = TypeVar("Result")


class AgentFleet:
    """One kasmon with its agents and two dashboards."""

    def __init__(self, home: Home, agents: int) -> None:
        self.home = home
        self.paths = home.paths
        self.clock = home.path / "clock"
        self.variables = {
            **home.variables,
            "PYTHONFAULTHANDLER": "1",
            "PYTHONPATH": f"{CLOCK}:{Path(__file__).parents[3]}",
        }
        self.talkers: list[SessionId] = []
        """Structured and scripted."""
        self.boxes: dict[SessionId, Path] = {}
        """In tmux, with a prompt box; each with the file of what it was given."""
        self.terminals: list[SessionId] = []
        """Other programs in tmux."""
        self.jails: list[SessionId] = []
        self.plan = ""
        self.dashboards: list[Dashboard] = []
        self.without_events = False
        """The second dashboard hears of no change of a file."""
        self.agents = agents

        self.given: list[Answered] = []
        self.wanted: Counter[str] = Counter()
        """How many starts of each session somebody here wanted."""
        self.left: dict[str, bytes] = {}
        self.leavings: list[Leaving] = []
        self.seen: list[bytes] = []
        """What dashboards that are gone wrote."""
        self.logs: dict[str, Kept] = {}
        self.late: list[float] = []
        """How long it took each time until the truth about a crash was shown, in seconds."""
        self.prompts = 0
        self.broken: list[str] = []

    # -- making it

    def furnish(self) -> None:
        """Write what a person and others left there, then start everything."""
        install_rules(self.paths)
        private_folder(self.paths.config)
        write_private(self.paths.config_file, TOLD.encode())
        work = self.home.path / "work"
        work.mkdir()
        (work / "notes.txt").write_text("unsaved\n")
        self.left |= {str(work / "notes.txt"): b"unsaved\n", str(self.paths.config_file): TOLD.encode()}
        self.without_events = _has_own_inotify()
        asyncio.run(self._start())
        (work / "chaos.toml").write_text(PLAN)
        if "chaos" in self.command("plan", "run", str(work / "chaos.toml"), "--yes").stdout:
            self.plan = "chaos"
        for number in range(2):
            self.open(number)

    async def _start(self) -> None:
        jails = 2 if self.agents >= 20 and tiers.load("jail", self.paths).probe().ok else 0
        terminals = max(self.agents // 12, 1)
        boxes = (self.agents - jails - terminals) * 2 // 5
        talkers = self.agents - jails - terminals - boxes
        limit = asyncio.Semaphore(6)

        async def one(make: Callable[[], Awaitable[SessionId]], keep: Callable[[SessionId], object]) -> None:
            async with limit:
                session = await make()
            self.wanted[session] += 1
            keep(session)

        async with asyncio.TaskGroup() as group:
            for number in range(talkers):
                odd = HOSTILE_NAMES[number].format(self.home.path) if number < len(HOSTILE_NAMES) else f"talk-{number}"
                group.create_task(one(self._maker(odd, agent="scripted", mode=Mode.SDK), self.talkers.append))
            for number in range(boxes):
                record = self.home.path / f"box-{number}.jsonl"
                record.touch()
                argv = tuple(command(self.paths, record, ()))
                keep = self._boxed(record)
                group.create_task(one(self._maker(f"box-{number}", mode=Mode.TMUX, argv=argv), keep))
            for number in range(terminals):
                argv = (sys.executable, "-P", "-m", "kasmon.scripted") if number % 2 else ("sh", "-c", HOSTILE_SH)
                group.create_task(one(self._maker(f"term-{number}", mode=Mode.TMUX, argv=argv), self.terminals.append))
            for number in range(jails):
                made = partial(sandbox_operations.create, self.paths, Config(), NewSandbox(name=f"jail-{number}"))
                group.create_task(one(made, self.jails.append))

    def _maker(self, name: str, **more: object) -> Callable[[], Awaitable[SessionId]]:
        wanted = NewSession(name=name, workdir=str(self.home.path / "work"), speed=0.0, **more)  # type: ignore[arg-type]  # as each kind needs
        return lambda: create(self.paths, Config(), wanted)

    def _boxed(self, record: Path) -> Callable[[SessionId], object]:
        return lambda session: self.boxes.update({session: record})

    def open(self, number: int) -> None:
        """Open dashboard *number*; the second hears of no change of a file, where this machine can do that."""
        argv: tuple[str, ...] = KASMON
        if number == 1 and self.without_events:
            inner = f"echo 0 > /proc/sys/user/max_inotify_instances; exec {' '.join(KASMON)}"
            argv = (shutil.which(NO_INOTIFY[0]) or NO_INOTIFY[0], *NO_INOTIFY[1:], inner)
        dashboard = Dashboard(self.home, argv=argv, environment=self.variables)
        self.dashboards[number:] = [dashboard, *self.dashboards[number + 1 :]]
        dashboard.until(b"?1049h")

    # -- looking

    def fleet(self) -> Fleet:
        """All sessions, as `kasmon ls` shows them now."""
        return read_fleet(self.paths)

    def session(self, session: SessionId) -> Session | None:
        return self.fleet().get(session)

    def hosted(self) -> Mapping[str, bool]:
        """Session's id -> whether its host's lock is held now; the shared host's for those in tmux."""
        shared = lock_holder(self.paths.tmux_host_lock) is not None
        return {
            session.id: shared
            if session.mode is Mode.TMUX
            else lock_holder(self.paths.host_lock(session.id)) is not None
            for session in self.fleet().sessions
        }

    def events(self, session: str) -> list[Event]:
        try:
            return [event for event, _ in EventLog(self.paths.log(SessionId(session))).read()]
        except LogMissingError:
            return []

    def running(self) -> dict[Process, str]:
        """The agents that run now, and whose they are."""
        processes: dict[Process, str] = {}
        for session in self.fleet().sessions:
            pid = session.pid
            if pid and session.state not in (SessionState.LOST, SessionState.ENDED) and (at := started_at(pid)):
                processes[Process(pid, at)] = session.name
        return processes

    def hosts(self) -> dict[Process, str]:
        """The hosts that run now, the shared one among them."""
        locks = {session: self.paths.host_lock(session) for session in (*self.talkers, *self.jails)}
        held = {str(name): lock_holder(lock) for name, lock in locks.items()}
        held["the tmux host"] = lock_holder(self.paths.tmux_host_lock)
        return {Process(pid, at): name for name, pid in held.items() if pid and (at := started_at(pid))}

    def tmux_servers(self) -> list[int]:
        """The tmux servers that run at our socket, whether that is there or not."""
        socket = str(self.paths.tmux_socket)
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.name() == "tmux: server" and f"-S{socket}" in process.cmdline():
                    found.append(process.pid)
        return found

    def fork_servers(self) -> list[int]:
        """The servers from which hosts of ours are forked."""
        path = f"{self.paths.runtime}/"
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                command = process.cmdline()
                if "--fork-server" in command and any(word.startswith(path) for word in command):
                    found.append(process.pid)
        return found

    def read_logs(self) -> dict[str, bytes]:
        logs = [self.paths.fleet_log, *self.paths.sessions.glob("*/events.jsonl")]
        return {str(log): log.read_bytes() for log in logs if log.is_file() and not log.is_symlink()}

    def remember_logs(self, now: Mapping[str, bytes]) -> None:
        self.logs |= {path: Kept(len(content), zlib.crc32(content)) for path, content in now.items()}

    def submitted(self, record: Path) -> list[str]:
        """What the program with that record was given."""
        lines = [json.loads(line) for line in record.read_text("utf-8").splitlines()]
        return [line["submitted"] for line in lines if "submitted" in line]

    # -- doing

    def do(self, action: Awaitable[Result]) -> Result | None:
        """Wait for *action*; what kasmon refuses or cannot do is its good right, and None."""

        async def awaited() -> Result:
            return await action

        with contextlib.suppress(KasmonError):
            return asyncio.run(awaited())
        return None

    def command(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """What a command of ours did, as a process of its own."""
        return subprocess.run(
            [*KASMON, *arguments],
            env={"PATH": os.environ["PATH"], **self.variables},
            cwd=self.home.path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )

    def close(self) -> None:
        for dashboard in self.dashboards:
            with contextlib.suppress(ProcessLookupError, ChildProcessError, OSError):
                dashboard.__exit__(None, None, None)
        for pid in self.tmux_servers():  # whose socket was swept away nobody else would find
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


HOSTILE_SH: Final = (
    "while :; do printf '"
    + "".join("".join(f"\\{byte:03o}" for byte in bytes_) + "\\007 " for bytes_ in HOSTILE.values())
    + "'; sleep 1; done"
)


def _has_own_inotify() -> bool:
    """Whether a program can be run here that gets no events of files."""
    if not shutil.which(NO_INOTIFY[0]):
        return False
    tried = psutil.Popen(
        [*NO_INOTIFY, "echo 0 > /proc/sys/user/max_inotify_instances"], stdout=-3, stderr=-3, env=dict(os.environ)
    )
    return tried.wait(10) == 0


def descend(process: psutil.Process) -> Iterator[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        yield from (process, *process.children(recursive=True))
