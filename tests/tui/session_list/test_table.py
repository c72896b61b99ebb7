"""The list: what stays where it is, what is drawn anew, and how one moves in it."""

from typing import Any, ClassVar, cast

import msgspec
import pytest
from textual import events
from textual.geometry import Size
from textual.pilot import Pilot
from textual.strip import Strip
from textual.widget import Widget

from kasmon.config.profile import ProfileOffer
from kasmon.errors import UnavailableError
from kasmon.model.collisions import CollisionSummary
from kasmon.model.commands import ActingAgent, Mode
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.operations import Operations
from kasmon.tui.gateway.protocol import DashboardSettings
from kasmon.tui.session_list.layout import COLUMNS, GroupKey, ListLayout, SavedFilter
from kasmon.tui.session_list.order import ListHeading, ListSettings, SortOrder
from kasmon.tui.session_list.table import SessionTable
from kasmon.tui.textual_ext.repaint import RowsUpdate
from tests.support.dashboard_scenes import kasmon, run_app, settled
from tests.support.sample_fleet import NOW, StillClock, asking, crew, ended, fleet, idle, session, working
from tests.support.tui.fake_gateway import FakeGateway, called, fleet_update, gateway_of, text_of
from tests.support.wait import auntil


def clock_of(app: Kasmon) -> StillClock:
    return cast(StillClock, app.clock)


BY_TAG = ListLayout(group=GroupKey.TAG)


class Watched(SessionTable):
    """The list, noting which of its lines are drawn anew."""

    drawn: ClassVar[list[int]] = []

    def render_line(self, y: int) -> Strip:
        self.drawn.append(y)
        return super().render_line(y)


class NotResized(SessionTable):
    """The list as it is in the first frame: it has a size, and its Resize was not handled."""

    def on_resize(self, event: events.Resize) -> None:
        event.prevent_default()


async def test_the_first_frame_has_the_sessions_before_the_list_has_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kasmon.tui.main_view.SessionTable", NotResized)
    async with run_app(app := kasmon(fleet(working("docs")))):
        table = app.main_view.table

        assert isinstance(table, NotResized)
        assert "docs" in table.render_line(0).text


async def test_the_asking_session_is_first_and_selected() -> None:
    async with Kasmon(fleet(working("docs"), asking("fix-auth")), clock=StillClock()).run_test() as pilot:
        assert "fix-auth" == pilot.app.query_one(SessionTable).selected


async def test_the_names_get_the_width_of_the_longest_with_its_own_marks_and_no_more() -> None:
    child = idle("window", parent=SessionId("docs"))
    async with run_app(app := kasmon(fleet(working("rows-to-strips"), working("docs"), child))):

        def cells() -> int:
            return next(column.width for column in app.main_view.table.columns if column.key == "name")

        assert len("rows-to-strips") == cells()

        app.main_view.table.pin(SessionId("docs"))
        assert len("rows-to-strips") == cells()
        app.main_view.table.pin(SessionId("rows-to-strips"))
        assert len("rows-to-strips") + 2 == cells()


async def test_without_a_choice_the_cursor_stays_on_the_first_row() -> None:
    async with (app := Kasmon(fleet(working("docs"), idle("readme")), clock=StillClock())).run_test() as pilot:
        assert "readme" == app.main_view.table.selected
        clock_of(app).forward(2)
        app._show_update(fleet_update(fleet(asking("docs", ago=1), idle("readme"))))
        await pilot.pause()

        assert "docs" == app.main_view.table.selected


async def test_the_chosen_session_stays_selected_when_the_order_changes() -> None:
    app = Kasmon(fleet(working("docs"), idle("readme"), idle("zoo")), clock=StillClock())
    async with app.run_test() as pilot:
        await pilot.press("j")
        assert "zoo" == app.main_view.table.selected
        clock_of(app).forward(2)
        app._show_update(fleet_update(fleet(asking("docs", ago=1), idle("readme"), idle("zoo"))))
        await pilot.pause()

        assert ["docs", "readme", "zoo"] == [session.id for session in app.main_view.table.shown()]
        assert "zoo" == app.main_view.table.selected


async def test_the_order_is_fixed_for_a_second_after_a_key() -> None:
    async with (app := Kasmon(fleet(working("docs"), idle("readme")), clock=StillClock())).run_test() as pilot:
        clock_of(app).forward(2)
        await pilot.press("j")
        app._show_update(fleet_update(fleet(asking("docs", ago=1), idle("readme"))))
        await pilot.pause()
        held = [session.id for session in app.main_view.table.shown()]
        clock_of(app).forward(1)
        app.main_view.tick()

        assert ["readme", "docs"] == held
        assert ["docs", "readme"] == [session.id for session in app.main_view.table.shown()]
        assert "docs" == app.main_view.table.selected


