"""Who keeps the search index: whoever holds the lock, a little at a time, and nobody else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.host.rpc.host_lock import HostLock
from kasmon.paths import Paths
from kasmon.store.search_index import SearchLookup
from kasmon.store.search_sources import sources
from kasmon.supervisor.fleet.watch import FleetWatch
from kasmon.supervisor.search import index_writer
from kasmon.supervisor.search.index_writer import SearchIndexWriter
from kasmon.supervisor.search.search import list_sessions
from tests.supervisor.search.test_search import begun, here, said, settle
from tests.support.wait import until

__all__ = ["here"]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_writer, "LEAST_REST_S", 0.01)
    monkeypatch.setattr(index_writer, "LONGEST_REST_S", 0.05)
    monkeypatch.setattr(index_writer, "IDLE_RESTS", 1)


class Holder:
    """Says whether the index is ours to write."""

    may = False
    asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.may


@pytest.fixture
def holder(here: Paths) -> Iterator[Holder]:
    """What a keeper that runs asks."""
    holder = Holder()
    keeper = SearchIndexWriter(here, lambda: list_sessions(here), holder)
    keeper.start()
    yield holder
    keeper.close()


def is_known(here: Paths) -> bool:
    """Whether the index knows all of every file."""
    lookup = SearchLookup(here.search_index, ("xyz",))
    return all([] == lookup.ranges(source) for session in list_sessions(here) for source in sources(here, session.id))


def test_all_events_are_indexed_soon_and_new_ones_too(here: Paths, holder: Holder) -> None:
    begun(here, "one", said("auth"))
    settle(here)
    holder.may = True
    until(lambda: is_known(here))
    begun(here, "two", said("auth"))
    settle(here)

    until(lambda: is_known(here))


def test_a_process_without_the_lock_writes_nothing(here: Paths, holder: Holder) -> None:
    begun(here, "one", said("auth"))
    settle(here)
    until(lambda: holder.asked > 5)

    assert not here.search_index.exists()


def test_only_the_watch_that_holds_the_lock_is_the_writer(here: Paths) -> None:
    other = HostLock(here.fleet_lock)
    assert other.acquire()
    watch = FleetWatch(here)
    watch.refresh()
    assert not watch.is_writer
    other.let_go()
    watch.close()


def test_a_damaged_index_is_built_again(here: Paths, holder: Holder, tmp_path: Path) -> None:
    begun(here, "one", said("auth"))
    settle(here)
    here.search_index.write_bytes(b"no database" * 1000)
    holder.may = True

    until(lambda: is_known(here))
