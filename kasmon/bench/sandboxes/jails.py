"""Measures jails: the start of one and of many at once, and the memory and processor time of many idle ones.

A jail is measured with everything that waits for code in it: the guest, a Python and a bash.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from kasmon.bench.support.figure import Figure, percentile, timed, took_ms
from kasmon.bench.support.fleet import scratch, session_id
from kasmon.bench.support.process_cost import family, held_mb, share_of_a_core
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.managed.sandbox import PREWARMED

MANY: Final = 50
AT_ONCE: Final = 8
REST_S: Final = 2.0
"""How long after their start the memory of many jails is measured, in seconds."""


def measure_start(rounds: int) -> Figure:
    """Measure from the creation of a jail to the guest's answer, one after the other."""
    with _jails(rounds) as (jail, policies):
        times = [took_ms(partial(jail.create, policy)) for policy in policies]
    return timed("a jail is ready, p50", times, 150, f"p95 {percentile(times, 0.95):.0f} ms")


def measure_many(seconds: float, count: int = MANY) -> list[Figure]:
    """Measure *count* jails that are created at once, then left idle for *seconds*."""
    with _jails(count) as (jail, policies), ThreadPoolExecutor(AT_ONCE) as pool:
        began = time.perf_counter()
        made = list(pool.map(jail.create, policies))
        each_ms = 1000 * (time.perf_counter() - began) / count
        list(pool.map(_prewarm, made))
        time.sleep(REST_S)
        guest = [process.pid for process in family([runtime.pid for runtime in made])]
        each_mb = sum(map(held_mb, guest)) / count
        share = share_of_a_core(guest, seconds)
        end_ms = took_ms(lambda: list(pool.map(jail.destroy, policies, made))) / count
    return [
        Figure(
            name=f"{count} jails at once, each",
            value=each_ms,
            unit="ms",
            target=40,
            samples=count,
            note=f"{AT_ONCE} at a time; to end them: {end_ms:.0f} ms each",
        ),
        Figure(
            name=f"each of {count} jails with python and bash holds",
            value=each_mb,
            unit="MB",
            target=15,
            samples=count,
            note=f"{len(guest) / count:.1f} processes each; pages that they share count once",
        ),
        Figure(
            name=f"{count} jails in which nothing runs",
            value=share,
            unit="% of a core",
            target=1,
            samples=1,
            note=f"over {seconds:g} s",
        ),
    ]


@contextlib.contextmanager
def _jails(count: int) -> Iterator[tuple[Jail, Sequence[SandboxPolicy]]]:
    """Return the jail tier and the policies of *count* jails; all jails are removed at the end."""
    with scratch() as paths:
        jail, policies = Jail(paths), [SandboxPolicy(session=session_id(number)) for number in range(count)]
        try:
            yield jail, policies
        finally:
            for policy in policies:
                jail.forget(policy)


def _prewarm(runtime: SandboxRuntime) -> None:
    with contextlib.closing(GuestChannel(runtime.socket)) as guest:
        guest.prewarm(PREWARMED)