async def test_the_order_changes_at_most_twice_a_second() -> None:
    async with (app := Kasmon(fleet(working("docs"), idle("readme")), clock=StillClock())).run_test() as pilot:
        clock_of(app).forward(0.2)
        app._show_update(fleet_update(fleet(asking("docs", ago=1), idle("readme"))))
        await pilot.pause()
        assert ["readme", "docs"] == [session.id for session in app.main_view.table.shown()]

        clock_of(app).forward(0.4)
        app._show_update(fleet_update(fleet(asking("docs", ago=2), idle("readme"))))
        assert ["docs", "readme"] == [session.id for session in app.main_view.table.shown()]


class Painted(SessionTable):
    """The list, keeping the text that was drawn last in each of its lines."""

    lines: ClassVar[dict[int, str]] = {}

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        self.lines[y] = strip.text
        return strip


async def test_a_list_that_changed_while_it_was_hidden_has_all_its_columns_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kasmon.tui.main_view.SessionTable", Painted)
    async with run_app(app := kasmon(fleet(working("docs"), idle("readme"))), (160, 45)) as pilot:
        columns = app.main_view.table.columns
        await pilot.press("enter")
        await settled(pilot)
        clock_of(app).forward(3)
        app._show_update(fleet_update(fleet(working("docs"), idle("readme"), asking("fix-auth"))))
        await settled(pilot)
        assert [column.key for column in columns] == [column.key for column in app.main_view.table.columns]

        await pilot.press("escape")
        await settled(pilot)

        assert "line" in [column.key for column in app.main_view.table.columns]
        assert all("claude" in Painted.lines[y] and "sdk" in Painted.lines[y] for y in range(3))


async def test_every_row_is_rendered_again_when_a_longer_name_moves_the_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kasmon.tui.main_view.SessionTable", Painted)
    async with run_app(app := kasmon(fleet(working("docs"), idle("rows-to-strips"))), (160, 45)) as pilot:
        app.main_view.table.mark(
            {SessionId("rows-to-strips"): CollisionSummary("docs changes the same lines", lines=True)}
        )
        await settled(pilot)

        assert 1 == len({Painted.lines[y].index("claude") for y in range(2)})


async def test_only_changed_rows_are_rendered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kasmon.tui.main_view.SessionTable", Watched)
    shown = crew()
    async with (app := Kasmon(shown, clock=StillClock())).run_test(size=(120, 60)) as pilot:
        await pilot.pause()
        table = cast(Watched, app.main_view.table)
        place = next(y for y, each in enumerate(table.shown()) if each.id == "docs")
        table.drawn.clear()
        said = tuple(msgspec.structs.replace(s, last_line="new") if s.id == "docs" else s for s in shown.sessions)
        app._show_update(fleet_update(fleet(*said)))
        await pilot.pause()

        assert [place] == table.drawn


async def test_a_row_whose_shown_age_is_the_same_is_not_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kasmon.tui.main_view.SessionTable", Watched)
    app = Kasmon(fleet(idle("old", ago=7200), idle("new", ago=5)), clock=StillClock())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        table = cast(Watched, app.main_view.table)
        table.drawn.clear()
        clock_of(app).forward(1)
        app.main_view.tick()
        await pilot.pause()

        assert [1] == table.drawn
        assert "6s" in text_of(app)


async def test_while_no_shown_age_changes_nothing_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the list nor above the preview: an idle dashboard writes nothing to its terminal."""
    drawn: list[Widget] = []
    app = Kasmon(fleet(idle("old", ago=7200), idle("older", ago=9000)), clock=StillClock())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        monkeypatch.setattr(Widget, "refresh", lambda self, *regions, **how: drawn.append(self))
        clock_of(app).forward(1)
        app.main_view.tick()
        assert [] == drawn
        clock_of(app).forward(3600)
        app.main_view.tick()
        assert app.main_view.preview.head in drawn


class Displayed(Kasmon):
    """The dashboard, noting which rows are painted at once."""

    rows: ClassVar[list[tuple[int, int, Strip]]] = []

    def _display(self, screen: Any, renderable: Any) -> None:
        if isinstance(renderable, RowsUpdate):
            self.rows.extend(renderable.rows)
        super()._display(screen, renderable)


async def test_rows_painted_at_once_look_as_in_the_next_frame() -> None:
    """Also beside the scrollbar, which lies over the rows' last cell."""
    shown = [working(f"s{number:04}", "first") for number in range(100)]
    async with run_app(app := Displayed(fleet(*shown), clock=StillClock())):
        assert app.main_view.table.show_vertical_scrollbar
        app.rows.clear()
        app._show_update(
            fleet_update(fleet(*[msgspec.structs.replace(s, last_line="second") for s in shown[:2]], *shown[2:]))
        )
        frame = app.screen._compositor.render_strips()

        head = app.main_view.preview.head.region.y
        assert [2, 3, head] == [y for _, y, _ in app.rows]
        for x, y, strip in app.rows:
            assert ("second" in strip.text) is (y != head)
            assert [*strip.simplify()] == [*frame[y].crop(x, x + strip.cell_length).simplify()]
            assert (120 if y == head else app.main_view.table.size.width - 1) == strip.cell_length


