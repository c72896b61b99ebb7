"""What comes next in a plan that runs: every rule of `next`, on facts and sessions alone."""

from typing import Any

import msgspec
import pytest

from kasmon.model.commands import NO_TURN, Receipt, ReceiptState
from kasmon.model.plan.events import PlanChanged, PlanEnded, PlanFact, TaskDone, TaskFailed
from kasmon.model.plan.placement import MachineRequirement
from kasmon.model.plan.plan import Plan
from kasmon.model.plan.progress import PlanRun, TaskState, apply
from kasmon.model.plan.scheduler import ChooseMachines
from kasmon.model.session import HostProbe
from kasmon.model.session_state import SessionState
from tests.support.sample_plans import (
    NOW,
    began,
    checked,
    claimed,
    done,
    failed,
    next_of,
    placed,
    plan,
    receipt,
    run,
    session,
    steered,
    task,
    turned,
    words,
)

S, T = SessionState, TaskState
WAVES = plan(task("a", wave=1), task("b", wave=1), task("c", wave=2), task("d", wave=3))
GRAPH = plan(task("a"), task("b"), task("c", needs=("a",)), task("d", needs=("b", "c")), advance="auto")
BOTH = (*done("a"), *done("b"))


def receipt_at(at: float) -> Receipt:
    return receipt(ReceiptState.STARTED, at=at)


def steps(of: Plan, at: PlanRun, *sessions: Any, **more: Any) -> list[str]:
    return words(next_of(of, at, *sessions, **more))


# Which tasks begin


def test_the_first_wave_starts_at_once_and_in_parallel() -> None:
    found = next_of(WAVES, run())

    assert ["begin a 1", "begin b 1"] == words(found)
    assert {"c": "blocked by wave 1", "d": "blocked by wave 2"} == found.blocked


def test_a_task_of_a_graph_starts_when_its_needs_are_done_in_any_wave() -> None:
    assert ["begin a 1", "begin b 1"] == steps(GRAPH, run())
    assert ["begin c 1"] == steps(GRAPH, run(*done("a"), began("b")), session("b"))
    assert {"d": "blocked by b, c"} == next_of(GRAPH, run(*done("a"), began("b")), session("b")).blocked


def test_no_more_than_the_limit_run_at_once_in_the_order_of_the_plan() -> None:
    many = plan(*(task(f"t{n}") for n in range(5)))

    found = next_of(many, run(began("t0")), session("t0"), limit=3)

    assert ["begin t1 1", "begin t2 1"] == words(found)
    assert {"t3": "3 tasks are already running", "t4": "3 tasks are already running"} == found.blocked


# Which machine they begin on


ELSEWHERE = plan(task("a", machine="m"), task("b", labels=("gpu",)), task("c", labels=("gpu",)), task("d"))


def test_a_task_starts_on_another_machine_once_that_is_chosen_again_for_each_attempt() -> None:
    assert ["begin d 1", "place a 1", "place b 1, c 1"] == steps(ELSEWHERE, run())
    assert ["begin a 1", "begin c 1", "begin d 1", "place b 1"] == steps(ELSEWHERE, run(placed("a"), placed("c")))
    again = run(placed("a"), *failed("a"), placed("b"), began("b"), steered("retry", "a"), *done("c"), *done("d"))
    assert ["place a 2"] == steps(ELSEWHERE, again, session("b"))
    assert ["begin a 2"] == steps(ELSEWHERE, apply(again, placed("a", 2)), session("b"))


def test_without_a_suitable_machine_all_equal_tasks_wait_with_the_reason() -> None:
    found = next_of(ELSEWHERE, run(placed("b", machine="", why="m: it is drained"), began("d"), claimed("d")))

    assert ["place a 1", "place b 1, c 1"] == words(found)
    assert {"b": "m: it is drained", "c": "m: it is drained"} == found.blocked
    assert "task d reported done without a check: accept or retry" == found.question


def test_a_changed_plan_is_placed_again() -> None:
    assert "place a 1" in steps(ELSEWHERE, run(placed("a"), PlanChanged(at=6, digest="e")))


def test_a_task_continues_on_the_machine_of_the_task_that_it_inherits_from() -> None:
    of = plan(task("a", machine="any"), task("b", inherits="a"), task("c", inherits="b"), advance="auto")
    [step] = next_of(of, run(placed("a"), *done("a"))).steps

    assert isinstance(step, ChooseMachines)
    assert (MachineRequirement("m"), ["b"]) == (step.wanted, [each.task.id for each in step.tasks])


