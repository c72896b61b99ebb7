"""The dashboard over a real jail: made, used, asleep, woken, looked back at, copied."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from kasmon.config import load
from kasmon.errors import KasmonError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths, user_paths, write_private
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sandboxes import sandbox_operations, use
from kasmon.supervisor.sandboxes.create import NewSandbox
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.live.gateway import LiveGateway
from kasmon.tui.gateway.protocol import DashboardSettings
from kasmon.tui.gateway.theme_library import shipped
from kasmon.tui.permissions.queue import SILENCE_S
from kasmon.tui.review.screen import ReviewScreen
from kasmon.tui.sandbox.screen import SandboxScreen
from kasmon.tui.theme.theme import DEFAULT
from tests.support.tui.fake_gateway import text_of
from tests.support.wait import auntil

pytestmark = pytest.mark.sandboxes
shipped(DEFAULT)  # read here: on the test's loop, reading files is an error


@pytest.fixture
def here(can_jail: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Paths]:
    root = Path(tempfile.mkdtemp(prefix="kq-", dir="/tmp"))
    for variable, name in (("STATE_HOME", "s"), ("RUNTIME_DIR", "r"), ("CONFIG_HOME", "c")):
        (root / name).mkdir(mode=0o700)
        monkeypatch.setenv(f"XDG_{variable}", str(root / name))
    where = user_paths()
    yield where
    for session in read_fleet(where).sessions:
        asyncio.run(sandbox_operations.remove(where, session))
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def app(here: Paths) -> Kasmon:
    """Made outside of the loop, as `kasmon` does it: it reads themes."""
    return Kasmon(gateway=LiveGateway(here), settings=DashboardSettings(workdir=str(Path.cwd())))


async def until_state(app: Kasmon, name: str, *states: SessionState) -> None:
    def is_there() -> bool:
        return any(each.name == name and each.state in states for each in app.fleet.sessions)

    await auntil(is_there, limit_s=20, what=f"{name} in {states}")


async def until_text(pilot: Pilot[None], text: str) -> None:
    await auntil(lambda: text in text_of(pilot.app), limit_s=20, what=repr(text))


async def test_a_sandbox_is_shown_on_the_dashboard_from_its_creation_to_its_end(app: Kasmon, here: Paths) -> None:
    """One story, since each jail costs a second."""
    async with app.run_test(size=(140, 40), notifications=True) as pilot:
        await pilot.press("n")
        await until_text(pilot, "interpreters")
        await pilot.press(*"lab", "tab")
        while "interpreter " not in text_of(app):
            await pilot.press("right")
            await pilot.pause()
        await pilot.press("tab", "tab", "enter")
        await until_state(app, "lab", SessionState.IDLE)
        await until_text(pilot, "jail▣")

        await pilot.press("enter")
        await until_text(pilot, "[python]")
        await pilot.press(*"a = 41", "enter", "tab", *"echo two > f; false", "enter")
        await until_text(pilot, "exit 1")
        await pilot.press("tab", "tab", *"print(a + 1)", "enter")
        await until_text(pilot, "⎿ 42")
        await until_state(app, "lab", SessionState.IDLE)

        await pilot.press("escape", "z")
        await until_state(app, "lab", SessionState.STANDBY)
        await until_text(pilot, "u resume")
        await pilot.press("u")
        await until_state(app, "lab", SessionState.IDLE)

        await pilot.press("H")
        await auntil(lambda: isinstance(app.screen, SandboxScreen) and app.screen.entries)
        await until_text(pilot, "echo two > f")
        while "▌" not in next(row for row in text_of(app).splitlines() if "echo two" in row):
            await pilot.press("j")
            await pilot.pause()
        await pilot.press("D")
        await auntil(lambda: isinstance(app.screen, ReviewScreen))
        await until_text(pilot, "+two")
        await pilot.press("escape", "f", "enter")
        await until_state(app, "lab-2", SessionState.IDLE)
        await pilot.press("escape")

        lab = next(each for each in app.fleet.sessions if each.name == "lab")
        killed = await asyncio.to_thread(lock_holder, here.host_lock(lab.id))
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        await auntil(lambda: lock_holder(here.host_lock(lab.id)) not in (None, killed), what="another host")
        await until_state(app, "lab", SessionState.IDLE)
        assert "42" == (await use.run(here, lab, "python", "print(a + 1)")).stdout.strip()

        before = {each.name for each in app.fleet.sessions}
        assert {"lab", "lab-2"} == before


@pytest.fixture
def failed(here: Paths) -> None:
    """The creation of `lab` failed."""
    here.config.mkdir(mode=0o700, exist_ok=True)
    write_private(here.config_file, b'[[sandbox.mounts]]\nsource = "/nowhere/at/all"\n')
    with pytest.raises(KasmonError):
        asyncio.run(sandbox_operations.create(here, load(here), NewSandbox(name="lab")))


async def test_a_creation_that_failed_is_removed_by_its_key(failed: None, app: Kasmon, here: Paths) -> None:
    async with app.run_test(size=(140, 40), notifications=True) as pilot:
        await until_state(app, "lab", SessionState.ENDED)
        await until_text(pilot, "failed")
        rows = [line for line in text_of(app).splitlines() if "lab" in line]
        assert rows
        assert not any("crashed" in row for row in rows)
        assert "expired" not in text_of(app)
        await pilot.press("X")
        await until_text(pilot, "y remove")
        shown_at = app.clock.ticking()
        await auntil(lambda: app.clock.ticking() - shown_at > SILENCE_S)
        await pilot.press("y")
        await auntil(lambda: not app.fleet.sessions)

    assert () == (await asyncio.to_thread(read_fleet, here)).sessions