async def test_five_thousand_sessions_are_listed_like_few() -> None:
    sessions = [working(f"s{number:04}") for number in range(4999)]
    app = Kasmon(fleet(*sessions, asking("fix-auth")), clock=StillClock())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("G")
        assert "s4998" == app.main_view.table.selected
        await pilot.press("home")

        assert "fix-auth" == app.main_view.table.selected
        assert len(app.main_view.table._strips) < 100


async def test_w_moves_to_the_next_session_that_needs_the_user() -> None:
    app = Kasmon(fleet(asking("one"), working("two"), ended("three", 1), idle("four")), clock=StillClock())
    async with app.run_test() as pilot:
        visited = []
        for _ in range(3):
            await pilot.press("w")
            visited.append(app.main_view.table.selected)

        assert ["three", "one", "three"] == visited


async def test_w_reports_how_many_sessions_outside_of_the_list_need_the_user() -> None:
    app = Kasmon(fleet(asking("one"), working("two")), clock=StillClock())
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        app.main_view.apply_settings(ListSettings(filter="state:working"))
        await pilot.press("w")
        await pilot.pause()

        assert "two" == app.main_view.table.selected
        assert "Nothing needs attention here; 1 filtered out" in " ".join(text_of(app).split())


async def test_inside_a_session_a_key_opens_the_next_one_that_needs_the_user() -> None:
    app = kasmon(fleet(working("docs"), session("far", SessionState.UNSURE), idle("zoo")))
    async with run_app(app) as pilot:
        app.main_view.table.select(SessionId("docs"))
        await pilot.press("enter")
        await pilot.pause()
        assert app.main_view.focused_inside
        await pilot.press("x", "f6")
        await pilot.pause()

        assert app.main_view.focused_inside
        assert app.main_view.preview.session is not None
        assert "far" == app.main_view.preview.session.id


async def test_a_click_selects_and_a_double_click_opens() -> None:
    async with run_app(app := kasmon(fleet(working("docs"), idle("readme"), idle("zoo")))) as pilot:
        await pilot.click(SessionTable, offset=(20, 1))
        assert "zoo" == app.main_view.table.selected
        assert app.main_view.has_class("-inside") is False

        await pilot.click(SessionTable, offset=(20, 2), times=2)
        await pilot.pause()
        assert app.main_view.has_class("-inside")
        assert app.main_view.preview.session is not None
        assert "docs" == app.main_view.preview.session.id


async def test_the_wheel_scrolls_the_list() -> None:
    app = Kasmon(fleet(*(working(f"s{number:03}") for number in range(200))), clock=StillClock())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        app.main_view.table.scroll_relative(y=5, animate=False)
        await pilot.pause()

        assert "s005" in text_of(app).splitlines()[2]


async def test_waves_fold_and_unfold() -> None:
    app = Kasmon(fleet(working("a", wave=1), working("b", wave=1), idle("c")), clock=StillClock())
    async with app.run_test() as pilot:
        await pilot.press("W", "h")
        assert ["c"] == [session.id for session in app.main_view.table.shown()]
        heading = app.main_view.table.items[0]
        assert isinstance(heading, ListHeading)
        assert heading.folded

        await pilot.press("l")
        assert ["a", "b", "c"] == [session.id for session in app.main_view.table.shown()]


def started_by(starter: str, child: Session) -> Session:
    """*child*, as the agent of the session *starter* starts one."""
    return msgspec.structs.replace(
        child, parent=SessionId(starter), actor=ActingAgent(session=SessionId(starter)), created_at=child.created_at + 1
    )


async def test_sessions_started_by_agents_fold_below_theirs_and_one_that_needs_the_user_stays_visible() -> None:
    lead = working("lead")
    second, fourth = started_by("lead", working("second")), started_by("lead", working("fourth"))
    third = started_by("second", idle("third"))
    app = Kasmon(fleet(idle("readme"), lead, second, third, fourth), clock=StillClock())
    async with app.run_test(size=(120, 24)) as pilot:
        table = app.main_view.table

        def shown() -> list[str]:
            return [session.id for session in table.shown()]

        assert table.select(lead.id)
        await pilot.press("h")
        assert ["readme", "lead"] == shown()
        assert "lead ▸3" in text_of(app)

        clock_of(app).forward(2)
        asks = msgspec.structs.replace(asking("third"), parent=third.parent, actor=third.actor)
        app._show_update(fleet_update(fleet(idle("readme"), lead, second, asks, fourth)))
        await pilot.pause()
        assert ["lead", "second", "third", "readme"] == shown()

        assert table.select(lead.id)
        await pilot.press("l")
        assert {"lead", "second", "third", "fourth", "readme"} == {*shown()}
        assert "▸" not in text_of(app)


