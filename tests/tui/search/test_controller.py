"""Searching all sessions from the dashboard: found while it is written, opened at its place, and back again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import msgspec
import pytest
from textual.pilot import Pilot

from kasmon.errors import UsageError
from kasmon.model.commands import Mode
from kasmon.model.events import MessageWritten, ToolFinished, TurnStarted
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.model.transcript.rows import RowPosition
from kasmon.model.transcript.search.text import SearchHit, What
from kasmon.supervisor.search.search import SessionHits
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.operations import Operations
from kasmon.tui.gateway.protocol import RecordedText
from kasmon.tui.keymap import Keys
from kasmon.tui.search.screen import SearchScreen
from kasmon.tui.terminal.scrollback.screen import ScrollbackScreen
from kasmon.tui.terminal.scrollback.view import ScrollbackView
from tests.support.dashboard_scenes import kasmon, run_app
from tests.support.sample_fleet import NOW, fleet, working
from tests.support.tui.fake_gateway import called, fleet_update, gateway_of, text_of
from tests.support.wait import auntil

TALK = (
    TurnStarted(at=NOW - 500, prompt="look for the needle"),
    *(MessageWritten(at=NOW - 400 + number, text=f"answer {number}") for number in range(60)),
    ToolFinished(at=NOW - 300, call="c", output="\n".join(f"row {n}{' needle' * (n in (3, 77))}" for n in range(100))),
    *(MessageWritten(at=NOW - 200 + number, text=f"later {number}") for number in range(60)),
)
OUTPUT = 61
"""The place of the output in the talk."""
PRINTED = tuple(f"line {number}" for number in range(300))


def hit(session: str, line: str, place: int, words: str = "needle", what: What = "output", **more: object) -> SearchHit:
    start = line.index(words)
    given = {
        "session": SessionId(session),
        "at": NOW - 120.0,
        "source": "terminal" if what == "printed" else "transcript",
        "position": place,
        "what": what,
        "line": line,
        "start": start,
        "end": start + len(words),
    }
    return SearchHit(**(given | more))  # type: ignore[arg-type]  # fields that a test changes


PARSER, DOCS = working("parser"), working("docs", mode=Mode.TMUX)
NEEDLES = (
    SessionHits(
        PARSER, (hit("parser", "look for the needle", 0, what="prompt"), hit("parser", "row 77 needle", OUTPUT))
    ),
    SessionHits(DOCS, (hit("docs", "line 120", 120, "line 120", "printed", before=("line 119",)),), more=True),
)


@asynccontextmanager
async def searching(
    words: str = "needle", found: tuple[SessionHits, ...] = NEEDLES, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[Pilot[None]]:
    app = kasmon(fleet(PARSER, DOCS), transcripts={"parser": TALK}, panes={"docs": ()})
    gateway = gateway_of(app)
    gateway.finds = {words: found}
    gateway.records = {"docs": RecordedText(lines=PRINTED, here=120)}
    async with run_app(app, size) as pilot:
        await pilot.press("ctrl+f")
        await auntil(lambda: isinstance(app.screen, SearchScreen))
        await pilot.pause()
        if words:
            await pilot.press(*words)
            await auntil(lambda: gateway.searched[-1:] == [words] and screen_of(pilot).is_done)
            await pilot.pause()
        yield pilot


def screen_of(pilot: Pilot[None]) -> SearchScreen:
    return cast(SearchScreen, pilot.app.screen)


async def test_before_any_text_the_search_shows_what_to_do_and_finds_nothing() -> None:
    async with searching("") as pilot:
        assert "Type to search." in text_of(pilot.app)
        assert [] == gateway_of(pilot.app).searched
        await auntil(lambda: gateway_of(pilot.app).is_searchable)


async def test_matches_are_below_their_session_while_the_text_is_typed() -> None:
    async with searching() as pilot:
        shown = text_of(pilot.app)

        assert "3+ matches in 2 sessions" in shown
        order = ["parser", "row 77 needle", "look for the needle", "docs", "line 120"]
        assert sorted(order, key=shown.index) == order
        assert "line 119" not in shown
        await pilot.press("down", "down")
        await pilot.pause()
        assert "line 119" in text_of(pilot.app)


async def test_all_letters_are_text_also_those_that_are_keys_elsewhere() -> None:
    async with searching("qFxn i?") as pilot:
        assert "qFxn i?" == screen_of(pilot).box.value
        assert "qFxn i?" == gateway_of(pilot.app).searched[-1]


async def test_no_match_and_an_impossible_search_are_reported() -> None:
    async with searching("zzz", ()) as pilot:
        assert "No matches." in text_of(pilot.app)
        gateway_of(pilot.app).refusing = UsageError("that is no pattern.")
        await pilot.press("z")
        await auntil(lambda: "That is no pattern." in text_of(pilot.app))


async def test_enter_shows_the_line_of_a_transcript_and_esc_returns_to_the_same_place() -> None:
    async with searching() as pilot:
        app, asked = cast(Kasmon, pilot.app), len(gateway_of(pilot.app).searched)
        await pilot.press("enter")
        session_view = await auntil(lambda: app.session_pane.session_view, what="the session")

        def found() -> RowPosition | None:
            """The place under the cursor, once the words stand there."""
            place = session_view.screen_of_events.place()
            lines = session_view.transcript.lines(session_view.screen_of_events.size.width - 1)
            return place if place is not None and "needle" in lines.block(place.block)[place.row].text else None

        place = await auntil(found, what="the line that was found")
        lines = session_view.transcript.lines(session_view.screen_of_events.size.width - 1)
        assert "row 77 needle" in lines.block(place.block)[place.row].text
        assert "needle" == session_view.find_bar.words.words
        await pilot.press("n")
        await auntil(lambda: (again := found()) is not None and again < place, what="the place above")
        await pilot.press("escape")
        await auntil(lambda: isinstance(app.screen, SearchScreen))
        await pilot.pause()

        assert "row 77 needle" in text_of(app)
        assert asked == len(gateway_of(pilot.app).searched)
        assert "row 77 needle" == getattr(screen_of(pilot).chosen, "line", "")
        await pilot.press("escape")
        await auntil(lambda: app.list_has_keys)


async def test_enter_shows_the_output_of_a_terminal_there_and_esc_returns() -> None:
    async with searching() as pilot:
        app = pilot.app
        await pilot.press("down", "down", "enter")
        await auntil(lambda: isinstance(app.screen, ScrollbackScreen))
        await pilot.pause()
        view = app.screen.query_one(ScrollbackView)

        assert (120, 0) == view.cursor
        assert "line 120" in text_of(app)
        assert view.top < 120 < view.top + view.size.height
        assert 1 == len(view.matches)
        await pilot.press("escape")
        await auntil(lambda: isinstance(app.screen, SearchScreen))


async def test_opening_a_match_in_a_terminals_output_counts_as_a_view_of_its_session() -> None:
    async with searching() as pilot:
        finished = msgspec.structs.replace(DOCS, state=SessionState.IDLE, finished_at=NOW)
        cast(Kasmon, pilot.app)._show_update(fleet_update(fleet(PARSER, finished)))
        await pilot.press("down", "down", "enter")
        await auntil(lambda: isinstance(pilot.app.screen, ScrollbackScreen))
        await pilot.pause()

        assert [called(Operations.mark_viewed, DOCS.id)] == gateway_of(pilot.app).calls


async def test_a_removed_line_is_reported() -> None:
    async with searching() as pilot:
        gateway_of(pilot.app).records = {}
        await pilot.press("down", "down", "enter")
        await auntil(lambda: "no longer exists" in text_of(pilot.app))
        assert isinstance(pilot.app.screen, SearchScreen)


async def test_the_search_reopens_where_it_was_left() -> None:
    async with searching() as pilot:
        await pilot.press("down", "escape")
        await auntil(lambda: cast(Kasmon, pilot.app).list_has_keys)
        await pilot.press("ctrl+f")
        await auntil(lambda: isinstance(pilot.app.screen, SearchScreen))
        await pilot.pause()

        assert "needle" == screen_of(pilot).box.value
        assert "look for the needle" == getattr(screen_of(pilot).chosen, "line", "")


async def test_a_click_selects_and_a_second_one_opens() -> None:
    async with searching() as pilot:
        await pilot.click("#search-list", offset=(10, 4))
        await pilot.pause()
        assert "line 120" == getattr(screen_of(pilot).chosen, "line", "")
        await pilot.click("#search-list", offset=(10, 4))
        await auntil(lambda: isinstance(pilot.app.screen, ScrollbackScreen))


@pytest.mark.parametrize(
    "line", ["[bold]needle[/]" * 3, "漢" * 60 + "needle", "x" * 5000 + "needle" + "y" * 5000, "\tneedle"]
)
async def test_the_match_is_visible_in_any_line(line: str) -> None:
    hostile = SessionHits(Session(id=SessionId("a"), name="[red]\x1b[31mname"), (hit("a", line, 0),))
    async with searching(found=(hostile,), size=(40, 12)) as pilot:
        rows = [row for row in text_of(pilot.app).split("\n")[2:-1] if "needle" in row]

        assert rows
        assert "\x1b" not in text_of(pilot.app)


async def test_export_is_offered_by_name_and_requested() -> None:
    async with searching("") as pilot:
        await pilot.press("escape")
        await auntil(lambda: cast(Kasmon, pilot.app).list_has_keys)
        cast(Kasmon, pilot.app).key_dispatcher.run(Keys.EXPORT)
        await auntil(lambda: gateway_of(pilot.app).passed(Operations.export, "session"))
