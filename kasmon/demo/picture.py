"""The dashboard's picture of this moment, without a terminal."""

import asyncio
from typing import Final

from kasmon.paths import Places
from kasmon.tui.app import Kasmon
from kasmon.tui.live import LiveWorld

SIZE: Final = (160, 50)
"""Columns and rows of the picture."""
LIMIT_S: Final = 5.0
LOOK_S: Final = 0.05
CALM_LOOKS: Final = 6
"""The picture is taken when it looked the same so often."""


def picture(places: Places) -> str:
    """The dashboard over *places* as SVG, once its list and its preview stand still, after five seconds at most."""
    return asyncio.run(_picture(places))


async def _picture(places: Places) -> str:
    world = LiveWorld(places)
    app = Kasmon(world=world)
    async with app.run_test(size=SIZE) as pilot:
        same, before = 0, ""
        for _ in range(int(LIMIT_S / LOOK_S)):
            await asyncio.sleep(LOOK_S)
            await pilot.pause()
            now = app.export_screenshot(title="kasmon")
            same = same + 1 if now == before and app.fleet.sessions else 0
            before = now
            if same == CALM_LOOKS:
                break
    world.close()
    return before