async def test_enter_on_a_heading_folds_it() -> None:
    async with (app := Kasmon(fleet(working("a", wave=1), idle("c")), clock=StillClock())).run_test() as pilot:
        await pilot.press("W", "home", "enter")

        assert ["c"] == [session.id for session in app.main_view.table.shown()]


async def test_a_wave_shows_the_progress_of_each_of_its_sessions() -> None:
    one: dict[str, Any] = {"wave": 2, "peers": 4, "plan": "search"}
    sessions = (ended("a", 0, task=1, **one), working("b", task=2, **one), ended("c", 1, task=3, **one))
    async with (app := Kasmon(fleet(*sessions), clock=StillClock())).run_test(size=(120, 30)) as pilot:
        await pilot.press("W")
        await pilot.pause()

        assert "wave 2  search  ✓●✕◌  1/4 done" in text_of(app)


async def test_s_cycles_through_the_orders() -> None:
    async with (app := Kasmon(fleet(working("a"), idle("b")), clock=StillClock())).run_test(size=(120, 30)) as pilot:
        assert ["b", "a"] == [session.id for session in app.main_view.table.shown()]
        await pilot.press("S")
        await pilot.pause()

        assert ["a", "b"] == [session.id for session in app.main_view.table.shown()]
        assert "name ▾" in text_of(app)


async def test_the_filter_applies_while_it_is_typed_and_esc_shows_all() -> None:
    async with (app := Kasmon(crew(), clock=StillClock())).run_test(size=(120, 30)) as pilot:
        await pilot.press("slash", *"state:asking")
        assert 4 == len(app.main_view.table.shown())
        await pilot.press("enter", "j")
        assert app.main_view.table.has_focus
        assert 4 == len(app.main_view.table.shown())

        await pilot.press("slash", "escape")
        assert 20 == len(app.main_view.table.shown())


async def test_the_preview_follows_the_filter_and_esc_shows_all_again_wherever_the_focus_is() -> None:
    """As the line that tells of the filter says, also where nothing or not even the terminal has the focus."""
    async with (app := Kasmon(crew(), clock=StillClock())).run_test(size=(120, 30)) as pilot:
        await pilot.press("slash", *"playg", "enter")
        await pilot.pause()
        assert "/ playg   1 of 20   esc clear" in text_of(app)
        assert app.main_view.preview.session is not None
        assert "playground" == app.main_view.preview.session.id

        await pilot.press("escape")
        assert 20 == len(app.main_view.table.shown())

        await pilot.press("slash", *"playg", "enter")
        await pilot.pause()
        app.screen.set_focus(None)
        await pilot.press("escape")
        assert 20 == len(app.main_view.table.shown())

        await pilot.press("slash", *"playg", "enter")
        await pilot.pause()
        app.post_message(events.AppBlur())
        await pilot.pause()
        await pilot.press("escape")
        assert 20 == len(app.main_view.table.shown())

        await pilot.press("slash", *"playg")
        app.post_message(events.AppBlur())
        await pilot.pause()
        await pilot.press("escape")
        await pilot.pause()
        assert 20 == len(app.main_view.table.shown())
        assert app.main_view.table.has_focus


async def test_the_filters_own_line_takes_no_row_from_the_list() -> None:
    async with (app := Kasmon(crew(), clock=StillClock())).run_test(size=(80, 24)) as pilot:
        await pilot.press("slash", *"state:asking")
        await pilot.pause()

        assert 4 == len(app.main_view.table.items) == app.main_view.table.size.height


async def test_the_count_of_filter_matches_is_updated() -> None:
    app = Kasmon(fleet(idle("readme"), working("docs")), clock=StillClock())
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("slash", *"docs", "enter")
        clock_of(app).forward(2.0)
        app._show_update(fleet_update(fleet(idle("readme"))))
        await pilot.pause()

        assert "0 of 1" in text_of(app)
        assert "No session matches 'docs'." in text_of(app)


async def test_an_empty_list_shows_how_to_start() -> None:
    app = Kasmon(fleet(), settings=DashboardSettings(keys={"new": "N"}), clock=StillClock())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()

        for words in ("No sessions yet.", "N  new session", "?  help", "kasmon demo"):
            assert words in text_of(app)


