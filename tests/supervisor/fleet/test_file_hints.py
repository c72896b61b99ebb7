"""What the system tells of a session's files: what its log and its host's lock do, and nothing of who only looks."""

import select
from collections.abc import Iterator

import pytest

from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.events import TurnStarted
from kasmon.model.permission import SessionId
from kasmon.supervisor.fleet import file_hints
from kasmon.supervisor.fleet.file_hints import StopEvent, _by_inotify, _by_watchfiles, _WatchedFolders, hints
from tests.support.supervisor.env import NOW, Env

ME, OTHER = SessionId("abcdefgh"), SessionId("bbbbbbbb")


@pytest.fixture
def stop() -> Iterator[StopEvent]:
    stop = StopEvent()
    yield stop
    stop.close()


@pytest.fixture
def folders(env: Env) -> Iterator[_WatchedFolders]:
    """One session, whose host is there."""
    env.has(ME)
    env.tells(ME, TurnStarted(at=NOW))
    env.hosts(ME)
    folders = _WatchedFolders(env.paths)
    yield folders
    folders.close()


def told(folders: _WatchedFolders) -> tuple[set[SessionId], bool]:
    """What is there to be read; nothing where nobody would be woken."""
    return folders.changed() if select.select([folders], [], [], 0)[0] else (set(), False)


def test_a_log_that_grows_is_a_hint_about_its_session(env: Env, folders: _WatchedFolders) -> None:
    env.tells(ME, TurnStarted(at=NOW))

    assert ({ME}, True) == told(folders)
    assert (set(), False) == told(folders)


def test_a_host_that_exits_is_a_hint_about_its_session(env: Env, folders: _WatchedFolders) -> None:
    env.host_dies(ME)

    assert ({ME}, True) == told(folders)


def test_a_read_only_caller_wakes_no_host(env: Env, folders: _WatchedFolders) -> None:
    """Two hundred looks a second would wake the one who looks, and all the others."""
    assert lock_holder(env.paths.host_lock(ME))
    assert env.paths.log(ME).read_bytes()

    assert not select.select([folders], [], [], 0)[0]


def test_a_new_session_is_a_hint_and_is_watched_from_then_on(env: Env, folders: _WatchedFolders) -> None:
    env.has(OTHER)
    assert ({OTHER}, True) == told(folders)
    env.tells(OTHER, TurnStarted(at=NOW))

    assert ({OTHER}, True) == told(folders)


def test_a_removed_session_is_not_watched_any_more(env: Env, folders: _WatchedFolders) -> None:
    env.paths.log(ME).unlink()
    env.paths.host_lock(ME).unlink()
    env.paths.folder(ME).rmdir()
    told(folders)
    env.paths.folder(ME).mkdir()

    assert ({ME}, True) == told(folders)


def test_the_fleets_log_is_a_hint_about_no_session(env: Env, folders: _WatchedFolders) -> None:
    env.has("cccccccc")
    told(folders)
    env.says(TurnStarted(at=NOW))

    assert (set(), True) == told(folders)


def test_other_files_are_no_hint_nor_is_time_without_changes(
    env: Env, folders: _WatchedFolders, stop: StopEvent
) -> None:
    env.paths.host_log(ME).write_text("so")
    assert (set(), False) == told(folders)

    for given in (_by_inotify(env.paths, stop, 0.01), _by_watchfiles(env.paths, stop, 0.05)):
        assert set() == next(given)


def test_a_stopped_waiter_waits_for_nothing(env: Env, stop: StopEvent) -> None:
    stop.set()

    assert [] == list(hints(env.paths, stop, 3600.0))
    assert [] == list(_by_watchfiles(env.paths, stop, 3600.0))


def test_without_any_file_watch_the_timer_gives_hints(
    env: Env, stop: StopEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*paths: object, **how: object) -> None:
        raise RuntimeError("no instances left")

    def no_inotify() -> None:
        raise OSError("no instances left")

    monkeypatch.setattr("watchfiles.watch", none)
    monkeypatch.setattr(file_hints, "Inotify", no_inotify)

    assert [] == list(_by_watchfiles(env.paths, stop, 3600.0))
    assert [] == list(_by_inotify(env.paths, stop, 3600.0))
    assert set() == next(hints(env.paths, stop, 0.01))
