"""The acts on terminal sessions, with a real tmux and its host."""

import asyncio
from collections.abc import Callable

import pytest

from kasmon.config import Config
from kasmon.errors import KasmonError, SessionEndedError
from kasmon.host.alive import lock_holder
from kasmon.model.command import ReceiptState
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.state import ALIVE, SessionState
from kasmon.supervisor import verb
from kasmon.supervisor.derive import AGENT_ALIVE
from kasmon.supervisor.look import look_once
from kasmon.supervisor.verb import NewSession
from tests.supervisor.house import House, end
from tests.waiting import until

GREETS = ("sh", "-c", 'printf "hello %s\\n" "$WHO"; exec cat')


async def seen(house: House, session: str, condition: Callable[[Session], bool] = lambda now: True) -> Session:
    """The session once *condition* is true of it."""

    def look() -> Session | None:
        found = look_once(house.places).get(SessionId(session))
        return found if found is not None and condition(found) else None

    return await asyncio.to_thread(until, look, 20.0, f"a state of {session}")


async def terminal(house: House, name: str = "docs", parent: SessionId | None = None) -> Session:
    wanted = NewSession(name=name, argv=GREETS, workdir="/", environment=("WHO=world-of-tests",), parent=parent)
    session = await verb.create(house.places, Config(), wanted)
    return await seen(house, session, lambda now: now.exists)


async def test_a_terminal_session_is_told_things_read_and_looked_at(house: House) -> None:
    session = await terminal(house)

    receipt = await verb.send(house.places, session, "and more")
    assert ReceiptState.SUBMITTED is receipt.state
    shown: list[str] = []
    while shown.count("and more") < 2:
        shown = await verb.read(house.places, session)

    assert "hello world-of-tests" == shown[0]
    assert shown[:2] == await verb.read(house.places, session, 0, 1)
    pane = await verb.pane(house.places, session)
    assert (120, 40) == (pane.width, pane.height)
    assert str(house.places.tmux_socket) in await verb.attach_argv(house.places, session)


async def test_a_window_beside_another_is_a_child_with_a_log_of_its_own(house: House) -> None:
    parent = await terminal(house)
    child = await terminal(house, "beside", parent=parent.id)

    await verb.stop(house.places, child)

    assert parent.id == (await seen(house, child.id, lambda now: now.state is SessionState.ENDED)).parent
    assert (await seen(house, parent.id)).exists


async def test_a_terminal_is_stopped_renamed_restarted_and_forgotten(house: House) -> None:
    session = await terminal(house)
    await verb.stop(house.places, session)
    stopped = await seen(house, session.id)
    assert (SessionState.ENDED, True) == (stopped.state, stopped.stopped)
    await verb.rename(house.places, stopped, "papers")
    assert "papers" in await asyncio.to_thread(house.tmux, "list-panes", "-a", "-F", "#{window_name}")

    await verb.restart(house.places, await seen(house, session.id))
    again = await seen(house, session.id, lambda now: now.exists)
    assert (2, "papers") == (again.generation, again.name)
    await verb.stop(house.places, again)
    await verb.forget(house.places, await seen(house, session.id))

    assert "papers" not in await asyncio.to_thread(house.tmux, "list-panes", "-a", "-F", "#{window_name}")
    assert () == (await asyncio.to_thread(look_once, house.places)).sessions


async def test_when_the_tmux_host_is_killed_its_sessions_are_unsure_until_a_wish_brings_it_back(house: House) -> None:
    session = await terminal(house)
    host = await asyncio.to_thread(lock_holder, house.places.tmux_host_lock)
    await asyncio.to_thread(end, host or 0)

    # A host's last thread, and with it the lock, may outlive its main one by a moment.
    unsure = await seen(house, session.id, lambda now: now.host is not None and not now.host.alive)
    assert (SessionState.UNSURE, AGENT_ALIVE) == (unsure.state, unsure.unsure_why)
    await verb.send(house.places, unsure, "still there")

    back = await seen(house, session.id, lambda now: now.host is not None and now.host.alive)
    assert (session.pid, 1) == (back.pid, back.generation)
    assert AGENT_ALIVE != back.unsure_why


async def test_when_the_tmux_server_is_killed_its_sessions_are_lost_and_can_be_restarted(house: House) -> None:
    session = await terminal(house)
    server = await asyncio.to_thread(house.tmux, "display-message", "-p", "#{pid}")
    await asyncio.to_thread(end, int(server))

    lost = await seen(house, session.id, lambda now: now.state is SessionState.LOST)
    assert lost.end_why
    await verb.restart(house.places, lost)

    assert 2 == (await seen(house, session.id, lambda now: now.state in ALIVE)).generation


async def test_without_tmux_a_terminal_session_has_ended_and_says_why(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KASMON_TMUX", "/no/such/tmux")

    with pytest.raises(KasmonError, match="/no/such/tmux"):
        await verb.create(house.places, Config(), NewSession(name="docs", argv=GREETS, workdir="/"))

    [session] = (await asyncio.to_thread(look_once, house.places)).sessions
    assert SessionState.ENDED is session.state
    assert "/no/such/tmux" in session.end_why
    with pytest.raises(SessionEndedError):
        await verb.send(house.places, session, "hello")
