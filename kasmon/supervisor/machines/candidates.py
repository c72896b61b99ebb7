"""The machines to suggest to the user: those that sessions run on, and those named in the ssh config."""

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from kasmon.config.agent_address import HOST, machine_of
from kasmon.model.fleet import Fleet

MOST: Final = 100
"""At most this many names are returned."""
DEEPEST: Final = 4
"""At most this many levels of included files are read."""
LARGEST_BYTES: Final = 1 << 20
LINE: Final = re.compile(r"\s*(host|include)(?:\s*=\s*|\s+)(.*)", re.IGNORECASE)


def machines_in_use(fleet: Fleet) -> tuple[str, ...]:
    """Return the other machines that the sessions of *fleet* run or ran on, each once."""
    named = (machine_of(session.agent) for session in fleet.sessions)
    return tuple(dict.fromkeys(machine for machine in named if HOST.fullmatch(machine)))


def find_machines(ssh: Sequence[str], fleet: Fleet) -> tuple[str, ...]:
    """Return those in use, then those named in the config of *ssh* (the program with its arguments). Blocks."""
    names = (name for name in _list_hosts(config_of(ssh), 0) if HOST.fullmatch(name))  # patterns are excluded
    return tuple(dict.fromkeys((*machines_in_use(fleet), *islice(names, MOST))))


def config_of(ssh: Sequence[str]) -> Path:
    """Return the config file that *ssh* reads: the one after `-F`, else the user's own."""
    for argument, after in zip(ssh, [*ssh[1:], ""], strict=True):
        if argument.startswith("-F") and (path := argument[2:] or after):
            return Path(path)
    return Path.home() / ".ssh" / "config"


def _list_hosts(config: Path, depth: int) -> Iterator[str]:
    """Yield the words on the `Host` lines of *config* and of the files that it includes; some are patterns."""
    try:
        if depth > DEEPEST or not config.is_file() or config.stat().st_size > LARGEST_BYTES:
            return
        lines = config.read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        if (line_match := LINE.match(line)) is None:
            continue
        try:
            hosts = shlex.split(line_match[2], comments=True)
        except ValueError:
            continue
        if line_match[1].lower() == "host":
            yield from hosts
        else:
            for host in hosts:
                yield from _list_included(host, depth)


def _list_included(pattern: str, depth: int) -> Iterator[str]:
    path = Path(pattern).expanduser()
    base = Path(path.anchor) if path.is_absolute() else Path.home() / ".ssh"
    pattern = str(path.relative_to(path.anchor)) if path.is_absolute() else str(path)
    try:
        files = sorted(islice(base.glob(pattern), MOST))
    except (OSError, ValueError, NotImplementedError):
        return
    for file in files:
        yield from _list_hosts(file, depth + 1)
