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


def test_a_screen_that_settled_is_looked_at_once(looking: ScreenSchedule) -> None:
    looking.record_output(10.0)
    assert pytest.approx(10.0 + SETTLE_S) == looking.next_at()


def test_a_screen_that_goes_on_changing_is_looked_at_all_the_same(looking: ScreenSchedule) -> None:
    for tenth in range(20):
        looking.record_output(10.0 + tenth / 20)
    assert pytest.approx(10.0 + EVERY_S) == looking.next_at()


def test_while_a_spinner_turns_and_nothing_else_is_new_looks_are_further_apart(looking: ScreenSchedule) -> None:
    looking.record_reading(9.9)
    looking.is_steady = True
    for tenth in range(20):
        looking.record_output(10.0 + tenth / 10)
    assert pytest.approx(10.0 + STEADY_S) == looking.next_at()


def test_a_spinner_that_stops_is_looked_at_soon(looking: ScreenSchedule) -> None:
    looking.record_reading(9.7)
    looking.is_steady = True
    looking.record_output(10.0)
    assert pytest.approx(10.0 + CALM_S) == looking.next_at()


def test_what_a_better_source_says_is_checked_at_once_also_while_a_spinner_turns(
    looking: ScreenSchedule,
) -> None:
    looking.record_reading(9.0)
    looking.is_steady = True
    looking.request_reading(10.0)
    assert pytest.approx(10.0 + SETTLE_S) == looking.next_at()


def test_where_a_better_source_decides_looks_are_seldom(looking: ScreenSchedule) -> None:
    looking.is_decided = True
    looking.record_output(10.0)
    looking.record_reading(10.1)
    looking.record_output(10.2)
    assert pytest.approx(10.1 + SELDOM_S) == looking.next_at()


def test_a_better_source_that_changes_makes_the_next_look_soon_and_needs_no_output(
    looking: ScreenSchedule,
) -> None:
    looking.is_decided = True
    looking.record_reading(10.0)
    looking.request_reading(11.0)
    assert pytest.approx(11.0 + SETTLE_S) == looking.next_at()


def test_what_no_rule_knows_is_looked_at_once_more_when_it_stood_still_and_then_never(looking: ScreenSchedule) -> None:
    looking.record_output(10.0)
    looking.record_reading(10.1)
    looking.request_still_reading()
    assert pytest.approx(10.0 + STILL_S) == looking.next_at()
    assert looking.is_still
    looking.record_reading(13.0)
    assert math.inf == looking.next_at()


def test_a_program_without_rules_is_looked_at_only_when_it_stands_still(looking: ScreenSchedule) -> None:
    looking.is_wordless = True
    looking.record_output(10.0)
    looking.record_output(11.0)
    assert pytest.approx(11.0 + STILL_S) == looking.next_at()


def test_a_look_that_was_asked_for_is_taken_at_its_time_and_the_last_wish_counts(looking: ScreenSchedule) -> None:
    looking.schedule_again(12.0)
    looking.schedule_again(13.0)
    looking.record_output(10.0)
    looking.record_reading(10.1)
    assert 13.0 == looking.next_at()
    looking.record_reading(13.0)
    assert math.inf == looking.next_at()


def test_a_pane_that_floods_is_looked_at_now_and_then(looking: ScreenSchedule) -> None:
    looking.handle_flood(True, 10.0)
    looking.record_reading(10.1)
    assert pytest.approx(10.1 + SELDOM_S) == looking.next_at()
    looking.handle_flood(False, 11.0)
    looking.record_reading(12.1)
    assert math.inf == looking.next_at()
