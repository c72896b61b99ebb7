"""What the signals of a terminal agent add up to. Cannot tell is never idle; sure is never by absence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.model import evidence
from kasmon.model.permission import RequestKind
from kasmon.model.session_state import SessionState
from tests.support.sample_events import TEXT

NOW = 1000.0
VALUES = [
    *evidence.PROGRAM_STATES,
    *evidence.WORDS,
    "clear",
    "printing",
    "quiet",
    "ready",
    "unclear",
    "unreadable",
    "idle|asking",
    "nonsense",
]
SIGNALS = st.builds(
    evidence.Signal,
    source=st.sampled_from(evidence.TIERS),
    value=st.sampled_from(VALUES) | TEXT,
    at=st.floats(0, 4e9),
    asking=st.none() | st.sampled_from(RequestKind),
    text=TEXT,
)


def said(
    source: str, value: str, asking: RequestKind | None = None, *, at: float = 1.0, text: str = ""
) -> evidence.Signal:
    return evidence.Signal(source=source, value=value, at=at, asking=asking, text=text)


def judged(*signals: evidence.Signal, now: float = 1.0) -> evidence.StateVerdict:
    return evidence.judge(signals, now)


def losers(verdict: evidence.StateVerdict) -> dict[str, str]:
    return {lost.signal.source: lost.why for lost in verdict.lost}


# The program's own word.


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
def test_a_reported_state_is_accepted(value: str, state: SessionState) -> None:
    verdict = judged(said("output", "printing"), said("program", value))

    assert (state, "program") == (verdict.state, verdict.source)


@pytest.mark.parametrize(("screen", "state"), [("limited", SessionState.LIMITED), ("idle", SessionState.IDLE)])
def test_after_an_error_the_screen_decides_whether_it_was_a_limit(screen: str, state: SessionState) -> None:
    assert state is judged(said("program", "error"), said("screen", screen), now=NOW).state


@pytest.mark.parametrize("screen", ["unclear", "unreadable", "working"])
def test_an_error_that_may_be_a_limit_is_not_idle_until_the_screen_shows_it(screen: str) -> None:
    verdict = judged(said("program", "error"), said("screen", screen), said("title", "working"), now=NOW)

    assert (SessionState.UNSURE, "its program says idle or limited") == (verdict.state, verdict.why)


@pytest.mark.parametrize("screen_at", [1.0, 3.0])
def test_only_the_screen_shows_that_an_idle_program_is_starting(screen_at: float) -> None:
    """Codex says idle while a prompt that it took waits for its session to begin, before and after that shows."""
    verdict = judged(said("program", "idle", at=2.0), said("screen", "starting", at=screen_at), now=900.0)

    assert (SessionState.STARTING, "screen") == (verdict.state, verdict.source)


@pytest.mark.parametrize("rest", ["idle", "done", "error"])
@pytest.mark.parametrize(("screen", "state"), [("asking", SessionState.ASKING), ("limited", SessionState.LIMITED)])
def test_only_the_screen_shows_dialogs_and_the_limit_of_an_idle_program(
    rest: str, screen: str, state: SessionState
) -> None:
    """Codex says "done" and asks whether its plan shall be carried out; a person opens its list of models."""
    verdict = judged(said("program", rest, at=1.0), said("screen", screen, RequestKind.PLAN, at=1.5), now=NOW)

    assert (state, "screen") == (verdict.state, verdict.source)
    assert "the screen changed after it" == losers(verdict)["program"]


def test_a_screen_from_before_the_idle_report_does_not_contradict_it() -> None:
    """The answer was just given, and the screen not looked at since."""
    assert SessionState.IDLE is judged(said("screen", "asking", at=1.0), said("program", "idle", at=1.1), now=NOW).state


def test_a_source_that_reports_a_plan_request_overrules_one_that_reports_a_permission() -> None:
    registered = said("registry", "asking", RequestKind.PERMISSION)

    assert RequestKind.PLAN is judged(registered, said("screen", "asking", RequestKind.PLAN), now=NOW).asking
    assert RequestKind.PERMISSION is judged(registered, said("screen", "asking", RequestKind.QUESTION), now=NOW).asking


def test_a_hook_that_reports_a_failure_leaves_the_limit_to_the_screen() -> None:
    failed, registered = said("hook", "idle|limited"), said("registry", "idle|limited")

    assert SessionState.LIMITED is judged(registered, failed, said("screen", "limited"), now=NOW).state
    assert SessionState.IDLE is judged(registered, failed, said("screen", "idle"), now=NOW).state
    assert SessionState.UNSURE is judged(registered, failed, now=NOW).state


def test_a_blocked_program_says_itself_what_it_asks_or_asks_a_question() -> None:
    assert RequestKind.QUESTION is judged(said("program", "blocked")).asking
    assert RequestKind.PERMISSION is judged(said("program", "blocked", RequestKind.PERMISSION)).asking


def test_what_is_asked_is_told_by_the_first_that_knows_it_and_others_judge_a_status_taken_back() -> None:
    verdict = judged(said("program", "blocked"), said("screen", "asking", RequestKind.AUTH))
    assert ("program", RequestKind.AUTH) == (verdict.source, verdict.asking)

    verdict = judged(said("program", "clear"), said("output", "printing"))
    assert (SessionState.WORKING, "output") == (verdict.state, verdict.source)


@pytest.mark.parametrize("source", ["registry", "hook", "title", "screen", "fallback"])
def test_no_other_source_makes_a_reported_state_uncertain(source: str) -> None:
    """A prompt forged in its output neither becomes a request nor takes its state away."""
    verdict = judged(said("program", "working"), said(source, "asking", RequestKind.PERMISSION), now=NOW)

    assert (SessionState.WORKING, "program", None) == (verdict.state, verdict.source, verdict.asking)
    assert "disagrees, lower priority" == losers(verdict)[source]


# Who is believed.


@pytest.mark.parametrize(
    ("better", "worse"), [("registry", "hook"), ("hook", "title"), ("title", "screen"), ("screen", "output")]
)
def test_the_better_source_applies_while_the_other_may_only_be_late(better: str, worse: str) -> None:
    worst = "printing" if worse == "output" else "working"
    verdict = judged(said(worse, worst), said(better, "idle"), now=1.0 + evidence.SETTLE_S - 0.1)

    assert (SessionState.IDLE, better) == (verdict.state, verdict.source)
    assert worse in losers(verdict)


@pytest.mark.parametrize(("one", "other"), [("registry", "screen"), ("title", "screen"), ("registry", "title")])
def test_two_sources_that_keep_disagreeing_are_both_rejected(one: str, other: str) -> None:
    disagree = (said(one, "working", at=1.0), said(other, "idle", at=4.0))
    before, after = (
        evidence.judge(disagree, 4.0 + evidence.SETTLE_S - 0.1),
        evidence.judge(disagree, 4.0 + evidence.SETTLE_S),
    )

    assert (SessionState.WORKING, 4.0 + evidence.SETTLE_S) == (before.state, before.recheck_at)
    assert (SessionState.UNSURE, None) == (after.state, after.recheck_at)
    assert f"its {one} says working, but its {other} says idle" == after.why


def test_output_contradicts_no_other_source() -> None:
    verdict = judged(said("screen", "idle"), said("output", "printing"), now=NOW)

    assert (SessionState.IDLE, "screen") == (verdict.state, verdict.source)


@pytest.mark.parametrize("newer", ["title", "screen"])
def test_a_title_or_screen_that_changed_after_a_hook_overrules_it(newer: str) -> None:
    """No hook fires at Escape, nor at some ends of a turn."""
    verdict = judged(said("hook", "working", at=1.0), said(newer, "idle", at=1.0 + evidence.HOOK_LAG_S), now=NOW)

    assert (SessionState.IDLE, newer) == (verdict.state, verdict.source)
    assert f"the {newer} changed after it" == losers(verdict)["hook"]


def test_a_title_that_changed_just_after_a_hook_may_be_of_the_earlier_state() -> None:
    verdict = judged(
        said("hook", "working", at=1.0), said("title", "idle", at=1.0 + evidence.HOOK_LAG_S - 0.1), now=3.0
    )

    assert (SessionState.WORKING, "hook") == (verdict.state, verdict.source)


# Two states in one word.


def test_a_title_with_two_states_is_decided_by_a_source_that_distinguishes_them() -> None:
    """Claude's title is the same where it is idle and where it asks."""
    verdict = judged(said("title", "idle|asking"), said("screen", "asking", RequestKind.PERMISSION), now=NOW)

    assert (SessionState.ASKING, "screen", RequestKind.PERMISSION) == (verdict.state, verdict.source, verdict.asking)