async def test_a_click_on_a_title_sorts_by_it() -> None:
    async with (app := Kasmon(fleet(working("a"), idle("b")), clock=StillClock())).run_test(size=(120, 30)) as pilot:
        await pilot.pause()
        await pilot.click(offset=(text_of(app).splitlines()[1].index("name"), 1))
        await pilot.pause()
        assert ["a", "b"] == [session.id for session in app.main_view.table.shown()]

        await pilot.click(offset=(text_of(app).splitlines()[1].index("mode"), 1))
        assert SortOrder.NAME is app.main_view.table.view.sort


async def test_a_click_on_a_state_filters_by_it_and_another_click_shows_all() -> None:
    app = Kasmon(fleet(working("a"), idle("b"), working("c")), clock=StillClock())
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.pause()
        place = (text_of(app).splitlines()[0].index("2 working"), 0)
        await pilot.click(offset=place)
        await pilot.pause()
        assert ["a", "c"] == [session.id for session in app.main_view.table.shown()]

        await pilot.click(offset=place)
        await pilot.pause()
        assert 3 == len(app.main_view.table.shown())


async def test_a_pinned_session_stays_in_the_preview() -> None:
    async with (app := Kasmon(fleet(idle("a"), idle("b")), clock=StillClock())).run_test(size=(120, 30)) as pilot:
        await pilot.press("p", "j")
        await pilot.pause()
        assert app.main_view.preview.session is not None
        assert "a" == app.main_view.preview.session.id

        await pilot.press("p")
        await pilot.pause()
        assert app.main_view.preview.session is not None
        assert "b" == app.main_view.preview.session.id


async def test_space_hides_the_preview_and_the_list_takes_its_space() -> None:
    async with (app := Kasmon(crew(), clock=StillClock())).run_test(size=(80, 24)) as pilot:
        before = app.main_view.table.size.height
        await pilot.press("space")
        await pilot.pause()

        assert not app.main_view.preview.display
        assert before < app.main_view.table.size.height
        assert 20 == app.main_view.table.size.height + 1 or app.main_view.table.size.height > 18


async def test_a_removed_session_leaves_and_the_cursor_stays_near() -> None:
    async with (app := Kasmon(fleet(idle("a"), idle("b"), idle("c")), clock=StillClock())).run_test() as pilot:
        await pilot.press("j")
        clock_of(app).forward(2)
        app._show_update(fleet_update(fleet(idle("a"), idle("c"))))
        await pilot.pause()

        assert "c" == app.main_view.table.selected


async def test_the_totals_count_every_state() -> None:
    async with Kasmon(crew(), clock=StillClock()).run_test(size=(160, 40)) as pilot:
        await pilot.pause()
        top = text_of(pilot.app).splitlines()[0]

        assert "20 sessions" in top
        assert "◆ 4 asking" in top
        assert "✕ 1 crashed" in top
        assert "● 6 working" in top
        assert "$8.36" in top


async def test_a_momentary_size_of_a_window_is_not_applied() -> None:
    """Textual gathers sizes: of one that came and went between two it tells the app, and no widget."""
    async with Kasmon(crew(), clock=StillClock()).run_test(size=(150, 40)) as pilot:
        app = pilot.app
        before, app._size = app._size, Size(8, 61)
        app.query_one("#desk").post_message(events.Resize(Size(150, 40), Size(150, 40)))
        await pilot.pause()
        app._size = before
        await pilot.pause()

        assert "◆ asking" in text_of(app)


async def test_a_window_that_is_too_small_shows_a_sentence() -> None:
    async with Kasmon(crew(), clock=StillClock()).run_test(size=(39, 9)) as pilot:
        await pilot.pause()

        assert "(minimum 40x10)" in text_of(pilot.app)
        assert "release-notes" not in text_of(pilot.app)


async def test_a_window_that_grows_again_shows_the_list() -> None:
    async with Kasmon(crew(), clock=StillClock()).run_test(size=(39, 9)) as pilot:
        await pilot.resize_terminal(80, 24)
        await pilot.pause()

        assert "release-notes" in text_of(pilot.app)


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (120, 40), (160, 50), (300, 100)])
async def test_every_size_shows_the_session_that_needs_the_user(size: tuple[int, int]) -> None:
    async with Kasmon(crew(), clock=StillClock()).run_test(size=size) as pilot:
        await pilot.pause()

        assert "◆ asking" in text_of(pilot.app)
        assert size[1] == len(text_of(pilot.app).splitlines())


def test_the_sessions_are_identified_by_their_ids() -> None:
    assert Kasmon(crew(), clock=StillClock()).main_view.table.session(SessionId("nobody")) is None


# The first start


