"""What the rows of other machines' sessions show beside their state."""

from collections.abc import Iterator

import pytest

from kasmon.model.session import Session
from kasmon.paths import Paths, user_paths
from kasmon.supervisor.machines.marks import LOOK_S, MachineMarks
from tests.support.sample_fleet import working

here = pytest.fixture(user_paths)


async def test_a_fleet_that_changes_all_the_time_is_grouped_once_a_look_for_all_marks(here: Paths) -> None:
    """Of 200 machines with 50 sessions each, that was a quarter of a dashboard's time."""
    walks, now = 0, 100.0

    class Walked(tuple[Session, ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[Session]:
            nonlocal walks
            walks += 1
            return super().__iter__()

    marks = MachineMarks(here, lambda: Walked([working("docs")]), clock=lambda: now)
    for _ in range(3):
        assert ({}, {}) == (await anext(aiter(marks.branches())), await anext(aiter(marks.collisions())))

    assert 1 == walks

    now += LOOK_S
    await anext(aiter(marks.branches()))

    assert 2 == walks
