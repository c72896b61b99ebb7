"""What calls a person who may be elsewhere: once for each reason and session, a storm as one, never what is seen."""

from typing import Any, cast

import msgspec
import pytest

from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.supervisor.notifications.alerts import AGAIN_S, GATHER_S, STORM_S, Alert, Alerts
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.operations import Operations
from kasmon.tui.gateway.protocol import DashboardSettings
from tests.support.bus.sample_machines import MACHINES, cut_off, registered, there
from tests.support.dashboard_scenes import kasmon, run_app
from tests.support.sample_fleet import StillClock, asking, command, ended, fleet, idle, session, working
from tests.support.tui.fake_gateway import fleet_update, gateway_of
from tests.support.wait import auntil


class Watch:
    """Alerts over a fleet that the test changes, on a clock that the test moves."""

    def __init__(self, *sessions: Session) -> None:
        self.alerts, self.at, self.seen = Alerts(), 1000.0, ""
        self.sessions = {one.id: one for one in sessions}
        self.alerts.update({}, sessions, None, self.at)

    def now(self, *changed: Session, after: float = 0.0) -> bool:
        self.at += after
        seen = SessionId(self.seen) if self.seen else None
        told = self.alerts.update(dict(self.sessions), changed, seen, self.at)
        self.sessions |= {one.id: one for one in changed}
        return told

    def calls(self, after: float = GATHER_S) -> list[str]:
        self.at += after
        return [alert.title for alert in self.alerts.due(self.at)]


@pytest.mark.parametrize(
    ("after", "title"),
    [
        (asking("x"), "x has a request"),
        (session("x", SessionState.ASKING), "x has a request"),
        (session("x", SessionState.LOST), "Lost contact with x"),
        (ended("x", 1), "x crashed"),
        (working("x", stuck=True, stuck_why="again"), "x may be stuck"),
        (session("x", SessionState.UNSURE), "x: status unknown"),
        (session("x", SessionState.LIMITED), "x reached a usage limit"),
    ],
)
def test_a_session_that_needs_the_user_alerts_once(after: Session, title: str) -> None:
    watch = Watch(working("x"))

    assert watch.now(after)
    assert [title] == watch.calls()
    assert not watch.now(msgspec.structs.replace(after, last_line="still"))
    assert [] == watch.calls()


def test_a_state_from_before_the_dashboard_opened_does_not_alert() -> None:
    """A restart of the dashboard calls nobody."""
    watch = Watch(asking("x"), ended("y", 1))

    assert [] == watch.calls()
    assert not watch.now(asking("new one"))


def test_the_end_of_a_turn_does_not_alert_and_that_of_a_long_one_does() -> None:
    watch = Watch(working("x", ago=200))
    watch.now(idle("x", ago=141))
    assert [] == watch.calls()
    watch.now(working("x", ago=100))
    watch.now(asking("x", ago=60))
    assert ["x has a request"] == watch.calls()
    watch.now(working("x", ago=50))
    watch.now(idle("x", ago=40))

    assert ["x has finished"] == watch.calls(STORM_S)


def test_work_that_began_before_the_dashboard_opened_counts_whole_and_stopped_work_is_unfinished() -> None:
    watch = Watch(working("x", ago=900))
    watch.now(idle("x", ago=0))
    assert ["x has finished"] == watch.calls()

    watch = Watch(working("x", ago=900))
    watch.now(ended("x", 0, stopped=True, ago=0))
    assert [] == watch.calls()


def test_a_further_request_alerts_and_the_same_one_does_not() -> None:
    one, two = command("x", "ls"), command("x", "make", 2)
    watch = Watch(working("x"))
    watch.now(asking("x", one))
    assert ["x has a request"] == watch.calls()
    assert watch.now(asking("x", one, two))
    assert not watch.now(asking("x", two))


def test_a_reason_that_ends_before_the_alert_does_not_alert() -> None:
    watch = Watch(working("x"))
    watch.now(asking("x"))
    watch.now(working("x"), after=0.5)

    assert [] == watch.calls()


def test_a_visible_session_does_not_alert() -> None:
    watch = Watch(working("x"), working("y"))
    watch.seen = "x"

    assert not watch.now(asking("x"))
    assert watch.now(asking("y"))
    assert ["y has a request"] == watch.calls()


def test_a_session_viewed_in_time_does_not_alert() -> None:
    watch = Watch(working("x"))
    watch.now(asking("x"))
    watch.alerts.acknowledge(SessionId("x"))

    assert [] == watch.calls()


def test_a_repeated_reason_alerts_again_only_after_a_view_or_a_long_time() -> None:
    unsure, works = session("x", SessionState.UNSURE), working("x")
    watch = Watch(works)
    assert watch.now(unsure)
    watch.calls()
    watch.now(works)
    assert not watch.now(unsure)
    watch.now(works)
    watch.alerts.acknowledge(SessionId("x"))
    assert watch.now(unsure)
    watch.now(works)
    assert watch.now(unsure, after=AGAIN_S)


def test_seven_in_one_second_are_one_alert() -> None:
    names = [f"s{number}" for number in range(7)]
    watch = Watch(*map(working, names))
    for name in names:
        watch.now(asking(name), after=0.1)
    (alert,) = watch.alerts.due(watch.at + GATHER_S)

    assert "7 sessions need attention" == alert.title
    assert "s0 has a request; s1 has a request; s2 has a request; and 4 more" == alert.text
    assert ("several", tuple(names)) == (alert.kind, alert.sessions)


