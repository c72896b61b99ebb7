"""What comes next in a sandbox's life, and when: by its phase, its use, the clock and the settings alone."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.config.schema import Lifetime
from kasmon.model.sandbox.policy import SandboxPhase
from kasmon.model.sandbox.state import SandboxState
from kasmon.sandbox.managed.idle_policy import (
    DueStep,
    LifecycleStep,
    LifetimeTerms,
    deadlines,
    due,
    format_duration,
    only_held,
    terms_of,
)

TERMS = LifetimeTerms()
RUNS = SandboxState(phase=SandboxPhase.RUNNING, is_intended=False, born_at=1000.0, used_at=1000.0)
SLEEPS = msgspec.structs.replace(RUNS, phase=SandboxPhase.PAUSED, held=True)
ON_DISK = msgspec.structs.replace(SLEEPS, held=False)


def expected(step: DueStep | None) -> DueStep:
    assert step is not None
    return step


def after(
    sandbox_state: SandboxState, terms: LifetimeTerms = TERMS, *, keeps_memory: bool = False, in_turn: bool = False
) -> DueStep | None:
    return due(sandbox_state, terms, keeps_memory=keeps_memory, in_turn=in_turn)


def test_what_nobody_uses_sleeps_after_a_quarter_of_an_hour_and_use_begins_that_time_anew() -> None:
    assert DueStep(LifecycleStep.STANDBY, 1900.0, "not used for 15 min") == after(RUNS)

    used = msgspec.structs.replace(RUNS, used_at=5000.0)
    assert 5900.0 == expected(after(used)).at


def test_a_running_turn_is_never_idle_however_long_it_takes() -> None:
    assert after(RUNS, in_turn=True) is None


@pytest.mark.parametrize(("keeps_memory", "step"), [(False, LifecycleStep.END), (True, LifecycleStep.PAUSE)])
def test_a_paused_sandbox_is_then_paused_to_disk_if_its_tier_can_else_it_ends(
    keeps_memory: bool, step: LifecycleStep
) -> None:
    assert DueStep(step, 2800.0, "not used for 30 min") == after(SLEEPS, keeps_memory=keeps_memory)


def test_it_ends_where_the_settings_say_so_before_any_pause_that_its_tier_could_do() -> None:
    assert LifecycleStep.END is expected(after(SLEEPS, LifetimeTerms(on_timeout="end"), keeps_memory=True)).step

    terms = LifetimeTerms(standby_after_s=60.0, idle_timeout_s=60.0)
    assert LifecycleStep.END is expected(after(RUNS, terms)).step


def test_a_life_is_over_after_its_time_on_disk_or_in_use() -> None:
    assert DueStep(LifecycleStep.END, 87_400.0, "maximum lifetime of 24 h reached") == after(ON_DISK, keeps_memory=True)

    busy = msgspec.structs.replace(RUNS, used_at=87_399.0)
    assert DueStep(LifecycleStep.END, 87_400.0, "maximum lifetime of 24 h reached") == after(busy)


def test_zero_is_never_and_what_is_gone_has_nothing_to_come() -> None:
    assert after(RUNS, LifetimeTerms(standby_after_s=0.0, idle_timeout_s=0.0, max_lifetime_s=0.0)) is None
    assert after(msgspec.structs.replace(RUNS, phase=SandboxPhase.EXPIRED)) is None


@given(
    sandbox_state=st.builds(
        SandboxState,
        phase=st.sampled_from(SandboxPhase),
        held=st.booleans(),
        born_at=st.floats(0, 1e9),
        used_at=st.floats(0, 1e9),
    ),
    terms=st.builds(
        LifetimeTerms,
        standby_after_s=st.floats(0, 1e6),
        idle_timeout_s=st.floats(0, 1e6),
        max_lifetime_s=st.floats(0, 1e6),
        on_timeout=st.sampled_from(["pause", "end"]),
    ),
    keeps_memory=st.booleans(),
)
def test_a_paused_sandbox_is_not_paused_again_and_no_tier_gets_an_unsupported_request(
    sandbox_state: SandboxState, terms: LifetimeTerms, keeps_memory: bool
) -> None:
    step = after(sandbox_state, terms, keeps_memory=keeps_memory)

    assert step is None or keeps_memory or step.step is not LifecycleStep.PAUSE
    assert step is None or step.step is not LifecycleStep.STANDBY or sandbox_state.phase is SandboxPhase.RUNNING


def test_the_shown_deadlines_are_the_real_ones() -> None:
    assert (1900.0, None, 2800.0) == deadlines(RUNS, TERMS, keeps_memory=False)
    assert (None, None, 1060.0) == deadlines(RUNS, LifetimeTerms(idle_timeout_s=60.0), keeps_memory=False)
    assert (1900.0, 2800.0, 87_400.0) == deadlines(RUNS, TERMS, keeps_memory=True)
    ends = LifetimeTerms(idle_timeout_s=60.0, on_timeout="end")
    assert (None, None, 1060.0) == deadlines(RUNS, ends, keeps_memory=True)
    assert (None, None, 87_400.0) == deadlines(RUNS, TERMS, keeps_memory=True, is_on_disk=True)
    assert (None, None, None) == deadlines(
        RUNS, LifetimeTerms(standby_after_s=0, idle_timeout_s=0, max_lifetime_s=0), keeps_memory=True
    )


@pytest.mark.parametrize(("seconds", "words"), [(900, "15 min"), (86_400, "24 h"), (2.5, "2.5 s"), (90, "90 s")])
def test_times_are_told_in_the_unit_that_fits(seconds: float, words: str) -> None:
    assert words == format_duration(seconds)


def test_an_agent_paused_in_memory_ends_by_its_idle_time_only_if_the_config_sets_it() -> None:
    unsaid, said, ends = Lifetime(), Lifetime(idle_timeout_seconds=1800), Lifetime(on_timeout="end")

    assert 1800 == terms_of(unsaid).idle_timeout_s
    assert [0, 1800, 1800] == [only_held(terms_of(each)).idle_timeout_s for each in (unsaid, said, ends)]
