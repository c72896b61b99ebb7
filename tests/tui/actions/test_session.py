"""The keys of the session list on an agent that lost its host, was stopped by a signal, or is lost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from textual.pilot import Pilot

from kasmon.model.commands import ActingAgent, Mode
from kasmon.model.evidence import STOPPED_BY
from kasmon.model.session import HostProbe, Session
from kasmon.model.session_state import SessionState
from kasmon.supervisor.fleet.liveness import AGENT_LEFT, HOST_GONE
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.operations import Operations
from kasmon.tui.gateway.protocol import MemoryUse
from kasmon.tui.theme.look import news
from tests.support.dashboard_scenes import kasmon, run_app
from tests.support.sample_fleet import NOW, StillClock, fleet, session
from tests.support.tui.fake_gateway import Call, called, gateway_of, text_of
from tests.support.wait import auntil

ORPHAN = session("docs", SessionState.UNSURE, unsure_why=f"{AGENT_LEFT} (pid 7)", host=HostProbe(pid=None, alive=False))


@asynccontextmanager
async def shown(*sessions: Session) -> AsyncIterator[Pilot[None]]:
    async with run_app(kasmon(fleet(*sessions)), notifications=True) as pilot:
        yield pilot


async def calls(pilot: Pilot[Any]) -> list[Call]:
    world = gateway_of(pilot.app)
    await auntil(lambda: world.calls, what="a command")
    return world.calls


@pytest.mark.parametrize("why", STOPPED_BY.values())
async def test_u_continues_an_agent_that_a_stop_signal_stopped(why: str) -> None:
    stopped = session("docs", SessionState.UNSURE, mode=Mode.TMUX, backend="tmux", unsure_why=why)
    async with shown(stopped) as pilot:
        await pilot.press("u")

        assert [called(Operations.continue_stopped, stopped.id)] == await calls(pilot)


async def test_x_stops_an_agent_that_lost_its_host() -> None:
    async with shown(ORPHAN) as pilot:
        await pilot.press("x")
        await auntil(lambda: "Stop docs?" in text_of(pilot.app))
        cast(StillClock, cast(Kasmon, pilot.app).clock).ticked += 1.0
        await pilot.press("y")

        assert [called(Operations.stop, ORPHAN.id)] == await calls(pilot)


@pytest.mark.parametrize(("key", "more"), [("y", {}), ("a", {"with_children": True})])
async def test_x_asks_whether_the_children_of_a_session_are_stopped_too(key: str, more: dict[str, bool]) -> None:
    lead = session("lead", SessionState.IDLE, mode=Mode.SDK, created_at=1.0)
    actor = ActingAgent(session=lead.id, depth=0)
    child = session("child", SessionState.WORKING, mode=Mode.SDK, parent=lead.id, actor=actor)
    over = session("over", SessionState.ENDED, mode=Mode.SDK, parent=lead.id, actor=actor)
    async with shown(lead, child, over) as pilot:
        await pilot.press("x")
        await auntil(lambda: "Its agent started child." in text_of(pilot.app))
        assert "stop it alone" in text_of(pilot.app)
        assert "stop them too" in text_of(pilot.app)
        cast(StillClock, cast(Kasmon, pilot.app).clock).ticked += 1.0
        await pilot.press(key)

        assert [called(Operations.stop, lead.id, **more)] == await calls(pilot)


async def test_a_stops_nothing_where_there_are_no_children() -> None:
    async with shown(session("docs", SessionState.IDLE, mode=Mode.SDK)) as pilot:
        await pilot.press("x")
        await auntil(lambda: "Stop docs?" in text_of(pilot.app))
        cast(StillClock, cast(Kasmon, pilot.app).clock).ticked += 1.0
        await pilot.press("a")
        await pilot.pause()
        assert "Stop docs?" in text_of(pilot.app)
        assert [] == gateway_of(pilot.app).calls


async def test_capital_r_restarts_an_agent_that_lost_its_host() -> None:
    async with shown(ORPHAN) as pilot:
        await pilot.press("R")

        assert [called(Operations.restart, ORPHAN.id)] == await calls(pilot)


@pytest.mark.parametrize("why", [HOST_GONE, "the tmux server is gone"])
def test_the_row_of_a_lost_session_gives_the_reason(why: str) -> None:
    assert (why, "state-lost") == news(session("docs", SessionState.LOST, end_why=why), NOW)[0]


HIBERNATED = session("docs", SessionState.HIBERNATED, mode=Mode.SDK, freed_bytes=312_000_000, resume_id="one")


async def test_b_hibernates_and_enter_resumes() -> None:
    idle = session("docs", SessionState.IDLE, mode=Mode.SDK, resume_id="one")
    async with shown(idle) as pilot:
        await pilot.press("b")
        assert [called(Operations.hibernate, idle.id)] == await calls(pilot)
    async with shown(HIBERNATED) as pilot:
        await auntil(lambda: "hibernated, 312 MB freed" in text_of(pilot.app))
        await pilot.press("enter")
        assert [called(Operations.restart, HIBERNATED.id)] == await calls(pilot)


async def test_above_the_memory_budget_the_sessions_that_are_idle_the_longest_are_proposed_once() -> None:
    young, old = (
        session(name, SessionState.IDLE, mode=Mode.SDK, resume_id=name, since=NOW - ago)
        for name, ago in (("young", 60), ("old", 3600))
    )
    app = kasmon(fleet(young, old))
    over = MemoryUse(total_bytes=9_100_000_000, budget_bytes=8_000_000_000, proposed=(old.id,))
    gateway_of(app).measured = (over, over)
    async with run_app(app, notifications=True) as pilot:
        await auntil(lambda: "9.1 GB of 8.0 GB" in text_of(app))
        [message] = [note.message for note in app._notifications]
        assert "Agents use 9.1 GB of 8.0 GB memory. K hibernates those idle for the longest time: old." == message
        await pilot.press("K")
        await auntil(lambda: "Hibernate 1 session?" in text_of(app))
        cast(StillClock, app.clock).ticked += 1.0
        await pilot.press("y")

        assert [called(Operations.hibernate_all, [old.id])] == await calls(pilot)
