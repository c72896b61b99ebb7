"""Checks for sandbox leftovers without a session, and their removal by `--fix`."""

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kasmon import system
from kasmon.cli.doctor.result import DoctorCheck
from kasmon.errors import KasmonError
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.supervisor.fleet.sandbox_adoption import end_unfinished, find_unfinished
from kasmon.supervisor.fleet.snapshot import read_fleet

if TYPE_CHECKING:
    from kasmon.sandbox.jail.strays import JailLeftover


def strays(where: Paths) -> Iterator[DoctorCheck]:
    """Report folders, work and jails without a session; only Linux has any."""
    if system.HERE.has_namespaces:
        with contextlib.suppress(KasmonError, OSError):
            yield from _check_strays(where)


def _check_strays(where: Paths) -> Iterator[DoctorCheck]:
    from kasmon.sandbox.jail import strays as stray  # only on Linux

    sessions = read_fleet(where).sessions
    if begun := find_unfinished(where, sessions):
        text = f"unfinished sandboxes still run, and their hosts do not: {', '.join(e.name for e in begun)}"
        fix = "`kasmon doctor --fix` ends them."
        yield DoctorCheck("sandbox-unfinished", "warn", text, fix=fix, mend=partial(_end, where, begun))
    found = stray.strays(where, {session.id for session in sessions})
    gone = [each for each in found if each.can_go]
    groups = stray.empty_groups()
    if gone or groups:
        text = f"{len(gone)} folders and {len(groups)} empty control groups of sandboxes without a session"
        fix = "`kasmon doctor --fix` removes them."
        yield DoctorCheck("sandbox-left", "warn", text, fix=fix, mend=partial(_remove, gone, groups))
    if work := [str(each.folder / "workspace") for each in found if each.holds_work]:
        text = f"work in sandboxes whose sessions were removed: {', '.join(work)}"
        yield DoctorCheck("sandbox-work", "warn", text, fix="Copy what you need; `rm -r` deletes it.")
    if alive := [f"{each.folder} (process {each.process})" for each in found if each.process is not None]:
        text = f"running sandboxes without a session: {', '.join(alive)}"
        yield DoctorCheck("sandbox-alive", "warn", text, fix="`kill -9` of that process ends the whole sandbox.")


def _end(where: Paths, sessions: Sequence[Session]) -> None:
    for each in sessions:
        with contextlib.suppress(KasmonError):  # the next run reports it again
            end_unfinished(where, each)


def _remove(strays: Sequence["JailLeftover"], groups: Sequence[Path]) -> None:
    from kasmon.sandbox.jail.strays import remove

    for each in strays:
        with contextlib.suppress(OSError):  # the next run reports it again
            remove(each)
    for group in groups:
        with contextlib.suppress(OSError):
            group.rmdir()
