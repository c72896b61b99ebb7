"""What the report of a limit says at a later time."""

import msgspec
import pytest

from kasmon.model.limits.window import HOUR_S, LimitWindow, forecast, merge_windows

NOW = 1_795_000_000.0
HALF = LimitWindow(name="five_hour", used=0.5, resets_at=NOW + 3 * HOUR_S, at=NOW)


def test_of_two_reports_the_later_one_counts_and_after_its_reset_only_its_name() -> None:
    older = msgspec.structs.replace(HALF, used=0.2, at=NOW - 60)
    week = LimitWindow(name="weekly", used=0.1, at=NOW)
    assert (HALF, week) == merge_windows((older,), (HALF, week)) == merge_windows((HALF, week), (older,))

    assert HALF == HALF.current(NOW + 3 * HOUR_S - 1)
    assert LimitWindow(name="five_hour", at=NOW) == HALF.current(NOW + 3 * HOUR_S)


def test_a_forecast_continues_the_average_of_the_window_and_names_it() -> None:
    full = forecast(HALF)  # half of it in two hours: full two hours later, one before its reset

    assert full is not None
    assert (NOW + 2 * HOUR_S, "50% in the first 2 h of this window") == (full.full_at, full.basis)


@pytest.mark.parametrize(
    "change",
    [
        {"used": 0.3},  # its reset comes first
        {"used": 1.0},
        {"used": 0.01},
        {"used": None},
        {"resets_at": None},
        {"resets_at": NOW + 4.9 * HOUR_S},  # it has just begun
        {"resets_at": NOW + 6 * HOUR_S},  # longer than it lasts: it is another window
        {"name": "monthly"},
    ],
)
def test_without_data_there_is_no_forecast(change: dict[str, float | str | None]) -> None:
    assert forecast(msgspec.structs.replace(HALF, **change)) is None


def test_a_weekly_limit_of_a_model_lasts_a_week() -> None:
    window = LimitWindow(name="weekly_opus", used=0.9, resets_at=NOW + 84 * HOUR_S, at=NOW)

    assert forecast(window) is not None