def test_the_limit_of_the_config_is_for_this_machine_and_that_of_the_plan_for_all_machines() -> None:
    of = plan(task("a"), task("b"), task("c", machine="m"))
    capped = msgspec.structs.replace(of, limit=1, lines=(("limit", 1),))

    assert ["begin a 1", "place c 1"] == steps(of, run(), limit=1)
    assert ["begin a 1"] == steps(capped, run())
    assert {"b": "1 tasks are already running", "c": "1 tasks are already running"} == next_of(capped, run()).blocked
    assert [] == steps(capped, run(placed("c"), began("c")), session("c"))


def test_a_task_placed_here_counts_towards_the_limit_of_this_machine() -> None:
    of = plan(task("a"), task("b", machine="any"), task("c", machine="any"))
    here = placed("b", machine="local")

    assert ["begin a 1", "place c 1"] == steps(of, run(here), limit=1)
    assert {"b": "1 tasks are already running"} == next_of(of, run(here), limit=1).blocked
    assert ["begin a 1", "begin b 1", "place c 1"] == steps(of, run(here), limit=2)
    assert ["place c 1"] == steps(of, run(here, began("b")), session("b"), limit=1)


def test_a_task_whose_machine_is_lost_is_retried_on_another_without_using_a_retry() -> None:
    lost, cut = {"m": "its machine is gone"}, session("b", S.UNSURE, via="m", source="link", since=NOW - 100)
    of, at = plan(task("b", labels=("gpu",), check="true")), run(placed("b"), began("b"))

    assert [] == steps(of, at, cut), "it may be back"
    assert ["failed b: its machine is gone"] == steps(of, at, cut, lost=lost)
    assert ["failed b: its machine is gone"] == steps(of, apply(at, claimed("b")), turned("b"), lost=lost)
    assert ["done b: its check passed"] == steps(
        of, run(placed("b"), began("b"), claimed("b"), checked("b", True)), turned("b"), lost=lost
    )
    retried = apply(at, TaskFailed(at=200, task="b", attempt=1, why="its machine is gone", is_lost=True))
    assert (T.FAILED, 0) == (retried.of("b").state, retried.of("b").tries)
    assert ["place b 2"] == steps(of, retried, cut, lost=lost)
    assert ["begin b 2"] == steps(of, apply(retried, placed("b", 2, "n")), cut)


def test_a_task_that_may_run_on_no_other_machine_waits_for_it_while_the_user_can_decide() -> None:
    lost, cut = {"m": "its machine is gone"}, session("a", S.UNSURE, via="m", source="link", since=NOW - 100)
    of, facts = plan(task("a", machine="m")), (placed("a"), began("a"))

    assert [] == steps(of, run(*facts), cut, lost=lost)
    assert ["failed a: its machine is gone"] == steps(of, run(*facts, headless=True), cut, lost=lost)
    assert [] == steps(of, run(*facts, headless=True), cut), "no host is reported without its machine"
    assert ["place a 2"] == steps(of, run(*facts, steered("retry", "a")), cut, lost=lost)


def test_without_a_user_a_plan_whose_tasks_get_no_machine_fails_after_a_while() -> None:
    facts = (*done("d"), placed("a", machine="", why="m: drained"), placed("b", machine="", why="n: full", at=90.0))
    waiting = run(*facts, headless=True)

    assert ["place a 1", "place b 1, c 1"] == steps(ELSEWHERE, waiting, now=689.0)
    assert [
        "finish failed, task a found no machine for 600 s: m: drained; task b found no machine for 600 s: n: full"
    ] == steps(ELSEWHERE, waiting, now=690.0)
    assert ["place a 1", "place b 1, c 1"] == steps(ELSEWHERE, run(*facts), now=9_000.0)
    working = run(*facts[3:], began("d"), headless=True)
    assert "place a 1" in steps(ELSEWHERE, working, session("d"), now=9_000.0)


def test_a_task_in_check_takes_a_slot_and_one_that_waits_for_the_user_does_not() -> None:
    of = plan(task("a", check="true"), task("b"), task("c"))

    assert ["check a"] == steps(of, run(began("a"), claimed("a"), began("b")), limit=2)
    assert ["begin c 1"] == steps(of, run(*done("a"), began("b"), claimed("b")), limit=1)


