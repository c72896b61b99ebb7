"""The files of a session's folder, for name completion: as many as can be listed quickly, nearest first."""

import os
import time
from collections import deque
from pathlib import Path
from typing import Final

import msgspec

from kasmon.model.session import Session
from kasmon.paths import Paths, expanded
from kasmon.sanitize import clean_line
from kasmon.supervisor.machines.dispatch import dispatch

MOST: Final = 20_000
MOST_SENT: Final = 5_000
"""How many are sent to another machine at most."""
LONGEST_S: Final = 1.5
"""Time limit of a listing, in seconds; files not found by then are not offered."""
LEFT_OUT: Final = frozenset({"node_modules", "__pycache__", "venv", "target", "dist", "build"})
"""Folders that users do not edit in; hidden ones are left out as well."""


@dispatch
def list_files(paths: Paths, session: Session) -> list[str]:
    """Return the files of the session's folder, as `listed`."""
    return listed(Path(session.workdir or "."))


class _Files(msgspec.Struct, frozen=True):
    """What `kasmon show --files --json` prints."""

    files: tuple[str, ...]


@list_files.elsewhere
def _list_files_there(paths: Paths, session: Session) -> list[str]:
    from kasmon.supervisor.machines.link_client import parse_reply, run_for  # only for other machines

    names = parse_reply(session.via, run_for(paths, session, "show", session.id, "--files"), _Files).files
    return [name for name in names[:MOST_SENT] if clean_line(name) == name]


def listed(folder: Path, most: int = MOST) -> list[str]:
    """Return at most *most* paths relative to *folder*, folders with a slash behind, the nearest first; never raises.

    Hidden files, links to folders, and names with unprintable characters are left out.
    """
    files: list[str] = []
    until = time.monotonic() + LONGEST_S
    waiting = deque([""])
    while waiting and len(files) < most and time.monotonic() < until:
        current = waiting.popleft()
        for name, is_folder in _entries(folder / current):
            path = f"{current}{name}/" if is_folder else f"{current}{name}"
            files.append(path)
            if is_folder:
                waiting.append(path)
    return files[:most]


def folders_like(written: str) -> list[str]:
    """Return the folders whose paths begin with *written*, spelt like it, with a trailing slash; never raises.

    Hidden folders are left out unless *written* begins their name; so are names with unprintable characters.
    """
    parent, slash, start = written.rpartition("/")
    found: list[str] = []
    try:
        with os.scandir(expanded(parent + slash) if slash else Path()) as entries:
            for entry in entries:
                name = entry.name
                is_meant = name.startswith(start) and (start.startswith(".") or not name.startswith("."))
                if is_meant and clean_line(name) == name and entry.is_dir():
                    found.append(f"{parent}{slash}{name}/")
                    if len(found) >= MOST:
                        break
    except (OSError, ValueError):  # a NUL in a path is a ValueError
        return found
    return sorted(found)


def _entries(folder: Path) -> list[tuple[str, bool]]:
    """The names in *folder* to offer, and which of them are folders."""
    found: list[tuple[str, bool]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") or entry.name in LEFT_OUT or clean_line(entry.name) != entry.name:
                    continue
                found.append((entry.name, entry.is_dir(follow_symlinks=False)))
                if len(found) >= MOST:
                    break
    except OSError:
        return found
    return sorted(found)
