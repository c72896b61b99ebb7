"""What deserves a word: once for each change, never for each look."""

import pytest

from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.tui.gateway.protocol import DashboardSettings
from kasmon.tui.notifications.toasts import toasts
from tests.support.dashboard_scenes import kasmon, run_app
from tests.support.sample_fleet import asking, command, ended, fleet, idle, session, working
from tests.support.tui.fake_gateway import fleet_update, gateway_of, text_of
from tests.support.wait import auntil


def told(before: Session, after: Session) -> list[str]:
    return [toast.title for toast in toasts({before.id: before}, [after])]


@pytest.mark.parametrize(
    ("after", "title"),
    [
        (asking("x"), "x has a request"),
        (session("x", SessionState.LOST), "Lost contact with x"),
        (ended("x", 1), "x crashed"),
    ],
)
def test_a_session_that_starts_to_need_the_user_is_reported(after: Session, title: str) -> None:
    assert [title] == told(working("x"), after)


@pytest.mark.parametrize("after", [working("x"), idle("x"), ended("x", 0), ended("x", 1, stopped=True)])
def test_a_session_that_needs_no_one_is_not_reported(after: Session) -> None:
    assert [] == told(working("x", "before"), after)


def test_it_is_told_once_and_a_further_request_too() -> None:
    assert [] == told(asking("x"), asking("x", last_line="still"))

    one, two = command("x", "ls"), command("x", "make", 2)
    assert ["x has a request"] == told(asking("x", one), asking("x", one, two))
    assert [] == told(asking("x", one, two), asking("x", one))


def test_a_session_that_was_not_known_is_not_told_and_another_with_what_it_asks() -> None:
    assert [] == toasts({}, [asking("x")])

    shown = toasts({working("x").id: working("x")}, [asking("x", command("x", "make release"))])
    assert ["Bash make release"] == [toast.text for toast in shown]


@pytest.mark.parametrize(
    ("why", "text"), [("tmux: the connection broke", "tmux: the connection broke"), ("", "host process died")]
)
def test_a_lost_session_gives_the_reason(why: str, text: str) -> None:
    shown = toasts({working("x").id: working("x")}, [session("x", SessionState.LOST, end_why=why)])

    assert [text] == [toast.text for toast in shown]


async def test_a_crash_shows_a_toast_and_rings_the_bell(monkeypatch: pytest.MonkeyPatch) -> None:
    app = kasmon(fleet(working("x"), idle("y")))
    rung: list[int] = []
    monkeypatch.setattr(app, "bell", lambda: rung.append(1))
    async with run_app(app, notifications=True) as pilot:
        gateway = gateway_of(app)
        gateway.fleets.put_nowait(fleet(ended("x", 3), idle("y")))
        await auntil(lambda: "x crashed" in text_of(app))
        gateway.fleets.put_nowait(fleet(ended("x", 3, last_line="again"), idle("y")))
        await auntil(lambda: gateway.fleets.empty())
        await pilot.pause()

        assert "exit 3" in text_of(app)
        assert [1] == rung


async def test_a_visible_toast_is_not_repeated() -> None:
    """A terminal's request that was half drawn at first is read anew, and is another one then."""
    async with run_app(app := kasmon(fleet(idle("y"), working("x"))), notifications=True) as pilot:
        for number in (1, 2):
            app._show_update(fleet_update(fleet(idle("y"), asking("x", command("x", "make release", number)))))
            await pilot.pause()
        assert 1 == text_of(app).count("x has a request")

        app._show_update(fleet_update(fleet(idle("y"), asking("x", command("x", "make clean", 3)))))
        await pilot.pause()
        assert 2 == text_of(app).count("x has a request")


@pytest.mark.parametrize(
    ("settings", "bells", "notes"),
    [(DashboardSettings(bell=False), 0, True), (DashboardSettings(toasts=False), 1, False)],
)
async def test_bell_and_toasts_can_be_turned_off(
    monkeypatch: pytest.MonkeyPatch, settings: DashboardSettings, bells: int, notes: bool
) -> None:
    app = kasmon(fleet(idle("y"), working("x")), settings=settings)
    rung: list[int] = []
    monkeypatch.setattr(app, "bell", lambda: rung.append(1))
    async with run_app(app, notifications=True) as pilot:
        app._show_update(fleet_update(fleet(idle("y"), ended("x", 3))))
        await pilot.pause()

        assert bells == len(rung)
        assert notes is ("x crashed" in text_of(app))


async def test_requests_that_a_card_is_about_to_show_make_no_toast() -> None:
    names = [f"s{number}" for number in range(6)]
    app = kasmon(fleet(*(working(name) for name in names), working("x")), settings=DashboardSettings(popup=True))
    async with run_app(app, notifications=True):
        gateway = gateway_of(app)
        gateway.fleets.put_nowait(fleet(*(asking(name) for name in names), ended("x", 3)))
        await auntil(lambda: "x crashed" in text_of(app))

        assert "more sessions need attention" not in text_of(app)


async def test_no_toast_covers_a_request_of_the_open_session() -> None:
    async with run_app(app := kasmon(fleet(working("x"), working("y"))), notifications=True) as pilot:
        await pilot.press("enter")
        assert app.main_view.focused_inside
        inside = app.main_view.preview.session
        assert inside is not None
        other = next(name for name in ("x", "y") if name != inside.name)
        app._show_update(fleet_update(fleet(asking(str(inside.name)), asking(other))))
        await pilot.pause()

        assert f"{other} has a request" in text_of(app)
        assert f"{inside.name} has a request" not in text_of(app)
