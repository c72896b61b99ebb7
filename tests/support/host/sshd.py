"""An sshd on loopback, with keys, a home and a tmux of its own: another machine, as far as kasmon can tell."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import psutil
import pytest

from kasmon.bus.nats.creation import find_free_port
from kasmon.tmux.remote.agent import SOCKET
from tests.support.wait import until

PATHS = "/usr/local/sbin:/usr/sbin:/sbin:/opt/homebrew/sbin"


def program() -> str:
    """The path of sshd; skips the test where it is missing, unless that is not allowed here (KASMON_REQUIRE_SSHD)."""
    found = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:{PATHS}")
    if found is not None and shutil.which("ssh") is not None:
        if os.getuid() == 0:  # where sshd locks up what it does not trust yet; the package leaves it to the init system
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        return found
    if os.environ.get("KASMON_REQUIRE_SSHD"):
        pytest.fail("sshd or ssh is missing, and KASMON_REQUIRE_SSHD says that it must be there")
    pytest.skip("sshd or ssh is missing: the package openssh-server has it")


class Sshd:
    """The machine `box`, under *root*, a short path; its log-ins have *variables*. Close it.

    It listens at *address*; *inside* is a command that runs another one where that address is.
    """

    def __init__(
        self,
        root: Path,
        variables: Mapping[str, str] = MappingProxyType({}),
        address: str = "127.0.0.1",
        inside: Sequence[str] = (),
    ) -> None:
        self._inside = tuple(inside)
        self.root, self.home = root, root / "home"
        self.home.mkdir(parents=True, mode=0o700)
        self.folder = self.home / ".local/state/kasmon-remote"
        """Where kasmon keeps what it has there."""
        self._program, self._port, self._server = program(), find_free_port(), 0
        for name in ("host", "id"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", root / name], check=True)
        (root / "authorized").write_bytes((root / "id.pub").read_bytes())
        (root / "known").write_text(f"[{address}]:{self._port} {(root / 'host.pub').read_text()}")
        (root / "ssh_config").write_text(
            f"Host box\n HostName {address}\n Port {self._port}\n User {pwd.getpwuid(os.getuid()).pw_name}\n"
            f" IdentityFile {root}/id\n IdentitiesOnly yes\n IdentityAgent none\n"
            f" UserKnownHostsFile {root}/known\n GlobalKnownHostsFile /dev/null\n"
        )
        own = {"HOME": str(self.home), "TMUX_TMPDIR": str(self.home), "XDG_STATE_HOME": f"{self.home}/.local/state"}
        own |= {"PATH": os.environ["PATH"]}
        (root / "sshd_config").write_text(
            f"Port {self._port}\nListenAddress {address}\nHostKey {root}/host\nPidFile {root}/pid\n"
            f"AuthorizedKeysFile {root}/authorized\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            "UsePAM no\nStrictModes no\nPermitRootLogin prohibit-password\nPrintMotd no\nPrintLastLog no\n"
            "Subsystem sftp internal-sftp\n"
            f"SetEnv {' '.join(f'{name}={value}' for name, value in (own | dict(variables)).items())}\n"
        )
        self.open()

    @property
    def ssh(self) -> tuple[str, ...]:
        """For `[remote] ssh`."""
        return "ssh", "-F", str(self.root / "ssh_config")

    @property
    def config(self) -> str:
        """The part of kasmon's config that leads to it."""
        return f"[remote]\nssh = {list(self.ssh)}\n"

    def open(self) -> None:
        """Let people in."""
        command = [*self._inside, self._program, "-f", str(self.root / "sshd_config"), "-E", str(self.root / "log")]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        self._server = until(self._recorded, what="sshd")

    def _recorded(self) -> int:
        """The pid that sshd left in its file; 0 before that."""
        file = self.root / "pid"
        return int(file.read_text() or 0) if file.exists() else 0

    def shut(self) -> None:
        """Let nobody in; those who are in stay."""
        server, self._server = self._server, 0
        if server:
            os.kill(server, signal.SIGTERM)
            until(lambda: is_gone(server), what="the end of sshd")

    def lines(self) -> list[psutil.Process]:
        """The processes on that side of each connection that shows a session."""
        shows = []
        for process in psutil.process_iter(["cmdline", "environ"]):
            arguments = process.info["cmdline"] or []
            if "attach-session" in arguments and str(self.home) in (process.info["environ"] or {}).get("HOME", ""):
                shows.append(process)
        return shows

    def cut(self) -> None:
        """End every connection on that side, as a broken network would; what runs in its tmux runs on."""
        for shows in self.lines():
            for process in [one for one in shows.parents() if one.name() == "sshd" and one.pid != self._server]:
                with contextlib.suppress(psutil.Error):
                    process.kill()

    def tmux(self, *command: str) -> str:
        argv = [os.environ.get("KASMON_TMUX", "tmux"), "-u", "-L", SOCKET, *command]
        env = {**os.environ, "TMUX_TMPDIR": str(self.home)}
        return subprocess.run(argv, capture_output=True, text=True, check=False, env=env).stdout.strip()

    def close(self) -> None:
        """End it and all that runs there."""
        self.cut()
        self.shut()
        if (server := self.tmux("display-message", "-p", "#{pid}")).isdecimal():
            self.tmux("kill-server")
            until(lambda: is_gone(int(server)), what="the end of its tmux")


def is_gone(pid: int) -> bool:
    """Whether the process *pid* has ended, waited for or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
