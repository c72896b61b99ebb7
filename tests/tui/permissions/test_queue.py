"""The rules of asking: when keys count, and which request is shown. No screen, no waiting: the time is a number."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.model.permission import RequestId, SessionId
from kasmon.tui.permissions.queue import DEAF_S, SILENCE_S, InputGuard, PermissionQueue, place_in
from tests.support.sample_fleet import asking, command, idle, login, question


def arms(arming: InputGuard, now: float) -> bool:
    """Whether it is armed after two looks at this time."""
    arming.update(now)
    return arming.update(now)


def test_a_card_is_deaf_for_600_ms() -> None:
    assert not arms(InputGuard(100.0), 100.59)
    assert arms(InputGuard(100.0), 100.6)


def test_a_card_is_deaf_until_300_ms_of_silence() -> None:
    arming = InputGuard(100.0)
    for at in (100.5, 100.7, 100.9):
        arming.press(at)

    assert not arms(arming, 101.19)
    assert arms(arming, 101.21)


def test_any_change_makes_it_deaf_again() -> None:
    arming = InputGuard(100.0)
    assert arms(arming, 101.0)
    arming.change(105.0)

    assert not arming.armed
    assert not arms(arming, 105.3)
    assert arms(arming, 105.6)


def test_once_armed_it_stays_armed_until_a_change() -> None:
    arming = InputGuard(100.0)
    assert arms(arming, 101.0)

    assert arming.update(101.05)


def test_time_that_nobody_saw_does_not_arm_it() -> None:
    """The process stood still for an hour; a key pressed meanwhile is read after the first look."""
    arming = InputGuard(100.0)
    assert not arming.update(3700.0)
    arming.press(3700.0)

    assert not arming.update(3700.1)
    assert arms(arming, 3700.31)


@given(st.lists(st.floats(0.001, 0.29), min_size=1, max_size=60))
def test_somebody_who_types_on_never_arms_it(pauses: list[float]) -> None:
    arming = InputGuard(0.0)
    now = 0.0
    arming.press(now)
    for pause in pauses:
        now += pause
        assert not arms(arming, now)
        arming.press(now)
    assert not arms(arming, now + SILENCE_S - 0.001)
    assert arms(arming, max(now + SILENCE_S, DEAF_S))


def queue(*sessions: object) -> PermissionQueue:
    waiting = PermissionQueue()
    waiting.update(sessions)  # type: ignore[arg-type]
    return waiting


def ids(waiting: PermissionQueue) -> list[str]:
    return [str(ask.id) for ask in waiting.waiting]


def test_requests_queue_in_the_order_they_came() -> None:
    waiting = queue(
        asking("b", command("b", "ls", ago=10)), asking("a", command("a", "ls", ago=30), question("a", 2, ago=5))
    )

    assert ["a-1", "b-1", "a-2"] == ids(waiting)
    assert 2 == place_in(waiting.waiting, RequestId("b-1"))
    assert place_in(waiting.waiting, RequestId("x-1")) is None


def test_what_was_answered_here_is_not_shown_again() -> None:
    waiting = queue(asking("a", command("a", "ls")))
    waiting.mark_sent(RequestId("a-1"))
    assert [] == ids(waiting)

    waiting.update([asking("a", command("a", "ls"), ago=99)])
    assert [] == ids(waiting)


def test_what_was_set_aside_here_waits_on_behind_the_others() -> None:
    first, second = command("a", "ls", ago=30), command("b", "ls", ago=10)
    waiting = queue(asking("a", first), asking("b", second))
    waiting.mark_sent(RequestId("a-1"))
    assert ["b-1"] == ids(waiting)

    waiting.update([asking("a", msgspec.structs.replace(first, later=True))])
    assert ["b-1", "a-1"] == ids(waiting)
    assert frozenset() == waiting.in_transit


def test_an_answer_that_failed_brings_the_request_back() -> None:
    waiting = queue(asking("a", command("a", "ls")))
    waiting.mark_sent(RequestId("a-1"))
    waiting.mark_failed(RequestId("a-1"))

    assert ["a-1"] == ids(waiting)


def test_a_session_that_asks_no_more_is_out_of_the_queue() -> None:
    waiting = queue(asking("a", command("a", "ls")))

    assert waiting.update([idle("a")])
    assert [] == ids(waiting)


def test_a_forgotten_session_is_out_of_the_queue() -> None:
    waiting = queue(asking("a", command("a", "ls")))

    assert waiting.update([], [SessionId("a")])
    assert [] == ids(waiting)


def test_a_change_that_asks_nothing_new_changes_no_queue() -> None:
    ask = command("a", "ls")
    waiting = queue(asking("a", ask))

    assert not waiting.update([asking("a", ask, ago=50)])


@pytest.mark.parametrize(
    "quiet",
    [asking("a", msgspec.structs.replace(command("a", "ls"), later=True)), asking("a", login("a")), idle("a")],
    ids=["set aside", "not answerable", "asks nothing"],
)
def test_what_does_not_rise_by_itself(quiet: object) -> None:
    assert queue(quiet).rising() is None


def test_a_request_that_a_person_closed_on_does_not_rise_again() -> None:
    waiting = queue(asking("a", command("a", "ls", ago=30)), asking("b", command("b", "ls", ago=10)))
    waiting.put_off([RequestId("a-1")])

    rising = waiting.rising()
    assert rising is not None
    assert "b-1" == rising.id
    assert ["a-1", "b-1"] == ids(waiting)