def test_what_needs_a_skipped_task_goes_on_and_what_needs_a_failed_one_waits() -> None:
    assert ["begin b 1", "begin c 1"] == steps(GRAPH, run(steered("skip", "a")))
    assert ["begin b 1"] == steps(GRAPH, run(*failed("a")))


def test_a_paused_plan_starts_nothing_and_lets_running_tasks_run() -> None:
    found = next_of(WAVES, run(began("a"), steered("pause")), turned("a"))

    assert ["claim a: turn, did it"] == words(found)
    assert "the plan is paused" == found.blocked["b"]
    assert ["begin a 1", "begin b 1"] == steps(WAVES, run(steered("pause"), steered("resume")))


# Waves


def test_after_a_wave_without_failures_the_user_is_asked() -> None:
    found = next_of(WAVES, run(*BOTH))

    assert ([], "wave 1 is done: start wave 2") == (words(found), found.question)


def test_one_word_lets_one_wave_begin_and_given_early_counts_once_the_wave_is_clean() -> None:
    assert ["begin c 1"] == steps(WAVES, run(*BOTH, steered("advance")))
    found = next_of(WAVES, run(*BOTH, steered("advance"), *done("c")))
    assert ([], "wave 2 is done: start wave 3") == (words(found), found.question)

    assert [] == steps(WAVES, run(steered("advance"), *done("a"), began("b")), session("b"))
    assert ["begin c 1"] == steps(WAVES, run(steered("advance"), *BOTH))


@pytest.mark.parametrize(
    ("of", "headless"), [(msgspec.structs.replace(WAVES, advance="auto"), False), (WAVES, True)], ids=["auto", "ci"]
)
def test_a_wave_advances_by_itself_if_the_plan_allows_it_or_no_user_can_be_asked(of: Plan, headless: bool) -> None:
    assert ["begin c 1"] == steps(of, run(*BOTH, headless=headless))


def test_a_wave_with_a_failure_never_goes_on_by_itself_and_levels_of_an_asking_graph_are_waves() -> None:
    auto = msgspec.structs.replace(WAVES, advance="auto")
    found = next_of(auto, run(*done("a"), *failed("b")))
    assert ([], "task b failed: retry, replace, skip, or abort") == (words(found), found.question)

    asking = msgspec.structs.replace(GRAPH, advance="ask")
    assert "wave 1 is done: start wave 2" == next_of(asking, run(*BOTH)).question


# From running to done


def test_the_report_of_its_session_is_logged_first() -> None:
    assert ["claim a: turn, did it", "begin b 1"] == steps(WAVES, run(began("a")), turned("a"))
    broken = session("a", S.ENDED, exit_code=1)
    assert ["claim a: failed, its agent ended with exit code 1", "begin b 1"] == steps(WAVES, run(began("a")), broken)


def test_a_claim_is_checked_and_the_check_decides() -> None:
    of = plan(task("a", check="true"))
    facts = (began("a"), claimed("a"))

    assert ["check a"] == steps(of, run(*facts), turned("a"))
    assert ["done a: its check passed"] == steps(of, run(*facts, checked("a", True)))
    assert ["failed a: check failed (exit 1)"] == steps(of, run(*facts, checked("a", False)))
    late = checked("a", False, exit_code=None, why="it took longer than 600 s")
    assert ["failed a: its check failed: it took longer than 600 s"] == steps(of, run(*facts, late))


def test_a_claim_without_a_check_is_asked_about_with_whether_it_changed_nothing() -> None:
    found = next_of(WAVES, run(*done("a"), began("b"), claimed("b")))
    assert ([], "task b reported done without a check: accept or retry") == (words(found), found.question)

    found = next_of(WAVES, run(*done("a"), began("b"), claimed("b", changed=0)))
    assert "task b reported done without a check (task b changed no files): accept or retry" == found.question


@pytest.mark.parametrize("headless", [True, False])
def test_a_claim_without_a_check_is_accepted_if_the_plan_allows_it_or_no_user_can_be_asked(headless: bool) -> None:
    of = WAVES if headless else msgspec.structs.replace(WAVES, without_check="advance")

    assert "done b: did it" in steps(of, run(*done("a"), began("b"), claimed("b"), headless=headless))


def test_a_time_limit_ends_an_attempt_even_without_news_of_its_session() -> None:
    of = plan(task("a", time_limit_s=60.0))

    for sessions in ((session("a"),), (session("a", S.LOST),), ()):
        assert ["failed a: its time limit of 60 s is over"] == steps(of, run(began("a")), *sessions, now=71.0)
        assert "failed a: its time limit of 60 s is over" not in steps(of, run(began("a")), *sessions, now=69.0)


