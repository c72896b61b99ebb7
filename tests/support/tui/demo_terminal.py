"""A person's terminal around the demo: an outer tmux on a socket of its own, with places of its own."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from kasmon.demo.scratch import DemoRecord, clear
from tests.support.cli.fork_server import KASMON
from tests.support.wait import LIMIT_S, until


class DemoTerminal:
    """One folder with its own XDG roots and, once something runs in it, one outer tmux; all ended by `close`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kmo", dir="/tmp"))
        for name in ("s", "r", "c", "h", "t"):
            (self.folder / name).mkdir(mode=0o700)
        self.socket = self.folder / "outer.sock"
        self.environment = {
            "HOME": str(self.folder / "h"),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "TMPDIR": str(self.folder / "t"),
            "XDG_STATE_HOME": str(self.folder / "s"),
            "XDG_RUNTIME_DIR": str(self.folder / "r"),
            "XDG_CONFIG_HOME": str(self.folder / "c"),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.socket.exists():
            subprocess.run(["tmux", "-S", str(self.socket), "kill-server"], capture_output=True, timeout=20)
        for record in self.records():
            clear(Path(record.folder))
        shutil.rmtree(self.folder, ignore_errors=True)

    def records(self) -> list[DemoRecord]:
        paths = (self.folder / "s" / "kasmon" / "demos").glob("*.json")
        return [msgspec.json.decode(path.read_bytes(), type=DemoRecord) for path in paths]

    def start(self, *argv: str, size: tuple[int, int] = (160, 70)) -> int:
        """Run *argv* in the outer terminal and return its pid."""
        self.tmux(
            "-f", "/dev/null", "new-session", "-d", "-s", "t", "-x", str(size[0]), "-y", str(size[1]), "--", *argv
        )
        self.tmux("set-option", "-g", "remain-on-exit", "on")
        return int(self.tmux("display-message", "-p", "-t", "t", "#{pane_pid}"))

    def tmux(self, *argv: str) -> str:
        command = ["tmux", "-u", "-S", str(self.socket), *argv]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    def screen(self) -> str:
        """What the person sees."""
        return self.tmux("capture-pane", "-p", "-t", "t")

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", "-t", "t", *keys)

    def shows(self, *texts: str, limit_s: float = LIMIT_S) -> None:
        """Wait until all *texts* are on the screen."""

        def all_there() -> bool:
            seen = self.screen()
            return all(text in seen for text in texts)

        try:
            until(all_there, limit_s, f"{texts} on the screen")
        except TimeoutError as error:
            raise AssertionError(f"{error}; the screen is:\n{self.screen()}\n{self._host_logs()}") from error

    def _host_logs(self) -> str:
        """What the hosts of the demo printed: the reason why one has exited is there alone."""
        logs = (self.folder / "t").rglob("*host.log")
        return "\n".join(f"{path}:\n{text}" for path in logs if (text := path.read_text(errors="replace").strip()))

    def ask(self, *argv: str, inside: Path | None = None) -> Any:
        """The JSON that `kasmon *argv* --json` prints, asked in the places of the demo in *inside*."""
        environment = dict(self.environment)
        if inside is not None:
            roots = {"XDG_STATE_HOME": "s", "XDG_RUNTIME_DIR": "r", "XDG_CONFIG_HOME": "c"}
            environment.update({name: str(inside / root) for name, root in roots.items()})
        return json.loads(run((*KASMON, *argv, "--json"), environment))


def run(argv: Sequence[str], environment: dict[str, str]) -> str:
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout
