"""The agent inside, for tests of what it promises: as it is, confined by nothing, or in a sandbox of a tier."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import INTERPRETERS, SandboxPolicy
from kasmon.sandbox.base import SandboxTier
from kasmon.sandbox.e2b import service
from kasmon.sandbox.e2b.tier import E2b
from kasmon.sandbox.guest_client.channel import GuestChannel

INSIDE: Final = Path(__file__).parents[3] / "kasmon" / "sandbox" / "guest"
PYTHON: Final = shutil.which("python3", path="/usr/bin") or sys.executable
"""What a sandbox has; it knows nothing of this environment's packages."""
FRAME_S: Final = 20.0


class Agent:
    """One agent with a workspace and a home of its own; `path` is its socket."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder, self.path = folder, str(folder / "s")
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        (folder / "tmp").mkdir()
        self.connected: list[Raw] = []
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TMPDIR": str(folder / "tmp"),
            "LANG": "C.UTF-8",
            **environ,
        }
        self.start()

    def start(self) -> None:
        """Start it; another one on the same path where there was one before."""
        Path(self.path).unlink(missing_ok=True)
        reader, writer = os.pipe()
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(self.path)
            listening.listen(64)
            files = {"KASMON_LISTEN_FD": str(listening.fileno()), "KASMON_READY_FD": str(writer)}
            self.process = subprocess.Popen(
                [PYTHON, "-I", "-S", str(INSIDE / "main.py")],
                cwd=self.workspace,
                env=self._environ | files,
                pass_fds=(listening.fileno(), writer),
                stdin=subprocess.DEVNULL,
            )
        os.close(writer)
        with os.fdopen(reader, "rb") as ready:
            assert ready.read() == b"R"

    def channel(self, name: str = "") -> GuestChannel:
        return GuestChannel(self.path, name=name)

    def connect(self) -> "Raw":
        self.connected.append(Raw(self.path))
        return self.connected[-1]

    def freeze(self) -> None:
        """Stop it, with all that runs in it where it is in a sandbox."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def hang_up(self) -> None:
        """End every connection that was made."""
        while self.connected:
            self.connected.pop().close()

    def end(self) -> None:
        """Leave nothing of it, whatever it is at."""
        self.hang_up()
        family = [self.process.pid, *_descendants(self.process.pid)]
        for pid in family:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


class Raw:
    """A client that speaks the frames of the seed, and nothing else."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(FRAME_S)
        try:
            self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise

    def send(self, message: object) -> None:
        self.send_bytes(json.dumps(message).encode())

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(len(data).to_bytes(4, "big") + data)

    def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._exactly(int.from_bytes(self._exactly(4), "big")))
        return message

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            piece = self.socket.recv(length - len(data))
            assert piece, "the agent ended the connection"
            data += piece
        return data

    def ask(self, **message: object) -> dict[str, Any]:
        self.send(message)
        return self.receive()

    def close(self) -> None:
        self.socket.close()


class TierAgent(Agent):
    """One in a sandbox of a tier: what needs the agent's own process or variables cannot be asked of it."""

    def __init__(self, tier: SandboxTier, session: str) -> None:
        self.tier, self.policy = tier, SandboxPolicy(session=SessionId(session), tier=tier.tier)
        self.runtime = tier.create(self.policy)
        self.path, self.connected = self.runtime.socket, []
        self.workspace = Path(self.runtime.workspace or tier.workspace(self.policy))

    def begin_anew(self) -> None:
        """Have nothing of what was done in it before."""
        channel = self.channel()
        for interpreter in INTERPRETERS:
            channel.reset(interpreter)
        channel.run("bash", "find . -mindepth 1 -delete", timeout_s=20)
        channel.reset("bash")
        channel.close()

    def freeze(self) -> None:
        if isinstance(self.tier, E2b):  # kasmon pauses none there in which something runs: the service does
            service.pause(self.tier.access(), self.runtime.remote)
        else:
            self.slept = self.tier.pause(self.policy, self.runtime)

    def thaw(self) -> None:
        if isinstance(self.tier, E2b):
            service.connect(self.tier.access(), self.runtime.remote, 60)
        else:
            self.runtime = self.tier.resume(self.policy, self.runtime, self.slept)

    def end(self) -> None:
        self.hang_up()
        self.tier.forget(self.policy)


@contextmanager
def running(**environ: str) -> Iterator[Agent]:
    """An agent for as long as the context is, confined by nothing."""
    if sys.platform != "linux":
        pytest.skip("the agent inside is Linux's alone, as sandboxes are")
    folder = Path(tempfile.mkdtemp(prefix="ks-", dir="/tmp"))
    agent = Agent(folder, **environ)
    try:
        yield agent
    finally:
        agent.end()
        shutil.rmtree(folder, ignore_errors=True)


FILES: Final = """
import json, os, tempfile
found = [os.path.join(top, name) for top, _, names in os.walk(tempfile.gettempdir()) for name in names]
print(json.dumps({path: open(path, errors='replace').read() for path in found}))
"""


def temporary(channel: GuestChannel) -> dict[str, str]:
    """What lies where things are temporary inside: path -> content."""
    found: dict[str, str] = json.loads(channel.run("python", FILES, timeout_s=20).stdout)
    return found


def _descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    except OSError:
        return []
    return [each for child in map(int, children) for each in (child, *_descendants(child))]