def test_an_attempt_whose_session_was_not_started_is_started_and_one_without_has_failed() -> None:
    """Whoever noted it died before it was."""
    assert ["start a in sa", "begin b 1"] == steps(WAVES, run(began("a")), session("a", S.STARTING, generation=0))

    assert "failed a: its session could not be created" in steps(
        WAVES, run(msgspec.structs.replace(began("a"), session=""))
    )


def test_a_lost_agent_is_reported_and_not_restarted() -> None:
    found = next_of(WAVES, run(*done("b"), began("a")), session("a", S.LOST))

    assert ([], "the agent of task a is lost: run `kasmon recover`, or retry") == (words(found), found.question)


# What failed


def test_a_failed_task_is_tried_again_as_often_as_it_says_also_after_a_person_had_it_done_again() -> None:
    of = plan(task("a", retries=2))
    once, twice = failed("a", 1), failed("a", 2)
    assert ["begin a 2"] == steps(of, run(*once))
    assert ["begin a 3"] == steps(of, run(*once, *twice))
    assert "task a failed: retry, replace, skip, or abort" == next_of(of, run(*once, *twice, *failed("a", 3))).question

    of = plan(task("a", retries=1))
    assert ["begin a 3"] == steps(of, run(began("a"), steered("retry", "a"), *failed("a", 2)))


def test_the_user_may_allow_one_more_try_each_time() -> None:
    of = plan(task("a"))

    assert ["begin a 2"] == steps(of, run(*failed("a"), steered("retry", "a")))
    found = next_of(of, run(*failed("a"), steered("retry", "a"), *failed("a", 2)))
    assert ([], "task a failed: retry, replace, skip, or abort") == (words(found), found.question)


@pytest.mark.parametrize(
    "facts", [(began("a"), TaskFailed(at=20, task="a", attempt=1, why="slow")), (began("a"), steered("retry", "a"))]
)
def test_the_next_attempt_starts_once_the_last_one_has_ended(facts: tuple[PlanFact, ...]) -> None:
    """Two agents never work on one task at a time."""
    of = plan(task("a", retries=1))
    found = next_of(of, run(*facts), session("a", S.WORKING))

    assert ["end sa"] == words(found)
    assert {"a": "its last attempt is stopping (a)"} == found.blocked
    assert ["begin a 2"] == steps(of, run(*facts), session("a", S.ENDED))


# Sessions that are over


def test_the_session_of_a_task_that_is_done_ends_once_it_is_idle() -> None:
    of = plan(task("a"), task("b"))

    assert ["end sa", "begin b 1"] == steps(of, run(*done("a")), session("a", S.IDLE))
    assert ["begin b 1"] == steps(of, run(*done("a")), session("a", S.WORKING))


@pytest.mark.parametrize("facts", [(began("a"), steered("skip", "a")), failed("a")], ids=["skipped", "failed"])
def test_the_session_of_an_aborted_task_ends_at_once(facts: tuple[PlanFact, ...]) -> None:
    assert "end sa" in steps(plan(task("a"), task("b")), run(*facts), session("a", S.WORKING))


def test_the_session_of_a_claimed_task_lives_on_and_a_question_does_not_wait_for_those_that_end() -> None:
    assert ["begin b 1"] == steps(WAVES, run(began("a"), claimed("a")), session("a", S.IDLE))

    found = next_of(WAVES, run(*done("a"), *failed("b")), session("b", S.WORKING))
    assert (["end sb"], "task b failed: retry, replace, skip, or abort") == (words(found), found.question)


def test_a_task_that_is_retried_by_itself_causes_no_question() -> None:
    found = next_of(plan(task("a", retries=1)), run(*failed("a")), session("a", S.WORKING))

    assert (["end sa"], "") == (words(found), found.question)
    assert "" == next_of(plan(task("a", retries=1)), run(*failed("a"), steered("pause"))).question


# The end


def test_a_plan_is_done_when_all_of_it_was_checked_and_else_only_claimed() -> None:
    of = plan(task("a", check="true"))
    facts = (began("a"), claimed("a"), checked("a", True), TaskDone(at=3, task="a", attempt=1))
    assert ["finish done"] == steps(of, run(*facts))

    assert ["finish claimed, 1 skipped"] == steps(plan(task("a"), task("b")), run(*done("a"), steered("skip", "b")))


