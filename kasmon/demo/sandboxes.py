"""The demo's sandboxes: interpreters that ran something, where this machine can make jails; else there are none."""

import asyncio
import contextlib
from typing import Final

from kasmon.config import Config
from kasmon.errors import KasmonError
from kasmon.model.command import Sleep
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import Interpreter, Policy
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


async def begin(places: Places) -> list[str]:
    """Make them and let them run; the sentences of what could not be done, none where this machine makes no jails."""
    from kasmon.sandbox.jail.probing import lacking  # what makes sandboxes is for those demos that have some

    if await asyncio.to_thread(lacking, "bwrap"):
        return []
    failures: list[str] = []
    for name, runs, sleeps in SANDBOXES:
        try:
            await _perform(places, name, runs, sleeps=sleeps)
        except KasmonError as error:
            failures.append(f"{name}: {error}")
    return failures


def end(inside: Places) -> None:
    """Leave nothing of the sandboxes of *inside*; what cannot be ended is left."""
    sandboxed = [path.parent.name for path in inside.sessions.glob("*/sandbox.json")]
    if not sandboxed:
        return
    from kasmon.sandbox.jail.bubblewrap import Jail

    jail = Jail(inside)
    for session in sandboxed:
        with contextlib.suppress(KasmonError):
            jail.forget(Policy(session=SessionId(session)))
    with contextlib.suppress(OSError):
        jail.ground.base.rmdir()


async def _perform(places: Places, name: str, runs: Runs, *, sleeps: bool) -> None:
    from kasmon.supervisor import sandboxes
    from kasmon.supervisor.housing import NewSandbox

    made = await sandboxes.create(places, Config(), NewSandbox(name=name))
    session = (await asyncio.to_thread(look_once, places)).get(made)
    if session is None:
        return
    for interpreter, code in runs:
        await sandboxes.run(places, session, interpreter, code)
    if sleeps:
        await sandboxes.keep(places, session, Sleep())
