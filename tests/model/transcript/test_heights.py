"""Heights are measured only where somebody looks, and are right wherever that was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.model.transcript import heights as module
from kasmon.model.transcript.heights import Heights

MOST = 40
ACTS = st.one_of(
    st.tuples(st.just("come"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("change"), st.integers(0, MOST), st.integers(0, 4)),
    st.tuples(st.just("look"), st.integers(0, MOST), st.just(0)),
    st.tuples(st.just("measure"), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("place"), st.integers(0, 60), st.just(0)),
)


@given(st.lists(st.integers(0, 4), min_size=MOST, max_size=MOST), st.integers(0, MOST), st.lists(ACTS, max_size=30))
def test_positions_and_sums_are_right_after_any_measurements(
    rows: list[int], blocks: int, acts: list[tuple[str, int, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GROUP", 7)
        _look(rows, blocks, acts)


def _look(rows: list[int], blocks: int, acts: list[tuple[str, int, int]]) -> None:
    heights = Heights(lambda at: rows[at], blocks)
    for act, number, more in acts:
        at = number % blocks if blocks else -1
        match act:
            case "come":
                blocks = min(blocks + number, MOST)
                heights.follow(blocks)
            case "change" if blocks:
                rows[at] = more
                heights.mark_stale(at)
                heights.follow(blocks)
            case "look" if blocks:
                assert rows[at] == heights.of(at)
            case "measure":
                heights.measure(number)
            case "place":
                every = [(block, row) for block in range(blocks) for row in range(rows[block])]
                assert (every[-1 - number] if number < len(every) else None) == heights.find_position(number)
    while not heights.measure(7):
        assert heights.measured <= heights.estimate

    assert sum(rows[:blocks]) == heights.measured == heights.estimate
    assert [sum(rows[at + 1 : blocks]) for at in range(blocks)] == [heights.below(at) for at in range(blocks)]


def test_an_unmeasured_block_counts_as_the_average() -> None:
    measured: list[int] = []

    def height(at: int) -> int:
        measured.append(at)
        return 3

    heights = Heights(height, 100_000)
    assert 100_000 == heights.estimate
    heights.of(50_000)

    assert 300_000 == heights.estimate
    assert 3 * 99_999 == heights.below(0)
    assert [50_000] == measured


def test_a_block_may_have_any_number_of_rows() -> None:
    rows = [3, 100_000, 2]
    heights = Heights(lambda at: rows[at], 3)

    assert heights.measure(3)
    assert [3, 100_000, 2] == [heights.of(at) for at in range(3)]
    heights.follow(4)
    rows.append(70_000)
    assert heights.of(3) == 70_000
    assert heights.estimate == 170_005
