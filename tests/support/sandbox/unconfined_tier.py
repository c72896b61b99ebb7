"""A tier that confines nothing, for tests of what is the same in every tier: the agent inside is started as it is."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil

import kasmon.sandbox.guest
from kasmon.boot_id import boot
from kasmon.errors import SandboxError, UnableError
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime, Tier
from kasmon.process_identity import is_running, started_at
from kasmon.sandbox.base import PauseResult, TierProbe, UnavailableReason
from kasmon.sandbox.jail import proof
from tests.support.wait import until

AGENT: Final = Path(next(iter(kasmon.sandbox.guest.__path__))) / "main.py"
READY_S: Final = 10.0


class UnconfinedTier:
    """Its sandboxes live in folders below *root*, which is short enough for sockets."""

    tier: Tier = "jail"
    keeps_memory = False

    def __init__(self, root: Path) -> None:
        self.root = root
        self.made: list[subprocess.Popen[bytes]] = []
        self.fails = ""
        """Why its next act fails; empty where it does not."""

    def workspace(self, policy: SandboxPolicy, /) -> str:
        folder = Path(policy.workspace) if policy.workspace else self.root / policy.session / "workspace"
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder)

    def missing(self) -> UnavailableReason | None:
        return None

    def probe(self) -> TierProbe:
        return TierProbe(tier=self.tier, ok=True)

    def create(self, policy: SandboxPolicy, /) -> SandboxRuntime:
        self._may()
        folder = self.root / policy.session
        (folder / "home").mkdir(parents=True, exist_ok=True)
        path = folder / "s"
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(path))
        listening.listen(64)
        reader, writer = os.pipe()
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "LANG": "C.UTF-8",
            "TMPDIR": str(folder),
            "KASMON_LISTEN_FD": str(listening.fileno()),
            "KASMON_READY_FD": str(writer),
        }
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", str(AGENT)],
            cwd=self.workspace(policy),
            env=environment,
            pass_fds=(listening.fileno(), writer),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=None if os.environ.get("KASMON_DEV") else subprocess.DEVNULL,
            start_new_session=True,
        )
        self.made.append(child)
        listening.close()
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            if pipe.read(1) != b"R":
                raise SandboxError("cannot create a sandbox", "the agent inside ended at once")
        return SandboxRuntime(
            pid=child.pid,
            started=started_at(child.pid) or 0.0,
            boot=boot(),
            socket=str(path),
            session_folder=str(folder),
        )

    def find(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> bool:
        return is_running(runtime.pid, runtime.started, runtime.boot)

    def wrap(
        self, policy: SandboxPolicy, argv: Sequence[str], workdir: str, variables: Mapping[str, str], /
    ) -> list[str]:
        raise UnableError("this tier has no agents.")

    def pause(
        self, policy: SandboxPolicy, runtime: SandboxRuntime, /, *, to_disk: bool = False, turn: int = 0
    ) -> PauseResult:
        self._may()
        if to_disk:
            raise UnableError("this tier cannot save its memory to disk.")
        for process in self._family(runtime):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        return PauseResult(held=True)

    def resume(self, policy: SandboxPolicy, runtime: SandboxRuntime, slept: PauseResult, /) -> SandboxRuntime:
        self._may()
        if not self.find(policy, runtime):
            raise SandboxError("the sandbox cannot be resumed", "its process is gone")
        for process in self._family(runtime):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        return runtime

    def destroy(self, policy: SandboxPolicy, runtime: SandboxRuntime | None, /) -> None:
        """Of a sandbox that nobody knows the runtime of, every agent that this object made for the session."""
        folder = self.root / policy.session
        for child in self.made:
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended while it was looked at
                if child.poll() is None and psutil.Process(child.pid).environ().get("HOME") == str(folder / "home"):
                    self._end(child.pid)
        if runtime is not None and self.find(policy, runtime):
            self._end(runtime.pid)
            until(lambda: not self.find(policy, runtime))
        with contextlib.suppress(FileNotFoundError):
            (folder / "s").unlink()

    def folders(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> Mapping[str, Path]:
        """Its ground, which is its TMPDIR and has its home in it; and, here, its workspace."""
        return {"/tmp": Path(runtime.session_folder)}

    def environments(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> Iterator[tuple[str, bytes]]:
        return proof.read_environments(runtime.pid)

    def mapped(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> Container[int]:
        return proof.find_mapped_inodes(runtime.pid)

    def forget(self, policy: SandboxPolicy, /) -> str:
        shutil.rmtree(self.root / policy.session, ignore_errors=True)
        return ""

    def _may(self) -> None:
        if self.fails:
            why, self.fails = self.fails, ""
            raise SandboxError("it failed", why)

    def _family(self, runtime: SandboxRuntime) -> list[psutil.Process]:
        agent = psutil.Process(runtime.pid)
        return [agent, *agent.children(recursive=True)]

    def _end(self, pid: int) -> None:
        with contextlib.suppress(psutil.Error):
            agent = psutil.Process(pid)
            for process in [*agent.children(recursive=True), agent]:
                with contextlib.suppress(psutil.Error):
                    os.kill(process.pid, signal.SIGKILL)
            for child in self.made:
                if child.pid == pid:
                    child.wait(60)
