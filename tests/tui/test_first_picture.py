"""What is drawn first is right already, and what changes in one line draws that line alone."""

import asyncio
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode
from textual.screen import Screen

from kasmon.asyncio_tasks import cancel_and_wait
from kasmon.host.rpc.host_lock import HostLock
from kasmon.model.commands import Launch, Mode
from kasmon.model.events import RequestOpened, SessionCreated, SessionStarted
from kasmon.model.permission import Decision, Request, RequestId, SessionId, seal
from kasmon.paths import Paths, user_paths, write_private
from kasmon.store.event_log import EventLog
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.live.gateway import LiveGateway
from kasmon.tui.gateway.protocol import CardContext, FleetUpdate
from kasmon.tui.permissions.card.screen import CardScreen
from kasmon.tui.textual_ext.repaint import RowsUpdate
from kasmon.tui.widgets.text_lines import DrawnLine, TextLines
from tests.support.dashboard_scenes import kasmon, run_app, settled
from tests.support.sample_fleet import NOW, asking, command, fleet, working
from tests.support.tui.fake_gateway import fleet_update, text_of
from tests.support.wait import auntil

THUMB = dict.fromkeys(map(ord, "▁▂▃▄▅▆▇█"), " ")
"""Where the thumb of a scrollbar ends, in an eighth of a row, is told a picture later."""
MANY_LINES = "\n".join(f"echo {number}" for number in range(60))


def watched(app: Kasmon, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, str]]:
    """The screen of each picture from now on, what is drawn of it, and all text that it shows then."""
    pictures: list[tuple[str, Any, str]] = []
    display = app._display

    def displayed(screen: Screen[Any], drawn: Any) -> None:
        pictures.append((type(screen).__name__, drawn, text_of(app)))
        display(screen, drawn)

    monkeypatch.setattr(app, "_display", displayed)
    return pictures


@pytest.mark.parametrize("words", ["make && rm -rf build", MANY_LINES], ids=["one line", "many lines"])
async def test_the_first_frame_of_a_card_shows_what_the_last_one_shows(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing on it moves under a person's eyes, and nobody waits for a second picture."""
    async with run_app(app := kasmon(fleet(asking("fix-auth", command("fix-auth", words)), working("docs")))) as pilot:
        pictures = watched(app, monkeypatch)
        await pilot.press("i")
        await auntil(lambda: CardScreen.__name__ in [screen for screen, _, _ in pictures], what="the card")
        await settled(pilot)
        shown = [text for screen, _, text in pictures if screen == CardScreen.__name__]

        assert words[:4] in shown[0]
        assert shown[0].translate(THUMB) == text_of(app).translate(THUMB)


async def test_an_update_of_a_session_renders_only_its_row_and_its_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, after = (fleet(working("docs", said)) for said in ("one", "two"))
    async with run_app(app := kasmon(before)) as pilot:
        pictures = watched(app, monkeypatch)
        await settled(pilot)
        pictures.clear()  # of the start
        app._show_update(fleet_update(after))
        await auntil(lambda: pictures, what="a picture")
        await settled(pilot)

        changes = [drawn for _, drawn, _ in pictures if drawn is not None]
        assert all(isinstance(drawn, RowsUpdate) for drawn in changes)
        assert all(1 == len(drawn.rows) for drawn in changes)


async def test_changed_lines_cause_no_layout_unless_their_number_grows() -> None:
    async with run_app(app := kasmon(fleet(working("docs")))) as pilot:
        lines, laid_out = TextLines(app.look), []
        await app.screen.mount(lines)
        lines.say(DrawnLine((("one", "text"),)))
        await auntil(lambda: 1 == lines.size.height, what="its first line")
        await settled(pilot)
        app.screen.screen_layout_refresh_signal.subscribe(lines, lambda _: laid_out.append(lines.size.height))
        lines.say(DrawnLine((("another", "text"),)))
        await pilot.pause()
        assert [] == laid_out

        lines.say(DrawnLine((("one", "text"),)), DrawnLine((("two", "text"),)))
        await auntil(lambda: [2] == laid_out[-1:], what="its second line")


@pytest.fixture
def one_asks(tmp_path: Path) -> Iterator[tuple[Paths, SessionId]]:
    """A session in a project, with a host and a secret, that asks."""
    own, session, folder = user_paths(), SessionId("sone"), tmp_path / "in"
    own.folder(session).mkdir(parents=True)
    launch = Launch(session=session, name="one", agent="x", mode=Mode.SDK, backend="x", workdir=str(folder))
    (tmp_path / ".git").mkdir()
    folder.mkdir()
    write_private(own.environment(session), b"KEY=long-enough-a-secret\0")
    EventLog(own.fleet_log).append(SessionCreated(at=NOW, launch=launch))
    ask = Request(id=RequestId("r"), session=session, tool="Bash", title="", shown="x", choices=(Decision.ALLOW,))
    EventLog(own.log(session)).append(SessionStarted(at=NOW, backend="x", workdir=str(folder), pid=os.getpid()))
    EventLog(own.log(session)).append(RequestOpened(at=NOW, request=seal(ask)))
    lock = HostLock(own.host_lock(session))
    assert lock.acquire()
    yield own, session
    lock.let_go()


async def test_the_secrets_of_a_card_are_known_when_its_request_is_reported(
    one_asks: tuple[Paths, SessionId], tmp_path: Path
) -> None:
    """Else a thread reads it while the dashboard is busy with the news, and waits for its turn."""
    own, session = one_asks
    gateway = LiveGateway(own)
    updates = asyncio.Queue[FleetUpdate]()
    following = asyncio.create_task(gateway.follow_fleet(updates.put_nowait))
    try:
        update = await updates.get()
        card = CardContext(secrets=("long-enough-a-secret",), project=str(tmp_path))

        assert [True] == [bool(each.requests) for each in update.fleet.sessions]
        assert {session: card} == update.cards
    finally:
        await cancel_and_wait(following)
        await asyncio.to_thread(gateway.close)


@pytest.mark.parametrize("columns", [100, 160], ids=["below", "beside"])
async def test_the_first_frame_waits_for_the_styles_of_each_widget_once(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for a second round, nor for the styles of dialogs, which are there all the same once one opens."""
    rounds, update_nodes = [], Stylesheet.update_nodes

    def counted(self: Stylesheet, nodes: Iterable[DOMNode], animate: bool = False) -> None:
        rounds.append(len(listed := list(nodes)))
        update_nodes(self, listed, animate)

    monkeypatch.setattr(Stylesheet, "update_nodes", counted)
    app = kasmon(fleet(working("docs")))
    sources: list[str] = []
    monkeypatch.setattr(app, "_finish_startup", lambda: sources.extend(path for path, _ in app.stylesheet.source))
    async with run_app(app, size=(columns, 50)) as pilot:
        assert max(rounds) < 5
        assert not any(path.endswith("dialogs.tcss") for path in sources)

        await pilot.press("question_mark")
        await pilot.pause()

        assert app.screen.query_one(".dialog").styles.border_title_style.bold