def test_a_plan_waits_with_its_end_for_its_sessions_and_then_has_no_next_step() -> None:
    assert ["end sa"] == steps(plan(task("a")), run(*done("a")), session("a", S.IDLE))

    over = run(*BOTH, PlanEnded(at=99, outcome="done"))
    assert ([], {}, "") == (words(next_of(WAVES, over)), next_of(WAVES, over).blocked, next_of(WAVES, over).question)


def test_an_aborted_plan_ends_its_sessions_and_then_itself() -> None:
    facts = (began("a"), began("b"), claimed("b"), steered("abort"))

    assert ["end sa", "end sb"] == steps(WAVES, run(*facts), session("a"), session("b", S.IDLE))
    assert ["finish aborted, aborted by user"] == steps(WAVES, run(*facts), session("a", S.ENDED))


def test_without_a_user_a_failure_ends_the_plan_once_nothing_runs() -> None:
    facts = (*failed("a"), began("b"))

    assert [] == steps(WAVES, run(*facts, headless=True), session("b"))
    over = run(*facts, TaskFailed(at=40, task="b", attempt=1, why="no"), headless=True)
    assert ["finish failed, tasks a, b failed: retry, replace, skip, or abort"] == steps(WAVES, over)


def test_a_plan_that_nobody_watches_can_be_paused_and_one_who_watches_decides_when_all_failed() -> None:
    assert [] == steps(WAVES, run(*BOTH, steered("pause"), headless=True))
    assert [] == steps(WAVES, run(*failed("a"), *failed("b")))


# Terminals that go on: clive's rule


CLIVE = plan(
    task("1", run="cd src"),
    task("2", run="make docs"),
    task("3", run="make", inherits="1"),
    task("4", run="x", needs=("3",)),
    advance="auto",
)


def test_two_terminals_run_four_commands() -> None:
    """clive's own example: 1 and 2 at once in two terminals, 3 goes on in that of 1, 4 comes after 3."""
    assert ["begin 1 1", "begin 2 1"] == steps(CLIVE, run())
    first = session("1", S.IDLE)
    assert ["begin 3 1"] == steps(CLIVE, run(*done("1"), began("2")), first, session("2"))
    busy = session("1", S.WORKING, receipt_at(10.5))
    assert [] == steps(CLIVE, run(*done("1"), began("2"), began("3", session="s1")), busy, session("2"))
    later = run(*done("1"), *done("2"), began("3", session="s1"), claimed("3"), TaskDone(at=30, task="3", attempt=1))
    assert ["end s1", "end s1", "begin 4 1"] == steps(CLIVE, later, first)


def test_a_terminal_that_later_tasks_use_is_kept_while_they_wait() -> None:
    assert ["begin 2 1", "begin 3 1"] == steps(CLIVE, run(*done("1")), session("1", S.IDLE))


def test_a_busy_terminal_is_not_typed_into() -> None:
    two = plan(task("1", run="x"), task("2", run="y", inherits="1"), task("3", run="z", inherits="1"), advance="auto")
    facts = (*done("1"), began("2", session="s1"))
    found = next_of(two, run(*facts), session("1", S.WORKING, receipt_at(10.5)))

    assert ([], {"3": "2 uses its terminal"}) == (words(found), found.blocked)
    assert ["begin 2 1"] == steps(two, run(*done("1")), session("1", S.IDLE))


def test_a_waiting_task_does_not_hold_a_terminal_that_another_one_needs() -> None:
    """2 waits for 3, and both go on from 1: 3 goes first, though it stands behind."""
    two = plan(
        task("1", run="x"),
        task("2", run="y", inherits="1", needs=("3",)),
        task("3", run="z", inherits="1"),
        advance="auto",
    )

    assert ["begin 3 1"] == steps(two, run(*done("1")), session("1", S.IDLE))


def test_a_command_that_was_logged_and_not_typed_is_typed() -> None:
    facts = (*done("1"), *done("2"), began("3", session="s1", at=50.0))

    assert ["start 3 in s1"] == steps(CLIVE, run(*facts), session("1", S.IDLE, receipt_at(11.0)))
    assert [] == steps(CLIVE, run(*facts), session("1", S.IDLE, receipt_at(50.0)))


