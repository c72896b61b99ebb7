"""How long an agent inside a jail is kept, by kasmon's own command line: its sleep, what wakes it, its end."""

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from kasmon.errors import HostUnreachableError
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.connect import open_link
from kasmon.host.rpc.frames import ExecuteCommand, Focus, SendKeys, Watch
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Mode, Prompt, ReceiptState
from kasmon.model.events import SandboxPhaseChanged, SessionEnded
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.process_identity import is_running, started_at
from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.shared.processes import tree
from kasmon.supervisor.fleet.snapshot import read_fleet
from tests.support.cli.cli_runner import Cli
from tests.support.sandbox.sandboxed_agents import (
    ACP,
    LIMIT_S,
    configured,
    facts,
    folder,
    killed_host,
    lined,
    seen,
    session_of,
    shows,
    standby_after,
    stands_still,
    started,
    until_state,
)
from tests.support.wait import until

pytestmark = pytest.mark.sandboxes
kasmon, workdir = pytest.fixture(lined), pytest.fixture(folder)
SLOW: Final = ACP.replace('result = {"stopReason"', 'exec(SLOWLY); result = {"stopReason"').replace(
    "for line in sys.stdin",
    "import os, time\nSLOWLY = \"while not os.path.exists('go'): time.sleep(0.01)\"\nfor line in sys.stdin",
)
"""An agent whose turns take until there is a file `go`."""
KILLS: Final = (
    ("pause", "before", "pausing"),
    ("pause", "after", "pausing"),
    ("resume", "before", "resuming"),
    ("resume", "after", "resuming"),
)
"""What the host is killed at, when, and what its log says then."""
DIES: Final = """
import os, signal, sys
from kasmon.backends.tmux.agent import TmuxAgent
from kasmon.host.terminal import host as terminals
from kasmon.sandbox.agent import launch as inmate
act, when = sys.argv[1:]
place = TmuxAgent if act == "end" else inmate
real = getattr(place, act)
def dies(*words, **named):
    if when == "after":
        real(*words, **named)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(place, act, dies)
sys.exit(terminals.main())
"""
"""The tmux host, which is killed just before or just after it does something to a sandbox."""


def steps(kasmon: Cli, session: SessionId) -> list[tuple[str, str]]:
    """What was noted of its sandbox, but for what comes when."""
    moves = facts(kasmon, session, SandboxPhaseChanged)
    return [(move.phase.value, move.step) for move in moves if move.used_at is None]


def slow_agent(kasmon: Cli, shared: Path, lifetime: str) -> tuple[str, ...]:
    """The words that start an agent whose turns take until there is a file `go`."""
    agent = shared / "agent.py"
    agent.write_text(SLOW)
    agent.chmod(0o644)
    profile = f'[agents.acp]\nprogram = "/usr/bin/python3"\nacp = ["{agent}"]\n'
    configured(kasmon, f'{profile}[agents.acp.confined]\nmounts = [{{source = "{agent}"}}]\n[session]\n{lifetime}')
    return ("--mode", "sdk")


def is_over(kasmon: Cli, session: SessionId) -> Any:
    until_state(kasmon, session, SessionState.ENDED)
    until(lambda: not (Jail(kasmon.paths).host_folders.of(session) / "own").exists(), LIMIT_S, "all being cleared up")
    return session_of(kasmon, session)


def test_an_unused_sandbox_is_paused_then_ended_without_a_crash(kasmon: Cli, workdir: Path) -> None:
    standby_after(kasmon, 1.5, "idle_timeout_seconds = 3\n")
    session = started(kasmon, workdir)
    until(
        lambda: session_of(kasmon, session).sandbox_state and session_of(kasmon, session).sandbox_state.standby_at,
        LIMIT_S,
    )
    idle = session_of(kasmon, session)
    assert abs(idle.sandbox_state.standby_at - idle.since - 1.5) < 0.5
    assert abs(idle.sandbox_state.expires_at - idle.since - 3) < 0.5
    until_state(kasmon, session, SessionState.STANDBY)
    family = [(pid, started_at(pid)) for pid in tree(seen(kasmon, session).runtime.front)]  # type: ignore[union-attr]
    ended = is_over(kasmon, session)

    assert ("not used for 3 s", True, False) == (ended.end_why, ended.timed_out, ended.crashed)
    [end] = facts(kasmon, session, SessionEnded)
    assert abs(end.at - idle.sandbox_state.expires_at) < 1.5
    assert [("pausing", "intended"), ("paused", "confirmed"), ("expired", "intended")] == steps(kasmon, session)
    assert not any(is_running(pid, born) for pid, born in family)


