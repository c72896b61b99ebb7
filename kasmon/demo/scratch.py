"""A temporary kasmon: one 0700 folder with all three XDG roots, and a record of it in the real state folder.

A demo holds the flock on its record while it runs. The next start removes every demo whose record is unlocked, so even
one killed with -9 leaves nothing. Processes to end are identified by socket, or by pid and start time.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
import psutil

from kasmon.boot_id import boot
from kasmon.demo import sandboxes
from kasmon.errors import KasmonError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.paths import Paths, private_folder, user_paths, write_private
from kasmon.process_identity import find_processes_with, is_running, started_at
from kasmon.tmux.server import TmuxServer

GRACE_S = 3.0
"""How long a host may take to exit by itself, in seconds."""
CLEAR_S = 10.0
"""How long the cleanup is retried, in seconds."""
SERVING: Final = (["host"], ["bus"], ["cluster"])
"""The commands whose processes a demo leaves, if it is killed."""
FAR: Final = "far"
"""The folder of a demo with the folders of its machines."""
MACHINES: Final = ("image", "machines")
"""Folders of a state folder that hold the parts of machines; creating a machine does not change them."""


class DemoRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The data that the next start needs to remove a demo."""

    folder: str
    pid: int
    started: float | None
    boot: str
    """The boot id of the machine: after another boot the pid is meaningless."""


class Scratch:
    """The scratch folders of one demo. `close` ends everything that runs in them and removes them."""

    def __init__(self, real: Paths) -> None:
        private_folder(real.state)
        private_folder(real.demos)
        sweep(real)
        self.folder = Path(tempfile.mkdtemp(prefix="kasmon-demo-"))
        for name in ("s", "r", "c"):
            (self.folder / name).mkdir(mode=0o700)
        self.paths = scratch_paths(self.folder)
        self.paths.make()
        for name in MACHINES:  # a build takes minutes: use an existing one
            if (real.state / name).is_dir():
                (self.paths.state / name).symlink_to(real.state / name)
        self._record = real.demos / f"{self.folder.name}.json"
        record = DemoRecord(folder=str(self.folder), pid=os.getpid(), started=started_at(os.getpid()), boot=boot())
        write_private(self._record, msgspec.json.encode(record) + b"\n")
        self._lock = os.open(self._record, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """End its hosts, its agents and its tmux server, remove its folder and its record. Idempotent."""
        clear(self.folder)
        self._record.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            os.close(self._lock)


def scratch_paths(folder: Path) -> Paths:
    """Return the `Paths` within *folder*."""
    return user_paths(
        {
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "s"),
            "XDG_RUNTIME_DIR": str(folder / "r"),
            "XDG_CONFIG_HOME": str(folder / "c"),
        }
    )


def machine_paths(paths: Paths, name: str) -> Paths:
    """Return the `Paths` of the machine *name* of the demo with *paths*; its folder exists then."""
    folder = paths.state.parent.parent / FAR / name
    for each in ("s", "r", "c"):
        (folder / each).mkdir(mode=0o700, parents=True, exist_ok=True)
    return scratch_paths(folder)


def sweep(real: Paths) -> list[Path]:
    """Remove every demo whose process is gone; return their folders."""
    swept: list[Path] = []
    for path in sorted(real.demos.glob("kasmon-demo-*.json")) if real.demos.is_dir() else ():
        with contextlib.suppress(OSError, msgspec.DecodeError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            record = msgspec.json.decode(file.read(), type=DemoRecord)
            folder = Path(record.folder)
            if folder.name.startswith("kasmon-demo-") and folder.is_dir() and not folder.is_symlink():
                if folder.stat().st_uid != os.geteuid():
                    continue
                clear(folder)
                swept.append(folder)
            path.unlink(missing_ok=True)
    return swept


def clear(folder: Path) -> None:
    """End all processes of the kasmon in *folder* and of its machines, and remove the folder.

    A host that was just started holds no lock yet, so the search repeats until it finds none.
    """
    kasmons = [scratch_paths(folder), *map(scratch_paths, sorted((folder / FAR).glob("*")))]
    deadline = time.monotonic() + CLEAR_S
    while True:
        _end(set().union(*map(_hosts, kasmons)))
        for paths in kasmons:
            sandboxes.end(paths)
            if paths.tmux_socket.exists():
                with contextlib.suppress(KasmonError):
                    TmuxServer(paths.tmux_socket).kill_server()
        shutil.rmtree(folder, ignore_errors=True)
        if (not folder.exists() and not any(map(_hosts, kasmons))) or time.monotonic() > deadline:
            return


def _hosts(paths: Paths) -> set[int]:
    """Return the host processes of *paths*, including those that hold no lock yet, and those of its cluster."""
    cluster = f"{paths.state}/cluster/"
    links = paths.machines.glob("*/link.lock")
    locks = [paths.tmux_host_lock, paths.notifier_lock, *paths.sessions.glob("*/host.lock"), *links]
    pids = {pid for path in locks if (pid := lock_holder(path))}
    for pid, state in find_processes_with("XDG_STATE_HOME"):
        if state == str(paths.state.parent):
            with contextlib.suppress(psutil.Error):
                arguments = psutil.Process(pid).cmdline()
                is_kasmon = arguments[2:4] == ["-m", "kasmon"] and arguments[4:5] in SERVING
                if is_kasmon or any(word.startswith(cluster) for word in arguments):
                    pids.add(pid)
    return pids


def _end(pids: Iterable[int]) -> None:
    """End processes *pids*, with TERM and then with KILL."""
    running = [(pid, started_at(pid)) for pid in pids]
    for pid, started in running:
        _signal(pid, started, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while any(is_running(pid, started) for pid, started in running) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid, started in running:
        _signal(pid, started, signal.SIGKILL)


def _signal(pid: int, started: float | None, number: signal.Signals) -> None:
    if is_running(pid, started):
        with contextlib.suppress(OSError):
            os.kill(pid, number)
