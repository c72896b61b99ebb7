"""Measures sandboxes with memory snapshots: creation, pause to disk and resume; and five microVMs at once.

A resume is timed until the microVM answers, since restored memory without an answer proves nothing.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple

from kasmon.bench.support.figure import Figure, percentile, timed, took_ms
from kasmon.bench.support.fleet import scratch, session_id
from kasmon.bench.support.process_cost import memory_mb
from kasmon.errors import KasmonError, SandboxError
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime
from kasmon.sandbox.base import PauseResult
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.managed.sandbox import PREWARMED
from kasmon.sandbox.microvm import qemu_program
from kasmon.sandbox.microvm.machine import STARTED, MicroVm

AT_ONCE: Final = 5
ANSWER_S: Final = 60.0


class SnapshotCycles(NamedTuple):
    """The measurements of one sandbox that was repeatedly paused to disk and resumed."""

    to_sleep_ms: list[float]
    awake_ms: list[float]
    size_mb: float
    """The size of its memory on disk, at the last pause."""


def measure_boot(rounds: int) -> Figure:
    """Measure a microVM that is booted without a snapshot: until the guest answers."""
    with _tier() as vm:
        times = _time_creation(lambda policy: vm.create(policy, is_copy=False), vm, rounds)
    return _figure("a microVM starts and answers, p50", times, None, describe_accelerator(vm))


def measure_copy(rounds: int) -> Figure:
    """Measure a microVM that is a copy of the warm one: until the guest answers."""
    with _tier() as vm:
        times = _time_creation(_build_copier(vm), vm, rounds)
    return _figure("a microVM is copied from a warm one and answers, p50", times, 1500, describe_accelerator(vm))


def measure_pause(rounds: int) -> Figure:
    """Measure a microVM with a python and a bash, until its memory is on disk and it has no process."""
    with _tier() as vm:
        cycles = _run_cycles(vm, rounds)
    name, note = "a microVM is put on disk, p50", f"{cycles.size_mb:.0f} MB; {describe_accelerator(vm)}"
    return _figure(name, cycles.to_sleep_ms, 1000, note)


def measure_resume(rounds: int) -> Figure:
    """Measure its resume until its python answers with its earlier state."""
    with _tier() as vm:
        cycles = _run_cycles(vm, rounds)
    return _figure("a microVM wakes from disk and answers, p50", cycles.awake_ms, 1000, describe_accelerator(vm))


def measure_many(count: int = AT_ONCE) -> list[Figure]:
    """Measure *count* copies of the warm microVM, created at once: time until all answer, memory of each, failures."""
    with _tier() as vm:
        policies = [SandboxPolicy(session=session_id(number), tier="microvm") for number in range(count)]
        copies = _build_copier(vm)
        try:
            with ThreadPoolExecutor(count) as pool:
                began = time.perf_counter()
                made = list(pool.map(lambda policy: _or_why(copies, policy), policies))
                took_ms = 1000 * (time.perf_counter() - began)
            living = [each for each in made if isinstance(each, SandboxRuntime)]
            failures = [each for each in made if isinstance(each, str)]
            if not living:
                raise SandboxError("no microVM was made", failures[0])
            each_mb = sum(memory_mb(runtime.front or runtime.pid) for runtime in living) / len(living)
        finally:
            for policy in policies:
                vm.forget(policy)
    note = describe_accelerator(vm)
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


def describe_accelerator(vm: MicroVm) -> str:
    """Return which virtualisation of this machine a microVM uses."""
    return "KVM" if vm.provisioning.accelerator.startswith("kvm") else "emulated (TCG), without KVM"


@contextlib.contextmanager
def _tier() -> Iterator[MicroVm]:
    """Return the microVM tier of a scratch kasmon that is removed at the end. Raises `SandboxError`."""
    with scratch() as paths:
        yield MicroVm(paths)


def _build_copier(vm: MicroVm) -> Callable[[SandboxPolicy], SandboxRuntime]:
    """Return a function that creates a copy of the warm microVM, and fails if one was booted instead.

    Raises:
        SandboxError: if there is no suitable warm one, or no microVM can be created here.
    """
    if lack := qemu_program.lacking(vm.provisioning.program):
        raise SandboxError("no machine can be made", lack.why, lack.hint)
    none, hint = "there is no warm microVM to be copied", "`kasmon sandbox image build` makes a warm one."
    origin = vm.provisioning.warm_pool("default").origin(vm.provisioning.made_by)
    if origin.memory is None:
        raise SandboxError(none, origin.why or "none was put away", hint)

    def copy(policy: SandboxPolicy) -> SandboxRuntime:
        runtime = vm.create(policy)
        if started := next((notice for notice in runtime.notices if STARTED in notice), ""):
            raise SandboxError(none, started, hint)
        return runtime

    return copy


def _time_creation(make: Callable[[SandboxPolicy], SandboxRuntime], vm: MicroVm, rounds: int) -> list[float]:
    """Return how long the creation of each of *rounds* took, one after the other, in ms."""
    times = []
    for number in range(rounds):
        policy = SandboxPolicy(session=session_id(number), tier="microvm")
        try:
            times.append(took_ms(partial(make, policy)))
        finally:
            vm.forget(policy)
    return times


def _or_why(make: Callable[[SandboxPolicy], SandboxRuntime], policy: SandboxPolicy) -> SandboxRuntime | str:
    try:
        return make(policy)
    except KasmonError as error:
        return error.message


def _run_cycles(vm: MicroVm, rounds: int) -> SnapshotCycles:
    """Pause a microVM to disk and resume it, *rounds* times.

    Raises:
        SandboxError: if its memory is lost when it resumes.
    """
    policy, cycles = SandboxPolicy(session=session_id(0), tier="microvm"), SnapshotCycles([], [], 0.0)
    try:
        runtime = vm.create(policy)
        with contextlib.closing(GuestChannel(runtime.socket)) as channel:
            channel.prewarm(PREWARMED)
            channel.run("python", "held = 0", timeout_s=ANSWER_S)
        for number in range(rounds):
            began = time.perf_counter()
            slept = vm.pause(policy, runtime, to_disk=True)
            cycles.to_sleep_ms.append(1000 * (time.perf_counter() - began))
            snapshot = vm.kept(policy)
            cycles = cycles._replace(size_mb=snapshot.size_bytes / 1e6 if snapshot else 0.0)
            runtime, took_ms = _resume(vm, policy, runtime, slept, number)
            cycles.awake_ms.append(took_ms)
    finally:
        vm.forget(policy)
    return cycles


def _resume(
    vm: MicroVm, policy: SandboxPolicy, runtime: SandboxRuntime, slept: PauseResult, number: int
) -> tuple[SandboxRuntime, float]:
    """Resume the microVM; return its runtime, and how long it took until it answered, in ms."""
    began = time.perf_counter()
    runtime = vm.resume(policy, runtime, slept)
    with contextlib.closing(GuestChannel(runtime.socket)) as channel:
        ran = channel.run("python", "held += 1; print(held)", timeout_s=ANSWER_S)
    took_ms = 1000 * (time.perf_counter() - began)
    if ran.stdout != f"{number + 1}\n":
        raise SandboxError("nothing was measured", f"what it held is lost: {ran.stdout or ran.stderr}")
    return runtime, took_ms


def _figure(name: str, times: Sequence[float], target: float | None, note: str) -> Figure:
    return timed(name, times, target, f"p95 {percentile(times, 0.95):.0f} ms; {note}")