def test_an_idle_agent_in_a_jail_is_paused_and_ends_only_if_the_config_sets_a_time(kasmon: Cli, workdir: Path) -> None:
    standby_after(kasmon, 0.5)
    session = started(kasmon, workdir)
    until_state(kasmon, session, SessionState.STANDBY)

    sandbox_state = session_of(kasmon, session).sandbox_state
    assert sandbox_state.pause_at is None
    assert abs(sandbox_state.expires_at - sandbox_state.born_at - 86_400) < 1


def test_a_structured_agent_is_paused_resumed_by_a_prompt_and_ends_only_after_its_turn(
    kasmon: Cli, workdir: Path, shared: Path
) -> None:
    more = slow_agent(
        kasmon, shared, "standby_after_seconds = 0.5\nidle_timeout_seconds = 0\nmax_lifetime_seconds = 4\n"
    )
    session = started(kasmon, workdir, *more, agent="acp")
    until_state(kasmon, session, SessionState.STANDBY)
    assert stands_still(session_of(kasmon, session).pid)
    until_at = session_of(kasmon, session).sandbox_state.expires_at
    assert abs(until_at - session_of(kasmon, session).sandbox_state.born_at - 4) < 0.1
    assert 0 == kasmon("send", session, "work").code
    until_state(kasmon, session, SessionState.WORKING)
    until(lambda: time.time() > until_at + 1, LIMIT_S)
    assert SessionState.WORKING is session_of(kasmon, session).state
    (workdir / "go").touch()
    ended = is_over(kasmon, session)

    assert ("maximum lifetime of 4 s reached", True, False) == (ended.end_why, ended.timed_out, ended.crashed)
    assert "done" == ended.turn_ended


async def sitting(kasmon: Cli, session: SessionId, do: Callable[[HostLink], Any]) -> None:
    host = await open_link(kasmon.paths, session, Mode.TMUX)
    try:
        await do(host)
    finally:
        await host.aclose()


def test_reading_does_not_resume_it_and_attaching_or_typing_does_without_losing_input(
    kasmon: Cli, workdir: Path
) -> None:
    """And it has the size of whoever sits at it, of which its program hears."""
    standby_after(kasmon, 600)
    session = started(kasmon, workdir)
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("send", session, "trap 'echo now $(stty size)' WINCH; echo rea''dy")
    shows(kasmon, session, "ready")
    until(lambda: session_of(kasmon, session).receipts[-1].state is ReceiptState.FINISHED)  # its shell was asked

    def sleeps() -> bool:
        return bool(session_of(kasmon, session).state is SessionState.STANDBY)

    async def story(host: HostLink) -> None:
        await asyncio.to_thread(kasmon, "sandbox", "pause", session)
        assert await asyncio.to_thread(sleeps)
        host.send(Watch(session=session, rate_hz=10))
        await asyncio.to_thread(kasmon, "read", session)  # it answers behind the look
        assert await asyncio.to_thread(sleeps)

        host.send(Focus(session=session, columns=77, rows=21))
        await asyncio.to_thread(shows, kasmon, session, "now 21 77")
        host.send(Focus(session=session, columns=90, rows=30))
        await asyncio.to_thread(shows, kasmon, session, "now 30 90")

        await asyncio.to_thread(kasmon, "sandbox", "pause", session)
        assert await asyncio.to_thread(sleeps)
        host.send(SendKeys(session=session, data=b"echo ty''ped\r"))
        await asyncio.to_thread(shows, kasmon, session, "typed")
        assert not await asyncio.to_thread(sleeps)

    asyncio.run(sitting(kasmon, session, story))
    assert 2 == steps(kasmon, session).count(("resuming", "intended"))