def test_two_states_that_nobody_tells_apart_are_unsure_and_contradict_a_third() -> None:
    verdict = judged(said("title", "idle|asking"))
    assert (SessionState.UNSURE, "its title says asking or idle") == (verdict.state, verdict.why)

    verdict = judged(said("title", "idle|asking"), said("screen", "working"), now=NOW)
    assert SessionState.UNSURE is verdict.state


# Working without a sign of it.


@pytest.mark.parametrize("source", ["registry", "hook", "title", "screen"])
def test_an_agent_that_works_without_output_for_a_minute_is_unsure(source: str) -> None:
    silent = (said(source, "working", at=1.0), said("output", "quiet", at=5.0))
    before, after = evidence.judge(silent, 5.0 + evidence.STILL_S - 0.1), evidence.judge(silent, 5.0 + evidence.STILL_S)

    assert (SessionState.WORKING, 5.0 + evidence.STILL_S) == (before.state, before.recheck_at)
    assert (SessionState.UNSURE, f"its {source} says working, but it prints nothing") == (after.state, after.why)


def test_a_program_may_work_without_printing_and_whoever_knows_the_end_of_a_limit_tells_it() -> None:
    assert SessionState.WORKING is judged(said("program", "working"), said("output", "quiet"), now=NOW).state

    known = evidence.Signal(source="screen", value="limited", at=1.0, until=5000.0)
    verdict = evidence.judge((said("registry", "limited"), known), 1.0)
    assert (SessionState.LIMITED, "registry", 5000.0) == (verdict.state, verdict.source, verdict.until)


