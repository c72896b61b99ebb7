"""When a screen is looked at: soon after it changed, seldom where others know, never while nothing happens."""

import math

import pytest

from kasmon.backends.tmux.evidence.screen_schedule import (
    CALM_S,
    EVERY_S,
    SELDOM_S,
    SETTLE_S,
    STEADY_S,
    STILL_S,
    ScreenSchedule,
)


@pytest.fixture
def looking() -> ScreenSchedule:
    return ScreenSchedule()


def test_a_silent_screen_is_never_looked_at_and_two_looks_are_a_while_apart(looking: ScreenSchedule) -> None:
    assert math.inf == looking.next_at()
    looking.record_output(1.0)
    looking.record_reading(1.1)
    assert math.inf == looking.next_at()

    looking.record_output(10.0)
    looking.record_reading(10.1)
    looking.record_output(10.11)
    assert pytest.approx(10.1 + EVERY_S) == looking.next_at()


def test_a_screen_that_settled_is_read_once(looking: ScreenSchedule) -> None:
    looking.record_output(10.0)
    assert pytest.approx(10.0 + SETTLE_S) == looking.next_at()


def test_a_screen_that_keeps_changing_is_still_read(looking: ScreenSchedule) -> None:
    for tenth in range(20):
        looking.record_output(10.0 + tenth / 20)
    assert pytest.approx(10.0 + EVERY_S) == looking.next_at()


def test_while_only_a_spinner_changes_the_interval_is_longer(looking: ScreenSchedule) -> None:
    looking.record_reading(9.9)
    looking.is_steady = True
    for tenth in range(20):
        looking.record_output(10.0 + tenth / 10)
    assert pytest.approx(10.0 + STEADY_S) == looking.next_at()


def test_a_spinner_that_stops_causes_a_read_soon(looking: ScreenSchedule) -> None:
    looking.record_reading(9.7)
    looking.is_steady = True
    looking.record_output(10.0)
    assert pytest.approx(10.0 + CALM_S) == looking.next_at()


def test_a_signal_of_a_better_source_causes_a_read_at_once_also_during_a_spinner(
    looking: ScreenSchedule,
) -> None:
    looking.record_reading(9.0)
    looking.is_steady = True
    looking.request_reading(10.0)
    assert pytest.approx(10.0 + SETTLE_S) == looking.next_at()


def test_where_a_better_source_decides_the_screen_is_read_rarely(looking: ScreenSchedule) -> None:
    looking.is_decided = True
    looking.record_output(10.0)
    looking.record_reading(10.1)
    looking.record_output(10.2)
    assert pytest.approx(10.1 + SELDOM_S) == looking.next_at()


def test_a_better_source_that_changes_causes_a_read_without_output(
    looking: ScreenSchedule,
) -> None:
    looking.is_decided = True
    looking.record_reading(10.0)
    looking.request_reading(11.0)
    assert pytest.approx(11.0 + SETTLE_S) == looking.next_at()


def test_a_screen_that_no_rule_matches_is_read_once_more_when_it_is_still(looking: ScreenSchedule) -> None:
    looking.record_output(10.0)
    looking.record_reading(10.1)
    looking.request_still_reading()
    assert pytest.approx(10.0 + STILL_S) == looking.next_at()
    assert looking.is_still
    looking.record_reading(13.0)
    assert math.inf == looking.next_at()


def test_the_screen_of_a_program_without_rules_is_read_only_when_it_is_still(looking: ScreenSchedule) -> None:
    looking.is_wordless = True
    looking.record_output(10.0)
    looking.record_output(11.0)
    assert pytest.approx(11.0 + STILL_S) == looking.next_at()


def test_a_requested_read_is_done_on_time_and_the_last_request_applies(looking: ScreenSchedule) -> None:
    looking.schedule_again(12.0)
    looking.schedule_again(13.0)
    looking.record_output(10.0)
    looking.record_reading(10.1)
    assert 13.0 == looking.next_at()
    looking.record_reading(13.0)
    assert math.inf == looking.next_at()


def test_a_flooding_pane_is_read_at_intervals(looking: ScreenSchedule) -> None:
    looking.handle_flood(True, 10.0)
    looking.record_reading(10.1)
    assert pytest.approx(10.1 + SELDOM_S) == looking.next_at()
    looking.handle_flood(False, 11.0)
    looking.record_reading(12.1)
    assert math.inf == looking.next_at()
