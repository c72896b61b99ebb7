"""Dialogs in the lowest window there may be: what answers them is in sight, and what is agreed to was read."""

from typing import cast

import pytest
from textual.pilot import Pilot

from kasmon.model.commands import Mode
from kasmon.model.fleet import Fleet
from kasmon.tui.app import Kasmon
from kasmon.tui.dialogs.common import Confirmation, ConfirmDialog
from kasmon.tui.gateway.theme_library import shipped_names
from tests.support.dashboard_scenes import NO_AGENT, kasmon, parser, run_app
from tests.support.sample_fleet import StillClock, asking, fleet, idle, working
from tests.support.sample_sandboxes import machine, machines
from tests.support.tui.fake_gateway import gateway_of, text_of
from tests.support.wait import auntil

LEAST = (40, 10)
CHANGE = "diff --git a/lex.py b/lex.py\n--- a/lex.py\n+++ b/lex.py\n@@ -1,1 +1,1 @@\n-a\n+b\n"


async def settled(pilot: Pilot[None]) -> None:
    """Until the fleet is shown; such a window has no preview."""
    await auntil(lambda: cast(Kasmon, pilot.app).has_fleet, what="the fleet")
    await pilot.pause()


async def dialog(pilot: Pilot[None], key: str) -> None:
    await settled(pilot)
    await pilot.press(key)
    await auntil(lambda: len(pilot.app.screen_stack) == 2, what="the dialog")
    await pilot.pause()


@pytest.mark.parametrize(
    ("key", "shown", "keys"),
    [
        ("n", fleet(idle("readme")), ("⏎ start", "tab next field", "esc close")),
        ("m", fleet(idle("readme")), ("⏎ send", "ctrl+j new line", "tab delivery", "esc close")),
        ("x", fleet(working("readme")), ("y stop", "esc cancel")),
        ("f", fleet(machine("numbers")), ("⏎ create", "esc close")),
        ("C", fleet(parser()), ("← → choose", "⏎ change", "tab next field", "esc close")),
        ("comma", fleet(idle("readme")), ("↑ ↓ preview", "⏎ apply", "esc revert")),
    ],
    ids=["new", "message", "stop", "fork", "configure", "settings"],
)
async def test_each_key_of_a_dialog_is_shown_whole(key: str, shown: Fleet, keys: tuple[str, ...]) -> None:
    async with kasmon(shown).run_test(size=LEAST) as pilot:
        await dialog(pilot, key)

        assert [] == [each for each in keys if each not in text_of(pilot.app)]


async def test_content_that_does_not_fit_is_paged_from_any_field() -> None:
    async with kasmon(fleet(machine("numbers-in-april"))).run_test(size=LEAST) as pilot:
        await dialog(pilot, "f")
        assert "at once." not in text_of(pilot.app)
        await pilot.press("pagedown")
        await pilot.pause()
        assert "at once." in text_of(pilot.app)
        await pilot.press("pageup")
        await pilot.pause()

        assert "mbers-in-april-2" in text_of(pilot.app)


async def test_an_error_is_shown_with_its_field() -> None:
    async with kasmon(fleet(idle("readme"))).run_test(size=LEAST) as pilot:
        await dialog(pilot, "n")
        await pilot.press(*"readme", "enter")
        await pilot.pause()

        assert "The name readme is already in" in text_of(pilot.app)
        assert "Name" in text_of(pilot.app)


async def test_a_confirmation_counts_once_all_of_its_text_was_shown() -> None:
    app, said = kasmon(fleet(idle("readme"))), list[str]()
    lines = ("It begins here.", *(f"Line {number}." for number in range(20)), "It ends here.")
    async with run_app(app, LEAST, act=settled) as pilot:
        question = Confirmation("A question", lines, "agree")
        await app.push_screen(ConfirmDialog(app.look, app.keys, app.clock, question, lambda sure: said.append("yes")))
        await auntil(lambda: "scroll" in text_of(app), what="the word that there is more")
        assert "y agree" in text_of(app)
        cast(StillClock, app.clock).ticked += 1.0
        await pilot.press("y")
        await pilot.pause()
        assert "There is more below." in text_of(app)
        assert [] == said
        await pilot.press("end")
        await auntil(lambda: "It ends here." in text_of(app), what="its end")
        await pilot.press("y")

        assert ["yes"] == said


