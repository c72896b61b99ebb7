"""The acts on terminal sessions, with a real tmux and its host."""

import asyncio
import sys
from collections.abc import Callable

import pytest

from kasmon.config import Config
from kasmon.config.schema import Profile
from kasmon.errors import KasmonError, SessionEndedError, TimedOutError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import ReceiptState
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState
from kasmon.supervisor.fleet.liveness import AGENT_ALIVE
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.fleet.wait import wait_for
from kasmon.supervisor.sessions import list_entry, session_operations
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.read import read
from tests.support.supervisor.env import Env, end
from tests.support.wait import until

pytestmark = pytest.mark.story

GREETS = ("sh", "-c", 'printf "hello %s\\n" "$WHO"; exec cat')


async def seen(env: Env, session: str, condition: Callable[[Session], bool] = lambda now: True) -> Session:
    """The session once *condition* is true of it."""

    def look() -> Session | None:
        found = read_fleet(env.paths).get(SessionId(session))
        return found if found is not None and condition(found) else None

    return await asyncio.to_thread(until, look, what=f"a state of {session}")


async def terminal(env: Env, name: str = "docs", parent: SessionId | None = None) -> Session:
    wanted = NewSession(name=name, argv=GREETS, workdir="/", environment=("WHO=world-of-tests",), parent=parent)
    session = await session_operations.create(env.paths, Config(), wanted)
    return await seen(env, session, lambda now: now.exists)


async def test_a_terminal_session_is_prompted_read_and_captured(env: Env) -> None:
    session = await terminal(env)

    assert ReceiptState.SUBMITTED is (await session_operations.send(env.paths, session, "and more")).state
    shown: list[str] = []
    while shown.count("and more") < 2:
        shown = await read(env.paths, session)

    assert "hello world-of-tests" == shown[0]
    assert shown[:2] == await read(env.paths, session, 0, 1)
    pane = await session_operations.pane(env.paths, session)
    assert (120, 40) == (pane.width, pane.height)
    assert str(env.paths.tmux_socket) in await session_operations.attach_argv(env.paths, session)


async def test_a_window_beside_another_is_a_child_with_a_log_of_its_own(env: Env) -> None:
    parent = await terminal(env)
    child = await terminal(env, "beside", parent=parent.id)

    await session_operations.stop(env.paths, child)

    assert parent.id == (await seen(env, child.id, lambda now: now.state is SessionState.ENDED)).parent
    assert (await seen(env, parent.id)).exists


async def test_a_terminal_is_stopped_renamed_restarted_and_removed(env: Env) -> None:
    session = await terminal(env)
    await session_operations.stop(env.paths, session)
    stopped = await seen(env, session.id)
    assert (SessionState.ENDED, True) == (stopped.state, stopped.stopped)
    await list_entry.rename(env.paths, stopped, "papers")
    assert "papers" in await asyncio.to_thread(env.tmux, "list-panes", "-a", "-F", "#{window_name}")

    await session_operations.restart(env.paths, await seen(env, session.id))
    again = await seen(env, session.id, lambda now: now.exists)
    assert (2, "papers") == (again.generation, again.name)
    await session_operations.stop(env.paths, again)
    await list_entry.forget(env.paths, await seen(env, session.id))

    assert "papers" not in await asyncio.to_thread(env.tmux, "list-panes", "-a", "-F", "#{window_name}")
    assert () == (await asyncio.to_thread(read_fleet, env.paths)).sessions


async def test_when_the_tmux_host_is_killed_its_sessions_are_unsure_until_a_command_restarts_it(env: Env) -> None:
    session = await terminal(env)
    host = await asyncio.to_thread(lock_holder, env.paths.tmux_host_lock)
    await asyncio.to_thread(end, host or 0)

    # A host's last thread, and with it the lock, may outlive its main one by a moment.
    unsure = await seen(env, session.id, lambda now: now.host is not None and not now.host.alive)
    assert (SessionState.UNSURE, AGENT_ALIVE) == (unsure.state, unsure.unsure_why)
    await session_operations.send(env.paths, unsure, "still there")

    back = await seen(env, session.id, lambda now: now.host is not None and now.host.alive)
    assert (session.pid, 1) == (back.pid, back.generation)
    assert AGENT_ALIVE != back.unsure_why


