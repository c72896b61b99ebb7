"""Reading a session's transcript: a cursor, turns, folds, search, copying; and the box and the queue below it."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from rich.color import Color
from textual.events import Paste
from textual.pilot import Pilot

from kasmon.errors import RefusedError, UsageError
from kasmon.model.commands import Configure, ContextPart, Prompt, Receipt, ReceiptId, ReceiptState, Requeue
from kasmon.model.events import (
    AgentSwitch,
    Event,
    MessageWritten,
    PlanItem,
    PlanUpdated,
    ReceiptChanged,
    SessionStarted,
    SlashCommand,
    SubtaskChanged,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from kasmon.model.permission import SessionId
from kasmon.model.prompts.image import build_image
from kasmon.model.session import Session, Tokens
from kasmon.model.transcript.layout import Transcript
from kasmon.supervisor.worktrees.code_symbols import CodeSymbol
from kasmon.supervisor.worktrees.file_listing import listed
from kasmon.tui.action import KeyContext
from kasmon.tui.actions.transcript import CLIPBOARD_S
from kasmon.tui.app import Kasmon
from kasmon.tui.dialogs.picture import HalfCells, find_protocol
from kasmon.tui.gateway.operations import Operations
from kasmon.tui.gateway.protocol import DashboardSettings
from kasmon.tui.gateway.theme_library import shipped, shipped_names
from kasmon.tui.keymap import Keys
from kasmon.tui.session_meter import meter
from kasmon.tui.theme.look import ThemeStyles, width_of
from kasmon.tui.theme.theme import DEFAULT, contrast
from kasmon.tui.transcript.completion import find_matches, find_mention, mention
from kasmon.tui.transcript.prompt_box import PromptBox
from kasmon.tui.transcript.view import SessionView
from tests.model.prompts.test_image import png
from tests.support.dashboard_scenes import kasmon, run_app, settled
from tests.support.sample_fleet import NOW, StillClock, fleet, idle, working
from tests.support.sample_transcripts import long_talk
from tests.support.tui.fake_gateway import called, fleet_update, gateway_of, text_of
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
        self.gateway = gateway_of(self.app)

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


async def test_a_key_in_the_list_opens_the_transcript_and_returns_to_the_list() -> None:
    async with main_view() as it:
        await it.press("v")
        assert KeyContext.READING is it.view.place
        assert "and no more." == it.under_cursor

        await it.press("escape")
        assert it.app.list_has_keys
        assert it.view.screen_of_events.cursor is None


async def test_tab_moves_from_the_box_to_the_transcript_and_back() -> None:
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
async def test_the_row_under_the_cursor_is_readable_in_every_theme(theme: str) -> None:
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


async def test_a_key_moves_from_turn_to_turn() -> None:
    async with main_view() as it:
        await it.press("v", "left_square_bracket")
        assert "❯ last one" == it.under_cursor
        await it.press("left_square_bracket")
        assert "❯ step 29" == it.under_cursor
        await it.press("left_square_bracket", "left_square_bracket", "right_square_bracket")
        assert "❯ step 28" == it.under_cursor
        await it.press("G", "right_square_bracket")
        assert "No next turn." in it.text


async def test_a_jump_to_the_top_before_the_log_is_read_ends_at_the_real_top() -> None:
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


async def test_new_rows_do_not_scroll_a_reader() -> None:
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


async def test_a_click_on_a_fold_opens_it_without_a_key() -> None:
    async with main_view(height=60) as it:
        session_view = it.view.screen_of_events
        row = next(y for y in range(session_view.size.height) if "more lines" in session_view._screen.strip(y).text)
        await it.pilot.click(session_view, offset=(6, row))
        await it.pilot.pause()

        assert "printed 13" in it.text


async def test_list_keys_have_no_effect_while_reading() -> None:
    async with main_view() as it:
        await it.press("v", "x", "R", "p")

        assert KeyContext.READING is it.view.place
        assert [] == it.gateway.calls


# Searching.


async def test_matches_are_shown_while_the_search_is_typed() -> None:
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


async def test_a_cancelled_search_returns_to_its_start() -> None:
    async with main_view() as it:
        await it.press("v", "k", "slash", *"step 3", "escape")

        assert "return 1" in it.under_cursor
        assert KeyContext.READING is it.view.place
        await it.press("n")
        assert "Search first" in it.text


async def test_a_search_without_matches_is_reported() -> None:
    async with main_view() as it:
        await it.press("v", "slash", *"no such thing")

        assert "not found" in it.text
        assert "and no more." == it.under_cursor


async def test_a_search_in_a_long_transcript_does_not_block_and_completes() -> None:
    async with main_view(*long_talk(20_000)) as it:
        await it.press("v", "slash", *"step 17 ")
        assert KeyContext.FIND is it.view.place
        await auntil(lambda: "Step 17 is done." == it.under_cursor, what="the place")


# Copying.


async def test_the_code_block_under_the_cursor_is_copied_and_otherwise_the_answer() -> None:
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


# Exporting.


async def test_the_turn_under_the_cursor_is_exported() -> None:
    async with main_view() as it:
        await it.press("v", "e")
        assert called(Operations.export, README, turn=-1) == it.gateway.calls[-1]
        await it.press("left_square_bracket", "left_square_bracket", "e")
        assert called(Operations.export, README, turn=-2) == it.gateway.calls[-1]


async def test_a_page_to_share_is_written_only_after_it_was_confirmed() -> None:
    async with main_view() as it:
        await it.press("v", "E")
        assert "Nothing is uploaded." in it.text
        await it.press("escape", "E")
        assert not it.gateway.passed(Operations.export, "session")
        cast(StillClock, it.app.clock).forward(5.0)
        await it.press("y")
        await auntil(lambda: it.gateway.passed(Operations.export, "session"), what="the export")
        assert ["html"] == it.gateway.passed(Operations.export, "format_")


# The to-do list and the background.

TO_DO = PlanUpdated(
    at=NOW,
    items=(
        PlanItem(text="read", state="done"),
        PlanItem(text="[b]fix\x1b[2J[/b]", state="doing"),
        *(PlanItem(text=f"test {number}") for number in range(6)),
    ),
)
BUILD = SubtaskChanged(at=NOW, id="t", call="x", title="make all", in_background=True, tokens=1200, text="Running make")


@pytest.mark.parametrize(
    ("height", "lines"),
    [
        (40, ["to-do 1/8 ◐ [b]fix[/b]", "☐ test 0", "☐ test 1", "☐ test 2", "3 more"]),
        (20, ["to-do 1/8 ◐ [b]fix[/b]"]),
    ],
)
async def test_open_to_do_items_stay_above_the_box_until_they_are_done(height: int, lines: list[str]) -> None:
    async with main_view(TO_DO, BUILD, MessageWritten(at=NOW, text="end"), height=height) as it:
        assert not it.view.pinned.drawn
        await it.press("enter")
        shown = ["".join(text for text, _ in line.left).strip() for line in it.view.pinned.drawn]
        assert [*lines, "● make all  in the background · Running make · 1.2k tokens"] == shown

        it.view.transcript.add(PlanUpdated(at=NOW, items=(PlanItem(text="read", state="done"),)))
        it.view.transcript.add(msgspec.structs.replace(BUILD, state="done"))
        it.view.show(it.view.transcript)
        assert not it.view.pinned.drawn


# The prompt box.


LINKS = "Read [the docs](https://docs.example/a) first.\n\n[Both](https://a.example) or [none](javascript:alert(1)).\n"


async def test_a_link_is_opened_only_after_its_address_was_shown() -> None:
    async with main_view(MessageWritten(at=NOW, text=LINKS)) as it:
        await it.press("v", "g", "o")
        assert "https://docs.example/a" in it.text
        assert not it.gateway.passed(Operations.open_link, "address")

        await it.press("n")
        assert not it.gateway.passed(Operations.open_link, "address")
        await it.press("o")
        cast(StillClock, it.app.clock).forward(5.0)
        await it.press("y")
        await auntil(lambda: it.gateway.passed(Operations.open_link, "address"), what="the link")
        assert ["https://docs.example/a"] == it.gateway.passed(Operations.open_link, "address")


async def test_of_several_links_one_is_chosen_and_other_schemes_are_not_opened() -> None:
    async with main_view(MessageWritten(at=NOW, text=LINKS)) as it:
        await it.press("v", "o")
        assert "javascript:alert(1)" in it.text
        await it.press("right", "enter")
        assert not it.gateway.passed(Operations.open_link, "address")
        assert "Only http and https addresses are opened" in it.text


async def test_a_click_on_a_link_shows_its_address_and_one_on_the_button_copies_the_code() -> None:
    async with main_view(MessageWritten(at=NOW, text=f"{LINKS}\n{CODE}")) as it:
        view = it.view.screen_of_events
        rows = [view._screen.strip(y).text for y in range(view.shown)]
        y = next(y for y, row in enumerate(rows) if "copy" in row)
        await it.pilot.click(view, offset=(rows[y].index("copy"), y))
        await auntil(lambda: it.app.clipboard, what="the copy")
        assert "def f():\n    return 1" == it.app.clipboard

        await it.pilot.click(view, offset=(rows[0].index("the docs"), 0))
        await it.pilot.pause()
        assert "Open a link" in it.text


async def test_up_recalls_earlier_prompts_and_down_the_draft() -> None:
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


async def test_a_paste_is_shown_unchanged_and_sent_whole() -> None:
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


async def test_a_file_name_is_completed() -> None:
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


COMMANDS = (
    SlashCommand(command="compact", text="Summarize the conversation", hint="[instructions]"),
    SlashCommand(command="code-review", text="Review the changes"),
    SlashCommand(command="init", text="Write a CLAUDE.md [bold]x[/bold]"),
)


async def test_a_chosen_command_stays_chosen_while_the_suggestions_stay_the_same() -> None:
    async with main_view() as it:
        it.gateway.announced = COMMANDS
        await it.press("enter", "/")
        await auntil(lambda: "/compact" in it.text)
        await it.press("down")
        it.box.on_text_area_selection_changed()
        await it.press("enter")
        assert "/code-review " == it.box.text


async def test_a_slash_at_the_start_lists_the_agents_commands_with_their_descriptions() -> None:
    async with main_view() as it:
        it.gateway.announced = COMMANDS
        await it.press("enter", "slash")
        await auntil(lambda: "Summarize the conversation" in it.text)
        assert "/compact [instructions]" in it.text
        assert "Write a CLAUDE.md [bold]x[/bold]" in it.text
        await it.press(*"co", "down", "enter")
        assert "/code-review " == it.box.text
        await it.press("enter")
        assert called(Operations.send_prompt, README, Prompt(text="/code-review ")) == it.gateway.calls[-1]


async def test_a_complete_command_is_sent_by_one_enter() -> None:
    async with main_view() as it:
        it.gateway.announced = COMMANDS
        await it.press("enter", *"/compact", "enter")
        assert called(Operations.send_prompt, README, Prompt(text="/compact")) == it.gateway.calls[-1]


async def test_a_slash_elsewhere_is_a_path() -> None:
    async with main_view() as it:
        it.gateway.announced = COMMANDS
        await it.press("enter", *"see /co", "ctrl+j", "slash")
        assert "Summarize" not in it.text


async def test_an_at_completes_sessions_and_symbols_too() -> None:
    app = kasmon(fleet(idle("readme"), working("parser", workdir="/w/parser")), transcripts={"readme": STORY})
    async with run_app(app) as pilot:
        it = Desk(pilot)
        it.gateway.listed = ("src/other.py",)
        it.gateway.defined = (CodeSymbol("parse_line", "src/other.py", 12),)
        app.main_view.table.select(README)
        await it.press("enter", *"as @pars")
        await auntil(lambda: "src/other.py:12" in it.text)
        await it.press("enter")
        assert 'as the session "parser" (/w/parser) ' == it.box.text
        await it.press(*"and @parse_", "enter")
        assert it.box.text.endswith("and `parse_line` in @src/other.py line 12 ")


async def test_earlier_prompts_are_searched_and_the_chosen_one_can_be_edited() -> None:
    async with main_view() as it:
        await it.press("enter", *"draft", "ctrl+a", *["delete"] * 5, *"step 1", "ctrl+r")
        assert "Search earlier prompts" in it.text
        await it.press("ctrl+r", "enter")
        assert "step 18" == it.box.text
        assert "Search earlier prompts" not in it.text
        await it.press("enter")
        assert called(Operations.send_prompt, README, Prompt(text="step 18")) == it.gateway.calls[-1]


async def test_a_cancelled_search_of_earlier_prompts_restores_the_draft() -> None:
    async with main_view() as it:
        await it.press("enter", *"draft", "ctrl+r", "enter")
        assert "draft" == it.box.text
        await it.press("ctrl+r", *"no such", "escape")
        assert "draft" == it.box.text
        assert [] == it.gateway.calls


@pytest.mark.parametrize(
    ("via", "asked", "told"),
    [("", "on this machine, in /w/readme", "/w/readme"), ("gpu-1", "on gpu-1, in /w/readme", "gpu-1:/w/readme")],
)
async def test_a_command_of_the_user_names_the_machine_that_runs_it(via: str, asked: str, told: str) -> None:
    app = kasmon(fleet(idle("readme", via=via, workdir="/w/readme")), transcripts={"readme": STORY})
    async with run_app(app) as pilot:
        it = Desk(pilot)
        app.main_view.table.select(README)
        await it.press("enter", *"!ls -l", "enter")
        assert asked in " ".join(it.text.split())
        app.clock.ticking = lambda: 1e9  # type: ignore[method-assign]
        await it.press("y")
        await auntil(lambda: "exited with code 0" in it.text)
        await it.press("enter")
        assert f"I ran this command in {told}; it exited with code 0:" in it.box.text


async def test_a_command_of_the_user_is_confirmed_and_its_output_can_be_inserted_into_the_prompt() -> None:
    async with main_view() as it:
        it.gateway.prints = "two [b]files[/b]\n\x1b]0;title\x07```\n"
        await it.press("enter", *"!ls -l", "enter")
        assert "Run this command?" in it.text
        assert "with your rights" in it.text
        await it.press("escape")
        assert ("!ls -l", ()) == (it.box.text, it.gateway.ran)

        await it.press("enter")
        it.app.clock.ticking = lambda: 1e9  # type: ignore[method-assign]
        await it.press("y")
        await auntil(lambda: "exited with code 0" in it.text)
        assert "two [b]files[/b]" in it.text
        await it.press("enter")
        assert "````\n$ ls -l\ntwo [b]files[/b]" in it.box.text
        assert "\x1b" not in it.box.text
        assert (("ls -l",), []) == (it.gateway.ran, it.gateway.calls)


async def test_the_output_of_a_command_stays_with_the_user_unless_it_is_inserted() -> None:
    async with main_view() as it:
        it.gateway.prints = "private"
        await it.press("enter", *"!env", "enter")
        it.app.clock.ticking = lambda: 1e9  # type: ignore[method-assign]
        await it.press("y")
        await auntil(lambda: "exited with code 0" in it.text)
        await it.press("escape")
        assert "" == it.box.text
        assert [] == it.gateway.calls


async def test_the_end_of_a_long_output_has_the_exit_of_the_command() -> None:
    async with main_view() as it:
        it.gateway.prints = "".join(f"line {number}\n" for number in range(500))
        await it.press("enter", *"!seq", "enter")
        it.app.clock.ticking = lambda: 1e9  # type: ignore[method-assign]
        await it.press("y")
        await auntil(lambda: "insert into the prompt" in it.text)
        await it.pilot.pause()
        assert "line 499" in it.text
        assert "It exited with code 0." in it.text


PICTURE = build_image("cat.png", png(40, 20))


async def test_a_mentioned_picture_is_named_with_its_size_and_shown_by_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    async with main_view() as it:
        it.gateway.pictures = (PICTURE,)
        await it.press("enter", *"see @cat.png")
        await auntil(lambda: "▣ cat.png  PNG · 0.1 kB · 40×20" in it.text)
        await it.press("alt+p")
        await auntil(lambda: "▀▀▀" in it.text)
        await it.press("escape", *["backspace"] * 9)
        await auntil(lambda: "▣" not in it.text)


@pytest.mark.parametrize("variable", ["NO_COLOR", "TERM"])
async def test_where_the_terminal_shows_no_pictures_they_are_named(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "dumb")
    async with main_view() as it:
        it.gateway.pictures = (PICTURE,)
        await it.press("enter", *"@cat.png ")
        await auntil(lambda: "▣ cat.png" in it.text)
        await it.press("alt+p")
        await auntil(lambda: "This terminal shows no pictures." in it.text)
        assert "▀" not in it.text


async def test_a_broken_picture_is_named_with_its_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    async with main_view() as it:
        it.gateway.pictures = (msgspec.structs.replace(PICTURE, data=PICTURE.data[:40]),)
        await it.press("enter", *"@cat.png ")
        await auntil(lambda: "▣ cat.png" in it.text)
        await it.press("alt+p")
        await auntil(lambda: "the picture cannot be shown" in it.text)


async def test_a_picture_whose_decoding_would_take_too_much_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    async with main_view() as it:
        bombs = [png(30_000, 30_000, pixels=b"\0"), png(12_000, 9_000, pixels=b"\0")]
        it.gateway.pictures = tuple(build_image("bomb.png", data) for data in bombs)
        await it.press("enter", *"@bomb.png ")
        await auntil(lambda: "▣ bomb.png" in it.text)
        await it.press("alt+p")
        await auntil(lambda: "30000×30000" in it.text and "it has more than 50 million pixels" in it.text)
        await it.press("right")
        await auntil(lambda: "12000×9000" in it.text and "it has more than 50 million pixels" in it.text)
        assert "▀" not in it.text


async def test_a_cell_of_a_picture_has_the_colours_of_its_two_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    red, blue = bytes((255, 0, 0)), bytes((0, 0, 255))
    async with main_view() as it:
        it.gateway.pictures = (build_image("flag.png", png(2, 3, pixels=red * 2 + blue * 2 + red + blue)),)
        await it.press("enter", *"@flag.png ")
        await auntil(lambda: "▣ flag.png" in it.text)
        await it.press("alt+p")
        await auntil(lambda: "▀▀" in it.text)
        cells = it.app.screen.query_one(HalfCells)
        shown = [
            [(each.text, each.style.color, each.style.bgcolor) for each in row if each.style] for row in cells.rows
        ]
        red_colour, blue_colour = Color.from_rgb(255, 0, 0), Color.from_rgb(0, 0, 255)
        assert shown == [
            [("▀▀", red_colour, blue_colour)],
            [("▀", red_colour, red_colour), ("▀", blue_colour, blue_colour)],
        ]


async def test_an_unsupported_picture_is_reported_while_the_prompt_is_typed() -> None:
    async with main_view() as it:
        it.gateway.picture_problem = UsageError("the picture 'cat.png' has 6.0 MB; the limit is 5.0 MB.")
        await it.press("enter", *"@cat.png ")
        await auntil(lambda: "has 6.0 MB; the limit is 5.0 MB" in it.text)


async def test_the_pictures_of_a_prompt_are_in_the_transcript_and_can_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    logged = msgspec.structs.replace(PICTURE, data=b"")
    receipt = Receipt(id=ReceiptId("readme-r1"), session=README, state=ReceiptState.TYPED, text="see")
    moved = ReceiptChanged(at=NOW, receipt=receipt, prompt="see [b]it[/b]", images=(logged,))
    async with main_view(moved, TurnStarted(at=NOW, prompt="see [b]it[/b]")) as it:
        it.gateway.pictures = (PICTURE,)
        assert "▣ cat.png  PNG · 0.1 kB · 40×20" in it.text
        await it.press("v", "p")
        await auntil(lambda: "▀▀▀" in it.text)


@pytest.mark.parametrize(
    ("pasted", "text"),
    [
        ("/home/you/cat.png", "@/home/you/cat.png "),
        ("'/home/you/my cat.png' ", '@"/home/you/my cat.png" '),
        ("/home/you/my\\ cat.png", '@"/home/you/my cat.png" '),
        ("file:///home/you/my%20cat.JPG", '@"/home/you/my cat.JPG" '),
        ("see /home/you/cat.png", "see /home/you/cat.png"),
        ("/home/you/notes.txt", "/home/you/notes.txt"),
    ],
)
async def test_a_dropped_picture_becomes_a_mention(pasted: str, text: str) -> None:
    async with main_view() as it:
        await it.press("enter")
        it.app.post_message(Paste(pasted))
        await it.pilot.pause()
        assert text == it.box.text


@pytest.mark.parametrize(
    ("variables", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "ghostty", "COLORTERM": "truecolor"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app", "COLORTERM": "truecolor"}, "sixel"),
        ({"TERM": "foot", "COLORTERM": "truecolor"}, "sixel"),
        ({"TERM": "tmux-256color", "TMUX": "/t", "KITTY_WINDOW_ID": "1", "COLORTERM": "truecolor"}, "cells"),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "cells"),
        ({"TERM": "xterm-256color"}, ""),
        ({"TERM": "xterm-kitty", "NO_COLOR": "1"}, ""),
        ({}, ""),
    ],
)
def test_environment_variables_decide_how_pictures_are_shown(variables: dict[str, str], protocol: str) -> None:
    assert protocol == find_protocol(variables, utf8=True)
    assert "" == find_protocol(variables, utf8=False)


@pytest.mark.parametrize(
    ("before", "words"), [("@", ""), ("see @src/a", "src/a"), ("a@b", None), ("@a b", None), ("@a @b", "b"), ("", None)]
)
def test_only_a_word_that_begins_with_an_at_is_completed(before: str, words: str | None) -> None:
    assert words == find_mention(before)


def test_the_files_that_fit_best_come_first() -> None:
    files = ["app/", "docs/map.md", "src/happy.py", "src/app.py", "a/p/x", "app/z"]

    assert ["app/", "src/app.py", "app/z", "docs/map.md", "src/happy.py", "a/p/x"] == find_matches(files, "ap")
    assert '@"a b"' == mention("a b")


def test_nearby_files_are_listed_first_and_hidden_ones_never(tmp_path: Path) -> None:
    for name in (".git/config", "b/deep/x", "b/y", "a", ".env", "node_modules/z", "bad\x1bname", "loop/a"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "loop" / "back").symlink_to(tmp_path)

    assert ["a", "b/", "loop/", "b/deep/", "b/y", "loop/a", "loop/back", "b/deep/x"] == listed(tmp_path)
    assert [] == listed(tmp_path / "nowhere")


async def test_a_session_opened_before_its_log_is_read_has_the_box_at_the_bottom() -> None:
    async with run_app(app := kasmon(fleet(idle("a"), idle("readme")), transcripts={"readme": STORY})) as pilot:
        app.main_view.table.select(README)
        app.key_dispatcher.run(Keys.OPEN)
        await settled(pilot)

        view = app.session_pane.widget
        assert isinstance(view, SessionView)
        assert view.children[-1] is view.box


async def test_reading_continues_when_the_rest_of_the_log_arrives() -> None:
    async with run_app(app := kasmon(fleet(idle("a"), idle("readme")), transcripts={"readme": STORY})) as pilot:
        app.main_view.table.select(README)
        app.key_dispatcher.run(Keys.READ_STORY)
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


async def test_queued_prompts_are_moved_and_withdrawn() -> None:
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


async def test_a_queued_prompt_is_edited_in_the_box() -> None:
    session, events = queued("first", "second\nin two lines")
    async with main_view(*events, session=session) as it:
        await it.press("enter", *"draft", "shift+tab", "j", "enter")
        assert "second\nin two lines" == it.box.text
        assert "Editing a queued prompt" in it.text

        await it.press(*"!", "enter")
        changed = Requeue(receipt=ReceiptId("readme-r2"), text="second\nin two lines!")
        assert [called(Operations.change_queue, README, changed)] == it.gateway.calls
        assert "draft" == it.box.text


async def test_a_cancelled_edit_changes_nothing() -> None:
    session, events = queued("first")
    async with main_view(*events, session=session) as it:
        await it.press("enter", "shift+tab", "e", *"xyz", "escape")

        assert "" == it.box.text
        assert it.app.main_view.focused_inside
        assert [] == it.gateway.calls


async def test_an_edit_that_came_too_late_is_in_the_box_again() -> None:
    session, events = queued("first")
    async with main_view(*events, session=session) as it:
        it.gateway.refusing = RefusedError("the prompt is started: it is no longer queued.")
        await it.press("enter", "shift+tab", "e", "!", "enter")
        await auntil(lambda: "is no longer queued" in it.text)

        assert "first!" == it.box.text


async def test_a_sent_script_is_shown_as_its_prompt() -> None:
    session, events = queued("prompt Mend it.")
    async with main_view(*events, session=msgspec.structs.replace(session, agent="scripted")) as it:
        await it.press("enter")

        assert "queued  Mend it." in it.text


async def test_the_last_of_many_queued_prompts_are_shown_and_the_others_counted() -> None:
    session, events = queued(*(f"prompt {number}" for number in range(1, 9)))
    async with main_view(*events, session=session) as it:
        await it.press("enter")

        assert "queued  6 more above" in it.text
        assert ["prompt 7", "prompt 8"] == [f"prompt {n}" for n in range(1, 9) if f"prompt {n}" in it.text]


async def test_when_the_queue_is_empty_the_box_has_the_focus() -> None:
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


async def test_the_meter_shows_context_cost_model_and_mode() -> None:
    used = Tokens(input=800_000, output=50_000, context=150_000, limit=200_000)
    async with main_view(session=working("readme", tokens=used, cost_usd=1.5, **ABLE)) as it:
        await it.press("enter")

        line = next(line for line in it.text.splitlines() if "% of" in line)
        for word in ("━━━━━━━━━───", "75% of 200k", "$1.50", "850k tokens", "small · default", "F3 change"):
            assert word in line


async def test_the_usage_of_the_context_is_shown_in_the_model_dialog() -> None:
    parts = (ContextPart(name="Messages", tokens=30_000), ContextPart(name="Tools \x1b[2J[b]", tokens=9_000))
    used = Tokens(context=150_000, limit=200_000, filled_by=parts)
    async with main_view(session=working("readme", tokens=used, **ABLE)) as it:
        await it.press("enter")
        assert "75% of 200k   Messages 30k, Tools [b] 9.0k" in it.text
        await it.press("f3")
        assert "In the context: Messages 30k, Tools [b] 9.0k." in it.text


@pytest.mark.parametrize("width", [36, 44, 60, 72, 100])
def test_the_narrowest_meter_shows_the_usage_of_the_context(width: int) -> None:
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


SWITCHES = (
    AgentSwitch(id="fast", title="Fast [b]mode", text="Less thinking"),
    AgentSwitch(id="quiet", title="Quiet", is_on=True),
)


async def test_options_of_the_agent_are_switched_where_its_model_is_changed() -> None:
    async with main_view(session=working("readme", switches=SWITCHES, **ABLE)) as it:
        await it.press("enter")
        assert "small · default · Quiet" in it.text
        await it.press("f3")
        assert "Fast [b]mode" in it.text
        assert "Less thinking" in it.text
        await it.press("tab", "tab", "right", "tab", "left", "enter")

        changes = Configure(switches={"fast": True, "quiet": False})
        assert [called(Operations.configure, README, changes)] == it.gateway.calls


async def test_an_agent_with_options_alone_can_be_configured() -> None:
    async with main_view(session=working("readme", generation=1, switches=SWITCHES)) as it:
        await it.press("enter", "f3", "right", "enter")

        assert [called(Operations.configure, README, Configure(switches={"fast": True}))] == it.gateway.calls


async def test_an_action_that_the_agent_does_not_support_is_not_offered_and_gives_the_reason() -> None:
    async with main_view(session=working("readme", generation=1, abilities=("streams",))) as it:
        await it.press("enter")
        assert "interrupt" not in it.text.splitlines()[-1]
        await it.press("ctrl+c", "f3")

        assert [] == it.gateway.calls
        assert "cannot be interrupted" in it.text
        assert "offers no other model or mode" in it.text


async def test_a_supported_action_is_offered() -> None:
    async with main_view(session=working("readme", **ABLE)) as it:
        await it.press("enter")
        assert "interrupt" in it.text.splitlines()[-1]
        await it.press("ctrl+c")

        assert [called(Operations.interrupt, README)] == it.gateway.calls


@pytest.mark.parametrize(
    ("abilities", "said"),
    [(("receives_images",), "Otherwise save the picture, and mention its file"), (("streams",), "gets no pictures")],
)
async def test_without_picture_support_the_paste_key_gives_an_alternative(
    abilities: tuple[str, ...], said: str
) -> None:
    async with main_view(session=working("readme", generation=1, abilities=abilities)) as it:
        await it.press("enter", "alt+v")

        [message] = [note.message for note in it.app._notifications]
        assert said in message
        assert [] == it.gateway.calls


async def test_a_second_clipboard_query_ends_the_wait_for_the_first() -> None:
    asked: list[Callable[[bytes, str], object]] = []
    async with main_view(session=working("readme", generation=1, abilities=("receives_images",))) as it:
        it.app.read_clipboard = lambda on_reply: not asked.append(on_reply)  # type: ignore[method-assign, func-returns-value]
        await it.press("enter", "alt+v", "alt+v")
        asked[-1](b"", "there is no picture in the clipboard")
        await it.press("a")

        assert [] == [timer for timer in it.app._timers if timer._interval == CLIPBOARD_S]
