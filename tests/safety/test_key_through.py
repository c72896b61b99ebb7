"""Whatever a person types while a request arrives, it is never taken for an answer. Real processes, real keys."""

import os
import signal
import threading
import time
from itertools import cycle

import psutil
import pytest

from kasmon.model.events import RequestAnswered
from kasmon.model.permission import SessionId
from kasmon.tui.permissions.queue import DEAF_S, SILENCE_S
from tests.support.tui.dashboard import LIMIT_S, Dashboard, Home
from tests.support.wait import until

pytestmark = pytest.mark.story

TYPED = "azA1 dey"
"""Each answer's key is among these, and none that opens a dialog."""
ATTEMPTS = 20


@pytest.fixture
def askers(home: Home) -> list[SessionId]:
    """Three at rest, and a config by which a card opens by itself: the worst case for somebody who types."""
    home.paths.config_file.parent.mkdir(mode=0o700, exist_ok=True)
    home.paths.config_file.write_text("[attention]\npopup = true\n")
    return [home.start(f"asker-{number}", "say Ready.") for number in range(3)]


def answers(home: Home, askers: list[SessionId]) -> list[RequestAnswered]:
    return [fact for session in askers for fact in home.facts(RequestAnswered, session)]


def type_while_they_ask(home: Home, dashboard: Dashboard, askers: list[SessionId]) -> None:
    """Type `TYPED` again and again without a rest, from before the first has asked until the last has."""
    keys = cycle(TYPED)

    def ask() -> None:
        for session in askers:
            home.prompt(session, "ask rm -rf build")

    def all_ask() -> bool:
        dashboard.type(next(keys))
        return "3 asking" in dashboard.screen

    asking = threading.Thread(target=ask)
    dashboard.type(TYPED)
    asking.start()
    until(all_ask, LIMIT_S)
    asking.join()
    dashboard.type(TYPED)


def all_ask(home: Home, dashboard: Dashboard, askers: list[SessionId]) -> None:
    """Everybody has asked, the card rose by itself, and was closed."""
    for session in askers:
        home.prompt(session, "ask rm -rf build")
    dashboard.shows("1 of 3", "● ready")
    dashboard.send(b"\x1b")
    dashboard.hides("1 of 3")


def opened(dashboard: Dashboard) -> float:
    """A moment before which the card was not there, by the clock that it is deaf by; now all of it is there."""
    moment = time.monotonic()
    dashboard.send(b"i")
    until(lambda: "1 of 3" in dashboard.screen and ("◌ wait" in dashboard.screen or "● ready" in dashboard.screen))
    return moment


def closed(dashboard: Dashboard) -> None:
    """The machine was too slow to show the card while it is deaf: once more."""

    def is_gone() -> bool:
        dashboard.send(b"\x1b")  # again: a terminal that is taken anew drops what is typed then
        try:
            dashboard.hides("1 of 3", 2.0)
        except AssertionError:
            return False
        return True

    until(is_gone, LIMIT_S)


def test_typing_in_the_list_answers_no_request(home: Home, askers: list[SessionId]) -> None:
    with Dashboard(home) as dashboard:
        dashboard.shows("3 finished")
        type_while_they_ask(home, dashboard, askers)
        dashboard.shows("rm -rf build", "1 of 3", "● ready")  # once nobody types, it rises

        assert [] == answers(home, askers)


def test_typing_in_a_prompt_box_stays_there_and_answers_no_request(home: Home, askers: list[SessionId]) -> None:
    with Dashboard(home) as dashboard:
        dashboard.shows("3 finished")
        dashboard.send(b"\r")
        dashboard.shows("Write to asker")
        for number, session in enumerate(askers, 1):
            home.prompt(session, "ask rm -rf build")
            dashboard.shows(f"{number} asking")
            dashboard.type(TYPED)

        dashboard.shows(3 * TYPED, "3 pending requests", "F2")
        assert "1 of 3" not in dashboard.screen
        assert [] == answers(home, askers)


def test_typing_while_a_card_opens_answers_no_request(home: Home, askers: list[SessionId]) -> None:
    with Dashboard(home) as dashboard:
        all_ask(home, dashboard, askers)
        for _ in range(ATTEMPTS):
            if time.monotonic() < opened(dashboard) + DEAF_S / 2:
                break
            closed(dashboard)
        else:
            pytest.fail("no key could be pressed while the card was deaf")
        dashboard.send(TYPED.encode())
        dashboard.shows("1 of 3", "● ready")

        assert [] == answers(home, askers)
        dashboard.send(b"a")  # the keys do arrive there
        until(lambda: answers(home, askers))


def test_a_key_pressed_while_the_card_is_not_ready_is_no_answer_however_late_it_is_read(
    home: Home, askers: list[SessionId]
) -> None:
    """A machine that was busy, swapping or asleep: what counts is what the person saw when they pressed the key."""
    with Dashboard(home) as dashboard:
        all_ask(home, dashboard, askers)
        for _ in range(ATTEMPTS):
            moment = opened(dashboard)
            stop(dashboard)
            if time.monotonic() < moment + DEAF_S:
                break
            go_on(dashboard)
            closed(dashboard)
        else:
            pytest.fail("the dashboard could not be stopped while the card was deaf")
        dashboard.shows("◌ wait")
        dashboard.send(b"a")
        until(lambda: dashboard.unread)
        armed_by = time.monotonic() + DEAF_S + SILENCE_S
        until(lambda: time.monotonic() > armed_by)  # what is tested is that this time is not the person's
        assert dashboard.unread
        go_on(dashboard)
        dashboard.shows("1 of 3", "● ready")

        assert [] == answers(home, askers)


def stop(dashboard: Dashboard) -> None:
    """The dashboard stands still."""
    process = dashboard.process
    process.suspend()
    until(lambda: process.status() == psutil.STATUS_STOPPED)


def go_on(dashboard: Dashboard) -> None:
    for pid in (dashboard.pid, dashboard.process.pid):
        os.kill(pid, signal.SIGCONT)
