"""The demo's sandboxes: interpreters that ran some code, if this machine supports jails; otherwise none.

If the machine supports a tier with memory snapshots (a microVM whose image was built), one such sandbox is paused to
disk, and a fork of it continues from its memory.
"""

import asyncio
import contextlib
from typing import Final

import msgspec

from kasmon.config import Config
from kasmon.errors import KasmonError
from kasmon.model.commands import Pause
from kasmon.model.sandbox.policy import Interpreter, SandboxPolicy, Tier
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.supervisor.fleet.snapshot import read_fleet

NUMBERS: Final = """\
import random, statistics

random.seed(7)
orders = [round(random.lognormvariate(3.5, 0.6), 2) for _ in range(1042)]
print(len(orders), "orders, median", statistics.median(orders))
"""
Runs = tuple[tuple[Interpreter, str], ...]
SANDBOXES: Final[tuple[tuple[str, Runs, bool], ...]] = (
    (
        "order-stats",
        (
            ("python", NUMBERS),
            ("bash", "printf 'day,orders\\nmon,212\\ntue,187\\n' > week.csv; wc -l week.csv"),
            ("python", "sum(orders) / len(orders)"),
        ),
        False,
    ),
    ("receipt-totals", (("node", "const totals = [12.5, 80, 7.25]; totals.reduce((a, b) => a + b)"),), True),
)
"""Name, code to run, and whether to pause it afterwards."""
KEPT: Final = "nightly-totals"
FORKED: Final = "what-if"
LOOP: Final = """\
def months():
    for number, name in enumerate(("jan", "feb", "mar", "apr"), 1):
        yield name, number * 1042

ahead = months()
print(next(ahead), "and a generator that no file could keep")
"""
"""The code for the sandbox with memory snapshots; its state survives only in memory."""


async def begin(paths: Paths) -> list[str]:
    """Create the sandboxes and run their code; return an error message for each failure."""
    from kasmon.sandbox.jail.probe import lacking  # imported only by demos with sandboxes

    failures: list[str] = []
    if not await asyncio.to_thread(lacking, "bwrap"):
        for name, runs, sleeps in SANDBOXES:
            try:
                await _perform(paths, name, runs, sleeps=sleeps)
            except KasmonError as error:
                failures.append(f"{name}: {error}")
    if (tier := await asyncio.to_thread(_find_snapshot_tier)) is not None:
        try:
            await _perform_kept(paths, tier)
        except KasmonError as error:
            failures.append(f"{KEPT}: {error}")
    return failures


def end(paths: Paths) -> None:
    """Remove all sandboxes of *paths*; those that cannot be ended are left."""
    described = list(paths.sessions.glob("*/sandbox.json"))
    if not described:
        return
    from kasmon.sandbox import tiers
    from kasmon.sandbox.jail.jail import Jail

    for path in described:
        with contextlib.suppress(KasmonError, OSError, msgspec.DecodeError):
            policy = msgspec.json.decode(path.read_bytes(), type=SandboxPolicy)
            tiers.load(policy.tier, paths).forget(policy)
    with contextlib.suppress(OSError):
        Jail(paths).host_folders.base.rmdir()


def _find_snapshot_tier() -> Tier | None:
    """Return the tier with memory snapshots that seems usable here, without trying it; None if there is none."""
    from kasmon.paths import user_paths
    from kasmon.sandbox.microvm import image, qemu_program

    is_there = image.load_image(image.folder_of(user_paths())) is not None and qemu_program.lacking() is None
    return "microvm" if is_there else None


async def _perform(
    paths: Paths, name: str, runs: Runs, *, sleeps: bool = False, tier: Tier | None = None
) -> Session | None:
    from kasmon.supervisor.sandboxes import sandbox_operations, use
    from kasmon.supervisor.sandboxes.create import NewSandbox

    made = await sandbox_operations.create(paths, Config(), NewSandbox(name=name, tier=tier))
    session = (await asyncio.to_thread(read_fleet, paths)).get(made)
    if session is None:
        return None
    for interpreter, code in runs:
        await use.run(paths, session, interpreter, code)
    if sleeps:
        await use.execute(paths, session, Pause())
    return session


async def _perform_kept(paths: Paths, tier: Tier) -> None:
    """Create a sandbox, pause it to disk, and fork it; the fork continues its generator."""
    from kasmon.supervisor.sandboxes import sandbox_operations, use

    session = await _perform(paths, KEPT, (("python", LOOP),), tier=tier)
    if session is None:
        return
    await use.execute(paths, session, Pause(to_disk=True))
    forked = await sandbox_operations.fork(paths, session, FORKED)
    copy = (await asyncio.to_thread(read_fleet, paths)).get(forked.session)
    if copy is not None:
        await use.run(paths, copy, "python", "next(ahead)")
