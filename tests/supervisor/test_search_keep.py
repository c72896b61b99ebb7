"""Who keeps the search index: whoever holds the lock, a little at a time, and nobody else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.host.alive import HostLock
from kasmon.paths import Places
from kasmon.store.search import Lookup
from kasmon.store.searchable import sources
from kasmon.supervisor import search_keep
from kasmon.supervisor.search import known
from kasmon.supervisor.search_keep import SearchKeeper
from kasmon.supervisor.watch import FleetWatch
from tests.supervisor.test_search import begun, here, said, settle
from tests.waiting import until

__all__ = ["here"]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_keep, "LEAST_REST_S", 0.01)
    monkeypatch.setattr(search_keep, "LONGEST_REST_S", 0.05)
    monkeypatch.setattr(search_keep, "IDLE_RESTS", 1)


class Holder:
    """Says whether the index is ours to write."""

    may = False
    asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.may


@pytest.fixture
def holder(here: Places) -> Iterator[Holder]:
    """What a keeper that runs asks."""
    holder = Holder()
    keeper = SearchKeeper(here, lambda: known(here), holder)
    keeper.start()
    yield holder
    keeper.close()


def is_known(here: Places) -> bool:
    """Whether the index knows all of every file."""
    lookup = Lookup(here.search_index, ("xyz",))
    return all([] == lookup.ranges(source) for session in known(here) for source in sources(here, session.id))


def test_all_is_known_soon_and_what_is_added_too(here: Places, holder: Holder) -> None:
    begun(here, "one", said("auth"))
    settle(here)
    holder.may = True
    until(lambda: is_known(here))
    begun(here, "two", said("auth"))
    settle(here)

    until(lambda: is_known(here))


def test_who_does_not_hold_the_lock_writes_nothing(here: Places, holder: Holder) -> None:
    begun(here, "one", said("auth"))
    settle(here)
    until(lambda: holder.asked > 5)

    assert not here.search_index.exists()


def test_only_the_watch_that_holds_the_lock_is_the_writer(here: Places) -> None:
    other = HostLock(here.fleet_lock)
    assert other.take()
    watch = FleetWatch(here)
    watch.look()
    assert not watch.is_writer
    other.let_go()
    watch.close()


def test_an_index_that_is_damaged_is_made_anew(here: Places, holder: Holder, tmp_path: Path) -> None:
    begun(here, "one", said("auth"))
    settle(here)
    here.search_index.write_bytes(b"no database" * 1000)
    holder.may = True

    until(lambda: is_known(here))