async def test_when_the_tmux_server_is_killed_its_sessions_are_lost_and_can_be_restarted(env: Env) -> None:
    session = await terminal(env)
    server = await asyncio.to_thread(env.tmux, "display-message", "-p", "#{pid}")
    await asyncio.to_thread(end, int(server))

    lost = await seen(env, session.id, lambda now: now.state is SessionState.LOST)
    assert lost.end_why
    await session_operations.restart(env.paths, lost)

    assert 2 == (await seen(env, session.id, lambda now: now.state in ALIVE)).generation


async def test_without_tmux_a_terminal_session_has_ended_with_the_reason(
    env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KASMON_TMUX", "/no/such/tmux")

    with pytest.raises(KasmonError, match="/no/such/tmux"):
        await session_operations.create(env.paths, Config(), NewSession(name="docs", argv=GREETS, workdir="/"))

    [session] = (await asyncio.to_thread(read_fleet, env.paths)).sessions
    assert SessionState.ENDED is session.state
    assert "/no/such/tmux" in session.end_why
    with pytest.raises(SessionEndedError):
        await session_operations.send(env.paths, session, "hello")


SPEAKER = """
import os, sys, time, tty
tty.setraw(0)
def say(state): os.write(1, b"\\x1b]7501;state=%s\\x07" % state)
say(b"working" if "busy" in sys.argv else b"idle")
while data := os.read(0, 65536):
    if b"\\x03" in data and "obeys" in sys.argv: say(b"idle")
    if b"\\x03" in data and "falls-silent" in sys.argv: say(b"clear")
    if b"\\r" in data:
        while not os.path.exists(sys.argv[1]): time.sleep(0.02)
        say(b"working")
        time.sleep(0.3)
        say(b"idle")
"""
"""A program that reports its state: it begins a turn at Enter, once a file is there; `obeys` an interrupt, or not."""


@pytest.mark.parametrize("obeys", [True, False])
async def test_only_a_turn_that_has_ended_is_reported_as_interrupted(
    env: Env, monkeypatch: pytest.MonkeyPatch, obeys: bool
) -> None:
    monkeypatch.setattr(session_operations, "INTERRUPT_S", 20.0 if obeys else 0.3)
    argv = (sys.executable, "-c", SPEAKER, "nothing", "busy", *(["obeys"] if obeys else []))
    id_ = await session_operations.create(env.paths, Config(), NewSession(name="docs", argv=argv, workdir="/"))
    session = await seen(env, id_, lambda now: now.state is SessionState.WORKING and now.source == "program")

    if obeys:
        assert "interrupted" == await session_operations.interrupt(env.paths, session)
        session = await seen(env, id_, lambda now: now.state is SessionState.IDLE)
        assert "no turn was running" == await session_operations.interrupt(env.paths, session)
    else:
        with pytest.raises(TimedOutError, match="was interrupted but is still working"):
            await session_operations.interrupt(env.paths, session)


async def test_in_an_unknown_state_after_an_interrupt_the_end_of_the_turn_is_unknown_too(
    env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_operations, "INTERRUPT_S", 1.0)
    argv = (sys.executable, "-c", SPEAKER, "nothing", "busy", "falls-silent")
    config = Config(agents={"speaker": Profile(program=sys.executable)})
    new = NewSession(name="docs", agent="speaker", argv=argv, workdir="/")
    id_ = await session_operations.create(env.paths, config, new)
    session = await seen(env, id_, lambda now: now.state is SessionState.WORKING and now.source == "program")

    assert session_operations.END_UNKNOWN == await session_operations.interrupt(env.paths, session)
    assert SessionState.UNSURE is (await seen(env, id_, lambda _: True)).state


async def test_a_prompt_just_sent_is_waited_for_though_the_agent_is_still_idle(env: Env) -> None:
    go = env.folder / "go"
    argv = (sys.executable, "-c", SPEAKER, str(go))
    id_ = await session_operations.create(env.paths, Config(), NewSession(name="docs", argv=argv, workdir="/"))
    session = await seen(env, id_, lambda now: now.state is SessionState.IDLE)
    receipt = await session_operations.send(env.paths, session, "now")
    assert SessionState.IDLE is (await seen(env, id_, lambda _: True)).state
    waiting = asyncio.create_task(wait_for(env.paths, [id_], {SessionState.IDLE}, timeout_s=20))
    done, _ = await asyncio.wait([waiting], timeout=0.3)
    assert not done
    go.touch()

    [idle] = await waiting
    assert ReceiptState.FINISHED is next(one.state for one in idle.receipts if one.id == receipt.id)