async def test_an_empty_list_shows_the_found_agents_and_one_key_starts_one() -> None:
    offered = (
        ProfileOffer(name="codex", modes=(Mode.TMUX,)),
        ProfileOffer(name="shell", modes=(Mode.TMUX,)),
        ProfileOffer(name="claude", modes=(), problem="'claude' is not installed."),
    )
    gateway = FakeGateway(fleet())
    gateway.offered = offered
    async with run_app(Kasmon(gateway=gateway, clock=StillClock()), (80, 24)) as pilot:
        shown = text_of(pilot.app)
        assert "installed      codex" in shown
        assert "not installed  claude" in shown
        begins = [
            shown.split(what)[0].rpartition("\n")[2] for what in ("start a session from", "check what", "try it with")
        ]
        assert 1 == len(set(map(len, begins)))
        assert "new session (codex or another agent)" in shown

        await pilot.press("enter")

        assert "New session" in text_of(pilot.app)


async def test_without_any_agent_it_reports_that_any_program_can_run() -> None:
    gateway = FakeGateway(fleet())
    gateway.offered = (ProfileOffer(name="shell", modes=(Mode.TMUX,)),)
    async with run_app(Kasmon(gateway=gateway, clock=StillClock()), (80, 24)) as pilot:
        assert "No coding agent is installed; any program can run here." in text_of(pilot.app)


async def test_without_any_agent_it_shows_the_searched_names_and_a_next_step() -> None:
    gateway = FakeGateway(fleet())
    gateway.offered = (
        ProfileOffer(name="claude", modes=()),
        ProfileOffer(name="codex", modes=()),
        ProfileOffer(name="shell", modes=(Mode.TMUX,)),
    )
    async with run_app(Kasmon(gateway=gateway, clock=StillClock()), (80, 24)) as pilot:
        shown = text_of(pilot.app)

        assert "not installed  claude, codex" in shown
        assert "Install one, or set [agents.claude] program in the config." in shown
        assert "kasmon new fix-auth --agent shell" in shown


async def test_a_name_of_wide_letters_is_not_cut_while_there_is_space() -> None:
    name = "日本語のセッション"
    async with run_app(kasmon(fleet(idle(name))), (80, 24)) as pilot:
        assert 2 == text_of(pilot.app).count(name)  # in the list, and above the preview


async def test_an_unviewed_finished_session_has_a_mark_and_a_count_until_it_is_opened() -> None:
    shown = fleet(working("docs"), idle("web", finished_at=NOW - 5), idle("seen", finished_at=NOW - 9, viewed_at=NOW))
    async with kasmon(shown).run_test(size=(120, 40)) as pilot:
        app, gateway = cast(Kasmon, pilot.app), gateway_of(pilot.app)
        await settled(pilot)
        rows = text_of(app).splitlines()
        assert "✦ 1 finished" in rows[0]
        assert "○ 1 idle" in rows[0]
        assert "✦ finished" in next(row for row in rows[1:] if "web" in row)
        assert ["web", "seen", "docs"] == [session.name for session in app.main_view.table.shown()]
        assert "L mark viewed" in text_of(app)
        await pilot.press("slash", *"state:finished", "enter")
        await auntil(lambda: ["web"] == [session.name for session in app.main_view.table.shown()])
        await pilot.press("enter")
        await pilot.pause()

        assert [called(Operations.mark_viewed, SessionId("web"))] == gateway.calls


async def test_a_key_marks_finished_sessions_as_viewed_without_opening_them() -> None:
    async with run_app(kasmon(fleet(idle("web", finished_at=NOW - 5)))) as pilot:
        await pilot.press("L", "L")
        await pilot.pause()

        assert [called(Operations.mark_viewed, SessionId("web"))] == cast(
            FakeGateway, cast(Kasmon, pilot.app).gateway
        ).calls
        assert not cast(Kasmon, pilot.app).main_view.focused_inside


@pytest.mark.parametrize("key", ["v", "o"])
async def test_reading_or_attaching_a_terminal_marks_its_finished_session_as_viewed(key: str) -> None:
    shown = fleet(idle("web", mode=Mode.TMUX, finished_at=NOW - 5))
    async with run_app(kasmon(shown)) as pilot:
        await pilot.press(key)
        gateway = gateway_of(pilot.app)
        await auntil(lambda: gateway.calls, what="the mark")

        assert [called(Operations.mark_viewed, SessionId("web"))] == gateway.calls


async def test_a_mark_that_could_not_be_saved_can_be_repeated() -> None:
    async with run_app(kasmon(fleet(idle("web", finished_at=NOW - 5)))) as pilot:
        gateway = gateway_of(pilot.app)
        gateway.refusing = UnavailableError("the disk is full.")
        await pilot.press("L")
        await auntil(lambda: len(pilot.app._notifications), what="the refusal")
        gateway.refusing = None
        await pilot.press("L")
        await pilot.pause()

        assert [called(Operations.mark_viewed, SessionId("web"))] * 2 == gateway.calls


