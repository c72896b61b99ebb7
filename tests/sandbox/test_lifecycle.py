"""What comes next in a sandbox's life, and when: by its phase, its use, the clock and the settings alone."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.model.housing import Housing
from kasmon.model.sandbox import Phase
from kasmon.sandbox.lifecycle import Due, Step, Terms, deadlines, due, told

TERMS = Terms()
RUNS = Housing(phase=Phase.RUNNING, is_intended=False, born_at=1000.0, used_at=1000.0)
SLEEPS = msgspec.structs.replace(RUNS, phase=Phase.PAUSED, held=True)
ON_DISK = msgspec.structs.replace(SLEEPS, held=False)


def expected(step: Due | None) -> Due:
    assert step is not None
    return step


def after(housing: Housing, terms: Terms = TERMS, *, keeps_memory: bool = False, in_turn: bool = False) -> Due | None:
    return due(housing, terms, keeps_memory=keeps_memory, in_turn=in_turn)


def test_what_nobody_uses_sleeps_after_a_quarter_of_an_hour() -> None:
    assert Due(Step.STANDBY, 1900.0, "nobody used it for 15 min") == after(RUNS)


def test_use_begins_that_time_anew() -> None:
    used = msgspec.structs.replace(RUNS, used_at=5000.0)

    assert 5900.0 == expected(after(used)).at


def test_a_running_turn_is_never_idle_however_long_it_takes() -> None:
    assert after(RUNS, in_turn=True) is None


@pytest.mark.parametrize(("keeps_memory", "step"), [(False, Step.END), (True, Step.PAUSE)])
def test_what_sleeps_on_is_paused_to_disk_where_its_tier_can_else_it_ends(keeps_memory: bool, step: Step) -> None:
    assert Due(step, 2800.0, "nobody used it for 30 min") == after(SLEEPS, keeps_memory=keeps_memory)


def test_it_ends_where_the_settings_say_so_even_if_its_tier_could_pause() -> None:
    assert Step.END is expected(after(SLEEPS, Terms(on_timeout="end"), keeps_memory=True)).step


def test_what_is_on_disk_is_kept_until_its_life_is_over() -> None:
    assert Due(Step.END, 87_400.0, "it was there for 24 h") == after(ON_DISK, keeps_memory=True)


def test_a_life_is_over_after_its_time_whatever_it_was_used_for() -> None:
    busy = msgspec.structs.replace(RUNS, used_at=87_399.0)

    assert Due(Step.END, 87_400.0, "it was there for 24 h") == after(busy)


def test_the_end_goes_before_sleep_where_both_are_due() -> None:
    terms = Terms(standby_after_s=60.0, idle_timeout_s=60.0)

    assert Step.END is expected(after(RUNS, terms)).step


def test_zero_is_never() -> None:
    assert after(RUNS, Terms(standby_after_s=0.0, idle_timeout_s=0.0, max_lifetime_s=0.0)) is None


def test_what_is_gone_has_nothing_to_come() -> None:
    assert after(msgspec.structs.replace(RUNS, phase=Phase.EXPIRED)) is None


@given(
    housing=st.builds(
        Housing,
        phase=st.sampled_from(Phase),
        held=st.booleans(),
        born_at=st.floats(0, 1e9),
        used_at=st.floats(0, 1e9),
    ),
    terms=st.builds(
        Terms,
        standby_after_s=st.floats(0, 1e6),
        idle_timeout_s=st.floats(0, 1e6),
        max_lifetime_s=st.floats(0, 1e6),
        on_timeout=st.sampled_from(["pause", "end"]),
    ),
    keeps_memory=st.booleans(),
)
def test_nothing_that_sleeps_is_put_to_sleep_and_no_tier_is_asked_for_what_it_cannot(
    housing: Housing, terms: Terms, keeps_memory: bool
) -> None:
    step = after(housing, terms, keeps_memory=keeps_memory)

    assert step is None or keeps_memory or step.step is not Step.PAUSE
    assert step is None or step.step is not Step.STANDBY or housing.phase is Phase.RUNNING


def test_the_deadlines_that_are_shown_are_those_that_are_kept() -> None:
    assert (1900.0, None, 2800.0) == deadlines(RUNS, TERMS, keeps_memory=False)
    assert (None, None, 1060.0) == deadlines(RUNS, Terms(idle_timeout_s=60.0), keeps_memory=False)
    assert (1900.0, 2800.0, 87_400.0) == deadlines(RUNS, TERMS, keeps_memory=True)
    ends = Terms(idle_timeout_s=60.0, on_timeout="end")
    assert (None, None, 1060.0) == deadlines(RUNS, ends, keeps_memory=True)
    assert (None, None, 87_400.0) == deadlines(RUNS, TERMS, keeps_memory=True, is_on_disk=True)
    assert (None, None, None) == deadlines(
        RUNS, Terms(standby_after_s=0, idle_timeout_s=0, max_lifetime_s=0), keeps_memory=True
    )


@pytest.mark.parametrize(("seconds", "words"), [(900, "15 min"), (86_400, "24 h"), (2.5, "2.5 s"), (90, "90 s")])
def test_times_are_told_in_the_unit_that_fits(seconds: float, words: str) -> None:
    assert words == told(seconds)
