"""Every screen of the dashboard with hostile values in it: nothing is markup, nothing is a link, nothing breaks."""

from collections.abc import Callable
from typing import Final

import msgspec
import pytest
from textual.pilot import Pilot

from kasmon.errors import RefusedError
from kasmon.model.commands import Launch, Mode
from kasmon.model.reducers.apply import apply
from kasmon.model.session import Session, created
from kasmon.model.session_state import SessionState
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.protocol import DashboardSettings
from tests.support.dashboard_scenes import armed, run_app
from tests.support.safety.hostile_text import ACTING, LONG, MARKUP, facts, name_of, session_id
from tests.support.sample_fleet import NOW, StillClock, fleet
from tests.support.tui.fake_gateway import FakeGateway, text_of
from tests.support.wait import auntil

pytestmark = pytest.mark.story

WORST: Final = "".join([*ACTING.values(), " ".join(MARKUP.values()), LONG["many lines"][:20]])
OURS: Final = {("@mouse.down", "grab"), ("@mouse.down", "scroll_down"), ("@mouse.down", "scroll_up")}
"""What a click may do by the style of a cell: Textual's own scroll bars."""

LIST: Final = {
    "list": ("", "2 sessions"),
    "message": ("m h enter", "─ Prompt e00"),
    "broadcast, to confirm": ("M h enter", "Send to 2 agents?"),
    "broadcast": ("M h enter end y", "retry 2 failed"),
    "new name": ("r x enter", "─ Rename ─"),
    "stop": ("x y", "─ Stop"),
    "attach": ("o", "has no terminal"),
    "diff": ("D", "─ Last change by e00"),
    "settings": ("comma", "─ Settings ─"),
    "new session": ("n x enter", "─ New session ─"),
    "filter": ("slash e 0 enter", "e0   2 of 2"),
    "waves": ("W", "▾ wave 1"),
    "pin": ("p", "◉ e00"),
    "palette": ("ctrl+p", "Search commands"),
    "palette, searched": ("ctrl+p e 0", "finished  `"),
    "prompt box": ("enter", "Write to e00"),
    "prompt box, written": ("enter h i enter", "│ hi"),
}
"""Screen -> the keys that lead there from the list, and words that stand nowhere else."""
CARD: Final = {
    "card": ("", "Allow once"),
    "deny": ("d n o", "⏎    deny"),
    "spell": ("end a", "to allow it: ___"),
    "always": ("end A", "to allow it: ___"),
    "question": ("right", "◆ question"),
}


def hostile(number: int, payload: str, mode: Mode, *, asks: bool) -> Session:
    """A session all of whose texts are *payload*."""
    launch = Launch(
        session=session_id(number),
        name=name_of(number, payload),
        agent=payload,
        mode=mode,
        backend=payload,
        argv=("claude",),
        workdir=payload,
        fallback=payload,
        plan=payload,
        wave=1,
        peers=4,
        task=1,
    )
    session = created(launch, NOW, payload)
    for fact in facts(launch.session, payload, mode=mode):
        session = apply(session, fact)
    if asks:
        return session
    return msgspec.structs.replace(session, requests=(), asking=None, state=SessionState.IDLE)


class Stage:
    """The dashboard over two hostile sessions, one of them in tmux."""

    def __init__(self, payload: str, *, asks: bool) -> None:
        self.clock = StillClock()
        sessions = [hostile(n, payload, mode, asks=asks) for n, mode in enumerate((Mode.SDK, Mode.TMUX))]
        told = facts(sessions[0].id, payload)
        self.gateway = FakeGateway(
            fleet(*sessions, read_only=payload),
            transcripts={sessions[0].id: told},
            written={sessions[0].id: payload},
            panes={sessions[1].id: payload.split("\n")[:5]},
            settings=DashboardSettings(
                problems=(payload,), config_path=payload, workdir=payload, agents={"claude": "claude"}
            ),
        )
        self.gateway.refusing = RefusedError(payload, hint=payload)
        self.app = Kasmon(gateway=self.gateway, clock=self.clock)
        self.sessions = sessions

    async def visit(self, pilot: Pilot[None], screens: dict[str, tuple[str, str]], back: Callable[[], None]) -> None:
        """Go to each of *screens* and look; back to where they all begin after each."""
        for name, (keys, words) in screens.items():
            for key in keys.split():
                if self.is_card:
                    await armed(pilot)
                self.clock.ticked += 1.0
                await pilot.press(key)
            await auntil(lambda words=words: words in text_of(self.app), what=f"{name}: {words}")  # type: ignore[misc]
            assert set() == self.clickable(), name
            assert self.app.is_running, name
            back()
            await pilot.pause()

    @property
    def is_card(self) -> bool:
        return self.app.permissions.card is not None

    def clickable(self) -> set[tuple[str, str]]:
        """What a click on some cell would do, and links."""
        styles = [
            segment.style for strip in self.app.screen._compositor.render_strips() for segment in strip if segment.style
        ]
        acts = {(name, str(act)) for style in styles for name, act in style.meta.items() if name.startswith("@")}
        return acts - OURS | {("link", style.link) for style in styles if style.link}

    def to_list(self) -> None:
        """Whatever is open closes, as Esc would do it."""
        app = self.app
        while len(app.screen_stack) > 1:
            app.pop_screen()
        if app.main_view.focused_inside:
            app.session_pane.leave()
        app.main_view.table.focus()

    def to_card(self) -> None:
        self.app.permissions.close(())
        self.app.call_later(self.app.permissions.open)

    def to_inbox(self) -> None:
        self.app.permissions.close(())
        self.app.call_later(self.app.permissions.open_list)


async def test_no_hostile_text_is_markup_anywhere() -> None:
    stage = Stage(WORST, asks=False)
    async with stage.app.run_test(size=(120, 40), notifications=True) as pilot:
        await pilot.pause()
        await stage.visit(pilot, LIST, stage.to_list)
        stage.app.run_operation(lambda operations: operations.rename(stage.sessions[0].id, WORST))
        await pilot.pause()

        assert set() == stage.clickable()


async def test_no_hostile_text_is_markup_on_a_card() -> None:
    stage = Stage(WORST, asks=True)
    async with run_app(stage.app, notifications=True) as pilot:
        stage.app.permissions.open()
        await stage.visit(pilot, CARD, stage.to_card)


async def test_no_visible_text_is_markup_where_a_request_is_edited() -> None:
    """One with hidden characters cannot be edited."""
    stage = Stage(" ".join(MARKUP.values()), asks=True)
    async with run_app(stage.app, notifications=True) as pilot:
        stage.app.permissions.open()
        await stage.visit(pilot, {"edit": ("end e", "review changes")}, stage.to_card)


async def test_text_that_resembles_markup_is_shown_unchanged() -> None:
    stage = Stage(MARKUP["click"], asks=False)
    async with stage.app.run_test(size=(160, 40), notifications=True) as pilot:
        await pilot.pause()

        assert 2 <= text_of(stage.app).count("[@click=app.quit]")
