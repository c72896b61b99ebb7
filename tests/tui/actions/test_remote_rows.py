"""Every key of the list on a session of another machine: it works there or says why, and does nothing here."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

import psutil
from textual.pilot import Pilot

import kasmon.supervisor.sessions.explain  # noqa: F401 - its first import reads a path, which is an error on the loop
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.tui.action import KeyContext
from kasmon.tui.app import Kasmon
from kasmon.tui.dialogs.common import ConfirmDialog
from kasmon.tui.gateway.live.gateway import LiveGateway
from kasmon.tui.keymap import ACTIONS, ROWS
from tests.support.bus.joined import JoinedKasmons
from tests.support.wait import auntil

LEFT_OUT = {"quit", "attach", "new", "adopt", "broadcast", "export"}
"""Actions that leave the dashboard, are of no session, or write a file here by design."""
GROUPS = {"operations", "dialog"}
"""The workers of what keys do."""
LAST = ("stop", "restart", "stop", "forget")
"""What ends the session, starts it again, and removes it."""


def launch_here(joined: JoinedKasmons, session: SessionId) -> bytes:
    """What a host would be started with here; empty once the copy is removed."""
    path = joined.near.paths.launch(session)
    return path.read_bytes() if path.exists() else b""


def local_hosts(joined: JoinedKasmons) -> list[str]:
    """The command lines of the hosts of agents that run for the near kasmon."""
    state = str(joined.near.paths.state.parent)
    found = []
    for process in psutil.process_iter():
        try:
            words, variables = process.cmdline()[2:], process.environ()
        except (psutil.Error, OSError):
            continue
        is_host = words[:3] == ["-m", "kasmon", "host"] and "--machine" not in words
        if is_host and variables.get("XDG_STATE_HOME") == state:
            found.append(" ".join(words))
    return found


@asynccontextmanager
async def dashboard(joined: JoinedKasmons) -> AsyncIterator[Pilot[None]]:
    gateway = await asyncio.to_thread(LiveGateway, joined.near.paths)
    app = Kasmon(await asyncio.to_thread(gateway.first), gateway)
    async with app.run_test(size=(140, 40), notifications=True) as pilot:
        await auntil(lambda: app.machines, what="the machines")
        yield pilot
    await asyncio.to_thread(gateway.close)


async def on_list(pilot: Pilot[None], session: SessionId) -> None:
    """Close what is open, and put the cursor on *session*."""
    app = cast(Kasmon, pilot.app)
    while len(app.screen_stack) > 1:
        app.pop_screen()
        await pilot.pause()
    if app.main_view.focused_inside:
        app.session_pane.leave()
    app.main_view.show_all()
    app.main_view.table.select(session)
    app.clear_notifications()
    await pilot.pause()


async def read(dialog: ConfirmDialog) -> None:
    """The user has seen all of the question, for long."""
    await auntil(lambda: dialog.text.seen_end, what="the question")
    dialog._shown_at = float("-inf")


def is_closed(app: Kasmon, dialog: ConfirmDialog) -> bool:
    return app.screen is not dialog


def has_effect(app: Kasmon, session: SessionId, action: str) -> bool:
    """Whether the list shows the session as `stop` or `restart` leaves it; a restarted one is at no moment lost."""
    seen = app.main_view.table.session(session)
    assert seen is None or seen.state is not SessionState.LOST
    return seen is not None and (seen.state is SessionState.ENDED) is (action == "stop")


async def test_each_key_on_a_session_of_another_machine_works_there_or_gives_the_reason() -> None:
    joined = await asyncio.to_thread(JoinedKasmons)
    try:
        session = await joined.begin("docs", prompt="say hello")
        await asyncio.to_thread(joined.join)
        await asyncio.to_thread(joined.shown, session, lambda seen: seen.state is SessionState.IDLE)
        before = await asyncio.to_thread(launch_here, joined, session)
        async with dashboard(joined) as pilot:
            app = cast(Kasmon, pilot.app)
            await auntil(lambda: app.main_view.table.session(session), what="the session")
            rows = [row.id for row in ACTIONS if row.where in (KeyContext.LIST, KeyContext.EVERYWHERE)]
            for row in (*(row for row in rows if row not in LEFT_OUT and row not in LAST), *LAST):
                await on_list(pilot, session)
                app.key_dispatcher.run(ROWS[row])
                await pilot.pause()
                if isinstance(dialog := app.screen, ConfirmDialog):
                    await read(dialog)
                    await pilot.press("y")
                    if row in LAST:
                        await auntil(partial(is_closed, app, dialog), what=f"the answer to {row}")
                await auntil(
                    lambda: not any(work.group in GROUPS for work in app.workers), what="the end of what it does"
                )
                await pilot.pause()
                assert app._exception is None, row
                said = [note.message for note in app._notifications]
                assert not any("Traceback" in text or "Error:" in text for text in said), (row, said)
                assert await asyncio.to_thread(launch_here, joined, session) in (before, b""), row
                assert [] == await asyncio.to_thread(local_hosts, joined), row
                if row in ("stop", "restart"):
                    await auntil(partial(has_effect, app, session, row), what=f"the effect of {row}, after {said}")
            await auntil(lambda: app.main_view.table.session(session) is None, what="its removal")
    finally:
        await asyncio.to_thread(joined.close)