def test_without_resume_on_use_a_key_waits_until_it_is_resumed_by_hand(kasmon: Cli, workdir: Path) -> None:
    standby_after(kasmon, 600, "auto_resume = false\n")
    session = started(kasmon, workdir)
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("sandbox", "pause", session)

    async def story(host: HostLink) -> None:
        host.send(Focus(session=session, columns=77, rows=21))
        host.send(SendKeys(session=session, data=b"echo ty''ped\r"))
        await asyncio.to_thread(kasmon, "read", session)

    asyncio.run(sitting(kasmon, session, story))
    assert SessionState.STANDBY is session_of(kasmon, session).state
    assert 0 == kasmon("sandbox", "resume", session).code
    shows(kasmon, session, "typed")


async def hears_nothing(kasmon: Cli) -> None:
    """Give the host that is there a prompt, which wakes what it is for; it dies of that. No other host is begun."""
    host = await HostLink.open(kasmon.paths.tmux_host_socket)
    [session] = read_fleet(kasmon.paths).sessions
    with pytest.raises(HostUnreachableError):
        await host.ask(ExecuteCommand(n=0, session=session.id, command=Prompt(text="true")), LIMIT_S)
    await host.aclose()


def listens(kasmon: Cli) -> bool:
    """Whether a tmux host takes connections now."""
    with socket.socket(socket.AF_UNIX) as near:
        return near.connect_ex(str(kasmon.paths.tmux_host_socket)) == 0


def host_that_dies(kasmon: Cli, act: str, when: str) -> None:
    """Have a tmux host that is killed *when* it does *act*; returns once it is dead."""
    if lock_holder(kasmon.paths.tmux_host_lock) is not None:
        killed_host(kasmon)
    host = subprocess.Popen(
        [sys.executable, "-P", "-c", DIES, act, when], env=kasmon.environment, cwd="/", stdin=subprocess.DEVNULL
    )
    if act == "resume":
        until(lambda: lock_holder(kasmon.paths.tmux_host_lock) == host.pid and listens(kasmon), LIMIT_S)
        asyncio.run(hears_nothing(kasmon))
    assert -signal.SIGKILL == host.wait(LIMIT_S)


def test_a_host_killed_during_a_step_leaves_a_sandbox_that_the_next_one_completes(kasmon: Cli, workdir: Path) -> None:
    """Before and after each act; only between the intent and what confirms it."""
    never = "[session]\nstandby_after_seconds = 0\nidle_timeout_seconds = 0\nmax_lifetime_seconds = 0\n"
    configured(kasmon, never)
    session = started(kasmon, workdir)
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("send", session, "x=42; echo rea''dy")
    shows(kasmon, session, "ready")
    agent = session_of(kasmon, session).pid
    for count, (act, when, left) in enumerate(KILLS, 1):
        if act == "pause":
            configured(kasmon, never.replace("after_seconds = 0", "after_seconds = 0.2"))
        else:
            configured(kasmon, never)
            assert 0 == kasmon("sandbox", "pause", session).code
        host_that_dies(kasmon, act, when)
        assert (left, "intended") == steps(kasmon, session)[-1]
        assert ((act == "pause") is (when == "after")) is stands_still(agent)
        configured(kasmon, never)
        assert 0 == kasmon("send", session, f"clear; echo {act} {when} $x").code
        shows(kasmon, session, f"{act} {when} 42")
        assert ("running", "confirmed") == steps(kasmon, session)[-1]
        assert count == [move.why for move in facts(kasmon, session, SandboxPhaseChanged)].count("found again")

    configured(kasmon, never.replace("max_lifetime_seconds = 0", "max_lifetime_seconds = 1"))
    host_that_dies(kasmon, "end", "before")
    assert ("expired", "intended") == steps(kasmon, session)[-1]
    assert SessionState.ENDED is not session_of(kasmon, session).state
    kasmon("read", session)  # whoever wants something of it starts the next host
    ended = is_over(kasmon, session)
    assert ("maximum lifetime of 1 s reached", False) == (ended.end_why, ended.crashed)
    assert not Path(f"/proc/{agent}").exists()
