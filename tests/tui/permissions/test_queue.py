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


def test_keys_of_a_card_do_not_count_for_600_ms() -> None:
    assert not arms(InputGuard(100.0), 100.59)
    assert arms(InputGuard(100.0), 100.6)


def test_keys_of_a_card_do_not_count_until_300_ms_of_silence() -> None:
    arming = InputGuard(100.0)
    for at in (100.5, 100.7, 100.9):
        arming.press(at)

    assert not arms(arming, 101.19)
    assert arms(arming, 101.21)


def test_any_change_disables_the_keys_again() -> None:
    arming = InputGuard(100.0)
    assert arms(arming, 101.0)
    arming.change(105.0)

    assert not arming.armed
    assert not arms(arming, 105.3)
    assert arms(arming, 105.6)


def test_once_keys_count_they_do_so_until_a_change() -> None:
    arming = InputGuard(100.0)
    assert arms(arming, 101.0)

    assert arming.update(101.05)


def test_time_without_a_redraw_does_not_enable_the_keys() -> None:
    """The process stood still for an hour; a key pressed meanwhile is read after the first look."""
    arming = InputGuard(100.0)
    assert not arming.update(3700.0)
    arming.press(3700.0)

    assert not arming.update(3700.1)
    assert arms(arming, 3700.31)


@given(st.lists(st.floats(0.001, 0.29), min_size=1, max_size=60))
def test_continuous_typing_never_enables_the_keys(pauses: list[float]) -> None:
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


def test_requests_queue_in_order_of_arrival() -> None:
    waiting = queue(
        asking("b", command("b", "ls", ago=10)), asking("a", command("a", "ls", ago=30), question("a", 2, ago=5))
    )

    assert ["a-1", "b-1", "a-2"] == ids(waiting)
    assert 2 == place_in(waiting.waiting, RequestId("b-1"))
    assert place_in(waiting.waiting, RequestId("x-1")) is None


def test_a_request_answered_here_is_not_shown_again() -> None:
    waiting = queue(asking("a", command("a", "ls")))
    waiting.mark_sent(RequestId("a-1"))
    assert [] == ids(waiting)

    waiting.update([asking("a", command("a", "ls"), ago=99)])
    assert [] == ids(waiting)


def test_a_dismissed_request_waits_behind_the_others() -> None:
    first, second = command("a", "ls", ago=30), command("b", "ls", ago=10)
    waiting = queue(asking("a", first), asking("b", second))
    waiting.mark_sent(RequestId("a-1"))
    assert ["b-1"] == ids(waiting)

    waiting.update([asking("a", msgspec.structs.replace(first, later=True))])
    assert ["b-1", "a-1"] == ids(waiting)
    assert frozenset() == waiting.in_transit


def test_a_failed_answer_restores_the_request() -> None:
    waiting = queue(asking("a", command("a", "ls")))
    waiting.mark_sent(RequestId("a-1"))
    waiting.mark_failed(RequestId("a-1"))

    assert ["a-1"] == ids(waiting)


def test_a_session_without_requests_is_out_of_the_queue() -> None:
    waiting = queue(asking("a", command("a", "ls")))

    assert waiting.update([idle("a")])
    assert [] == ids(waiting)


def test_a_removed_session_is_out_of_the_queue() -> None:
    waiting = queue(asking("a", command("a", "ls")))

    assert waiting.update([], [SessionId("a")])
    assert [] == ids(waiting)


def test_an_update_without_a_new_request_changes_no_queue() -> None:
    ask = command("a", "ls")
    waiting = queue(asking("a", ask))

    assert not waiting.update([asking("a", ask, ago=50)])


@pytest.mark.parametrize(
    "quiet",
    [asking("a", msgspec.structs.replace(command("a", "ls"), later=True)), asking("a", login("a")), idle("a")],
    ids=["set aside", "not answerable", "asks nothing"],
)
def test_requests_that_open_no_card_by_themselves(quiet: object) -> None:
    assert queue(quiet).rising() is None


def test_a_request_that_the_user_closed_does_not_open_again() -> None:
    waiting = queue(asking("a", command("a", "ls", ago=30)), asking("b", command("b", "ls", ago=10)))
    waiting.put_off([RequestId("a-1")])

    rising = waiting.rising()
    assert rising is not None
    assert "b-1" == rising.id
    assert ["a-1", "b-1"] == ids(waiting)
