"""Reading a session's transcript: a cursor, turns, folds, search, copying; and the box and the queue below it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from textual.events import Paste
from textual.pilot import Pilot

from kasmon.errors import RefusedError
from kasmon.model.commands import Configure, Prompt, Receipt, ReceiptId, ReceiptState, Requeue
from kasmon.model.events import (
    Event,
    MessageWritten,
    ReceiptChanged,
    SessionStarted,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from kasmon.model.permission import SessionId
from kasmon.model.session import Session, Tokens
from kasmon.model.transcript.layout import Transcript
from kasmon.tui.action import KeyContext
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.file_listing import listed
from kasmon.tui.gateway.operations import Operations
from kasmon.tui.gateway.protocol import DashboardSettings
from kasmon.tui.gateway.theme_library import shipped, shipped_names
from kasmon.tui.session_meter import meter
from kasmon.tui.theme.look import ThemeStyles, width_of
from kasmon.tui.theme.theme import DEFAULT, contrast
from kasmon.tui.transcript.file_completion import fitting, mention, written
from kasmon.tui.transcript.prompt_box import PromptBox
from kasmon.tui.transcript.view import SessionView
from tests.support.dashboard_scenes import kasmon, run_app, settled
from tests.support.sample_fleet import NOW, fleet, idle, working
from tests.support.sample_transcripts import long_talk
from tests.support.tui.fake_gateway import FakeGateway, called, fleet_update, text_of
from tests.support.wait import auntil

README = SessionId("readme")
CODE = "Do this:\n\n```python\ndef f():\n    return 1\n```\nand no more."
OUTPUT = "\n".join(f"printed {number}" for number in range(40))
STORY: tuple[Event, ...] = (
    *long_talk(30),
    TurnStarted(at=NOW, prompt="last one"),
    ToolStarted(at=NOW, call="x", tool="Bash", title="seq 40"),
    ToolFinished(at=NOW, call="x", output=OUTPUT),
    MessageWritten(at=NOW, text=CODE),
)


class Desk:
    """One session, its inside, and what was wanted."""

    def __init__(self, pilot: Pilot[None]) -> None:
        self.pilot = pilot
        self.app = cast(Kasmon, pilot.app)
        self.gateway = cast(FakeGateway, self.app.gateway)

    @property
    def view(self) -> SessionView:
        view = self.app.session_pane.widget
        assert isinstance(view, SessionView)
        return view

    @property
    def box(self) -> PromptBox:
        return self.app.query_one(PromptBox)

    @property
    def text(self) -> str:
        return text_of(self.app)

    @property
    def under_cursor(self) -> str:
        session_view = self.view.screen_of_events
        assert session_view.cursor is not None
        return session_view._screen.strip(session_view.cursor).text.strip()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()


@asynccontextmanager
async def main_view(
    *events: Event, session: Session | None = None, height: int = 40, **more: Any
) -> AsyncIterator[Desk]:
    shown = session or idle("readme")
    app = kasmon(fleet(shown), transcripts={"readme": events or STORY}, **more)
    async with app.run_test(size=(120, height), notifications=True) as pilot:
        await settled(pilot)
        known = app.session_pane.transcripts.of(README)
        await auntil(lambda: known.cursor, what="the transcript")
        await settled(pilot)
        yield Desk(pilot)


# Reading.


async def test_a_key_in_the_list_goes_in_to_read_and_back_to_the_list() -> None:
    async with main_view() as it:
        await it.press("v")
        assert KeyContext.READING is it.view.place
        assert "and no more." == it.under_cursor

        await it.press("escape")
        assert it.app.list_has_keys
        assert it.view.screen_of_events.cursor is None


async def test_tab_goes_from_the_box_to_the_transcript_and_back() -> None:
    async with main_view() as it:
        await it.press("enter", *"half", "tab")
        assert KeyContext.READING is it.view.place

        await it.press("tab", *"way")
        assert "halfway" == it.box.text


async def test_the_cursor_moves_and_the_screen_with_it() -> None:
    async with main_view() as it:
        await it.press("v", "k")
        assert "│     return 1" == it.under_cursor

        await it.press("g")
        await auntil(lambda: it.under_cursor.startswith("▶ session started"))
        await it.press("j", "j")
        assert "❯ step 0" == it.under_cursor
        await it.press("pagedown")
        assert "step 0" not in it.text
        await it.press("G")
        assert "and no more." == it.under_cursor


@pytest.mark.parametrize("theme", shipped_names())
async def test_what_is_under_the_cursor_can_be_read_in_every_theme(theme: str) -> None:
    async with main_view(*STORY, settings=DashboardSettings(theme=theme)) as it:
        await it.press("v", "k", "k")
        session_view = it.view.screen_of_events
        assert session_view.cursor is not None
        styles = [
            style for text, style, _ in [*session_view.render_line(session_view.cursor)][:-1] if text.strip() and style
        ]

        assert styles
        for style in styles:
            assert style.color is not None
            assert style.bgcolor is not None
            colours = style.color.get_truecolor().hex, style.bgcolor.get_truecolor().hex
            assert contrast(*colours) >= shipped(theme).contrast, colours


async def test_one_jumps_from_turn_to_turn() -> None:
    async with main_view() as it:
        await it.press("v", "left_square_bracket")
        assert "❯ last one" == it.under_cursor
        await it.press("left_square_bracket")
        assert "❯ step 29" == it.under_cursor
        await it.press("left_square_bracket", "left_square_bracket", "right_square_bracket")
        assert "❯ step 28" == it.under_cursor
        await it.press("G", "right_square_bracket")
        assert "No next turn." in it.text


async def test_who_went_to_the_top_before_all_was_read_is_at_the_top_of_all() -> None:
    """Of a long story its end is shown first; another place in it stays where it is."""
    async with main_view(*long_talk(30)) as it:
        for keys, found in (("g", "▶ session started"), ("gj", "")):
            end, whole = Transcript(), Transcript()
            for number, event in enumerate(long_talk(200)):
                whole.add(event)
                if number > 300:
                    end.add(event)
            it.view.show(end)
            await it.press("v", *keys)
            before = it.under_cursor
            it.view.show(whole)
            await it.pilot.pause()

            assert it.under_cursor.startswith(found or before)
            await it.press("escape")


async def test_what_comes_while_somebody_reads_moves_nothing() -> None:
    async with main_view() as it:
        await it.press("v")
        before = it.view.screen_of_events._screen.strip(5).text
        for number in range(20):
            it.view.transcript.add(MessageWritten(at=NOW, text=f"more {number}"))
        it.view.screen_of_events.draw_soon()
        await auntil(lambda: it.view.screen_of_events.above > 0)

        assert before == it.view.screen_of_events._screen.strip(5).text
        assert "and no more." == it.under_cursor


async def test_enter_opens_a_fold_and_folds_it_again() -> None:
    async with main_view(height=60) as it:
        await it.press("v", "left_square_bracket", *["j"] * 6)
        assert "printed" in it.under_cursor
        before = it.under_cursor
        assert "printed 13" not in it.text

        await it.press("enter")
        assert "printed 13" in it.text
        assert before == it.under_cursor
        await it.press("enter")
        assert "printed 13" not in it.text
        assert "… 28 more lines" in it.text


async def test_a_click_on_a_fold_opens_it_without_any_key() -> None:
    async with main_view(height=60) as it:
        session_view = it.view.screen_of_events
        row = next(y for y in range(session_view.size.height) if "more lines" in session_view._screen.strip(y).text)
        await it.pilot.click(session_view, offset=(6, row))
        await it.pilot.pause()

        assert "printed 13" in it.text


async def test_keys_that_mean_something_in_the_list_do_not_while_reading() -> None:
    async with main_view() as it:
        await it.press("v", "x", "R", "p")

        assert KeyContext.READING is it.view.place
        assert [] == it.gateway.calls


# Searching.


async def test_words_are_found_while_they_are_written() -> None:
    async with main_view() as it:
        await it.press("v", "slash", *"step 2")
        assert "Step 29 is done." == it.under_cursor
        assert "22 matches" in it.text
        await it.press(*"3")
        assert "Step 23 is done." == it.under_cursor

        await it.press("enter", "n")
        assert "❯ step 23" == it.under_cursor
        await it.press("N")
        assert "Step 23 is done." == it.under_cursor
        await it.press("N")
        assert "no more matches" in it.text


async def test_a_search_that_is_left_goes_back_to_where_it_began() -> None:
    async with main_view() as it:
        await it.press("v", "k", "slash", *"step 3", "escape")

        assert "return 1" in it.under_cursor
        assert KeyContext.READING is it.view.place
        await it.press("n")
        assert "Search first" in it.text


async def test_what_is_nowhere_is_said() -> None:
    async with main_view() as it:
        await it.press("v", "slash", *"no such thing")

        assert "not found" in it.text
        assert "and no more." == it.under_cursor


async def test_a_search_in_a_long_story_freezes_nothing_and_gets_there() -> None:
    async with main_view(*long_talk(20_000)) as it:
        await it.press("v", "slash", *"step 17 ")
        assert KeyContext.FIND is it.view.place
        await auntil(lambda: "Step 17 is done." == it.under_cursor, what="the place")


# Copying.


async def test_the_code_block_under_the_cursor_is_copied_and_else_the_answer() -> None:
    async with main_view() as it:
        await it.press("v", "k", "k", "y")
        assert "def f():\n    return 1" == it.app.clipboard
        assert "Copied code block (2 lines)." in it.text

        await it.press("G", "y")
        assert CODE == it.app.clipboard
        await it.press("left_square_bracket", "j", "j", "y")
        assert OUTPUT == it.app.clipboard
        await it.press("Y")
        assert CODE == it.app.clipboard
        assert called(Operations.copy_text, CODE) == it.gateway.calls[-1]


# The prompt box.


async def test_the_prompts_of_before_come_back_with_up_and_what_was_written_with_down() -> None:
    async with main_view() as it:
        await it.press("enter", *"new", "up")
        assert "last one" == it.box.text
        await it.press("up")
        assert "step 29" == it.box.text
        await it.press("down", "down")
        assert "new" == it.box.text


async def test_up_and_down_move_within_many_lines_first() -> None:
    async with main_view() as it:
        await it.press("enter", *"one", "ctrl+j", *"two", "up")
        assert "one\ntwo" == it.box.text
        await it.press("X", "down", "down")
        assert "oneX\ntwo" == it.box.text
        await it.press("up", "up")
        assert "last one" == it.box.text


async def test_a_paste_is_shown_as_it_is_and_sent_whole() -> None:
    pasted = "\n".join(f"line {number}" for number in range(500))
    async with main_view() as it:
        await it.press("enter")
        it.app.post_message(Paste(pasted))
        await auntil(lambda: it.box.text)
        assert pasted == it.box.text
        assert "line 499" in it.text
        await it.press("enter")
        assert called(Operations.send_prompt, README, Prompt(text=pasted)) == it.gateway.calls[-1]


async def test_a_prompt_can_wait_for_the_end_of_the_turn() -> None:
    async with main_view() as it:
        await it.press("enter", *"later", "alt+q")

        assert [called(Operations.send_prompt, README, Prompt(text="later", when="idle"))] == it.gateway.calls


async def test_a_files_name_is_completed() -> None:
    async with main_view() as it:
        it.gateway.listed = ("src/", "README.md", "src/app.py", "src/a b.py")
        await it.press("enter", *"see @ap")
        await auntil(lambda: "src/app.py" in it.text)
        await it.press("tab", *"ok @")
        assert "see @src/app.py ok @" == it.box.text
        await it.press("down", "down", "down", "enter")
        assert 'see @src/app.py ok @"src/a b.py" ' == it.box.text
        await it.press("at", "escape", "enter")
        assert it.gateway.calls


@pytest.mark.parametrize(
    ("before", "words"), [("@", ""), ("see @src/a", "src/a"), ("a@b", None), ("@a b", None), ("@a @b", "b"), ("", None)]
)
def test_only_a_word_that_begins_with_an_at_is_completed(before: str, words: str | None) -> None:
    assert words == written(before)


def test_the_files_that_fit_best_come_first() -> None:
    files = ["app/", "docs/map.md", "src/happy.py", "src/app.py", "a/p/x", "app/z"]

    assert ["app/", "src/app.py", "app/z", "docs/map.md", "src/happy.py", "a/p/x"] == fitting(files, "ap")
    assert '@"a b"' == mention("a b")


def test_files_are_listed_near_ones_first_and_hidden_ones_never(tmp_path: Path) -> None:
    for name in (".git/config", "b/deep/x", "b/y", "a", ".env", "node_modules/z", "bad\x1bname", "loop/a"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "loop" / "back").symlink_to(tmp_path)

    assert ["a", "b/", "loop/", "b/deep/", "b/y", "loop/a", "loop/back", "b/deep/x"] == listed(tmp_path)
    assert [] == listed(tmp_path / "nowhere")


async def test_who_goes_in_before_all_is_there_finds_the_box_at_the_bottom() -> None:
    app = kasmon(fleet(idle("a"), idle("readme")), transcripts={"readme": STORY})
    async with run_app(app) as pilot:
        app.main_view.table.select(README)
        app.key_dispatcher.run("open")
        await settled(pilot)

        view = app.session_pane.widget
        assert isinstance(view, SessionView)
        assert view.children[-1] is view.box


async def test_who_reads_before_all_is_there_reads_on() -> None:
    app = kasmon(fleet(idle("a"), idle("readme")), transcripts={"readme": STORY})
    async with run_app(app) as pilot:
        app.main_view.table.select(README)
        app.key_dispatcher.run("read_story")
        await settled(pilot)
        await auntil(lambda: app.session_pane.transcripts.of(README).cursor)
        await settled(pilot)
        await pilot.press("k", "k")

        assert KeyContext.READING is app.session_pane.place
        assert "def f():" in Desk(pilot).under_cursor


# What waits.


def receipts(*texts: str) -> tuple[Receipt, ...]:
    return tuple(
        Receipt(id=ReceiptId(f"readme-r{number}"), session=README, state=ReceiptState.QUEUED, text=text)
        for number, text in enumerate(texts, 1)
    )


def queued(*texts: str) -> tuple[Session, Sequence[Event]]:
    waiting = receipts(*(text.partition("\n")[0] for text in texts))
    moved = [ReceiptChanged(at=NOW, receipt=each, prompt=text) for each, text in zip(waiting, texts, strict=True)]
    return working("readme", receipts=waiting), [SessionStarted(at=NOW), *moved]


async def test_prompts_that_wait_are_moved_and_taken_back() -> None:
    session, events = queued("first", "second", "third")
    async with main_view(*events, session=session) as it:
        await it.press("enter", "shift+tab")
        assert KeyContext.QUEUE is it.view.place
        assert "2. second" in it.text
        await it.press("j", "J", "K", "d")

        second = ReceiptId("readme-r2")
        assert [
            called(Operations.change_queue, README, Requeue(receipt=second, place=2)),
            called(Operations.change_queue, README, Requeue(receipt=second, place=0)),
            called(Operations.change_queue, README, Requeue(receipt=second, drop=True)),
        ] == it.gateway.calls
        await it.press("escape", "x")
        assert "x" == it.box.text


async def test_a_prompt_that_waits_is_changed_in_the_box() -> None:
    session, events = queued("first", "second\nin two lines")
    async with main_view(*events, session=session) as it:
        await it.press("enter", *"draft", "shift+tab", "j", "enter")
        assert "second\nin two lines" == it.box.text
        assert "Editing a queued prompt" in it.text

        await it.press(*"!", "enter")
        changed = Requeue(receipt=ReceiptId("readme-r2"), text="second\nin two lines!")
        assert [called(Operations.change_queue, README, changed)] == it.gateway.calls
        assert "draft" == it.box.text


async def test_a_change_that_is_left_changes_nothing() -> None:
    session, events = queued("first")
    async with main_view(*events, session=session) as it:
        await it.press("enter", "shift+tab", "e", *"xyz", "escape")

        assert "" == it.box.text
        assert it.app.main_view.focused_inside
        assert [] == it.gateway.calls


async def test_words_that_came_too_late_are_in_the_box_again() -> None:
    session, events = queued("first")
    async with main_view(*events, session=session) as it:
        it.gateway.refusing = RefusedError("the prompt is started: it is no longer queued.")
        await it.press("enter", "shift+tab", "e", "!", "enter")
        await auntil(lambda: "is no longer queued" in it.text)

        assert "first!" == it.box.text


async def test_of_a_script_that_is_sent_the_words_of_its_prompt_are_shown() -> None:
    session, events = queued("prompt Mend it.")
    async with main_view(*events, session=msgspec.structs.replace(session, agent="scripted")) as it:
        await it.press("enter")

        assert "queued  Mend it." in it.text


async def test_of_many_that_wait_the_last_are_shown_and_the_others_counted() -> None:
    session, events = queued(*(f"prompt {number}" for number in range(1, 9)))
    async with main_view(*events, session=session) as it:
        await it.press("enter")

        assert "queued  6 more above" in it.text
        assert ["prompt 7", "prompt 8"] == [f"prompt {n}" for n in range(1, 9) if f"prompt {n}" in it.text]


async def test_when_nothing_waits_any_more_the_box_has_the_keyboard() -> None:
    session, events = queued("first")
    async with main_view(*events, session=session) as it:
        await it.press("enter", "shift+tab")
        it.app._show_update(fleet_update(fleet(idle("readme"))))
        await it.pilot.pause()

        assert it.box.has_focus
        await it.press("shift+tab")
        assert "No queued prompts." in it.text


# How full it is, and how it goes on.

ABLE: dict[str, Any] = {
    "abilities": ("interrupts", "sets_model", "sets_permission_mode"),
    "model": "small",
    "models": ("small", "large"),
    "permission_mode": "default",
    "permission_modes": ("default", "plan"),
    "generation": 1,
}


async def test_the_meter_tells_context_cost_model_and_mode() -> None:
    used = Tokens(input=800_000, output=50_000, context=150_000, limit=200_000)
    async with main_view(session=working("readme", tokens=used, cost_usd=1.5, **ABLE)) as it:
        await it.press("enter")

        line = next(line for line in it.text.splitlines() if "% of" in line)
        for word in ("━━━━━━━━━───", "75% of 200k", "$1.50", "850k tokens", "small · default", "F3 change"):
            assert word in line


@pytest.mark.parametrize("width", [36, 44, 60, 72, 100])
def test_however_narrow_the_meter_tells_how_full_the_context_is(width: int) -> None:
    session = working(
        "readme",
        tokens=Tokens(input=180_000, output=9_000, context=171_000, limit=200_000),
        cost_usd=3.21,
        model="claude-opus-5-5",
        permission_mode="acceptEdits",
        models=("opus",),
        abilities=("sets_model",),
    )
    line = meter(session, ThemeStyles(shipped(DEFAULT)), "F3", width)

    assert line is not None
    told = "".join(text for text, _ in line.left)
    assert "86%" in told
    assert width_of(line.left) + width_of(line.right) < width
    assert ("$3.21" in told) == (width == 100)


async def test_a_long_prompt_in_a_low_window_shows_its_end_and_some_of_the_transcript() -> None:
    async with main_view(height=16) as it:
        await it.press("enter", *("x", "ctrl+j") * 12, "z")
        await settled(it.pilot)

        assert "z" in it.text
        assert it.view.screen_of_events.size.height >= 4
        assert it.box.region.bottom <= it.view.region.bottom


async def test_model_and_permission_mode_are_changed_while_it_runs() -> None:
    async with main_view(session=working("readme", **ABLE)) as it:
        await it.press("enter", "f3")
        assert "Model and permissions: readme" in it.text
        await it.press("right", "tab", "right", "enter")

        changes = Configure(model="large", permission_mode="plan")
        assert [called(Operations.configure, README, changes)] == it.gateway.calls


async def test_what_an_agent_cannot_do_is_not_offered_and_said() -> None:
    async with main_view(session=working("readme", generation=1, abilities=("streams",))) as it:
        await it.press("enter")
        assert "interrupt" not in it.text.splitlines()[-1]
        await it.press("ctrl+c", "f3")

        assert [] == it.gateway.calls
        assert "cannot be interrupted" in it.text
        assert "offers no other model or mode" in it.text


async def test_what_it_can_do_is_offered() -> None:
    async with main_view(session=working("readme", **ABLE)) as it:
        await it.press("enter")
        assert "interrupt" in it.text.splitlines()[-1]
        await it.press("ctrl+c")

        assert [called(Operations.interrupt, README)] == it.gateway.calls