async def test_a_turn_that_ends_while_the_session_is_open_is_viewed() -> None:
    async with kasmon(fleet(working("web"))).run_test(size=(120, 40)) as pilot:
        app, gateway = cast(Kasmon, pilot.app), gateway_of(pilot.app)
        await settled(pilot)
        await pilot.press("enter")
        await pilot.pause()
        assert [] == gateway.calls
        for _ in range(2):  # it comes back by the log a little later
            app._show_update(fleet_update(fleet(idle("web", finished_at=NOW))))
        await pilot.pause()

        assert [called(Operations.mark_viewed, SessionId("web"))] == gateway.calls


async def test_g_groups_by_varying_values_and_the_choice_is_saved() -> None:
    app = kasmon(fleet(idle("a", tags=("api", "x")), asking("b", workdir="/other"), working("c", tags=("x",))))
    async with run_app(app) as pilot:
        seen: list[GroupKey] = []
        for _ in range(3):
            await pilot.press("g")
            await settled(pilot)
            seen.append(app.main_view.table.view.group)
        assert [GroupKey.TAG, GroupKey.FOLDER, GroupKey.NONE] == seen
        await pilot.press("g", "home", "h")
        await settled(pilot)

        kept = gateway_of(app).passed(Operations.save_layout, "layout")
        assert ListLayout(group=GroupKey.TAG, folded=("tag api",)) == kept[-1]
        assert "▸ api  1" in text_of(app)
        assert "▾ no tag  1  1 needs you" in text_of(app)

    async with run_app(again := kasmon(app.fleet, settings=DashboardSettings(layout=kept[-1]))):
        assert app.main_view.table.items == again.main_view.table.items
        assert [] == cast(FakeGateway, again.gateway).passed(Operations.save_layout, "layout")


async def test_if_sessions_do_not_vary_g_reports_that() -> None:
    async with run_app(kasmon(fleet(idle("a"), working("b"))), notifications=True) as pilot:
        await pilot.press("g")
        await settled(pilot)

        assert "Nothing to group by" in text_of(pilot.app)


async def test_the_cursor_stays_on_the_row_of_its_tag_and_a_prompt_reaches_each_session_once() -> None:
    app = kasmon(fleet(idle("a", tags=("api", "x")), idle("b", tags=("x",))), settings=DashboardSettings(layout=BY_TAG))
    async with run_app(app) as pilot:
        table = app.main_view.table
        assert ["", "a", "", "a", "b"] == [getattr(item, "session", "") for item in table.items]
        table.select_index(3)
        for moved in (working("a", tags=("api", "x")), idle("a", tags=("a-first", "api", "x"))):
            gateway_of(app).fleets.put_nowait(fleet(moved, idle("b", tags=("x",))))
            clock_of(app).forward(2)
            await settled(pilot)
            table.reorder()
            await settled(pilot)
            row = table.items[table._index]
            assert ("a", "x") == (getattr(row, "session", ""), getattr(row, "tag", ""))
        app.main_view.enter(SessionId("a"))
        app.main_view.leave()
        assert "x" == getattr(table.items[table._index], "tag", "")
        assert ["a", "b"] == sorted(each.id for each in table.shown())


async def test_with_groups_an_update_of_200_sessions_sorts_nothing_and_renders_its_row_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kasmon.tui.main_view.SessionTable", Watched)
    sessions = [working(f"s{number:03}", tags=(f"t{number % 7}",)) for number in range(200)]
    async with run_app(app := kasmon(fleet(*sessions), settings=DashboardSettings(layout=BY_TAG)), (120, 60)) as pilot:
        table = app.main_view.table
        await settled(pilot)
        clock_of(app).forward(5)
        before, Watched.drawn = table.items, []
        sessions[7] = msgspec.structs.replace(sessions[7], last_line="something else")
        app._show_update(fleet_update(fleet(*sessions)))
        await settled(pilot)

        assert before is table.items
        assert [2] == sorted(set(Watched.drawn)), "the heading, s000, s007"


def titles(app: Kasmon) -> str:
    return " ".join(column.title for column in app.main_view.table.columns)


async def test_columns_are_hidden_moved_and_saved() -> None:
    async with run_app(app := kasmon(fleet(idle("a"), working("b")))) as pilot:
        usual = titles(app)
        assert "state name agent mode age activity" == usual
        await pilot.press("|", "down", "space", "down", "K", "enter")
        await auntil(lambda: len(app.screen_stack) == 1, 20.0)
        await settled(pilot)
        assert "state name mode age activity source" == titles(app)
        await pilot.press("|", *["down"] * 7, *["K"] * 9, "enter")
        await auntil(lambda: len(app.screen_stack) == 1, 20.0)
        await settled(pilot)
        assert "state name source mode age activity" == titles(app)
        kept = gateway_of(app).passed(Operations.save_layout, "layout")[-1]

    async with run_app(again := kasmon(app.fleet, settings=DashboardSettings(layout=kept))) as pilot:
        assert "state name source mode age activity" == titles(again)
        await pilot.press("|", "backspace", "enter")
        await auntil(lambda: len(again.screen_stack) == 1, 20.0)
        assert usual == titles(again)
        assert [ListLayout()] == cast(FakeGateway, again.gateway).passed(Operations.save_layout, "layout")


