"""Leftovers of jails on this machine that no known session owns: session folders, and empty control groups.

They remain when a kasmon was killed, or when its state folder was removed. Folders with files in their workspace, and
running jails, are listed but never removed here.
"""

import contextlib
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec

from kasmon.paths import Paths
from kasmon.sandbox.jail import cgroup
from kasmon.sandbox.shared.host_folders import OF, OF_ROOT, HostFolders
from kasmon.sandbox.shared.processes import holder
from kasmon.sandbox.shared.safe_tree import remove_tree

YOUNG_S: Final = 600.0
"""A folder changed more recently than this may belong to a session that is starting."""


class JailLeftover(msgspec.Struct, frozen=True, kw_only=True):
    """What one jail left behind."""

    folder: Path
    is_ours: bool
    """Whether it belongs to this kasmon; otherwise to one whose state folder is gone."""
    holds_work: bool = False
    """Whether its workspace contains files."""
    process: int | None = None
    """The first process of a jail that runs there."""

    @property
    def can_go(self) -> bool:
        """Whether it can be removed: no jail runs there, and its workspace is empty."""
        return not self.holds_work and self.process is None


def strays(paths: Paths, sessions: Collection[str]) -> tuple[JailLeftover, ...]:
    """Return this kasmon's leftovers without a session in *sessions*; for root, also those of kasmons that are gone."""
    own = HostFolders(paths).base
    found = [
        _inspect_leftover(folder, is_ours=True) for folder in _list_session_folders(own) if folder.name not in sessions
    ]
    for base in sorted(OF_ROOT.iterdir()) if os.geteuid() == 0 and OF_ROOT.is_dir() else ():
        if base != own and _is_orphaned(base):
            found += [_inspect_leftover(folder, is_ours=False) for folder in _list_session_folders(base)] or [
                JailLeftover(folder=base, is_ours=False)
            ]
    return tuple(each for each in found if _is_old(each.folder))


def remove(stray: JailLeftover) -> None:
    """Remove a leftover that can go, and an empty parent. Idempotent. Raises `OSError` if something is left."""
    base = stray.folder.parent
    remove_tree(stray.folder)
    if not stray.is_ours and base.parent == OF_ROOT and not any(_list_session_folders(base)):
        remove_tree(base)


def empty_groups() -> tuple[Path, ...]:
    """Return the control groups of jails, of any kasmon, that contain no process."""
    group = cgroup.find_group("x")
    if group is None:
        return ()
    return tuple(path for path in sorted(group.folder.parent.glob("kasmon-*")) if _is_empty(path) and _is_old(path))


def _list_session_folders(base: Path) -> Iterator[Path]:
    for path in sorted(base.iterdir()) if base.is_dir() else ():
        if path.is_dir() and not path.name.startswith(("things-", ".")):
            yield path


def _inspect_leftover(folder: Path, *, is_ours: bool) -> JailLeftover:
    workspace = folder / "workspace"
    holds_work = workspace.is_dir() and any(workspace.iterdir())
    return JailLeftover(folder=folder, is_ours=is_ours, holds_work=holds_work, process=holder(folder / "lock"))


def _is_orphaned(base: Path) -> bool:
    """Whether *base* names the kasmon that owns it, and that kasmon's state folder is gone."""
    try:
        return not os.path.lexists((base / OF).read_bytes())
    except OSError:
        return False


def _is_old(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime > YOUNG_S
    return False


def _is_empty(group: Path) -> bool:
    with contextlib.suppress(OSError):
        return "populated 0" in (group / "cgroup.events").read_text().splitlines()
    return False
