"""The keys of the session list on an agent that lost its host, was stopped by a signal, or is lost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from textual.pilot import Pilot

from kasmon.model.commands import Mode
from kasmon.model.evidence import STOPPED_BY
from kasmon.model.session import HostProbe, Session
from kasmon.model.session_state import SessionState
from kasmon.supervisor.fleet.liveness import AGENT_LEFT, HOST_GONE
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.operations import Operations
from kasmon.tui.theme.look import news
from tests.support.dashboard_scenes import kasmon, run_app
from tests.support.sample_fleet import NOW, StillClock, fleet, session
from tests.support.tui.fake_gateway import Call, FakeGateway, called, text_of
from tests.support.wait import auntil

ORPHAN = session("docs", SessionState.UNSURE, unsure_why=f"{AGENT_LEFT} (pid 7)", host=HostProbe(pid=None, alive=False))


@asynccontextmanager
async def shown(one: Session) -> AsyncIterator[Pilot[None]]:
    app = kasmon(fleet(one))
    async with run_app(app, notifications=True) as pilot:
        yield pilot


async def calls(pilot: Pilot[Any]) -> list[Call]:
    world = cast(FakeGateway, cast(Kasmon, pilot.app).gateway)
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


async def test_capital_r_restarts_an_agent_that_lost_its_host() -> None:
    async with shown(ORPHAN) as pilot:
        await pilot.press("R")

        assert [called(Operations.restart, ORPHAN.id)] == await calls(pilot)


@pytest.mark.parametrize("why", [HOST_GONE, "the tmux server is gone"])
def test_the_row_of_a_lost_session_says_why_it_is_lost(why: str) -> None:
    assert (why, "state-lost") == news(session("docs", SessionState.LOST, end_why=why), NOW)[0]
