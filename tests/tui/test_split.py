"""The divider between list and preview is dragged with the mouse, and stays where it was put."""

import asyncio
from collections.abc import AsyncGenerator
from typing import cast

import pytest
from textual import events
from textual.pilot import Pilot

from kasmon.paths import user_paths
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.live.gateway import LiveGateway
from kasmon.tui.gateway.operations import Operations
from kasmon.tui.gateway.protocol import DashboardSettings, Split
from tests.support.dashboard_scenes import kasmon, run_app, settled
from tests.support.sample_fleet import fleet, idle, working
from tests.support.tui.fake_gateway import gateway_of
from tests.support.wait import auntil

WIDE, LOW = (160, 45), (100, 40)


def shown(split: Split | None = None) -> Kasmon:
    settings = None if split is None else DashboardSettings(split=split)
    return kasmon(fleet(working("docs"), idle("readme")), settings=settings)


async def drag(pilot: Pilot[None], *way: tuple[int, int]) -> None:
    """Press the left button where *way* begins, and let it go at its end."""
    await pilot.mouse_down(offset=way[0])
    for place in way[1:]:
        await pilot._post_mouse_events([events.MouseMove], offset=place, button=1)
    await pilot.mouse_up(offset=way[-1])
    await pilot.pause()


def divider(app: Kasmon) -> tuple[int, int]:
    preview = app.main_view.preview.region
    return (preview.x, preview.y + 3) if app.main_view.has_class("-beside") else (20, preview.y)


def saved(app: Kasmon) -> list[Split]:
    return gateway_of(app).passed(Operations.save_split, "split")


async def test_the_divider_beside_the_list_is_dragged_and_its_position_is_saved() -> None:
    async with run_app(app := shown(), WIDE) as pilot:
        _, y = divider(app)
        await drag(pilot, divider(app), (80, y), (64, y))
        await settled(pilot)

        assert (64, 96) == (app.main_view.side.region.width, app.main_view.preview.region.width)
        assert [Split(width=40)] == saved(app)

    async with run_app(again := shown(Split(width=40)), WIDE) as pilot:
        assert (64, 96) == (again.main_view.side.region.width, again.main_view.preview.region.width)


async def test_the_divider_below_the_list_is_dragged_and_its_position_is_saved() -> None:
    async with run_app(app := shown(), LOW) as pilot:
        await drag(pilot, divider(app), (20, 10), (20, 20))
        await settled(pilot)

        assert (20, 19) == (app.main_view.preview.region.y, app.main_view.side.region.height)
        assert [Split(height=50)] == saved(app)

    async with run_app(again := shown(Split(height=50)), LOW) as pilot:
        assert 20 == again.main_view.preview.region.y


@pytest.mark.parametrize("to", [0, 159])
async def test_neither_side_can_be_dragged_to_nothing(to: int) -> None:
    async with run_app(app := shown(), WIDE) as pilot:
        _, y = divider(app)
        await drag(pilot, divider(app), (to, y))
        await settled(pilot)

        assert app.main_view.side.region.width >= 40
        assert app.main_view.preview.region.width >= 30


async def test_a_drag_that_begins_elsewhere_and_a_session_in_focus_move_nothing() -> None:
    async with run_app(app := shown(Split(width=40)), WIDE) as pilot:
        await drag(pilot, (30, 20), (100, 20))
        assert 64 == app.main_view.side.region.width
        await pilot.press("enter")
        await settled(pilot)
        assert 160 == app.main_view.preview.region.width
        await drag(pilot, (0, 20), (100, 20))
        await pilot.press("escape")
        await settled(pilot)

        assert (64, 96) == (app.main_view.side.region.width, app.main_view.preview.region.width)
        assert [] == saved(app)


async def test_without_a_preview_the_list_has_the_whole_width() -> None:
    async with run_app(app := shown(Split(width=40)), WIDE) as pilot:
        await pilot.press("space")
        await settled(pilot)

        assert 160 == app.main_view.side.region.width


async def test_settings_that_load_after_the_start_apply() -> None:
    """A real kasmon reads them after the first picture."""
    app = shown()
    gateway_of(app).kept.get_nowait()
    gateway_of(app).kept.put_nowait(DashboardSettings(preview=False, split=Split(width=40)))
    async with app.run_test(size=WIDE) as pilot:
        await auntil(lambda: 160 == app.main_view.side.region.width, what="a list without a preview")
        await pilot.press("space")
        await settled(pilot)

        assert 64 == app.main_view.side.region.width


def test_the_split_is_saved_and_a_broken_file_is_ignored() -> None:
    def opened() -> Split:
        gateway = LiveGateway(user_paths())

        async def first() -> Split:
            read = cast(AsyncGenerator[DashboardSettings, None], gateway.settings())
            split = (await anext(read)).split
            await read.aclose()
            return split

        try:
            return asyncio.run(first())
        finally:
            gateway.close()

    gateway = LiveGateway(user_paths())

    async def save() -> None:
        await (await gateway.operations()).save_split(Split(width=40, height=50))

    asyncio.run(save())
    gateway.close()
    assert Split(width=40, height=50) == opened()

    user_paths().split.write_text('{"width": "wide"')
    assert Split() == opened()
