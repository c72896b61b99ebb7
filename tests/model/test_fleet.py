"""All sessions at one moment: who needs a person first, what waits, what runs side by side."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kasmon.model.fleet import Fleet, FleetDifference, by_attention, difference, requests, totals, waves
from kasmon.model.permission import SessionId
from kasmon.model.session import Session, Tokens
from kasmon.model.session_state import SessionState
from tests.support.sample_events import request
from tests.support.sample_fleet import crew, fleet, idle, working

S = SessionState


def session(name: str, state: SessionState = S.IDLE, since: float = 0.0, **more: Any) -> Session:
    return Session(id=SessionId(name), name=name, state=state, since=since, **more)


def names(sessions: tuple[Session, ...]) -> list[str]:
    return [session.name for session in sessions]


SESSIONS = st.lists(
    st.builds(
        lambda name, state, since, parent: session(name, state, since, parent=parent),
        st.sampled_from("abcdefgh"),
        st.sampled_from(S),
        st.floats(0, 100),
        st.none() | st.sampled_from("abcdefghx"),
    ),
    max_size=8,
    unique_by=lambda made: made.id,
)


def test_sessions_that_need_the_user_come_first() -> None:
    fleet = (
        session("ended", S.ENDED, exit_code=0),
        session("paused", S.PAUSED),
        session("working", S.WORKING),
        session("starting", S.STARTING),
        session("idle", S.IDLE),
        session("limited", S.LIMITED),
        session("unsure", S.UNSURE),
        session("crashed", S.ENDED, exit_code=1),
        session("lost", S.LOST),
        session("asking", S.ASKING),
    )

    assert names(by_attention(fleet)) == [
        "asking",
        "lost",
        "crashed",
        "unsure",
        "limited",
        "idle",
        "starting",
        "working",
        "paused",
        "ended",
    ]


def test_of_two_that_ask_the_one_that_waits_longer_is_first_and_a_window_is_under_its_session() -> None:
    assert ["b", "a"] == names(by_attention([session("a", S.ASKING, 20.0), session("b", S.ASKING, 10.0)]))

    child = session("child", S.ASKING, parent=SessionId("parent"))
    ordered = by_attention([child, session("parent", S.WORKING), session("other", S.IDLE)])
    assert ["other", "parent", "child"] == names(ordered)


def test_a_window_whose_session_is_forgotten_stands_alone_and_a_long_line_is_listed_whole() -> None:
    assert ["child"] == names(by_attention([session("child", parent=SessionId("gone"))]))

    line = [session(str(n), parent=SessionId(str(n - 1)) if n else None) for n in range(3000)]
    assert {str(n) for n in range(3000)} == set(names(by_attention(line)))


@given(fleet=SESSIONS)
def test_every_session_is_listed_exactly_once_for_any_parents(fleet: list[Session]) -> None:
    """Also where two sessions claim to be each other's parent."""
    assert sorted(names(by_attention(fleet))) == sorted(names(tuple(fleet)))


@given(fleet=SESSIONS, seed=st.randoms())
def test_the_order_does_not_depend_on_the_order_before(fleet: list[Session], seed: Any) -> None:
    shuffled = list(fleet)
    seed.shuffle(shuffled)

    assert by_attention(fleet) == by_attention(shuffled)


def test_requests_wait_oldest_first_over_all_sessions_and_a_session_is_found_by_its_id() -> None:
    first, second, third = (request(f"make {n}", n) for n in (1, 2, 3))
    fleet = Fleet(sessions=(session("a", requests=(first, third)), session("b", requests=(second,))))
    assert (first, second, third) == requests(fleet)

    fleet = Fleet(sessions=(session("a"), session("b")))
    assert fleet.get(SessionId("b")) == fleet.sessions[1]
    assert fleet.get(SessionId("x")) is None


def test_the_totals_count_states_crashes_requests_tokens_and_cost() -> None:
    fleet = Fleet(
        sessions=(
            session("a", S.ASKING, requests=(request(),), tokens=Tokens(input=10, output=5), cost_usd=0.25),
            session("b", S.ENDED, signal="SIGKILL", tokens=Tokens(input=1), cost_usd=0.5),
            session("c", S.ASKING, requests=(request(), request("make", 2))),
        )
    )

    sums = totals(fleet)

    assert {S.ASKING: 2, S.ENDED: 1} == dict(sums.states)
    assert (1, 3, 16, 0.75) == (sums.crashed, sums.requests, sums.tokens, sums.cost_usd)


def test_an_empty_fleet_has_empty_totals_and_no_waves() -> None:
    assert (0, 0, 0.0) == (totals(Fleet()).requests, totals(Fleet()).tokens, totals(Fleet()).cost_usd)
    assert () == waves(Fleet())


def test_waves_are_distinguished_by_plan_and_number() -> None:
    fleet = Fleet(
        sessions=(
            session("b2", wave=2, task=2, plan="b"),
            session("b1", wave=2, task=1, plan="b"),
            session("a", wave=2, task=1, plan="a"),
            session("early", wave=1, task=1, plan="b"),
            session("alone"),
        )
    )

    assert [("a", 2, ["a"]), ("b", 1, ["early"]), ("b", 2, ["b1", "b2"])] == [
        (wave.plan, wave.number, names(wave.sessions)) for wave in waves(fleet)
    ]


def test_a_wave_has_the_stated_size_of_its_sessions_or_their_number() -> None:
    told = Fleet(sessions=(session("a", wave=1, peers=3), session("b", wave=1, peers=3)))
    untold = Fleet(sessions=(session("a", wave=1), session("b", wave=1, peers=1)))

    assert ([3], [2]) == ([wave.peers for wave in waves(told)], [wave.peers for wave in waves(untold)])


def test_a_wave_counts_those_that_ended_well() -> None:
    ends: list[dict[str, Any]] = [
        {"exit_code": 0},
        {"exit_code": 1},
        {"signal": "SIGKILL"},
        {"stopped": True, "signal": "SIGTERM"},
    ]
    fleet = Fleet(sessions=tuple(session(str(n), S.ENDED, wave=1, **end) for n, end in enumerate(ends)))

    assert [2] == [wave.done for wave in waves(fleet)]


def test_only_what_changed_came_or_went_differs_and_an_equal_value_is_no_change() -> None:
    before = crew()
    changed = msgspec.structs.replace(before.sessions[3], last_line="something else")
    after = fleet(*before.sessions[:3], changed, *before.sessions[4:])
    assert FleetDifference((changed,), ()) == difference(before, after)
    assert FleetDifference((), ()) == difference(after, after)

    assert FleetDifference((), ()) == difference(fleet(working("docs")), fleet(working("docs")))

    new = idle("new")
    assert FleetDifference((new,), (SessionId("docs"),)) == difference(
        fleet(working("docs"), idle("x")), fleet(idle("x"), new)
    )
