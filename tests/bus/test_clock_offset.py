"""How far the clock of another machine is ahead, by the times that it sends."""

import math

import pytest

from kasmon.bus.clock_offset import MOST_S, SAMPLES, ClockOffset
from tests.support.supervisor.env import NOW

DAY_S = 86400.0


def measured(ahead_s: float, *, back_s: float = 0.2) -> ClockOffset:
    """A machine whose answer takes 0.4 s, of which *back_s* to come back."""
    clock = ClockOffset()
    clock.begin(NOW, NOW + 0.4 - back_s + ahead_s, NOW + 0.4)
    return clock


@pytest.mark.parametrize("ahead_s", [DAY_S, -DAY_S, 7.0])
def test_a_wrong_clock_is_measured_in_the_middle_of_a_round_trip(ahead_s: float) -> None:
    assert ahead_s == pytest.approx(measured(ahead_s).value_s)
    assert ahead_s == pytest.approx(measured(ahead_s, back_s=0.0).value_s, abs=0.21)


def test_a_clock_that_is_right_is_not_corrected_however_long_updates_take() -> None:
    clock = measured(0.0)
    for late_s in (0.0, 3.0, 0.2, 2.0, 9.0):
        clock.add(NOW + 1, NOW + 1 + 0.2 + late_s)

    assert 0.0 == clock.value_s


def test_delayed_updates_after_a_cut_do_not_show_a_slow_clock() -> None:
    clock, shown = ClockOffset(), set[float]()
    clock.begin(NOW, 0.0, NOW)  # what a cluster stored does not say when it was sent
    for age_s in range(38, -1, -1):
        clock.add(NOW - age_s, NOW + (38 - age_s) / 1000)
        shown.add(clock.value_s)
    for second in range(1, SAMPLES + 1):
        clock.add(NOW + second, NOW + second)

    assert ({0.0}, 0.0) == (shown, clock.value_s)


def test_a_clock_that_is_behind_is_measured_without_a_round_trip_too() -> None:
    clock = ClockOffset()
    clock.begin(NOW, 0.0, NOW)
    for second in range(SAMPLES):
        clock.add(NOW + second - 30.0, NOW + second)

    assert -30.0 == clock.value_s


def test_a_clock_that_is_set_while_it_is_connected_is_measured_again() -> None:
    clock = measured(DAY_S)
    for number in range(SAMPLES):
        clock.add(NOW + number, NOW + number + 0.2)

    assert 0.0 == pytest.approx(clock.value_s, abs=0.01)
    clock.add(NOW + DAY_S, NOW + 0.2)
    assert DAY_S == pytest.approx(clock.value_s)


@pytest.mark.parametrize(
    ("at", "expected"), [(0.0, 0.0), (math.nan, 0.0), (math.inf, 0.0), (-1.0, 0.0), (1e300, MOST_S)]
)
def test_an_invalid_time_is_no_measurement_and_a_huge_one_is_bounded(at: float, expected: float) -> None:
    clock = ClockOffset()
    clock.begin(NOW, at, NOW)

    assert expected == clock.value_s
