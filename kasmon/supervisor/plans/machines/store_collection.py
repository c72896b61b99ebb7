"""Removes repositories in which tasks of other machines' plans worked, once nothing needs them. Calls block.

A store (`task_repository`) is removed with the worktrees of its tasks: once none of their sessions lives, their plans'
runners have fetched what they did, and nothing changed for some time. The claims stay: they refuse older attempts.
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.config import load
from kasmon.errors import KasmonError, RefusedError, UnavailableError, of_system
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.repository.git import git, head
from kasmon.store.file_lock import lock
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.plans.machines.claim import Claim, list_own_files, result_mark
from kasmon.supervisor.plans.machines.task_repository import KNOWN
from kasmon.supervisor.worktrees.inventory import check_unused
from kasmon.supervisor.worktrees.worktree import list_worktrees, remove

FIRST_S, INTERVAL_S = 300.0, 6 * 3600.0
"""When the stores are looked at after a service has started, and how often from then on, in seconds."""
CHANGING: Final = ("worktrees", "objects", "objects/pack", "refs/heads/plan")
"""The folders of a store that change when it is used."""

DAY_S: Final = 86400.0

log = logging.getLogger(__name__)


async def collect_regularly(paths: Paths) -> None:
    """Collect the stores of this machine, as its config says, until this is cancelled."""
    pause_s = FIRST_S
    while True:
        await asyncio.sleep(pause_s)
        pause_s = INTERVAL_S
        try:
            days = (await asyncio.to_thread(load, paths)).machine.repository_days
            if days:
                await asyncio.to_thread(collect_stores, paths, days * DAY_S, time.time())
        except (KasmonError, OSError) as error:  # the config is faulty, for example
            log.warning("repositories of tasks are not collected: %s", error)


def collect_stores(paths: Paths, limit_s: float, now: float) -> list[Path]:
    """Remove the stores that nothing needs, and that did not change for *limit_s* seconds; return those removed.

    What keeps one is logged. *now*: in seconds since the epoch.
    """
    fleet, removed = read_fleet(paths), []
    for store in sorted(paths.repositories.glob("*.git")):
        try:
            claims = list(_find_claims(paths, store))
            with lock(paths.repositories / store.stem):
                if now - _changed_at(store, claims) >= limit_s:
                    _remove(paths, store, claims, fleet)
                    removed.append(store)
                    log.info("%s is removed: nothing needed it", store)
        except (KasmonError, OSError) as error:
            log.info("%s stays: %s", store, of_system(error).message)
    return removed


def _find_claims(paths: Paths, store: Path) -> Iterator[tuple[Path, Claim]]:
    """Yield the files of the claims whose worktrees are of *store*, and the claims. Raises `UnavailableError`."""
    for file in paths.plan_tasks.glob("*/*/claim.json"):
        try:
            claim = msgspec.json.decode(file.read_bytes(), type=Claim)
        except msgspec.DecodeError as error:
            raise UnavailableError(f"cannot read the claim {str(file)!r}: {error}.") from error
        if claim.repository == str(store):
            yield file, claim


def _changed_at(store: Path, claims: Sequence[tuple[Path, Claim]]) -> float:
    files = [store, *(store / name for name in CHANGING)]
    files += [each for file, _ in claims for each in (file, file.parent)]
    return max(file.stat().st_mtime for file in files if file.exists())


def _remove(paths: Paths, store: Path, claims: Sequence[tuple[Path, Claim]], fleet: Fleet) -> None:
    """Remove *store* and its worktrees. Raises `RefusedError` if one is used, or something in it could be lost."""
    read = {claim.top for file, claim in claims if result_mark(file.parent, claim).exists()}
    for file, claim in claims:
        session = fleet.get(SessionId(claim.session))
        if session is not None and session.exists:
            raise RefusedError(f"session {session.name!r} of a task has not ended.")
        if claim.is_started and not claim.is_ended and claim.top not in read:
            raise RefusedError(f"the result of {file.parent.name!r} was not fetched.")
    worktrees = [path for path in list_worktrees(store)[1:] if path.exists()]
    if strangers := [path for path in worktrees if not path.is_relative_to(paths.plan_tasks.resolve())]:
        raise RefusedError(f"{str(strangers[0])!r} is a worktree of it.")
    ends = [head(path) for path in worktrees]
    if git(store, "rev-list", "--max-count=1", "--branches", "--tags", *ends, "--not", f"--glob={KNOWN}").strip():
        raise RefusedError("it has commits that were not fetched.")
    for path, end in zip(worktrees, ends, strict=True):
        check_unused(path, fleet)
        remove(store, path, list_own_files(path, has_result=str(path) in read), (end,))
    for file, _ in claims:
        for left in (*file.parent.glob("*.result"), *file.parent.glob("*.pack")):
            left.unlink()
    shutil.rmtree(store)
