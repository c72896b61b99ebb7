"""Every row of the key table has a handler where it says so, and every handler has a row."""

import ast
import inspect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

import kasmon.tui
from kasmon.tui.action import APP, Action
from kasmon.tui.actions.handlers import build_handlers
from kasmon.tui.finish.screen import FinishScreen
from kasmon.tui.gateway.theme_library import shipped
from kasmon.tui.keymap import ACTIONS, ROWS, KeyMap, Keys
from kasmon.tui.permissions.card.card import PermissionCard
from kasmon.tui.permissions.inbox.screen import InboxScreen
from kasmon.tui.permissions.queue import PermissionSnapshot
from kasmon.tui.plan_board.screen import PlanBoardScreen
from kasmon.tui.review.dialogs import CommentsDialog
from kasmon.tui.review.screen import ReviewScreen, ShownReview
from kasmon.tui.sandbox.screen import SandboxScreen
from kasmon.tui.search.screen import SearchScreen
from kasmon.tui.terminal.scrollback.buffer import ScrollbackBuffer
from kasmon.tui.terminal.scrollback.screen import ScrollbackScreen
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.theme.theme import DEFAULT
from kasmon.tui.transcript.prompt_box import CodeBox, PromptBox
from tests.support.dashboard_scenes import kasmon as dashboard
from tests.support.dashboard_scenes import run_app, settled
from tests.support.sample_fleet import StillClock, crew, idle, request
from tests.support.syntax_trees import modules
from tests.support.tui.fake_gateway import text_of

LOOK, KEYS = ThemeStyles(shipped(DEFAULT)), KeyMap()
FOLDER = Path(kasmon.tui.__file__).parent


def place_of(owner: object) -> str:
    """Where *owner*, a function or what a class made, is defined, as `Action.run_by` names it."""
    kind = owner if inspect.isfunction(owner) else type(owner)
    return f"{Path(inspect.getfile(kind)).relative_to(FOLDER)}:{kind.__qualname__}"


async def tables() -> Mapping[str, Iterable[Action]]:
    """What each owner handles, by its place; without what it got from another owner."""
    app, clock = dashboard(crew()), StillClock()
    session, asked = idle("docs"), request("docs")
    async with app.run_test():
        finish, box = FinishScreen(LOOK, KEYS, session, {}), PromptBox(session.id, KEYS, "")
        review = ReviewScreen(LOOK, KEYS, ShownReview(session=session.id, name="docs"), app.review)
        owners = (
            PermissionCard(LOOK, clock, KEYS, PermissionSnapshot(), asked, lambda state, tight: (80, 20), print),
            InboxScreen(LOOK, clock, KEYS, PermissionSnapshot(), print),
            PlanBoardScreen(LOOK, clock, KEYS, ()),
            SandboxScreen(LOOK, KEYS, clock, session, app.sandbox_actions),
            ScrollbackScreen(LOOK, KEYS, "docs", ScrollbackBuffer(()), print, print),
            SearchScreen(LOOK, clock, KEYS),
            CommentsDialog(LOOK, KEYS, review),
            *(review, finish, box, app.finish),
        )
        code = CodeBox(session.id, KEYS)
        return {
            place_of(build_handlers): app.key_dispatcher.handlers,
            place_of(code): set(code.handlers) - set(box.handlers),
            **{place_of(owner): owner.handlers for owner in owners},
        }


async def test_each_row_is_handled_by_its_named_handler_alone() -> None:
    handled = {place: {row.id for row in table} for place, table in (await tables()).items()}
    named = {place: {row.id for row in ACTIONS if place in row.run_by} for row in ACTIONS for place in row.run_by}

    assert all(row.run_by for row in ACTIONS)
    assert named == handled


def test_every_class_with_handlers_is_named_by_a_row() -> None:
    """But the base of boxes, and the dispatcher, which gets those of the app."""
    others = {"transcript/prompt_box.py:TextBox", "key_dispatcher.py:KeyDispatcher"}
    kinds = [(path, node) for path, tree in modules().items() for node in tree.body if isinstance(node, ast.ClassDef)]
    found = {
        f"{path.removeprefix('kasmon/tui/')}:{kind.name}"
        for path, kind in kinds
        if path.startswith("kasmon/tui/")
        and re.search(r"self\.handlers\b[^=()\n]*= |def handlers\(", ast.unparse(kind))
    }

    assert {place for row in ACTIONS for place in row.run_by} - {APP} == found - others


def test_the_name_of_a_row_is_its_id() -> None:
    assert ROWS == {name.lower(): row for name, row in vars(Keys).items() if isinstance(row, Action)}
    assert [*ROWS.values()] == [*ACTIONS]
    assert "stop" == Keys.STOP.id


@pytest.mark.parametrize("action", ["filter_keep", "filter_drop"])
async def test_a_click_on_a_key_of_the_filter_does_what_the_key_does(action: str) -> None:
    async with run_app(app := dashboard(crew())) as pilot:
        await pilot.press("slash", "d", "o", "c")
        await pilot.pause()
        await pilot.click(offset=(text_of(app).splitlines()[-1].index(ROWS[action].label), 39))
        await pilot.pause()

        assert app.main_view.filter_bar.box is None
        assert ("doc" if action == "filter_keep" else "") == app.main_view.table.view.filter


async def test_a_click_on_new_line_in_the_key_bar_does_what_the_key_does() -> None:
    async with run_app(app := dashboard(crew())) as pilot:
        app.session_pane.enter(next(each.id for each in app.fleet.sessions if each.mode == "sdk"))
        await settled(pilot)
        await pilot.click(offset=(text_of(app).splitlines()[-1].index(ROWS["newline"].label), 39))
        await pilot.pause()

        view = app.session_pane.session_view
        assert view is not None
        assert view.box is not None
        assert "\n" == view.box.text
