"""Starts the demo's agents: real sessions, created through the same operations that a user uses."""

import asyncio
import os
import signal
from collections.abc import Sequence
from typing import Final

from kasmon.config import Config
from kasmon.demo import plan, sandboxes
from kasmon.demo.cast import PLAN, DemoAgent, cast
from kasmon.errors import KasmonError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.session_operations import create

AT_ONCE = 4
"""How many sessions are started in parallel: starting a host occupies a core."""
NEVER_READY_S = 1.5
"""The timeout for an agent whose start never completes, in seconds."""
FULL: Final = 12
"""With at least this many agents, the demo also has a plan and sandboxes."""


async def start_demo(
    paths: Paths, agents: int, seed: int, *, with_sandboxes: bool = False, fleet: bool = False
) -> list[str]:
    """Start *agents* agents, the plan and the sandboxes; return an error message for each failed start.

    With *fleet*, the agents are on three machines, and there are no plan and no sandboxes.
    """
    if fleet:
        from kasmon.demo.fleet import start_fleet  # it populates each machine

        return await start_fleet(paths, agents, seed)
    failures = await populate(paths, cast(agents), seed)
    if agents >= FULL:
        try:
            await asyncio.to_thread(plan.begin, paths)
        except KasmonError as error:
            failures.append(f"{plan.FILE}: {error}")
    if with_sandboxes and agents >= FULL:
        failures += await sandboxes.begin(paths)
    return failures


async def populate(paths: Paths, parts: Sequence[DemoAgent], seed: int) -> list[str]:
    """Start all *parts* independently of each other; return an error message for each failed start."""
    turn = asyncio.Semaphore(AT_ONCE)
    starting: dict[str, asyncio.Task[SessionId]] = {}

    async def start(number: int, part: DemoAgent) -> SessionId:
        parent = await starting[part.parent] if part.parent else None
        others = [task for name, task in starting.items() if name != part.name]
        if part.fate == "never ready" and others:
            # its host must be up within the limit: the first of all takes longest
            await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        async with turn, asyncio.timeout(NEVER_READY_S if part.fate == "never ready" else None):
            session = await create(paths, Config(), build_session_request(part, seed + number, paths, parent))
        if part.fate == "host killed" and (pid := lock_holder(paths.host_lock(session))):
            os.kill(pid, signal.SIGKILL)  # as in a crash, so that the session shows as lost
        return session

    for number, part in enumerate(parts):
        starting[part.name] = asyncio.create_task(start(number, part))
    ended = zip(starting, await asyncio.gather(*starting.values(), return_exceptions=True), strict=True)
    errors = ((name, error) for name, error in ended if isinstance(error, BaseException))
    return [f"{name}: {error}" for name, error in errors if not isinstance(error, TimeoutError)]  # its host still runs


def build_session_request(part: DemoAgent, seed: int, paths: Paths, parent: SessionId | None) -> NewSession:
    return NewSession(
        name=part.name,
        agent="scripted" if part.script else part.agent,
        mode=Mode(part.mode),
        argv=part.argv,
        workdir=str(paths.state.parent.parent),
        prompt=part.script,
        parent=parent,
        task=part.task,
        wave=part.wave,
        peers=part.peers,
        plan=PLAN if part.wave is not None else None,
        seed=seed,
    )