async def test_content_that_fits_has_no_scroll_hint() -> None:
    async with kasmon(fleet(working("readme"))).run_test(size=(80, 24)) as pilot:
        await dialog(pilot, "x")

        assert "y stop" in text_of(pilot.app)
        assert "scroll" not in text_of(pilot.app)


async def test_the_chosen_theme_is_visible_and_nothing_is_below_the_last() -> None:
    async with kasmon(fleet(idle("readme"))).run_test(size=LEAST) as pilot:
        await dialog(pilot, "comma")
        await pilot.press("up")
        await pilot.pause()
        assert "Config: none" in text_of(pilot.app)
        for _ in range(len(shipped_names()) - 1):
            await pilot.press("up")
        await pilot.pause()

        assert "Rosé Pine Moon" in text_of(pilot.app)


@pytest.mark.parametrize("keys", [("enter", *"see @pa"), ("v", "slash", *"compil"), ("enter", "shift+tab")])
async def test_inside_a_session_the_box_is_whole_with_any_rows_above_it(keys: tuple[str, ...]) -> None:
    async with run_app(kasmon(fleet(parser())), LEAST, act=settled) as pilot:
        await pilot.press(keys[0])
        await auntil(lambda: pilot.app.query("#prompt"), what="the box")
        await pilot.press(*keys[1:])
        await pilot.pause()

        assert "see @pa " in text_of(pilot.app) or "│ Write to parser" in text_of(pilot.app)
        assert text_of(pilot.app).splitlines()[-2].startswith("╰")


@pytest.mark.parametrize(
    ("keys", "mode", "foot"),
    [
        (("D",), Mode.SDK, " [ prev file   esc back        1 of 1 "),
        (("v",), Mode.TMUX, " docs   / search   esc back line 1 of 1 "),
        (("enter",), Mode.TMUX, " docs · Ctrl+] or F12 list"),
    ],
    ids=["diff", "what a terminal printed", "terminal"],
)
async def test_the_key_bar_cuts_no_key_and_always_shows_the_way_back(
    keys: tuple[str, ...], mode: Mode, foot: str
) -> None:
    app = kasmon(fleet(working("docs", mode=mode)), panes={"docs": ("make html",)})
    gateway_of(app).diffs = {"docs": CHANGE}
    async with run_app(app, LEAST, act=settled) as pilot:
        await pilot.press(*keys)

        await auntil(lambda: text_of(app).splitlines()[-1].split() == foot.split(), what=f"the line {foot!r}")


async def test_a_narrow_head_cuts_no_word() -> None:
    paused = next(each for each in machines().sessions if each.name == "numbers")
    async with run_app(kasmon(fleet(paused)), (80, 24), act=settled) as pilot:
        await auntil(lambda: "paused 2m · on disk · protocol" in text_of(pilot.app), what="the head")
        assert "interp…" not in text_of(pilot.app)


async def test_the_first_frame_shows_the_whole_text_about_missing_agents() -> None:
    app = kasmon(fleet())
    gateway_of(app).offered = NO_AGENT
    async with run_app(app, LEAST, act=settled):
        await auntil(lambda: "No coding agent is installed" in text_of(app), what="what was found")
        words = " ".join(text_of(app).split())
        assert "Sessions that need you are listed first." in words
        assert "any program can run here." in words
        assert "claude, codex, gemini, opencode" in words


async def test_without_space_to_answer_that_is_shown_whole_also_beside_the_list() -> None:
    async with run_app(kasmon(fleet(asking("fix-auth"), asking("docs"))), LEAST, act=settled) as pilot:
        await pilot.press("I")

        said = "too small. Make it larger to answer."
        await auntil(lambda: said in " ".join(text_of(pilot.app).replace("│", " ").split()), what="the word")


async def test_the_description_of_a_command_is_below_it_if_it_does_not_fit_beside() -> None:
    async with run_app(kasmon(fleet()), (60, 16), act=settled) as pilot:
        await auntil(lambda: "kasmon doctor" in text_of(pilot.app), what="the commands")
        rows = [row.strip() for row in text_of(pilot.app).splitlines()]

        assert "check what works on this machine" == rows[rows.index("kasmon doctor") + 1]