# Limits, and the end.


def test_an_agent_that_left_its_shell_alone_has_ended_and_only_the_processes_can_end_it() -> None:
    verdict = judged(said("program", "working"), said("process", "shell"), said("screen", "idle"), now=NOW)
    assert (SessionState.ENDED, "back at the shell") == (verdict.state, verdict.why)

    others = [source for source in evidence.TIERS if source != "process"]
    assert not any(SessionState.ENDED in evidence.claims(said(source, "shell")) for source in others)


# Nothing known.


def test_output_means_working() -> None:
    assert SessionState.WORKING is judged(said("output", "printing")).state


@pytest.mark.parametrize("signals", [(said("output", "quiet"),), (said("launch", "ready"),)], ids=["quiet", "ready"])
def test_silence_is_unsure_with_a_reason(signals: tuple[evidence.Signal, ...]) -> None:
    verdict = evidence.judge(signals, NOW)

    assert (SessionState.UNSURE, evidence.NO_SIGNALS) == (verdict.state, verdict.why)


@pytest.mark.parametrize(
    "known", [said("launch", "command"), said("process", "command")], ids=["command", "in a shell"]
)
def test_a_command_works_however_long_it_is_silent_unless_it_asks(known: evidence.Signal) -> None:
    silent = judged(known, said("output", "quiet"), now=1_000_000.0)
    asking = judged(known, said("output", "quiet"), said("fallback", "asking", RequestKind.QUESTION), now=1_000_000.0)

    assert (SessionState.WORKING, known.source, None) == (silent.state, silent.source, silent.recheck_at)
    assert (SessionState.ASKING, RequestKind.QUESTION) == (asking.state, asking.asking)


def test_a_shell_in_the_foreground_is_idle_only_if_its_prompt_is_known() -> None:
    alone, unclear = said("process", "alone"), said("screen", "unclear")

    assert SessionState.UNSURE is judged(said("launch", "ready"), alone, unclear).state
    assert SessionState.WORKING is judged(said("launch", "ready"), said("process", "command"), unclear).state
    assert (
        SessionState.IDLE is judged(said("launch", "ready"), said("process", "command"), said("screen", "idle")).state
    )