def test_a_command_that_failed_is_tried_again_in_the_same_terminal_and_a_first_one_in_a_new_one() -> None:
    of = plan(task("1", run="x"), task("2", run="y", inherits="1", retries=1), advance="auto")
    facts = (*done("1"), began("2", session="s1"), TaskFailed(at=20, task="2", attempt=1, why="no"))
    assert ["begin 2 2"] == steps(of, run(*facts), session("1", S.IDLE))

    of = plan(task("1", run="x", retries=1), task("2", run="y", inherits="1"), advance="auto")
    assert ["end s1"] == steps(of, run(*failed("1")), session("1", S.IDLE))
    assert ["begin 1 2"] == steps(of, run(*failed("1")), session("1", S.ENDED))


def test_without_a_user_an_agent_that_stays_lost_has_failed() -> None:
    of, at = plan(task("a")), run(began("a"), headless=True)
    lost = msgspec.structs.replace(session("a"), state=S.LOST, since=NOW)

    assert [] == steps(of, at, lost, now=NOW + 50)
    assert ["failed a: its agent is lost for 60 s"] == steps(of, at, lost, now=NOW + 61)
    assert [] == steps(of, run(began("a")), lost, now=NOW + 1000)


def test_without_a_user_an_agent_whose_host_does_not_return_has_failed() -> None:
    of, at = plan(task("a")), run(began("a"), headless=True)
    gone = msgspec.structs.replace(session("a"), state=S.UNSURE, since=NOW, host=HostProbe(pid=None, alive=False))
    there = msgspec.structs.replace(gone, host=HostProbe(pid=7, alive=True))

    assert [] == steps(of, at, gone, now=NOW + 50)
    assert ["failed a: its host is gone for 60 s and did not come back"] == steps(of, at, gone, now=NOW + 61)
    assert [] == steps(of, at, there, now=NOW + 1000)
    assert [] == steps(of, run(began("a")), gone, now=NOW + 1000)


def test_an_agent_that_outlived_its_host_is_ended_before_its_task_is_retried() -> None:
    of = plan(task("a", retries=1))
    gone = msgspec.structs.replace(session("a"), state=S.UNSURE, since=NOW, host=HostProbe(pid=None, alive=False))
    found = next_of(of, run(*failed("a"), headless=True), gone)

    assert gone.is_orphaned
    assert (["end sa"], {"a": "its last attempt is stopping (a)"}) == (words(found), found.blocked)
    assert ["begin a 2"] == steps(of, run(*failed("a"), headless=True), msgspec.structs.replace(gone, state=S.ENDED))
    asks = "the host of task a is gone, and its agent may still run: retry (ends it first) or skip"
    assert ([], asks) == (steps(of, run(began("a")), gone), next_of(of, run(began("a")), gone).question)


def test_a_stopped_plan_ends_all_its_sessions_and_starts_and_checks_nothing() -> None:
    of = plan(task("a"), task("b", check="x"), task("c"), task("d", needs=("a",)))
    facts = (began("a"), began("b"), claimed("b"), *done("c"), steered("stop"))
    here = (session("a"), session("b", S.IDLE), session("c", S.IDLE))
    found = next_of(of, run(*facts, headless=True), *here)

    assert ["end sa", "end sb", "end sc"] == words(found)
    assert ("", {"a": "the plan is stopped", "d": "the plan is stopped"}) == (found.question, found.blocked)
    ended = [msgspec.structs.replace(one, state=S.ENDED) for one in here]
    assert [] == steps(of, run(*facts, headless=True), *ended)
    assert ["check b", "begin a 2"] == steps(of, run(*facts, steered("resume"), headless=True), *ended)
    assert ["finish aborted, aborted by user"] == steps(of, run(*facts, steered("abort")), *ended)


def test_an_idle_agent_without_a_turn_for_its_prompt_is_a_question_and_never_a_claim() -> None:
    of, idle = plan(task("a")), session("a", S.IDLE, receipt(ReceiptState.UNSURE, reason=NO_TURN), since=NOW)
    found = next_of(of, run(began("a")), idle, now=NOW + 1000)

    asks = "it is unknown whether the agent of task a accepted its prompt: check it, then retry or skip"
    assert ([], asks) == (words(found), found.question)
    assert [] == steps(of, run(began("a"), headless=True), idle, now=NOW + 50)
    why = f"its agent is idle, and its prompt {NO_TURN}"
    assert [f"failed a: {why}"] == steps(of, run(began("a"), headless=True), idle, now=NOW + 61)
