"""The budget of panes that nobody looks at."""

from kasmon.tmux.flood_control import FIRST_PAUSE_S, LONGEST_PAUSE_S, FloodControl


def flood(floods: FloodControl, now: float) -> bool:
    return any(floods.overflows("%1", 60, now) for _ in range(3))


def test_a_pane_within_its_budget_is_read() -> None:
    floods = FloodControl(budget_bytes=100)

    assert not any(floods.overflows("%1", 100, now=float(second)) for second in range(50))
    assert frozenset() == floods.off


def test_a_pane_over_its_budget_is_turned_off_once() -> None:
    floods = FloodControl(budget_bytes=100)

    assert [False, True, False] == [
        floods.overflows("%1", 60, 0.1),
        floods.overflows("%1", 60, 0.2),
        floods.overflows("%1", 60, 0.3),
    ]
    assert {"%1"} == floods.off


def test_the_others_are_not_counted_with_it() -> None:
    floods = FloodControl(budget_bytes=100)
    flood(floods, 0.0)

    assert not floods.overflows("%2", 60, 0.0)
    assert {"%1"} == floods.off


def test_it_is_read_again_after_a_while() -> None:
    floods = FloodControl(budget_bytes=100)
    flood(floods, 0.0)

    assert [] == floods.due(FIRST_PAUSE_S - 0.1)
    assert ["%1"] == floods.due(FIRST_PAUSE_S)
    assert frozenset() == floods.off


def test_a_pane_that_keeps_flooding_is_read_less_and_less_often() -> None:
    floods = FloodControl(budget_bytes=100)
    now, pauses = 0.0, []
    for _ in range(8):
        assert flood(floods, now)
        start = now
        while not floods.due(now):
            now += 0.5
        pauses.append(now - start)

    assert FIRST_PAUSE_S == pauses[0]
    assert sorted(pauses) == pauses
    assert LONGEST_PAUSE_S == pauses[-1]


def test_a_calm_second_resets_the_budget() -> None:
    floods = FloodControl(budget_bytes=100)
    flood(floods, 0.0)
    floods.due(2.0)
    flood(floods, 2.1)
    floods.due(10.0)
    floods.overflows("%1", 1, 11.1)
    floods.overflows("%1", 1, 12.2)
    flood(floods, 12.3)

    assert ["%1"] == floods.due(12.3 + FIRST_PAUSE_S)


def test_looking_at_a_pane_turns_it_on() -> None:
    floods = FloodControl(budget_bytes=100)
    flood(floods, 0.0)

    assert floods.listen("%1", 0.5)
    assert not floods.listen("%1", 0.5)
    assert not floods.listen("%7", 0.5)
    assert frozenset() == floods.off
