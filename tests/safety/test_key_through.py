"""Whatever a person types while a request arrives, it is never taken for an answer. Real processes, real keys."""

import os
import random
import signal
import threading

import pytest

from kasmon.model.event import RequestAnswered, RequestOpened
from kasmon.model.permission import SessionId
from tests.safety.dash import Dashboard, Home
from tests.waiting import until

TYPED = "always allow A1"
"""Fifteen characters: each answer's key is among them, and none that opens a dialog."""


@pytest.fixture
def askers(home: Home) -> list[SessionId]:
    return [home.start(f"asker-{number}", "say Ready.") for number in range(3)]


def answers(home: Home, askers: list[SessionId]) -> list[RequestAnswered]:
    return [fact for session in askers for fact in home.facts(RequestAnswered, session)]


def asked(home: Home, askers: list[SessionId]) -> bool:
    return all(home.facts(RequestOpened, session) for session in askers)


def ask_meanwhile(home: Home, askers: list[SessionId], within_s: float, seed: int) -> threading.Thread:
    """Each of *askers* asks for something dangerous at a moment of its own within the next *within_s* seconds."""
    chance = random.Random(seed)
    moments = sorted(chance.uniform(0.0, within_s) for _ in askers)

    def run() -> None:
        before = 0.0
        for session, moment in zip(askers, moments, strict=True):
            threading.Event().wait(moment - before)
            before = moment
            home.prompt(session, "ask rm -rf build")

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("seed", [1, 2])
def test_typing_in_the_list_answers_nothing(home: Home, askers: list[SessionId], seed: int) -> None:
    with Dashboard(home) as dashboard:
        dashboard.shows("3 idle")
        asking = ask_meanwhile(home, askers, 0.6, seed)
        dashboard.type(TYPED)
        asking.join()
        until(lambda: asked(home, askers))
        dashboard.shows("rm -rf build", "1 of 3", "ready")  # once nobody types, it rises

        assert [] == answers(home, askers)


def test_typing_in_a_prompt_box_stays_there_and_answers_nothing(home: Home, askers: list[SessionId]) -> None:
    with Dashboard(home) as dashboard:
        dashboard.shows("3 idle")
        dashboard.send(b"\r")
        dashboard.shows("Write to asker")
        asking = ask_meanwhile(home, askers, 0.6, 3)
        dashboard.type(TYPED)
        asking.join()
        until(lambda: asked(home, askers))

        dashboard.shows(TYPED, "3 requests wait", "F2")
        assert "1 of 3" not in dashboard.screen
        assert [] == answers(home, askers)


def test_somebody_who_types_on_when_the_card_comes_answers_nothing(home: Home, askers: list[SessionId]) -> None:
    """The card is deaf, and stays deaf as long as the keys come without a rest."""
    with Dashboard(home) as dashboard:
        dashboard.shows("3 idle")
        for session in askers:
            home.prompt(session, "ask rm -rf build")
        dashboard.shows("rm -rf build", "1 of 3", "wait")
        dashboard.send(TYPED.encode())
        dashboard.shows("1 of 3", "ready")

        assert [] == answers(home, askers)
        dashboard.send(b"a")  # the keys do arrive there
        until(lambda: answers(home, askers))


def test_a_key_pressed_while_the_card_says_wait_is_no_answer_however_late_it_is_read(home: Home) -> None:
    """A machine that was busy, swapping or asleep: what counts is what the person saw when they pressed the key."""
    asker = home.start("asker", "say Ready.")
    with Dashboard(home) as dashboard:
        dashboard.shows("1 idle")
        home.prompt(asker, "ask rm -rf build")
        dashboard.shows("rm -rf build", "◌ wait")
        process = dashboard.process
        process.suspend()
        dashboard.send(b"a")
        threading.Event().wait(1.0)
        for pid in (dashboard.pid, process.pid):
            os.kill(pid, signal.SIGCONT)
        until(lambda: "ready" in dashboard.screen or answers(home, [asker]))

        assert [] == answers(home, [asker])
