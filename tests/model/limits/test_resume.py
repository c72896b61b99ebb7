"""Who goes on after a usage limit, when and in which order."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from kasmon.model.commands import Mode
from kasmon.model.limits.resume import (
    BEGIN_S,
    GRACE_S,
    MOST_TRIES,
    RETRY_S,
    UNKNOWN_S,
    ResumeAllowed,
    ResumeCancelled,
    ResumeEnded,
    ResumeFailed,
    ResumePolicy,
    ResumeSent,
    ResumeSteps,
    Resumption,
    apply_resume,
    next_resumptions,
)
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState

NOW = 1_795_000_000.0
AUTO = ResumePolicy(mode="auto")


def limited(name: str, **more: Any) -> Session:
    defaults = {
        "name": name,
        "agent": "claude",
        "program": "claude",
        "mode": Mode.SDK,
        "state": SessionState.LIMITED,
        "since": NOW - 3600,
        "limited_until": NOW - GRACE_S,
        "generation": 1,
    }
    return Session(id=SessionId(name), **{**defaults, **more})


def steps(
    *sessions: Session, known: Mapping[SessionId, Resumption] | None = None, at: float = NOW, **more: Any
) -> ResumeSteps:
    policy = more.pop("policy", AUTO)
    return next_resumptions(sessions, known or {}, policy, at, more.pop("since_last_s", 3600.0))


def sent(steps: ResumeSteps) -> str:
    return "" if steps.send is None else steps.send.name


def facts(*each: Any) -> dict[SessionId, Resumption]:
    known: dict[SessionId, Resumption] = {}
    for fact in each:
        known = apply_resume(known, fact)
    return known


A, B, C = SessionId("a"), SessionId("b"), SessionId("c")


def test_a_session_resumes_a_moment_after_its_limit_ended_and_not_before() -> None:
    early = steps(limited("a"), at=NOW - 1)

    assert ("", NOW) == (sent(early), early.next_at)
    assert "a" == sent(steps(limited("a")))


def test_by_default_only_sessions_that_the_user_allowed_resume_in_the_order_of_allowing() -> None:
    ask = ResumePolicy()
    allowed = facts(*(ResumeAllowed(at=NOW, session=each, prompt="go") for each in (B, A)))
    everyone = (limited("a"), limited("b"), limited("c"))

    assert "" == sent(steps(*everyone, policy=ask))
    assert "b" == sent(steps(*everyone, policy=ask, known=allowed))
    after = apply_resume(allowed, ResumeCancelled(at=NOW, session=B))
    assert "a" == sent(steps(*everyone, policy=ask, known=after))
    assert "" == sent(steps(*everyone, policy=ResumePolicy(mode="never"), known=allowed))


def test_all_resume_in_the_order_of_allowing_then_a_users_own_then_plans_by_wave_and_task() -> None:
    everyone = [
        limited("t3", plan="p", wave=2, task=3),
        limited("t2", plan="p", wave=1, task=2),
        limited("t1", plan="p", wave=1, task=1),
        limited("own", since=NOW - 60),
        limited("a"),
    ]
    known = facts(ResumeAllowed(at=NOW, session=A, prompt="go"))
    order = []
    while everyone:
        following = steps(*everyone, known=known)
        assert following.send is not None
        order.append(following.send.name)
        everyone.remove(following.send)

    assert ["a", "own", "t1", "t2", "t3"] == order


def test_sessions_resume_one_after_the_other_and_only_so_many_work_at_once() -> None:
    soon = steps(limited("a"), since_last_s=4.0)
    assert ("", NOW + 6) == (sent(soon), soon.next_at)

    known = facts(ResumeSent(at=NOW - 5, session=B, prompt="x"), ResumeSent(at=NOW - 5, session=C, prompt="x"))
    at_work = limited("b", state=SessionState.WORKING, in_turn=True), limited("c", state=SessionState.ASKING)
    assert "" == sent(steps(limited("a"), *at_work, known=known, policy=ResumePolicy(mode="auto", at_once=2)))
    assert "a" == sent(steps(limited("a"), *at_work, known=known, policy=ResumePolicy(mode="auto", at_once=3)))


@pytest.mark.parametrize(
    "odd",
    [
        {"in_turn": True},  # its agent goes on by itself
        {"via": "gpu"},  # its machine resumes it
        {"generation": 0},
        {"state": SessionState.IDLE},
    ],
)
def test_other_sessions_are_left_alone(odd: dict[str, Any]) -> None:
    assert ResumeSteps() == steps(limited("a", **odd))


def test_a_limit_without_an_end_is_retried_later() -> None:
    unknown = limited("a", limited_until=None, since=NOW)

    assert NOW + UNKNOWN_S + GRACE_S == steps(unknown).next_at
    assert "a" == sent(steps(unknown, at=NOW + UNKNOWN_S + GRACE_S))


def test_a_limit_that_is_reached_again_holds_the_others_of_the_account_until_it_ends() -> None:
    known = facts(ResumeSent(at=NOW - 20, session=A, prompt="x"))
    again = limited("a", since=NOW - 10, limited_until=NOW + 7200)

    held = steps(again, limited("b"), limited("c", account="work"), known=known)
    assert "c" == sent(held)
    assert NOW + 7200 + GRACE_S == held.next_at
    assert "b" == sent(steps(again, limited("b", model="other"), known=known))


def test_a_missing_reset_is_retried_ever_later_and_then_given_up() -> None:
    known: dict[SessionId, Resumption] = {}
    at, tries = NOW, []
    while (following := steps(limited("a"), known=known, at=at)).send is not None:
        tries.append(at)
        known = apply_resume(known, ResumeSent(at=at, session=A, prompt="x"))
        known = apply_resume(known, ResumeFailed(at=at, session=A, why="no input box"))
        following = steps(limited("a"), known=known, at=at + BEGIN_S)
        if following.next_at is None:
            at += BEGIN_S
        else:
            at = following.next_at

    assert [RETRY_S * 2.0**number + GRACE_S for number in range(MOST_TRIES - 1)] == [
        later - earlier for earlier, later in pairwise(tries)
    ]
    assert {A: f"it was resumed {MOST_TRIES} times: no input box"} == following.ended
    over = apply_resume(known, ResumeEnded(at=at, session=A, why=following.ended[A]))
    assert ResumeSteps() == steps(limited("a"), known=over, at=at + 1e6)
    assert "a" == sent(steps(limited("a", since=at + 1), known=over, at=at + 2)), "the next limit is another matter"


def test_a_resumed_session_is_over_and_may_reach_a_limit_again() -> None:
    known = facts(ResumeAllowed(at=NOW, session=A, prompt="x"), ResumeSent(at=NOW, session=A, prompt="x"))
    working = limited("a", state=SessionState.WORKING, in_turn=True, limited_until=None)
    idle = msgspec.structs.replace(working, state=SessionState.IDLE, in_turn=False)

    assert {} == steps(working, known=known, at=NOW + 3600).ended
    assert {} == steps(idle, known=known, at=NOW + 1).ended, "its turn may not have begun"
    assert {A: ""} == steps(idle, known=known, at=NOW + BEGIN_S).ended
    assert {A: "the session ended"} == steps(known=known).ended


@pytest.mark.parametrize("jump_s", [-7200.0, 7200.0])
def test_a_changed_clock_delays_or_hurries_but_never_sends_twice(jump_s: float) -> None:
    ends = limited("a", limited_until=NOW + 3600)
    assert ("a" if jump_s > 0 else "") == sent(steps(ends, at=NOW + jump_s))

    known = facts(ResumeSent(at=NOW + 7200, session=A, prompt="x"))
    again = steps(limited("a", limited_until=NOW + 3600, since=NOW + 7201), known=known, at=NOW)
    assert ("", NOW + 7200 + RETRY_S + GRACE_S) == (sent(again), again.next_at)
