"""What sandboxes that keep their memory cost: to be made, put on disk and woken; and five microVMs made at once.

A microVM that was woken has answered when its time is taken, since a memory that is there and answers nobody is none.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from kasmon.bench.figure import Figure, percentile
from kasmon.bench.process import memory_mb
from kasmon.bench.stage import scratch, session_id
from kasmon.errors import KasmonError, SandboxError
from kasmon.model.sandbox import Policy, Runtime, Tier
from kasmon.paths import Places
from kasmon.sandbox.base import Sandbox, Slept
from kasmon.sandbox.box import PREWARMED
from kasmon.sandbox.channel import Channel
from kasmon.sandbox.gvisor.tier import Gvisor
from kasmon.sandbox.microvm import emulator
from kasmon.sandbox.microvm.machine import STARTED, MicroVm

AT_ONCE: Final = 5
ANSWER_S: Final = 60.0
MAKES: Final[dict[Tier, Callable[[Places], Sandbox]]] = {"microvm": MicroVm, "gvisor": Gvisor}
"""The tiers that are measured here."""
NAMED: Final[dict[Tier, tuple[str, str]]] = {
    "microvm": ("a microVM is put on disk, p50", "a microVM wakes from disk and answers, p50"),
    "gvisor": ("a gVisor sandbox is put on disk, p50", "a gVisor sandbox wakes from disk and answers, p50"),
}


class Nights(NamedTuple):
    """What became of one sandbox that was put on disk and woken again and again."""

    to_sleep_ms: list[float]
    awake_ms: list[float]
    size_mb: float
    """Of its memory on disk, at the last time."""


def booted(rounds: int) -> Figure:
    """A microVM that is started, with nothing to be copied: to the answer of the agent inside."""
    with _tier("microvm") as vm:
        assert isinstance(vm, MicroVm)
        times = _made(lambda policy: vm.create(policy, is_copy=False), vm, rounds)
    return _figure("a microVM starts and answers, p50", times, None, how_played(vm))


def copied(rounds: int) -> Figure:
    """A microVM that is a copy of the warm one: to the answer of the agent inside."""
    with _tier("microvm") as vm:
        assert isinstance(vm, MicroVm)
        times = _made(_copies(vm), vm, rounds)
    return _figure("a microVM is copied from a warm one and answers, p50", times, 1500, how_played(vm))


def paused(kind: Tier, rounds: int) -> Figure:
    """A sandbox with a python and a bash, until its memory is on disk and it has no process."""
    with _tier(kind) as tier:
        nights = _nights(tier, rounds)
    return _figure(NAMED[kind][0], nights.to_sleep_ms, 1000, f"{nights.size_mb:.0f} MB; {how_played(tier)}")


def resumed(kind: Tier, rounds: int) -> Figure:
    """The same, from the wish to go on until its python answers with what it held."""
    with _tier(kind) as tier:
        nights = _nights(tier, rounds)
    return _figure(NAMED[kind][1], nights.awake_ms, 1000, how_played(tier))


def many(count: int = AT_ONCE) -> list[Figure]:
    """*count* copies of the warm microVM that are made at once: until all answer, what each holds, and who failed."""
    with _tier("microvm") as vm:
        assert isinstance(vm, MicroVm)
        policies = [Policy(session=session_id(number), tier="microvm") for number in range(count)]
        copies = _copies(vm)
        try:
            with ThreadPoolExecutor(count) as pool:
                began = time.perf_counter()
                made = list(pool.map(lambda policy: _or_why(copies, policy), policies))
                took_ms = 1000 * (time.perf_counter() - began)
            living = [each for each in made if isinstance(each, Runtime)]
            failures = [each for each in made if isinstance(each, str)]
            if not living:
                raise SandboxError("no microVM was made", failures[0])
            each_mb = sum(memory_mb(runtime.front or runtime.pid) for runtime in living) / len(living)
        finally:
            for policy in policies:
                vm.forget(policy)
    note = how_played(vm)
    return [
        Figure(name=f"{count} microVMs at once, until all answer", value=took_ms, unit="ms", samples=count, note=note),
        Figure(
            name=f"each of {count} microVMs holds",
            value=each_mb,
            unit="MB",
            samples=len(living),
            note="with its door; pages that they share count once",
        ),
        Figure(
            name=f"of {count} microVMs at once, those that failed",
            value=len(failures),
            unit="machines",
            target=0,
            samples=count,
            note="; ".join(sorted(set(failures))),
        ),
    ]


def how_played(tier: Sandbox) -> str:
    """What of this machine a sandbox runs on."""
    if isinstance(tier, MicroVm):
        return "KVM" if tier.accelerator.startswith("kvm") else "emulated (TCG), without KVM"
    assert isinstance(tier, Gvisor)
    return tier.program_told()


@contextlib.contextmanager
def _tier(kind: Tier) -> Iterator[Sandbox]:
    """The tier, of a kasmon of its own that is gone in the end.

    Raises:
        SandboxError: if none can be made here.
    """
    with scratch() as where:
        yield MAKES[kind](where)


def _copies(vm: MicroVm) -> Callable[[Policy], Runtime]:
    """What makes a copy of the warm one, and fails where one was started instead.

    Raises:
        SandboxError: if there is no warm one that fits, or none can be made here.
    """
    if lack := emulator.lacking(vm.program):
        raise SandboxError("no machine can be made", lack.why, lack.hint)
    none, hint = "there is no warm microVM to be copied", "`kasmon sandbox image build` makes a warm one."
    origin = vm.stock("default").origin(vm.made_by)
    if origin.memory is None:
        raise SandboxError(none, origin.why or "none was put away", hint)

    def copy(policy: Policy) -> Runtime:
        runtime = vm.create(policy)
        if started := next((notice for notice in runtime.notices if STARTED in notice), ""):
            raise SandboxError(none, started, hint)
        return runtime

    return copy


def _made(make: Callable[[Policy], Runtime], tier: Sandbox, rounds: int) -> list[float]:
    """How long it takes to make each of *rounds*, one after the other, in ms."""
    times = []
    for number in range(rounds):
        policy = Policy(session=session_id(number), tier=tier.tier)
        try:
            began = time.perf_counter()
            make(policy)
            times.append(1000 * (time.perf_counter() - began))
        finally:
            tier.forget(policy)
    return times


def _or_why(make: Callable[[Policy], Runtime], policy: Policy) -> Runtime | str:
    try:
        return make(policy)
    except KasmonError as error:
        return error.message


def _nights(tier: Sandbox, rounds: int) -> Nights:
    """Put one to sleep on disk and wake it, *rounds* times.

    Raises:
        SandboxError: if what it held is not there when it wakes.
    """
    policy, nights = Policy(session=session_id(0), tier=tier.tier), Nights([], [], 0.0)
    try:
        runtime = tier.create(policy)
        with contextlib.closing(Channel(runtime.socket)) as inside:
            inside.prewarm(PREWARMED)
            inside.run("python", "held = 0", timeout_s=ANSWER_S)
        for number in range(rounds):
            began = time.perf_counter()
            slept = tier.pause(policy, runtime, to_disk=True)
            nights.to_sleep_ms.append(1000 * (time.perf_counter() - began))
            nights = nights._replace(size_mb=_size_mb(tier, policy))
            runtime, took_ms = _woken(tier, policy, runtime, slept, number)
            nights.awake_ms.append(took_ms)
    finally:
        tier.forget(policy)
    return nights


def _woken(tier: Sandbox, policy: Policy, runtime: Runtime, slept: Slept, number: int) -> tuple[Runtime, float]:
    """Where it lives then, and how long it took until it answered, in ms."""
    began = time.perf_counter()
    runtime = tier.resume(policy, runtime, slept)
    with contextlib.closing(Channel(runtime.socket)) as inside:
        ran = inside.run("python", "held += 1; print(held)", timeout_s=ANSWER_S)
    took_ms = 1000 * (time.perf_counter() - began)
    if ran.stdout != f"{number + 1}\n":
        raise SandboxError("nothing was measured", f"what it held is lost: {ran.stdout or ran.stderr}")
    return runtime, took_ms


def _size_mb(tier: Sandbox, policy: Policy) -> float:
    assert isinstance(tier, MicroVm | Gvisor)
    snapshot = tier.kept(policy)
    return snapshot.size_bytes / 1e6 if snapshot else 0.0


def _figure(name: str, times: Sequence[float], target: float | None, note: str) -> Figure:
    return Figure(
        name=name,
        value=percentile(times, 0.5),
        unit="ms",
        target=target,
        samples=len(times),
        note=f"p95 {percentile(times, 0.95):.0f} ms; {note}",
    )
