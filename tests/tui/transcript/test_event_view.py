"""What kasmon itself writes comes whole through the pyte screen, and the widget shows the part that is looked at."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style
from textual.app import App, ComposeResult
from textual.events import MouseScrollDown, MouseScrollUp
from textual.pilot import Pilot

from kasmon.model.events import MessageWritten, NoticeRaised
from kasmon.model.transcript.layout import Transcript
from kasmon.model.transcript.text import TextLine, Token, cells, wrap
from kasmon.sanitize import clean_block
from kasmon.tui.transcript.event_view import EventView
from kasmon.tui.transcript.pyte_screen import PyteBuffer
from kasmon.tui.transcript.virtual_screen import VirtualScreen
from tests.support.wait import auntil

PLAIN = Style()


def plain(_: Token) -> Style:
    return PLAIN


def line(*texts: str) -> TextLine:
    return TextLine(tuple((text, Token.TEXT) for text in texts))


def drawn(text: str, width: int = 20) -> str:
    """*text* as it comes back from a screen that it was wrapped for."""
    lines = wrap([(text, Token.TEXT)], width, words=False)
    screen = VirtualScreen(width, len(lines))
    screen.show(lines, plain)
    strips = [screen.strip(y) for y in range(len(lines))]
    assert all(width == strip.cell_length == cell_len(strip.text) for strip in strips)
    return "".join(strip.text.rstrip(" ") for strip in strips)


PICTURES = st.lists(st.lists(st.sampled_from(["", "one", "two 日本", "three", "four", "five"]), max_size=8), max_size=6)


@given(pictures=PICTURES)
def test_earlier_content_leaves_no_trace(pictures: list[list[str]]) -> None:
    """Text that moved is scrolled, and not drawn again."""
    screen = VirtualScreen(10, 6)
    for texts in pictures:
        before = [screen.strip(y).text for y in range(6)]
        changed = screen.show([line(text) for text in texts], plain)
        fresh = VirtualScreen(10, 6)
        fresh.show([line(text) for text in texts], plain)

        after = [screen.strip(y).text for y in range(6)]
        assert [fresh.strip(y).text for y in range(6)] == after
        assert {y for y in range(6) if before[y] != after[y]} <= set(changed)


@pytest.mark.parametrize("up", [3, -3])
def test_moved_rows_are_the_same_strips_as_before(up: int) -> None:
    screen = VirtualScreen(10, 6)
    texts = [f"row {number}" for number in range(20)]
    screen.show([line(text) for text in texts[5:11]], plain)
    before = [screen.strip(y) for y in range(6)]
    screen.show([line(text) for text in texts[5 + up : 11 + up]], plain)
    after = [screen.strip(y) for y in range(6)]

    moved = zip(before[3:], after[:3], strict=True) if up > 0 else zip(before[:3], after[3:], strict=True)
    assert all(old is new for old, new in moved)


def test_a_row_has_the_requested_background() -> None:
    screen = VirtualScreen(4, 1)
    screen.show([line("text")], plain)
    for colour in ("#112233", "#445566"):
        ground = Style(bgcolor=colour)
        assert {ground.bgcolor} == {style.bgcolor for _, style, _ in screen.strip(0, ground) if style}


WHOLE = {
    "family": "a👩‍👩‍👧‍👦b",
    "coder": "👩‍💻 at work",
    "heart with a selector": "❤️ text after it",
    "flag": "🇩🇪 x",
    "thumb with a skin": "👍🏽 ok",
    "keycap": "1️⃣ first",
    "combining": "e\u0301a\u0308o\u0302 x",
    "combining first": "\u0301x",
    "joiner first": "\u200dx",
    "selector first": "\ufe0fx",
    "joiners only": "\u200d\u200d",
    "zero-width space": "a\u200bb",
    "word joiner": "a\u2060b",
    "kanji": "日本語のテキスト",
    "wide at the last column": "1234567890123456789漢x",
    "wide in the last two": "123456789012345678漢x",
    "family at the edge": "1234567890123456789👩‍👩‍👧x",
    "devanagari": "क्षत्रिय",
    "arabic": "مرحبا",
    "box": "┌─┐│└┘",
    "no-break space": "a\xa0b",
    "soft hyphen": "a\xadb",
    "joiners and marks of direction": "می\u200cخواهم ه\u200d שלום!\u200f C++\u200e",
}


@pytest.mark.parametrize("text", WHOLE.values(), ids=WHOLE.keys())
def test_every_character_is_preserved(text: str) -> None:
    assert text == drawn(text)


@given(st.text(max_size=80), st.integers(8, 40))
def test_every_cleaned_text_is_preserved(text: str, width: int) -> None:
    cleaned = clean_block(text).replace("\n", "").expandtabs(4)

    assert cleaned.replace(" ", "") == drawn(cleaned, width).replace(" ", "")


def test_the_borders_between_pieces_are_kept_too() -> None:
    """A style that changes in the middle of a character."""
    screen = VirtualScreen(10, 1)
    screen.show([line("e", "\u0301", "👩", "\u200d👧", "x")], plain)

    assert "e\u0301👩\u200d👧x" == screen.strip(0).text.rstrip()


def test_a_row_that_is_too_long_ends_at_the_edge() -> None:
    screen = VirtualScreen(5, 2)
    screen.show([line("1234漢字x"), line("next")], plain)

    assert ["1234 ", "next "] == [screen.strip(y).text for y in range(2)]


def test_a_hundred_thousand_marks_on_one_letter_are_rendered_at_once() -> None:
    """pyte alone takes minutes for them."""
    marks = "\u0301" * 100_000
    screen = VirtualScreen(10, 1)
    screen.show([line("a" + marks + "b")], plain)

    assert "a" + marks + "b" == screen.strip(0).text.rstrip()


@pytest.mark.parametrize("hostile", ["\x1b[2Jx", "x\x9b31my", "a\x07b\x00c", "\x1b]52;c;aGk=\x07", "a\nb", "a\rb\x0ec"])
def test_raw_control_characters_are_shown_without_effect(hostile: str) -> None:
    screen = VirtualScreen(30, 2)
    screen.show([line("first"), line(hostile)], plain)

    assert "first" == screen.strip(0).text.rstrip()
    assert len(hostile) == len(screen.strip(1).text.rstrip())
    assert screen.strip(1).text.isprintable()


STYLES = [
    "bold",
    "italic underline",
    "strike reverse",
    "#010203 on #fafbfc",
    "red",
    "bright_magenta on bright_magenta",
    "blue on yellow",
    "bold #aabbcc",
]


@pytest.mark.parametrize("words", STYLES)
def test_styles_are_preserved(words: str) -> None:
    wanted = Style.parse(words)
    screen = VirtualScreen(4, 1)
    screen.show([line("ab")], lambda _: wanted)
    style = screen.strip(0)._segments[0].style

    assert style is not None
    assert wanted.render("x") == style.render("x")


def test_dim_is_a_colour() -> None:
    """SGR 2 is drawn differently everywhere, and unreadable in places."""
    screen = VirtualScreen(4, 1)
    screen.show([line("ab")], lambda _: Style.parse("dim #ffffff on #000000"))
    style = screen.strip(0)._segments[0].style

    assert style is not None
    assert style.color is not None
    assert not style.dim
    triplet = style.color.triplet
    assert triplet is not None
    assert 64 < triplet.red < 224


def test_only_changed_rows_are_rendered_again() -> None:
    screen = VirtualScreen(10, 3)
    rows = [line("one"), line("two"), line("three")]

    assert [0, 1, 2] == screen.show(rows, plain)
    assert [] == screen.show(rows, plain)
    assert [1, 2] == screen.show([line("one"), line("2")], plain)
    assert [0, 1] == screen.show([line("one"), line("2")], lambda _: Style(bold=True))


def test_an_error_of_pyte_costs_the_colours_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    screen = VirtualScreen(10, 3)
    screen.show([line("one"), line("two")], plain)

    def broken(page: PyteBuffer, data: str) -> None:
        raise UnboundLocalError(data)

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(PyteBuffer, "draw", broken)
        assert [0, 1, 2] == screen.show([line("one"), line("2")], plain)
    assert ["one", "2", ""] == [screen.strip(y).text.rstrip() for y in range(3)]
    assert "drawing failed" in caplog.text

    screen.show([line("1"), line("2")], plain)
    assert ["1", "2", ""] == [screen.strip(y).text.rstrip() for y in range(3)]


class Room(App[None]):
    def __init__(self, transcript: Transcript) -> None:
        super().__init__()
        self.transcript = transcript

    def compose(self) -> ComposeResult:
        yield EventView(self.transcript, plain)

    @property
    def screen_of_events(self) -> EventView:
        return self.query_one(EventView)

    def seen(self) -> list[str]:
        screen = self.screen_of_events
        return [screen.render_line(y).text.rstrip() for y in range(screen.size.height)]


def transcript_of(count: int) -> Transcript:
    transcript = Transcript()
    for number in range(count):
        transcript.add(NoticeRaised(at=0.0, text=f"n{number}"))
    return transcript


@asynccontextmanager
async def room(count: int, height: int = 10) -> AsyncIterator[tuple[Room, Pilot[None]]]:
    async with (app := Room(transcript_of(count))).run_test(size=(40, height)) as pilot:
        app.screen_of_events.focus()
        await pilot.pause()
        yield app, pilot


def notices(start: int, end: int) -> list[str]:
    return [f"· n{number}" for number in range(start, end)]


async def test_a_transcript_opens_at_its_end() -> None:
    async with room(1000) as (app, _):
        assert notices(990, 1000) == app.seen()
        assert app.transcript.lines(39).drawn < 60


async def test_the_bar_stays_in_place_while_lines_move_along_it() -> None:
    async with room(100) as (app, pilot):
        screen = app.screen_of_events

        def edges() -> list[bool]:
            thumb = screen.get_component_rich_style("event-screen--thumb")
            return [[*screen.render_line(y)][-1].style == thumb for y in range(screen.size.height)]

        assert [False] * 9 + [True] == edges()
        await pilot.press("up")
        assert [*[False] * 8, True, False] == edges()
        await pilot.press("home")
        assert [True] + [False] * 9 == edges()
        await pilot.press("down")
        assert [True] + [False] * 9 == edges()
        line = screen.render_line(0)
        screen.refresh()
        assert line is screen.render_line(0)


async def test_a_short_transcript_is_at_the_top() -> None:
    async with room(3) as (app, pilot):
        assert [*notices(0, 3), *[""] * 7] == app.seen()
        await pilot.press("pageup", "up")
        assert [*notices(0, 3), *[""] * 7] == app.seen()
        assert 0 == app.screen_of_events.above


async def test_a_transcript_scrolls_to_its_beginning_and_back() -> None:
    async with room(1000) as (app, pilot):
        await pilot.press("pageup")
        assert notices(981, 991) == app.seen()
        await pilot.press("up", "down", "down")
        assert notices(982, 992) == app.seen()
        await pilot.press("home")
        assert 990 == app.screen_of_events.above
        assert notices(0, 10) == app.seen()
        await pilot.press("up", "pageup")
        assert notices(0, 10) == app.seen()
        await pilot.press("pagedown")
        assert notices(9, 19) == app.seen()
        await pilot.press("end")
        assert notices(990, 1000) == app.seen()


async def test_the_wheel_scrolls() -> None:
    async with room(100) as (app, pilot):
        await pilot._post_mouse_events([MouseScrollUp], EventView)
        await pilot.pause()
        assert notices(87, 97) == app.seen()
        await pilot._post_mouse_events([MouseScrollDown], EventView)
        await pilot.pause()
        assert notices(90, 100) == app.seen()


async def test_the_beginning_of_a_long_transcript_is_shown_at_once_with_little_rendering() -> None:
    async with room(20_000) as (app, pilot):
        await pilot.press("home")
        assert notices(0, 10) == app.seen()
        await pilot.press("pagedown", "down", "up", "up")
        assert notices(8, 18) == app.seen()
        assert app.transcript.lines(39).drawn < 100
        await pilot.press("end", "up")
        assert notices(19_989, 19_999) == app.seen()


async def test_new_rows_do_not_scroll_a_reader_at_the_beginning_of_a_long_transcript() -> None:
    async with room(20_000) as (app, pilot):
        await pilot.press("home", "down")
        for number in range(7):
            app.transcript.add(NoticeRaised(at=0.0, text=f"new {number}\nin two rows"))
        app.screen_of_events.draw_soon()
        await auntil(lambda: app.screen_of_events.above > 19_989)

        assert notices(1, 11) == app.seen()


async def test_a_transcript_follows_its_end() -> None:
    async with room(100) as (app, _):
        app.transcript.add(NoticeRaised(at=0.0, text="new"))
        app.screen_of_events.draw_soon()
        await auntil(lambda: "· new" == app.seen()[-1])

        app.transcript.write("writing")
        app.screen_of_events.draw_soon()
        await auntil(lambda: app.seen()[-1].endswith("writing"))


async def test_new_rows_do_not_move_a_reader_who_scrolled_up() -> None:
    async with room(100) as (app, pilot):
        await pilot.press("pageup")
        before = app.seen()
        for number in range(7):
            app.transcript.add(NoticeRaised(at=0.0, text=f"new {number}"))
            app.screen_of_events.draw_soon()
        await auntil(lambda: app.screen_of_events.above == 16)

        assert before == app.seen()


async def test_an_idle_reader_is_at_the_end_once_the_transcript_is_loaded() -> None:
    async with room(0) as (app, pilot):
        app.screen_of_events.holds = True
        await pilot.press("up")
        for number in range(100):
            app.transcript.add(NoticeRaised(at=0.0, text=f"n{number}"))
        app.screen_of_events.draw_soon()
        await auntil(lambda: notices(90, 100) == app.seen())

        app.transcript.add(NoticeRaised(at=0.0, text="more"))
        app.screen_of_events.draw_soon()
        await auntil(lambda: app.screen_of_events.above == 1)
        assert notices(90, 100) == app.seen()


async def test_a_resize_wraps_the_text_again() -> None:
    transcript = Transcript()
    for number in range(50):
        transcript.add(MessageWritten(at=0.0, text=f"message {number} " + "word " * 12))
    async with (app := Room(transcript)).run_test(size=(80, 12)) as pilot:
        await pilot.pause()
        await pilot.resize_terminal(30, 12)
        await auntil(lambda: app.screen_of_events.size.width == 30)
        await pilot.pause()

        assert all(cells(row) <= 29 for row in app.seen())
        assert "word" in app.seen()[-1]
        assert any("message 49" in row for row in app.seen())


async def test_another_transcript_opens_at_its_end() -> None:
    async with room(100) as (app, pilot):
        await pilot.press("pageup")
        app.screen_of_events.open(transcript_of(30))

        assert notices(20, 30) == app.seen()


async def test_another_theme_is_rendered_at_once() -> None:
    async with room(5) as (app, _):
        app.screen_of_events._style_of = lambda _: Style(bold=True)
        app.screen_of_events.redraw()
        style = app.screen_of_events.render_line(0)._segments[0].style

        assert style is not None
        assert style.bold


async def test_the_bar_shows_the_position() -> None:
    async with room(100) as (app, pilot):
        screen = app.screen_of_events

        def thumb() -> list[int]:
            colours = [screen.render_line(y)._segments[-1].style for y in range(10)]
            marked = screen.get_component_rich_style("event-screen--thumb")
            return [y for y, style in enumerate(colours) if style == marked]

        assert [9] == thumb()
        await pilot.press("home")
        assert [0] == thumb()
