"""A kasmon of its own for one test: real folders, real logs, real locks; what it started it ends, by pid."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kasmon.host.rpc.host_lock import HostLock, lock_holder
from kasmon.model.commands import Launch, Mode
from kasmon.model.events import Event, LogOpened, SessionCreated, SessionEnded, SessionStarted
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.process_identity import find_processes_with, is_running, started_at
from kasmon.store.event_log import Cursor, EventLog
from kasmon.supervisor.fleet.snapshot import read_fleet
from tests.support.wait import until

NOW = 1_790_000_000.0


class Env:
    """One kasmon in a folder of its own. Close it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="k-", dir="/tmp"))
        for name in "src":
            (self.folder / name).mkdir(mode=0o700)
        self.paths = Paths(
            state=self.folder / "s" / "kasmon",
            given_runtime=self.folder / "r" / "kasmon",
            config=self.folder / "c" / "kasmon",
        )
        self.paths.make()
        self.locks: dict[str, HostLock] = {}

    def has(self, session: str, *facts: Event, at: float = NOW, name: str = "", mode: Mode = Mode.SDK) -> SessionId:
        """A session that somebody created, with these facts in its log; without any, it has no log."""
        self.says(SessionCreated(at=at, launch=launch(session, name=name, mode=mode, at=at), machine="here"))
        self.paths.folder(session).mkdir(mode=0o700)
        if facts:
            self.tells(session, LogOpened(at=at, session=SessionId(session)), *facts)
        return SessionId(session)

    def says(self, *facts: Event) -> None:
        """Facts in the fleet's log."""
        for fact in facts:
            EventLog(self.paths.fleet_log).append(fact)

    def tells(self, session: str, *facts: Event) -> Cursor:
        """Facts in the session's own log."""
        cursor = Cursor(0)
        for fact in facts:
            cursor = EventLog(self.paths.log(session)).append(fact)
        return cursor

    def hosts(self, session: str) -> None:
        """From now on somebody holds the host's lock."""
        lock = self.locks[session] = HostLock(self.paths.host_lock(session))
        assert lock.acquire()

    def host_dies(self, session: str) -> None:
        self.locks.pop(session).let_go()

    def host_of(self, session: str) -> int:
        """The pid of the process that hosts *session*."""
        pid = lock_holder(self.paths.host_lock(session))
        assert pid
        return pid

    def kill_host(self, session: str) -> None:
        """End the real host of *session* as a crash would."""
        pid = self.host_of(session)
        os.kill(pid, signal.SIGKILL)
        until(lambda: lock_holder(self.paths.host_lock(session)) is None, what="the host's end")

    def close(self) -> None:
        for lock in self.locks.values():
            lock.let_go()
        for session in self.paths.sessions.glob("*"):  # a host that somebody reached is nobody's child
            end(lock_holder(self.paths.host_lock(session.name)) or 0)
        if self.paths.tmux_socket.exists():
            server = self.tmux("display-message", "-p", "#{pid}")
            self.tmux("kill-server")
            end(int(server or 0))
        state = str(self.paths.state.parent)
        while left := [pid for pid, of in find_processes_with("XDG_STATE_HOME") if of == state and pid != os.getpid()]:
            for pid in left:
                end(pid)
        shutil.rmtree(self.folder)

    def tmux(self, *command: str) -> str:
        """What this kasmon's own tmux server answers."""
        program = os.environ.get("KASMON_TMUX", "tmux")
        argv = [program, "-S", str(self.paths.tmux_socket), *command]
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def end(pid: int) -> None:
    """End the process *pid*, unless it is this one, and wait until it is gone."""
    born = started_at(pid)
    if pid in (0, os.getpid()) or born is None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not is_running(pid, born), what=f"the end of process {pid}")


def launch(session: str, *, name: str = "", mode: Mode = Mode.SDK, at: float = NOW, **more: Any) -> Launch:
    return Launch(
        session=SessionId(session),
        name=name or session,
        agent="scripted",
        mode=mode,
        backend="tmux" if mode is Mode.TMUX else "scripted",
        workdir="/",
        created_at=at,
        **more,
    )


def started(generation: int = 1, *, at: float = NOW, pid: int | None = None, mode: Mode = Mode.SDK) -> SessionStarted:
    """The agent runs; as a process of its own it is this one."""
    pid = pid or os.getpid()
    return SessionStarted(at=at, generation=generation, mode=mode, pid=pid, pid_started=started_at(pid))


def ended(why: str = "", *, at: float = NOW + 60, code: int | None = 0) -> SessionEnded:
    return SessionEnded(at=at, exit_code=code, why=why)


async def becomes(env: Env, session: str, condition: Callable[[Session], bool]) -> Session:
    """The session once *condition* is true of it."""

    def look() -> Session | None:
        found = read_fleet(env.paths).get(SessionId(session))
        return found if found is not None and condition(found) else None

    return await asyncio.to_thread(until, look, what=f"a state of {session}")