def test_after_three_alerts_the_next_ones_wait_and_come_as_one() -> None:
    names = [f"s{number}" for number in range(6)]
    watch = Watch(*map(working, names))
    for name in names[:3]:
        watch.now(asking(name))
        assert [f"{name} has a request"] == watch.calls()
    for name in names[3:]:
        watch.now(asking(name))
        assert [] == watch.calls()

    assert ["3 sessions need attention"] == watch.calls(STORM_S)


def test_the_text_is_one_clean_line_without_a_known_token() -> None:
    token = "sk-ant-api03-" + "a1B2" * 12
    watch = Watch(working("x"))
    watch.now(asking("x", command("x", f"curl \x1b[2J -H {token}\nrm")))
    (alert,) = watch.alerts.due(watch.at + GATHER_S)

    assert token not in alert.text
    assert "\x1b" not in alert.text
    assert "\n" not in alert.text
    assert "curl" in alert.text


def test_after_a_disconnect_only_new_reasons_alert() -> None:
    """The cut itself calls once for the machine, not once for each session."""
    asked, docs, crashed = (there("lab", one) for one in (asking("x"), working("docs"), ended("z", 1)))
    watch = Watch(asked, docs, crashed)

    assert not watch.now(cut_off("x"), cut_off("docs"))
    assert watch.now(asked, there("lab", session("docs", SessionState.LOST)))
    assert ["Lost contact with lab:docs"] == watch.calls()


async def test_an_unreachable_machine_alerts_once_and_its_return_is_shown() -> None:
    app = kasmon(fleet(working("x")))
    gateway = gateway_of(app)
    async with run_app(app, notifications=True) as pilot:
        told: list[str] = []
        back = (*MACHINES[:2], registered("lab"))
        for machines in (MACHINES, MACHINES[:2], back, MACHINES, back):
            gateway.registered.put_nowait(machines)
            await auntil(gateway.registered.empty, what="its reader")
            await pilot.pause()
            told += [each.message for each in app._notifications if each.message not in told]

    assert ["lab is unreachable"] == [alert.title for alert in called(app)]
    assert ["lab is unreachable: no sign of life for 10 s.", "lab is connected again."] == told


def called(app: Kasmon) -> list[Alert]:
    return gateway_of(app).passed(Operations.send_alert, "alert")


async def test_the_dashboard_alerts_for_sessions_out_of_view(monkeypatch: pytest.MonkeyPatch) -> None:
    app = kasmon(fleet(idle("y"), working("x"), working("z")))
    rung: list[int] = []
    monkeypatch.setattr(app, "bell", lambda: rung.append(1))
    async with run_app(app) as pilot:
        app.main_view.table.select(SessionId("x"))
        await pilot.pause()
        later(app, 1)
        app._show_update(fleet_update(fleet(idle("y"), session("x", SessionState.LOST), working("z"))))
        later(app, 5)
        await pilot.pause()
        assert ([], []) == (rung, called(app))

        app._show_update(fleet_update(fleet(idle("y"), session("x", SessionState.LOST), ended("z", 1))))
        assert [1] == rung
        later(app, 5)
        await pilot.pause()

        assert ["z crashed"] == [alert.title for alert in called(app)]


@pytest.mark.parametrize("away", ["the window has no focus", "no key for long"])
async def test_while_the_user_is_away_a_visible_session_alerts_too(away: str) -> None:
    async with run_app(app := kasmon(fleet(working("x")))) as pilot:
        if away == "no key for long":
            later(app, 1000)
        else:
            app.app_focus = False
        app._show_update(fleet_update(fleet(asking("x"))))
        later(app, 5)
        await pilot.pause()

        assert ["x has a request"] == [alert.title for alert in called(app)]


async def test_how_long_work_has_to_take_is_a_setting() -> None:
    app = kasmon(fleet(working("x", ago=6), idle("y")), settings=DashboardSettings(finished_after_s=5))
    async with run_app(app) as pilot:
        app.main_view.table.select(SessionId("y"))
        await pilot.pause()
        app._show_update(fleet_update(fleet(idle("x", ago=0), idle("y"))))
        later(app, 5)
        await pilot.pause()

        assert ["x has finished"] == [alert.title for alert in called(app)]


async def test_the_process_that_pushes_is_notified_of_keys_if_there_are_targets() -> None:
    for has_targets in (False, True):
        app = kasmon(fleet(working("x")), settings=DashboardSettings(has_targets=has_targets))
        async with run_app(app) as pilot:
            later(app, 1)
            later(app, 8)
            await pilot.pause()
            begun = gateway_of(app).passed(Operations.maintain_notifier, "quiet_s")
            await pilot.press("down")
            later(app, 2)
            later(app, 2)
            await pilot.pause()
            quiet_s = gateway_of(app).passed(Operations.maintain_notifier, "quiet_s")

        assert (1, [2.0]) == (len(begun), quiet_s[1:]) if has_targets else [] == quiet_s


def later(app: Any, seconds: float) -> None:
    cast(StillClock, app.clock).forward(seconds)
    app.notifications.tick()
