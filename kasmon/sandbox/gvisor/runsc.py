"""The program `runsc`: each call is a process that ends, and what it started goes on."""

import functools
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from kasmon.errors import SandboxError
from kasmon.model.snapshot import Maker
from kasmon.sandbox.base import Reason
from kasmon.sandbox.gvisor.failing import NeverRanError, never_ran
from kasmon.sandbox.jail.arguments import INSIDE, USER
from kasmon.sandbox.jail.probing import install_line
from kasmon.sandbox.jail.process import gone, send, started_at

PLATFORM: Final = "ptrace"
"""Works wherever processes may be traced; `kvm` hung where it was there and could not be used."""
LIMIT_S: Final = 30.0
END_S: Final = 5.0
PLAYS: Final = ("runsc-sandbox", "runsc-gofer")
"""What it calls the processes that play a sandbox."""
PLAIN: Final = 20240729
"""Since then at the latest it writes a memory as it is, if it is told to, which takes a third of the time."""
PYTHON: Final = ("/usr/bin/python3", "-I", "-S")


class Runsc:
    """The sandboxes of one *root* folder."""

    def __init__(self, root: Path, program: str = "runsc") -> None:
        self.root, self.program = root, program

    def lacking(self) -> Reason | None:
        """What it takes that is not here."""
        if os.geteuid() != 0:
            return Reason(
                "it restores a memory only as root, and kasmon is not", "Run kasmon as root, or take another."
            )
        if shutil.which(self.program) is None:
            return Reason("runsc (gVisor) is not installed", f"Install it: {install_line('runsc')}.")
        return None

    def maker(self) -> Maker:
        """What would read a memory here: this program, this processor, and these programs inside.

        Raises:
            SandboxError: if the program does not say what it is.
        """
        return Maker(program=f"runsc {self._version()}", machine=PLATFORM, cpu=_processor(), image=_programs())

    def released(self) -> int:
        """The day of its release, as a number: 20240729; 0 where its version does not name one.

        Raises:
            SandboxError: if it does not say what it is.
        """
        found = re.search(r"\d{8}", self._version())
        return int(found[0]) if found else 0

    def _version(self) -> str:
        program = Path(shutil.which(self.program) or self.program)
        return _version_of(str(program), program.stat().st_mtime_ns if program.exists() else 0)

    def command(self, *words: str) -> list[str]:
        """The program with *words*, on its root and as it is always called."""
        usual = [f"--root={self.root}", "--network=none", "--ignore-cgroups", f"--platform={PLATFORM}"]
        return [shutil.which(self.program) or self.program, *usual, *words]

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
            NeverRanError: if that fails, and nothing ran meanwhile.
            SandboxError: if it fails otherwise, or takes too long.
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
        except OSError as error:
            raise NeverRanError(f"runsc does not {verb[0]} it", str(error)) from error
        except subprocess.SubprocessError as error:
            said = _last_line(log.read_text("utf-8", "replace"))
            ended = error.returncode if isinstance(error, subprocess.CalledProcessError) else -1
            kind = NeverRanError if never_ran(ended, said) else SandboxError
            raise kind(f"runsc does not {verb[0]} it", said) from error
        return int(told.read_text("ascii"))

    def checkpoint(self, identity: str, folder: Path) -> list[str]:
        """The command that writes the memory of *identity* into *folder*, and ends it.

        Raises:
            SandboxError: if the program does not say what it is.
        """
        plain = ["-compression=none"] if self.released() >= PLAIN else []
        return self.command("checkpoint", *plain, "-image-path", str(folder), identity)

    def state(self, identity: str) -> tuple[int, str]:
        """The outermost process of *identity* and its state (`running`, `paused`, `stopped`); 0 where there is none."""
        try:
            told: dict[str, Any] = msgspec.json.decode(self.call("state", identity))
            return int(told["pid"]), str(told["status"])
        except (SandboxError, msgspec.MsgspecError, KeyError, ValueError):
            return 0, ""

    def join(self, identity: str, agent: str) -> list[str]:
        """The command that joins its stdin and stdout to the agent that listens at *agent* inside."""
        return self.command("exec", "-user", f"{USER}:{USER}", identity, *PYTHON, f"{INSIDE}/joined.py", agent)

    def carry(self, identity: str) -> list[str]:
        """The command whose stdin and stdout is the line over which connections of it are carried."""
        return self.command("exec", "-user", f"{USER}:{USER}", identity, *PYTHON, f"{INSIDE}/agent.py", "ways")

    def names(self, prefix: str) -> tuple[str, ...]:
        """All that begin with *prefix*, alive or not."""
        if not self.root.is_dir():
            return ()
        return tuple(name for name in self.call("list", "-quiet").split() if name.startswith(prefix))

    def delete(self, identity: str, bundle: Path) -> None:
        """Leave no process of *identity*, which was made of *bundle*, and nothing that is known of it; idempotent.

        Its own `delete` takes a second or two where the system is slow to clear away a process that has ended.

        Raises:
            SandboxError: if it is still there.
        """
        playing = tuple(self._playing(bundle))
        for pid, began in playing:
            send(pid, signal.SIGKILL, began)
        until = time.monotonic() + END_S
        all_gone = all(gone(pid, began, until - time.monotonic()) for pid, began in playing)
        if all_gone and not self.plays(self.state(identity)[0]):
            self.strike(identity)
            return
        try:
            self.call("delete", "-force", identity)
        except SandboxError:
            if self.state(identity)[0]:
                raise

    def cleared(self, prefix: str, bundle: Path) -> bool:
        """Delete all whose names begin with *prefix*, made of *bundle*; whether no process of that is left.

        Raises:
            SandboxError: if one is still there.
        """
        for identity in self.names(prefix):
            self.delete(identity, bundle)
        return not any(self._playing(bundle))

    def strike(self, identity: str) -> None:
        """Remove what is known of *identity*, of which no process is left."""
        for path in self.root.iterdir() if self.root.is_dir() else ():
            if identity in path.name:
                path.unlink(missing_ok=True)

    def plays(self, pid: int) -> bool:
        """Whether process *pid* lives and plays a sandbox of this root: what runsc notes may be another process now."""
        try:
            words = psutil.Process(pid).cmdline() if pid > 0 else []
        except psutil.Error:
            return False
        return bool(words) and words[0] in PLAYS and f"--root={self.root}" in words and started_at(pid) is not None

    def _playing(self, bundle: Path) -> Iterator[tuple[int, float]]:
        """The processes of this program that play what was made of *bundle*, and when each began."""
        named = {str(bundle), f"--bundle={bundle}"}
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or [""]
            if words[0] in PLAYS and named & set(words) and (began := started_at(process.pid)) is not None:
                yield process.pid, began


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