def test_a_screen_that_could_not_be_read_or_shows_nothing_known_is_unsure_and_never_an_end() -> None:
    verdict = judged(said("output", "quiet"), said("screen", "unreadable", text="tmux did not answer"))
    assert (SessionState.UNSURE, "the screen could not be read: tmux did not answer") == (verdict.state, verdict.why)

    verdict = judged(said("output", "quiet"), said("screen", "unclear"))
    assert (SessionState.UNSURE, "screen not recognised") == (verdict.state, verdict.why)


def test_without_any_signal_it_is_starting() -> None:
    assert SessionState.STARTING is judged().state


# Whatever is said.


@given(signals=st.lists(SIGNALS, max_size=8), now=st.floats(0, 5e9))
def test_idle_needs_a_source_that_reports_idle(signals: list[evidence.Signal], now: float) -> None:
    verdict = evidence.judge(tuple(signals), now)

    assert verdict.state is not SessionState.IDLE or any(
        SessionState.IDLE in evidence.claims(signal) for signal in signals if signal.source == verdict.source
    )


@given(signals=st.lists(SIGNALS, max_size=8), now=st.floats(0, 5e9))
def test_an_unsure_verdict_has_a_reason_and_only_asking_has_a_kind(signals: list[evidence.Signal], now: float) -> None:
    verdict = evidence.judge(tuple(signals), now)

    assert verdict.why or verdict.state is not SessionState.UNSURE
    assert (verdict.state is SessionState.ASKING) == (verdict.asking is not None)


@given(signals=st.lists(SIGNALS, max_size=8), now=st.floats(0, 5e9))
def test_the_verdict_holds_until_its_stated_time(signals: list[evidence.Signal], now: float) -> None:
    known: tuple[evidence.Signal, ...] = ()
    for signal in signals:
        known = evidence.replace_signal(known, signal)
    verdict = evidence.judge(known, now)
    until = verdict.recheck_at if verdict.recheck_at is not None else now + 1e6
    between = evidence.judge(known, now + (until - now) / 3)

    assert (verdict.state, verdict.source) == (between.state, between.source)


@given(signals=st.lists(SIGNALS, max_size=8), now=st.floats(0, 5e9))
def test_the_order_of_the_sources_does_not_matter(signals: list[evidence.Signal], now: float) -> None:
    by_source = {signal.source: signal for signal in signals}
    known = tuple(by_source.values())

    assert evidence.judge(known, now) == evidence.judge(tuple(reversed(known)), now)


@given(signals=st.lists(SIGNALS, max_size=20))
def test_only_the_last_signal_of_each_source_counts(signals: list[evidence.Signal]) -> None:
    known: tuple[evidence.Signal, ...] = ()
    for signal in signals:
        known = evidence.replace_signal(known, signal)

    assert {signal.source: signal for signal in signals} == {signal.source: signal for signal in known}
    assert len(known) == len({signal.source for signal in signals})


@pytest.mark.parametrize("source", ["program", "registry", "hook", "title", "fallback"])
def test_an_agent_that_its_screen_shows_stopped_is_stopped_whatever_was_reported(source: str) -> None:
    """Claude, on Ctrl-Z, stops in the middle of a question: its registry goes on to say that it asks."""
    value = "blocked" if source == "program" else "asking"
    verdict = judged(said(source, value, at=2.0), said("screen", "stopped", at=1.0), now=1000.0)

    assert (SessionState.UNSURE, evidence.STOPPED, None) == (verdict.state, verdict.why, verdict.asking)
    assert "the screen shows that it is suspended" == losers(verdict)[source]


def test_a_stopped_process_is_that_and_a_continued_one_is_what_its_screen_shows() -> None:
    verdict = judged(said("process", "stopped"), said("screen", "asking"), said("program", "blocked"), now=1000.0)
    assert (SessionState.UNSURE, "process", evidence.STOPPED) == (verdict.state, verdict.source, verdict.why)

    assert SessionState.ASKING is judged(said("process", "agent", at=2.0), said("screen", "asking")).state
