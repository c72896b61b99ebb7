"""Renders the current dashboard as a picture, without a terminal."""

import asyncio
import os
from html import escape
from typing import Final

from kasmon.backends.common.environment import secret_values
from kasmon.host.journal.redaction import Redactor
from kasmon.host.journal.secrets import secrets_in, secrets_of
from kasmon.model.fleet import Fleet
from kasmon.paths import Paths
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.live.gateway import LiveGateway

SIZE: Final = (160, 50)
"""Columns and rows of the picture."""
LIMIT_S: Final = 5.0
LOOK_S: Final = 0.05
CALM_LOOKS: Final = 6
"""The picture is taken after this many identical renderings in a row."""


def picture(paths: Paths) -> str:
    """Return the dashboard over *paths* as SVG, once its list and preview are stable, after five seconds at most.

    Secrets of sessions and of this process are redacted: pictures are shared, and a terminal may print anything.
    """
    return asyncio.run(_picture(paths))


async def _picture(paths: Paths) -> str:
    gateway = LiveGateway(paths)
    app = Kasmon(gateway=gateway)
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
    gateway.close()
    own = await asyncio.to_thread(_secrets, paths, app.fleet)
    return Redactor((*own, *(escape(value).replace(" ", "&#160;") for value in own))).line(before)


def _secrets(paths: Paths, fleet: Fleet) -> set[str]:
    given = {value for session in fleet.sessions for value in secrets_of(paths, session.id)}
    running = (session.pid for session in fleet.sessions if session.exists and session.pid is not None)
    return given | {value for pid in running for value in secrets_in(pid)} | set(secret_values(os.environ))
