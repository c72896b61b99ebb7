"""Measures running code in a sandbox: directly in the guest, through its host, and in a paused sandbox."""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from typing import Final

from kasmon.bench.support.figure import Figure, percentile, timed
from kasmon.bench.support.fleet import scratch, session_id
from kasmon.config import Config
from kasmon.errors import SandboxError
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.connect import open_link
from kasmon.host.rpc.frames import CommandResult, ExecuteCommand
from kasmon.model.commands import Mode, Pause, Run, SandboxCommand
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import INTERPRETERS, Interpreter, SandboxPolicy
from kasmon.paths import Paths
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.jail.jail import Jail
from kasmon.supervisor.fleet.snapshot import read_session
from kasmon.supervisor.sandboxes import sandbox_operations
from kasmon.supervisor.sandboxes.create import NewSandbox

CODE: Final[dict[Interpreter, str]] = {"python": "x = 1", "bash": "x=1", "node": "x = 1"}
TARGETS: Final[dict[Interpreter, float]] = {"python": 1, "bash": 1, "node": 2}
SLOWEST_MS: Final = 10
WARM: Final = 20
LIMIT_S: Final = 60.0
NAME: Final = "measured"


def measure_runs(rounds: int) -> list[Figure]:
    """Measure trivial code, *rounds* times in each interpreter: from the request at the guest's socket to the reply."""
    figures: list[Figure] = []
    with _jail() as (_, _, guest):
        for interpreter in INTERPRETERS:
            times = _time_runs(guest, interpreter, rounds)
            figures += [
                timed(f"a run of {interpreter}, p50", times, TARGETS[interpreter]),
                timed(f"a run of {interpreter}, p95", times, SLOWEST_MS, share=0.95),
            ]
    return figures


def measure_standby(rounds: int) -> Figure:
    """Measure resuming a paused jail with all interpreters, until the first answer of its Python."""
    with _jail() as (jail, policy, guest):
        runtime = jail.adopt(policy)
        if runtime is None:
            raise SandboxError("nothing was measured", "the jail is gone")
        for interpreter in INTERPRETERS:
            _time_run(guest, interpreter)
        to_sleep: list[float] = []
        awake: list[float] = []
        for _ in range(rounds):
            began = time.perf_counter()
            slept = jail.pause(policy, runtime)
            to_sleep.append(1000 * (time.perf_counter() - began))
            time.sleep(0.05)
            began = time.perf_counter()
            jail.resume(policy, runtime, slept)
            _time_run(guest, "python")
            awake.append(1000 * (time.perf_counter() - began))
    note = f"p95 {percentile(awake, 0.95):.1f} ms; to pause it p50 {percentile(to_sleep, 0.5):.1f} ms"
    return timed("from paused to the first answer, p50", awake, 10, note)


def measure_host_runs(rounds: int, sleeps: int = 10) -> list[Figure]:
    """Measure the same in a session, as the dashboard and MCP run it; then in a paused one, which is healed first."""
    with scratch() as paths, _as_its_own(paths):
        return asyncio.run(_through_host(paths, rounds, sleeps))


async def _through_host(paths: Paths, rounds: int, sleeps: int) -> list[Figure]:
    session = await sandbox_operations.create(paths, Config(), NewSandbox(name=NAME))
    try:
        host = await open_link(paths, session, Mode.INTERPRETER)
        run = Run(interpreter="python", code=CODE["python"])
        for _ in range(WARM):
            await _time_command(host, session, run)
        times = [await _time_command(host, session, run) for _ in range(rounds)]
        woken = []
        for _ in range(sleeps):
            await _time_command(host, session, Pause())
            woken.append(await _time_command(host, session, run))
        await host.aclose()
    finally:
        await sandbox_operations.remove(paths, read_session(paths, session))
    note = f"p95 {percentile(times, 0.95):.1f} ms"
    late = f"p95 {percentile(woken, 0.95):.1f} ms; it was verified, healed and read before that"
    return [
        timed("a run of python through its host, p50", times, None, note),
        timed("a session wakes and answers, p50", woken, 100, late),
    ]


async def _time_command(host: HostLink, session: SessionId, command: SandboxCommand) -> float:
    """Execute *command* and return how long it took, in ms."""
    if isinstance(command, Run):
        command = Run(interpreter=command.interpreter, code=command.code, id=os.urandom(8).hex())
    began = time.perf_counter()
    done = await host.ask(ExecuteCommand(n=0, session=session, command=command), LIMIT_S)
    took_ms = 1000 * (time.perf_counter() - began)
    if not isinstance(done, CommandResult) or (done.ran is not None and done.ran.exit_code):
        raise SandboxError("nothing was measured", f"the host answers {done!r}")
    return took_ms


@contextlib.contextmanager
def _jail() -> Iterator[tuple[Jail, SandboxPolicy, GuestChannel]]:
    with scratch() as paths:
        jail, policy = Jail(paths), SandboxPolicy(session=session_id(0))
        try:
            with contextlib.closing(GuestChannel(jail.create(policy).socket)) as guest:
                yield jail, policy, guest
        finally:
            jail.forget(policy)


@contextlib.contextmanager
def _as_its_own(paths: Paths) -> Iterator[None]:
    """Make this process and its children use the kasmon of *paths* while the context lasts."""
    before = dict(os.environ)
    os.environ.update(paths.environment_variables())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _time_run(guest: GuestChannel, interpreter: Interpreter) -> float:
    """Run trivial code and return how long it took, in ms."""
    began = time.perf_counter()
    ran = guest.run(interpreter, CODE[interpreter], timeout_s=LIMIT_S)
    if ran.exit_code:
        raise SandboxError(f"{interpreter} was not measured", ran.stderr.strip() or str(ran.exit_code))
    return 1000 * (time.perf_counter() - began)


def _time_runs(guest: GuestChannel, interpreter: Interpreter, rounds: int) -> list[float]:
    """Return the duration of each of *rounds* in ms, after a warm-up."""
    for _ in range(WARM):
        _time_run(guest, interpreter)
    return [_time_run(guest, interpreter) for _ in range(rounds)]
