"""The program `runsc`: each call is a process that ends, and what it started goes on."""

import contextlib
import functools
import hashlib
import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kasmon.errors import SandboxError
from kasmon.model.snapshot import Maker
from kasmon.sandbox.jail.arguments import INSIDE, USER
from kasmon.sandbox.jail.probing import Reason, install_line

PLATFORM: Final = "ptrace"
"""Works wherever processes may be traced; `kvm` hung where it was there and could not be used."""
LIMIT_S: Final = 30.0
JOINED: Final = ("/usr/bin/python3", "-I", "-S", f"{INSIDE}/joined.py")


class Runsc:
    """The sandboxes of one *root* folder."""

    def __init__(self, root: Path, program: str = "runsc") -> None:
        self.root, self._program = root, program

    def lacking(self) -> Reason | None:
        """What it takes that is not here."""
        if os.geteuid() != 0:
            return Reason(
                "it restores a memory only as root, and kasmon is not", "Run kasmon as root, or take another."
            )
        if shutil.which(self._program) is None:
            return Reason("runsc (gVisor) is not installed", f"Install it: {install_line('runsc')}.")
        return None

    def maker(self) -> Maker:
        """What would read a memory here: this program, this processor, and these programs inside.

        Raises:
            SandboxError: if the program does not say what it is.
        """
        return Maker(program=f"runsc {self._version()}", machine=PLATFORM, cpu=_processor(), image=_programs())

    def is_old(self) -> bool:
        """Whether it is the one of Debian 12, of December 2022.

        Raises:
            SandboxError: if it does not say what it is.
        """
        return self._version().startswith("0.0~2022")

    def _version(self) -> str:
        program = Path(shutil.which(self._program) or self._program)
        return _version_of(str(program), program.stat().st_mtime_ns if program.exists() else 0)

    def command(self, *words: str) -> list[str]:
        usual = [f"--root={self.root}", "--network=none", "--ignore-cgroups", f"--platform={PLATFORM}"]
        return [shutil.which(self._program) or self._program, *usual, *words]

    def call(self, *words: str, limit_s: float = LIMIT_S) -> str:
        """What it says on stdout.

        Raises:
            SandboxError: if it fails, or takes longer than *limit_s*.
        """
        try:
            done = subprocess.run(
                self.command(*words),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit_s,
                check=True,
                env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
            )
        except subprocess.CalledProcessError as error:
            raise SandboxError(f"runsc does not {words[0]} it", _last_line(error.stderr or "")) from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxError(f"runsc does not {words[0]} it", str(error)) from error
        return done.stdout

    def begin(self, verb: Sequence[str], bundle: Path, identity: str, folder: Path) -> int:
        """Run or restore *identity*, detached; its outermost process. What it says goes to a file in *folder*.

        Raises:
            SandboxError: if that fails, or takes too long.
        """
        log, told = folder / "runsc.log", folder / "runsc.pid"
        command = self.command(*verb, "-bundle", str(bundle), "-pid-file", str(told), "-detach", identity)
        try:
            with log.open("wb") as file:
                log.chmod(0o600)
                subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    timeout=LIMIT_S,
                    check=True,
                    start_new_session=True,
                    umask=0o022,  # with it the places inside are made that nobody named before
                    env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
                )
        except (OSError, subprocess.SubprocessError) as error:
            said = log.read_text("utf-8", "replace") if log.exists() else ""
            raise SandboxError(f"runsc does not {verb[0]} it", _last_line(said) or str(error)) from error
        return int(told.read_text("ascii"))

    def state(self, identity: str) -> tuple[int, str]:
        """The outermost process of *identity* and its state (`running`, `paused`, `stopped`); 0 where there is none."""
        try:
            told: dict[str, Any] = msgspec.json.decode(self.call("state", identity))
            return int(told["pid"]), str(told["status"])
        except (SandboxError, msgspec.MsgspecError, KeyError, ValueError):
            return 0, ""

    def join(self, identity: str, agent: str) -> list[str]:
        """The command that joins its stdin and stdout to the agent that listens at *agent* inside."""
        return self.command("exec", "-user", f"{USER}:{USER}", identity, *JOINED, agent)

    def names(self, prefix: str) -> tuple[str, ...]:
        """All that begin with *prefix*, alive or not."""
        if not self.root.is_dir():
            return ()
        return tuple(name for name in self.call("list", "-quiet").split() if name.startswith(prefix))

    def delete(self, identity: str) -> None:
        """Leave no process of *identity*; idempotent.

        Raises:
            SandboxError: if it is still there.
        """
        try:
            self.call("delete", "-force", identity)
        except SandboxError:
            if self.state(identity)[0]:
                raise

    def delete_behind(self, identity: str) -> None:
        """As `delete`, while we go on: what wrote its memory has ended already, and the system takes its time."""
        with contextlib.suppress(OSError):
            command = self.command("delete", "-force", identity)
            nothing = subprocess.DEVNULL
            child = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
            threading.Thread(target=child.wait, daemon=True).start()


@functools.cache
def _version_of(program: str, changed_at: int) -> str:
    """The version of *program*, which was put there at *changed_at*.

    Raises:
        SandboxError: if it does not say it.
    """
    said = Runsc(Path(os.devnull), program).call("--version").split()
    return said[2] if len(said) > 2 else "of unknown version"


def _last_line(said: str) -> str:
    return (said.strip().splitlines() or ["it does not say why"])[-1][-300:].rstrip(".")


def _processor() -> str:
    """This machine's processor, as programs on it see it."""
    keys = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    seen: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in keys:
            seen.setdefault(name.strip(), value.strip())
    digest = hashlib.sha256("\n".join(seen.values()).encode()).hexdigest()[:12]
    return f"{seen.get('model name', 'unknown')} ({digest})"


def _programs() -> str:
    """Which programs of this machine run inside: a memory has their text, and reads more of it as it goes on."""
    digest = hashlib.sha256()
    for name in ("python3", "bash", "node"):
        path = Path("/usr/bin", name)
        if path.exists():
            facts = path.stat()
            digest.update(f"{path.resolve()} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()