async def test_a_narrow_list_with_chosen_columns_shows_name_and_state() -> None:
    layout = ListLayout(columns=("cost", "tokens", "seen", "agent"))
    async with run_app(app := kasmon(fleet(idle("a")), settings=DashboardSettings(layout=layout)), (40, 20)):
        assert ["state", "name"] == [column.key for column in app.main_view.table.columns][:2]


async def test_a_list_without_columns_is_refused() -> None:
    async with run_app(app := kasmon(fleet(idle("a")))) as pilot:
        await pilot.press("|", *["space", "down"] * len(COLUMNS), "enter")
        await settled(pilot)

        assert "No column is chosen." in text_of(app)
        assert () == app.main_view.table.view.columns


def tabs(app: Kasmon) -> list[tuple[str, int]]:
    return [(name, count) for name, _, count in app.main_view.tab_bar.tabs]


async def saved_as(pilot: Pilot[None], name: str) -> None:
    """Save the filter in force under *name*, which replaces what the dialog shows."""
    await pilot.press("=")
    await auntil(lambda: len(pilot.app.screen_stack) == 2, 20.0)
    await pilot.press("end", "ctrl+u", *name, "enter")
    await settled(pilot)


async def test_a_filter_is_saved_as_a_tab_with_its_count() -> None:
    sessions = [idle("a", tags=("api",)), asking("b", tags=("api",)), working("c")]
    async with run_app(app := kasmon(fleet(*sessions))) as pilot:
        table = app.main_view.table
        assert not app.main_view.tab_bar.has_class("-shown")
        for text, name in (("tag:api", "api"), ("state:asking", "ask")):
            await pilot.press("escape", "/", *text, "enter")
            await saved_as(pilot, name)
        assert [("all", 3), ("api", 2), ("ask", 1)] == tabs(app)
        assert app.main_view.tab_bar.has_class("-shown")
        seen = []
        for key in ("]", "]", "]", "[", "["):
            await pilot.press(key)
            seen.append(table.view.filter)
        assert ["", "tag:api", "state:asking", "tag:api", ""] == seen

        gateway_of(app).fleets.put_nowait(fleet(sessions[0], *map(idle, "bcd")))
        await auntil(lambda: [("all", 4), ("api", 1), ("ask", 0)] == tabs(app), 20.0)
        await pilot.press("]")
        await saved_as(pilot, "mine")
        assert [("all", 4), ("mine", 1), ("ask", 0)] == tabs(app)
        await pilot.press("]")
        await saved_as(pilot, "mine")
        assert "There is another tab 'mine'." in text_of(app)
        await pilot.press("escape")
        await auntil(lambda: len(app.screen_stack) == 1, 20.0)
        await saved_as(pilot, "")
        assert [("all", 4), ("mine", 1)] == tabs(app)
        kept = gateway_of(app).passed(Operations.save_layout, "layout")[-1]
        assert ListLayout(filters=(SavedFilter("mine", "tag:api"),)) == kept

    async with run_app(again := kasmon(app.fleet, settings=DashboardSettings(layout=kept))) as pilot:
        assert [("all", 4), ("mine", 1)] == tabs(again)
        await pilot.click("#tabs", offset=(9, 0))
        await settled(pilot)
        assert "tag:api" == again.main_view.table.view.filter
        await pilot.press("escape", "/", *"state:idle", "enter")
        await saved_as(pilot, "mine")
        assert (SavedFilter("mine", "state:idle"),) == again.main_view.table.view.filters


async def test_without_a_filter_the_keys_of_tabs_show_what_to_do() -> None:
    async with run_app(kasmon(fleet(idle("a"))), notifications=True) as pilot:
        for key, said in (
            ("]", "No filter is saved. / filters the list, then"),
            ("=", "No filter is in force."),
        ):
            await pilot.press(key)
            await settled(pilot)
            assert said in text_of(pilot.app)


async def test_the_active_tab_is_visible_in_a_narrow_list() -> None:
    filters = tuple(SavedFilter(f"filter number {number}", f"x{number}") for number in range(9))
    app = kasmon(fleet(idle("a")), settings=DashboardSettings(layout=ListLayout(filters=filters)))
    async with run_app(app, (60, 20)) as pilot:
        await pilot.press("[")
        await settled(pilot)

        assert "filter number 8" in app.main_view.tab_bar.render_line(0).text
