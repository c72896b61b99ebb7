"""The demo's sandboxes: interpreters that ran something, where this machine can make jails; else there are none.

Where it can make one that keeps memory too (a virtual machine, where its image was built; gVisor, as root), that one
sleeps on disk, and a fork of it goes on with all that it held.
"""

import asyncio
import contextlib
from typing import Final

import msgspec

from kasmon.config import Config
from kasmon.errors import KasmonError
from kasmon.model.command import Sleep
from kasmon.model.sandbox import Interpreter, Policy, Tier
from kasmon.model.session import Session
from kasmon.paths import Places
from kasmon.supervisor.look import look_once

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
"""Name, what runs in it, and whether it sleeps afterwards."""
KEPT: Final = "nightly-totals"
FORKED: Final = "what-if"
LOOP: Final = """\
def months():
    for number, name in enumerate(("jan", "feb", "mar", "apr"), 1):
        yield name, number * 1042

ahead = months()
print(next(ahead), "and a generator that no file could keep")
"""
"""What runs in the one that keeps memory, of which only a memory can."""


async def begin(places: Places) -> list[str]:
    """Make them and let them run; the sentences of what could not be done, none where this machine makes none."""
    from kasmon.sandbox.jail.probing import lacking  # what makes sandboxes is for those demos that have some

    failures: list[str] = []
    if not await asyncio.to_thread(lacking, "bwrap"):
        for name, runs, sleeps in SANDBOXES:
            try:
                await _perform(places, name, runs, sleeps=sleeps)
            except KasmonError as error:
                failures.append(f"{name}: {error}")
    if (tier := await asyncio.to_thread(_remembering)) is not None:
        try:
            await _perform_kept(places, tier)
        except KasmonError as error:
            failures.append(f"{KEPT}: {error}")
    return failures


def end(inside: Places) -> None:
    """Leave nothing of the sandboxes of *inside*; what cannot be ended is left."""
    described = list(inside.sessions.glob("*/sandbox.json"))
    if not described:
        return
    from kasmon.sandbox import tiers
    from kasmon.sandbox.jail.bubblewrap import Jail

    for path in described:
        with contextlib.suppress(KasmonError, OSError, msgspec.DecodeError):
            policy = msgspec.json.decode(path.read_bytes(), type=Policy)
            tiers.load(policy.tier, inside).forget(policy)
    with contextlib.suppress(OSError):
        Jail(inside).ground.base.rmdir()


def _remembering() -> Tier | None:
    """The tier that keeps memory and can be had here, as far as that is seen without trying it; None where none can."""
    from kasmon.paths import places
    from kasmon.sandbox.gvisor.tier import Gvisor
    from kasmon.sandbox.microvm import emulator, image

    if image.found(image.folder_of(places())) is not None and emulator.lacking() is None:
        return "microvm"
    return None if Gvisor().missing() else "gvisor"


async def _perform(
    places: Places, name: str, runs: Runs, *, sleeps: bool = False, tier: Tier | None = None
) -> Session | None:
    from kasmon.supervisor import sandboxes
    from kasmon.supervisor.housing import NewSandbox

    made = await sandboxes.create(places, Config(), NewSandbox(name=name, tier=tier))
    session = (await asyncio.to_thread(look_once, places)).get(made)
    if session is None:
        return None
    for interpreter, code in runs:
        await sandboxes.run(places, session, interpreter, code)
    if sleeps:
        await sandboxes.keep(places, session, Sleep())
    return session


async def _perform_kept(places: Places, tier: Tier) -> None:
    """One that sleeps on disk, and a fork of it that goes on where its generator was."""
    from kasmon.supervisor import sandboxes

    session = await _perform(places, KEPT, (("python", LOOP),), tier=tier)
    if session is None:
        return
    await sandboxes.keep(places, session, Sleep(to_disk=True))
    forked = await sandboxes.fork(places, session, FORKED)
    copy = (await asyncio.to_thread(look_once, places)).get(forked.session)
    if copy is not None:
        await sandboxes.run(places, copy, "python", "next(ahead)")
