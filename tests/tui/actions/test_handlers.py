"""Every row of the key table has a handler where its keys count, and every handler has a row."""

from collections.abc import Iterable, Mapping

import pytest

from kasmon.tui.action import KeyContext
from kasmon.tui.finish.screen import FinishScreen
from kasmon.tui.gateway.theme_library import shipped
from kasmon.tui.keymap import ACTIONS, ROWS, KeyMap
from kasmon.tui.permissions.card import PermissionCard
from kasmon.tui.permissions.inbox_screen import InboxScreen
from kasmon.tui.permissions.queue import PermissionSnapshot
from kasmon.tui.plan_board.screen import PlanBoardScreen
from kasmon.tui.review.screen import ReviewScreen, ShownReview
from kasmon.tui.sandbox.screen import SandboxScreen
from kasmon.tui.search.screen import SearchScreen
from kasmon.tui.terminal.scrollback_buffer import ScrollbackBuffer
from kasmon.tui.terminal.scrollback_screen import ScrollbackScreen
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.theme.theme import DEFAULT
from kasmon.tui.transcript.prompt_box import CodeBox, PromptBox
from tests.support.dashboard_scenes import kasmon, run_app, settled
from tests.support.sample_fleet import StillClock, crew, idle, request
from tests.support.tui.fake_gateway import text_of

LOOK, KEYS = ThemeStyles(shipped(DEFAULT)), KeyMap()
BY_THE_APP = {
    KeyContext.LIST,
    KeyContext.EVERYWHERE,
    KeyContext.FILTER,
    KeyContext.TERMINAL,
    KeyContext.PROMPT,
    KeyContext.CODE,
    KeyContext.READING,
    KeyContext.FIND,
    KeyContext.QUEUE,
}


def rows_of(*contexts: KeyContext) -> set[str]:
    return {row.id for row in ACTIONS if row.where in contexts}


async def handlers() -> Mapping[str, tuple[set[KeyContext], Iterable[str]]]:
    app, clock = kasmon(crew()), StillClock()
    session, asked = idle("docs"), request("docs")
    async with app.run_test():
        card = PermissionCard(LOOK, clock, KEYS, PermissionSnapshot(), asked, lambda state, tight: (80, 20), print)
        inbox = InboxScreen(LOOK, clock, KEYS, PermissionSnapshot(), print)
        sandbox = {**SandboxScreen(LOOK, KEYS, clock, session).handlers, **app.sandbox_actions.screen_handlers}
        scrollback = ScrollbackScreen(LOOK, KEYS, "docs", ScrollbackBuffer(()), print, print)
        review = ReviewScreen(LOOK, KEYS, ShownReview(session=session.id, name="docs"), app.review)
        code = CodeBox(session.id, KEYS).handlers
        return {
            "app": (BY_THE_APP, app.key_dispatcher.handlers),
            "card": ({KeyContext.CARD}, card.handlers),
            "inbox": ({KeyContext.INBOX}, inbox.handlers),
            "board": ({KeyContext.BOARD}, PlanBoardScreen(LOOK, clock, KEYS, ()).handlers),
            "finish": ({KeyContext.FINISH}, FinishScreen(LOOK, KEYS, session).handlers),
            "search": ({KeyContext.SEARCH}, SearchScreen(LOOK, clock, KEYS).handlers),
            "sandbox": ({KeyContext.SANDBOX}, sandbox),
            "scrollback": ({KeyContext.READING, KeyContext.TEXT, KeyContext.FIND}, scrollback.handlers),
            "review": ({KeyContext.REVIEW, KeyContext.FIND}, review.handlers),
            "prompt": ({KeyContext.PROMPT}, PromptBox(session.id, KEYS, "").handlers),
            "code": ({KeyContext.PROMPT, KeyContext.CODE}, code),
        }


async def test_every_row_of_every_context_has_a_handler() -> None:
    tables = await handlers()
    handled = {context: set[str]() for context in KeyContext}
    for contexts, table in tables.values():
        for context in contexts:
            handled[context] |= rows_of(context) & set(table)

    assert {context: rows_of(context) for context in KeyContext} == handled


async def test_every_handler_has_a_row_in_a_context_of_its_owner() -> None:
    tables = await handlers()

    assert {} == {name: left for name, (at, table) in tables.items() if (left := set(table) - rows_of(*at))}


async def test_a_screen_of_one_context_handles_all_of_its_rows() -> None:
    tables = await handlers()

    for name in ("app", "card", "inbox", "board", "search", "sandbox", "review", "finish"):
        contexts, table = tables[name]
        assert rows_of(*contexts) == set(table), name


@pytest.mark.parametrize("action", ["filter_keep", "filter_drop"])
async def test_a_click_on_a_key_of_the_filter_does_what_the_key_does(action: str) -> None:
    app = kasmon(crew())
    async with run_app(app) as pilot:
        await pilot.press("slash", "d", "o", "c")
        await pilot.pause()
        await pilot.click(offset=(text_of(app).splitlines()[-1].index(ROWS[action].label), 39))
        await pilot.pause()

        assert app.main_view.filter_bar.box is None
        assert ("doc" if action == "filter_keep" else "") == app.main_view.table.view.filter


async def test_a_click_on_new_line_in_the_key_bar_does_what_the_key_does() -> None:
    app = kasmon(crew())
    async with run_app(app) as pilot:
        app.session_pane.enter(next(each.id for each in app.fleet.sessions if each.mode == "sdk"))
        await settled(pilot)
        await pilot.click(offset=(text_of(app).splitlines()[-1].index(ROWS["newline"].label), 39))
        await pilot.pause()

        view = app.session_pane.session_view
        assert view is not None
        assert view.box is not None
        assert "\n" == view.box.text
