"""A plan's facts, folded."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.model.events import UnknownEvent, encode
from kasmon.model.plan.events import (
    PlacementEnded,
    PlanBegan,
    PlanChanged,
    PlanEnded,
    PlanFact,
    TaskDone,
    TaskFailed,
    TaskPlaced,
    decode,
)
from kasmon.model.plan.progress import PlanRun, TaskState, apply, find_lost_placements
from tests.support.sample_plans import began, checked, checking, claimed, done, failed, placed, run, steered

T = TaskState
EVERY = (
    PlanBegan(at=1, plan="p", name="n", file="f", folder="d", digest="x", headless=True, on="any"),
    PlanChanged(at=1, digest="y"),
    PlanEnded(at=9, outcome="claimed", why="w"),
    steered("replace", "a", "codex"),
    began("a", name="p-W1-T1", workdir="/w", branch="plan/p", base="abc"),
    claimed("a", changed=0),
    checking("a", pid_started=5.0, pid_boot="b", machine="box"),
    checked("a", False, output="no\n", took_s=1.5, why="it took longer than 1 s"),
    TaskPlaced(at=2, task="a", attempt=1, machine="m", why="w"),
    TaskDone(at=3, task="a", attempt=1, why="w"),
    TaskFailed(at=3, task="a", attempt=1, why="w"),
)


@pytest.mark.parametrize("fact", EVERY, ids=lambda fact: type(fact).__name__)
def test_every_event_is_decoded_from_its_line(fact: PlanFact) -> None:
    assert fact == decode(encode(fact))


@pytest.mark.parametrize("line", [b"", b"{}", b"nonsense", b'{"kind":"task.flew","at":1}', b"\xff\xfe", b"[" * 5000])
def test_an_unreadable_line_changes_nothing(line: bytes) -> None:
    fact = decode(line)

    assert isinstance(fact, UnknownEvent)
    assert run(*done("a")) == apply(run(*done("a")), fact)


def test_a_task_that_was_not_started_waits() -> None:
    assert (T.WAITING, 0) == (run().of("a").state, run().of("a").attempt)


def test_a_placement_holds_for_the_next_attempt_only() -> None:
    placed = TaskPlaced(at=2, task="a", attempt=1, machine="m", why="w")
    again = msgspec.structs.replace(placed, machine="n")
    waiting, moved, running = (
        run(*facts).of("a") for facts in ([placed], [placed, again], [placed, again, began("a")])
    )

    assert [("m", placed), ("n", again), ("n", None)] == [
        (at.machine, at.placement) for at in (waiting, moved, running)
    ]
    failed_there = run(placed, *failed("a"))
    late = apply(failed_there, placed)  # of an attempt that is over
    nowhere = msgspec.structs.replace(placed, attempt=2, machine="")
    second = apply(late, nowhere)
    assert ("m", None) == (late.of("a").machine, late.of("a").placement)
    assert ("m", nowhere) == (second.of("a").machine, second.of("a").placement)
    assert "" == apply(second, began("a", 2)).of("a").machine


def test_a_task_that_is_placed_here_leaves_nothing_on_the_machine_where_it_was_placed_before() -> None:
    there, here = placed("a"), placed("a", machine="local")
    [left] = find_lost_placements(run(there, here), "a")
    back = run(there, here, there)
    ended = PlacementEnded(at=9, task="a", attempt=1, epoch=left.epoch, machine="m")

    assert (1, "m") == (left.epoch, left.machine)
    assert () == find_lost_placements(run(there), "a") == find_lost_placements(run(here), "a")
    assert [1, 3] == [each.epoch for each in back.of("a").placements], "what was ended there does not begin again"
    assert [3] == [each.epoch for each in apply(back, ended).of("a").placements]
    assert here == apply(run(there, here), ended).of("a").placement


def test_a_task_goes_from_running_over_claimed_and_checked_to_done() -> None:
    steps = (
        began("a", name="tidy-W1-T1", workdir="/w", branch="plan/x", base="abc", at=10),
        claimed("a", at=20, by="said", text="all of it", changed=3),
        checked("a", True),
        TaskDone(at=30, task="a", attempt=1, why="its check passed"),
    )
    states = [run(*steps[: n + 1]).of("a") for n in range(4)]

    assert [T.RUNNING, T.CLAIMED, T.CLAIMED, T.DONE] == [at.state for at in states]
    last = states[-1]
    assert ("sa", "tidy-W1-T1", "/w", "plan/x", "abc") == (
        last.session,
        last.name,
        last.workdir,
        last.branch,
        last.base,
    )
    assert ("said", 3, True, "its check passed", 20.0, 10.0) == (
        last.claim, last.changed, last.is_checked, last.why, last.duration_s, last.began_at,
    )  # fmt: skip


def test_a_started_check_is_open_until_its_end_is_logged() -> None:
    begun = (began("a"), claimed("a"), checking("a"))

    assert checking("a") == run(*begun).of("a").checking
    assert checking("a") == run(*begun, steered("retry", "a")).of("a").checking
    assert run(*begun, checked("a", True)).of("a").checking is None
    assert run(*begun, steered("retry", "a"), began("a", 2)).of("a").checking is None


def test_each_failure_is_kept_for_the_next_attempt_with_its_session() -> None:
    at = run(*failed("a", 1, "first"), began("a", 2, "sb"), TaskFailed(at=50, task="a", attempt=2, why="second")).of(
        "a"
    )

    assert (T.FAILED, 2, "sb", ("sa",), ("first", "second"), 2) == (
        at.state, at.attempt, at.session, at.earlier, at.failures, at.tries,
    )  # fmt: skip


@pytest.mark.parametrize(
    "late",
    [
        claimed("a", 1),
        checked("a", True, 1),
        TaskDone(at=60, task="a", attempt=1),
        TaskFailed(at=60, task="a", attempt=1, why="x"),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_a_result_of_an_earlier_attempt_changes_nothing(late: PlanFact) -> None:
    now = run(*failed("a"), began("a", 2, "sb"))

    assert now == apply(now, late)


@pytest.mark.parametrize("attempt", [0, 1, 3])
def test_an_attempt_starts_once_and_none_is_skipped(attempt: int) -> None:
    now = run(began("a"))

    assert now == apply(now, began("a", attempt, "other"))


@pytest.mark.parametrize(
    "late",
    [
        claimed("a"),
        checked("a", False),
        TaskFailed(at=60, task="a", attempt=1, why="x"),
        TaskDone(at=60, task="a", attempt=1),
    ],
    ids=lambda fact: type(fact).__name__,
)
@pytest.mark.parametrize(
    "facts", [done("a"), (began("a"), steered("skip", "a")), failed("a")], ids=["done", "skipped", "failed"]
)
def test_a_settled_task_is_not_changed_by_late_events(facts: tuple[PlanFact, ...], late: PlanFact) -> None:
    assert run(*facts) == apply(run(*facts), late)


def test_running_tasks_of_a_stopped_plan_wait_again_without_using_a_retry() -> None:
    late = (steered("stop"), began("b"))  # its runner was about to begin it
    for facts in ((began("a"), steered("stop")), (began("a"), *late)):
        now = run(*facts)
        for id_ in now.tasks:
            at = now.of(id_)
            assert (T.WAITING, 0, ("the plan was stopped while running",)) == (at.state, at.tries, at.failures)
        assert (True, "paused") == (now.is_stopped, now.state)
    again = run(began("a"), steered("stop"), steered("resume"), began("a", 2))
    assert (False, T.RUNNING, 2) == (again.is_stopped, again.of("a").state, again.of("a").attempt)


def test_pause_and_resume_concern_the_whole_plan_and_accept_believes_only_what_is_claimed() -> None:
    assert ["paused", "running"] == [run(steered("pause")).state, run(steered("pause"), steered("resume")).state]

    assert T.DONE is run(began("a"), claimed("a"), steered("accept", "a")).of("a").state
    assert T.RUNNING is run(began("a"), steered("accept", "a")).of("a").state
    assert T.WAITING is run(steered("accept", "a")).of("a").state


def test_skip_applies_to_any_unsettled_task() -> None:
    assert T.SKIPPED is run(steered("skip", "a")).of("a").state
    assert T.SKIPPED is run(began("a"), steered("skip", "a")).of("a").state
    assert T.SKIPPED is run(*failed("a"), steered("skip", "a")).of("a").state
    assert T.DONE is run(*done("a"), steered("skip", "a")).of("a").state


def test_a_person_may_want_anything_again_that_was_begun_without_a_failure_of_it() -> None:
    for facts in ((began("a"),), done("a"), failed("a"), (began("a"), claimed("a"))):
        at = run(*facts, steered("retry", "a")).of("a")
        assert (T.WAITING, 1) == (at.state, at.attempt)
        assert at.failures
    assert () == run(steered("retry", "a")).of("a").failures

    assert 0 == run(began("a"), steered("retry", "a"), began("a", 2, "sb")).of("a").tries
    assert 1 == run(*failed("a"), steered("retry", "a"), began("a", 2, "sb")).of("a").tries


def test_another_agent_takes_the_place_from_the_next_attempt_on_and_an_ended_plan_is_not_steered() -> None:
    now = run(*failed("a"), steered("replace", "a", "codex"), began("a", 2, "sb"))
    assert ("codex", 2) == (now.of("a").agent, now.of("a").attempt)

    over = run(*done("a"), PlanEnded(at=99, outcome="done"))
    for deed in ("pause", "advance", "abort"):
        assert over == apply(over, steered(deed))
    assert ("ended", "done", 99) == (over.state, over.outcome, over.ended_at)


FACTS = st.lists(
    st.sampled_from(
        [
            *(
                fact
                for n in (1, 2)
                for fact in (began("a", n), claimed("a", n), checking("a", n), checked("a", True, n))
            ),
            *(TaskDone(at=1, task="a", attempt=n) for n in (1, 2)),
            *(TaskFailed(at=1, task="a", attempt=n, why="x") for n in (1, 2)),
            *(steered(deed, "a") for deed in ("accept", "retry", "skip", "replace")),
            steered("pause"),
            steered("resume"),
        ]
    ),
    max_size=20,
)


@given(FACTS)
def test_attempts_only_increase_and_nothing_is_lost_in_any_order_of_events(facts: list[PlanFact]) -> None:
    now, last = run(), 0
    for fact in facts:
        now = apply(now, fact)
        at = now.of("a")
        assert at.attempt in (last, last + 1)
        last = at.attempt
        assert at.tries <= len(at.failures)
    assert now == msgspec.convert(msgspec.to_builtins(now), PlanRun)
