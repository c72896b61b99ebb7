"""What the signals of a terminal agent add up to. Cannot tell is never idle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.model.evidence import NO_SIGNALS, PROGRAM_STATES, Signal, heard, judge
from kasmon.model.permission import AskKind
from kasmon.model.state import SessionState
from tests.model.facts import TEXT

SOURCES = ["program", "registry", "hook", "title", "screen", "output", "launch"]
VALUES = [*PROGRAM_STATES, "clear", "printing", "quiet", "ready", "nonsense"]
SIGNALS = st.builds(
    Signal,
    source=st.sampled_from(SOURCES),
    value=st.sampled_from(VALUES) | TEXT,
    at=st.floats(0, 4e9),
    asking=st.none() | st.sampled_from(AskKind),
    text=TEXT,
)


def said(source: str, value: str, asking: AskKind | None = None) -> Signal:
    return Signal(source=source, value=value, at=1.0, asking=asking)


@pytest.mark.parametrize(
    ("value", "state"),
    [
        ("idle", SessionState.IDLE),
        ("done", SessionState.IDLE),
        ("error", SessionState.IDLE),
        ("working", SessionState.WORKING),
        ("blocked", SessionState.ASKING),
    ],
)
def test_a_program_that_tells_its_state_is_believed(value: str, state: SessionState) -> None:
    verdict = judge((said("output", "printing"), said("program", value)))

    assert (state, "program") == (verdict.state, verdict.source)


def test_a_blocked_program_that_does_not_say_why_asks_a_question() -> None:
    assert AskKind.QUESTION is judge((said("program", "blocked"),)).asking


def test_a_program_says_itself_what_it_asks() -> None:
    assert AskKind.PERMISSION is judge((said("program", "blocked", AskKind.PERMISSION),)).asking


def test_a_program_that_takes_back_its_status_is_judged_by_the_other_sources() -> None:
    verdict = judge((said("program", "clear"), said("output", "printing")))

    assert (SessionState.WORKING, "output") == (verdict.state, verdict.source)


def test_what_prints_works() -> None:
    assert SessionState.WORKING is judge((said("output", "printing"),)).state


@pytest.mark.parametrize("signals", [(said("output", "quiet"),), (said("launch", "ready"),)], ids=["quiet", "ready"])
def test_silence_is_unsure_and_says_so(signals: tuple[Signal, ...]) -> None:
    verdict = judge(signals)

    assert (SessionState.UNSURE, NO_SIGNALS) == (verdict.state, verdict.why)


def test_without_any_signal_it_is_starting() -> None:
    assert SessionState.STARTING is judge(()).state


@given(signals=st.lists(SIGNALS, max_size=8))
def test_only_the_program_itself_can_make_a_terminal_agent_idle(signals: list[Signal]) -> None:
    verdict = judge(tuple(signals))

    assert verdict.state is not SessionState.IDLE or verdict.source == "program"


@given(signals=st.lists(SIGNALS, max_size=8))
def test_an_unsure_verdict_has_a_reason_and_only_asking_has_a_kind(signals: list[Signal]) -> None:
    verdict = judge(tuple(signals))

    assert (verdict.state is SessionState.UNSURE) == bool(verdict.why)
    assert (verdict.state is SessionState.ASKING) == (verdict.asking is not None)


@given(signals=st.lists(SIGNALS, max_size=20))
def test_each_source_has_only_its_last_word(signals: list[Signal]) -> None:
    known: tuple[Signal, ...] = ()
    for signal in signals:
        known = heard(known, signal)

    assert {signal.source: signal for signal in signals} == {signal.source: signal for signal in known}
    assert len(known) == len({signal.source for signal in signals})
