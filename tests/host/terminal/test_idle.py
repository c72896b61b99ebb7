"""The tmux host goes when nobody needs it, never while somebody does, and nobody who comes at that moment notices."""

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import AsyncIterator

import pytest

from kasmon.errors import HostUnreachableError
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.connect import open_link
from kasmon.host.rpc.frames import CommandResult, ExecuteCommand, Quit, StartSession
from kasmon.host.rpc.host_lock import HostLock, lock_holder
from kasmon.host.rpc.server import HostServer
from kasmon.host.terminal.host import HostIdleTimer, TmuxHost
from kasmon.model.commands import Mode, Stop
from kasmon.model.events import SessionEnded
from kasmon.model.permission import SessionId
from tests.support.host.tmux_env import TmuxEnv, sh
from tests.support.wait import auntil

ME = "abcdefgh"
LIMIT_S = 60.0

pytestmark = [pytest.mark.story, pytest.mark.usefixtures("in_tmux_env")]


# The rule


def test_a_host_is_idle_once_it_was_unused_for_the_limit() -> None:
    idleness = HostIdleTimer(LIMIT_S, now=100)

    assert not idleness.is_over(False, 159)
    assert idleness.is_over(False, 160)
    assert not idleness.is_over(True, 170)
    assert not idleness.is_over(False, 229)
    idleness.record_use(229)
    assert not idleness.is_over(False, 288)
    assert idleness.is_over(False, 289)


# The host, in this process; its looks are quick, and its clock stands still until the test moves it.


class Waiting:
    """A host that looks every few milliseconds whether a minute has passed, on a clock of the test's own."""

    def __init__(self, tmux: TmuxEnv) -> None:
        self.at, self.looks = 1000.0, 0
        self.host = TmuxHost(tmux.paths, idle_s=0.02, clock=self._clock)
        self.host._idleness = HostIdleTimer(LIMIT_S, self.at)
        self.running = asyncio.create_task(self.host.run())

    def _clock(self) -> float:
        self.looks += 1
        return self.at

    async def goes_on(self, seconds: float) -> bool:
        """Whether it still serves when *seconds* have passed and it has looked a few times."""
        self.at += seconds
        looked = self.looks
        await auntil(lambda: self.running.done() or self.looks > looked + 3)
        return not self.running.done()


@pytest.fixture
async def waiting(tmux: TmuxEnv) -> AsyncIterator[Waiting]:
    lock = HostLock(tmux.paths.tmux_host_lock)
    assert lock.acquire()
    made = Waiting(tmux)
    await auntil(lambda: made.running.done() or tmux.listens(os.getpid()))
    yield made
    made.host.end()
    await asyncio.wait([made.running], timeout=20)
    lock.let_go()
    await made.running


async def test_an_idle_host_ends(tmux: TmuxEnv, waiting: Waiting) -> None:
    assert await waiting.goes_on(0)
    assert await waiting.goes_on(LIMIT_S - 1)
    assert not await waiting.goes_on(1)
    assert not tmux.paths.tmux_host_socket.exists()


async def test_it_stays_while_a_client_is_there(tmux: TmuxEnv, waiting: Waiting) -> None:
    async with tmux.client():
        assert await waiting.goes_on(10 * LIMIT_S)
    assert await waiting.goes_on(0)
    assert await waiting.goes_on(LIMIT_S - 1)
    assert not await waiting.goes_on(1)


async def test_it_stays_while_an_agent_runs(tmux: TmuxEnv, waiting: Waiting) -> None:
    async with tmux.client() as client:
        await tmux.run(client, ME, "cat")
    assert await waiting.goes_on(0)
    assert await waiting.goes_on(10 * LIMIT_S)

    async with tmux.client() as client:
        await client.ask(ExecuteCommand(n=0, session=SessionId(ME), command=Stop(grace_s=0)))
        await tmux.ended(ME)
    assert await waiting.goes_on(0)
    assert await waiting.goes_on(LIMIT_S - 1)
    assert not await waiting.goes_on(1)


# At the moment of its end


async def test_a_client_that_connects_while_it_closes_is_served_or_refused(tmux: TmuxEnv) -> None:
    """Whatever the loop does in between: nobody is greeted who is not heard."""
    served = 0
    for ticks in range(30):
        path = tmux.paths.runtime / f"{ticks}.sock"
        server = HostServer(
            path, lambda connection, frame: CommandResult(n=2) if isinstance(frame, Quit) else None, lost
        )
        await server.start()
        opening = asyncio.create_task(HostLink.open(path))
        for _ in range(ticks):
            await asyncio.sleep(0)
        if server.is_busy:
            client = await opening
            assert isinstance(await client.ask(Quit(n=0)), CommandResult)
            await client.aclose()
            served += 1
        else:
            await server.aclose()
            with pytest.raises(HostUnreachableError):
                await opening
        await server.aclose()

    assert 0 < served < 30


def lost(connection: object) -> None:
    """Nobody minds."""


# Hosts as processes


def hasty(tmux: TmuxEnv, idle_s: float) -> str:
    """A Python in the place of ours whose tmux hosts go after *idle_s*."""
    program = tmux.root / "hasty"
    program.write_text(
        f"#!{sys.executable} -P\n"
        "from kasmon.host.terminal import host as terminals\n"
        f"terminals.TmuxHost.__init__.__kwdefaults__['idle_s'] = {idle_s}\n"
        "import sys; terminals.main(int(sys.argv[-1]))\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


async def test_the_output_of_an_agent_can_be_read_after_its_host_has_exited(
    tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", hasty(tmux, 1.0))
    launch = tmux.wants(ME, *sh("echo all of it; exit 3"))
    async with contextlib.aclosing(await open_link(tmux.paths, launch.session, Mode.TMUX)) as client:
        await client.ask(StartSession(n=0, session=launch.session), limit_s=40)
        await tmux.ended(ME)
    await auntil(lambda: lock_holder(tmux.paths.tmux_host_lock) is None, what="the host's end")

    assert tmux.facts(ME)
    async with contextlib.aclosing(await open_link(tmux.paths, launch.session, Mode.TMUX)) as client:
        assert "all of it" in await tmux.text(client, ME)
    assert 1 == len(tmux.only(SessionEnded, launch.session))


async def test_a_client_that_connects_at_its_end_gets_the_next_host(
    tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", hasty(tmux, 0.4))
    hosts = []
    for number in range(4):
        launch = tmux.wants(f"aaaaaaa{chr(97 + number)}", "true")
        async with contextlib.aclosing(await open_link(tmux.paths, launch.session, Mode.TMUX)) as client:
            await client.ask(StartSession(n=0, session=launch.session), limit_s=40)
            await tmux.ended(launch.session)
            hosts.append(client.welcome.pid)
        await auntil(lambda: not tmux.paths.tmux_host_socket.exists(), what="the end of its socket")

    assert len(set(hosts)) == len(hosts)
    await auntil(lambda: lock_holder(tmux.paths.tmux_host_lock) is None, what="the last host's end")
