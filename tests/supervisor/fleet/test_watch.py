"""The fleet, looked at once and followed: logs, locks and processes are real."""

import asyncio
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kasmon.boot_id import boot
from kasmon.errors import UnavailableError
from kasmon.host.journal.fleet_index import MUCH_BYTES
from kasmon.host.rpc.host_lock import HostLock, lock_holder
from kasmon.model.commands import Mode
from kasmon.model.events import (
    MessageWritten,
    RequestOpened,
    RequestWithdrawn,
    SessionForgotten,
    SessionRenamed,
    SignalSeen,
    TurnStarted,
    encode,
)
from kasmon.model.fleet import Fleet
from kasmon.model.permission import Request, RequestId, RequestKind, SessionId, seal
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.store.fleet_cache import load_cache
from kasmon.store.fleet_index import FleetIndex
from kasmon.supervisor.fleet import file_hints, follower
from kasmon.supervisor.fleet.file_hints import StopEvent
from kasmon.supervisor.fleet.liveness import START_S
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.fleet.watch import TURNS, FleetCacheWriter, FleetWatch
from tests.support.supervisor.env import NOW, Env, end, ended, started
from tests.support.wait import auntil, until

ME, OTHER = SessionId("abcdefgh"), SessionId("bbbbbbbb")
SLOW = "ended sessions are looked at in turn"


class Clock:
    def __init__(self) -> None:
        self.at = NOW

    def __call__(self) -> float:
        return self.at


def states(fleet: Fleet) -> dict[str, SessionState]:
    return {session.id: session.state for session in fleet.sessions}


def fleets(watch: FleetWatch) -> aclosing[AsyncGenerator[Fleet, None]]:
    return aclosing(watch.changes())


def test_without_any_session_the_fleet_is_empty(env: Env) -> None:
    shutil.rmtree(env.paths.state)

    assert () == read_fleet(env.paths).sessions
    assert () == FleetWatch(env.paths).refresh().sessions
    assert not env.paths.state.exists()


def test_a_fleet_has_every_session_that_is_not_removed(env: Env) -> None:
    for session in ("aaaaaaaa", "bbbbbbbb", "cccccccc"):
        env.has(session, started(), ended())
    env.says(
        SessionRenamed(at=NOW, session=SessionId("bbbbbbbb"), name="docs"),
        SessionForgotten(at=NOW, session=SessionId("aaaaaaaa")),
    )

    for fleet in (read_fleet(env.paths), FleetWatch(env.paths).refresh()):
        assert {"bbbbbbbb": "docs", "cccccccc": "cccccccc"} == {s.id: s.name for s in fleet.sessions}


def test_a_read_adds_the_events_since_the_last_one(env: Env) -> None:
    env.has(ME, started())
    env.hosts(ME)
    watch = FleetWatch(env.paths)
    assert {ME: SessionState.IDLE} == states(watch.refresh())

    env.tells(ME, TurnStarted(at=NOW), MessageWritten(at=NOW, text="half way"))
    env.has("bbbbbbbb", started())
    env.hosts("bbbbbbbb")

    fleet = watch.refresh()
    assert {ME: SessionState.WORKING, "bbbbbbbb": SessionState.IDLE} == states(fleet)
    assert "half way" == fleet.sessions[0].last_line
    env.says(SessionForgotten(at=NOW, session=ME))
    assert {"bbbbbbbb": SessionState.IDLE} == states(watch.refresh())


def test_an_unchanged_session_is_the_same_object(env: Env) -> None:
    env.has("starting", at=time.time())
    for session in (ME, "bbbbbbbb"):
        env.has(session, started())
        env.hosts(session)
    watch = FleetWatch(env.paths)
    before = watch.refresh()
    assert before.sessions is watch.refresh().sessions

    env.tells(ME, TurnStarted(at=NOW))
    after = watch.refresh()

    assert after.get(ME) is not before.get(ME)
    assert after.get(SessionId("bbbbbbbb")) is before.get(SessionId("bbbbbbbb"))


@pytest.mark.parametrize("mode", [Mode.SDK, Mode.TMUX])
def test_a_host_that_dies_is_missed_at_the_next_read(env: Env, mode: Mode) -> None:
    agent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    env.has(ME, started(mode=mode, pid=agent.pid), mode=mode)
    env.hosts(ME)
    watch = FleetWatch(env.paths)
    shown = watch.refresh().sessions[0]
    assert shown.host
    assert (os.getpid(), True) == (shown.host.pid, shown.host.alive)
    assert shown.state in (SessionState.IDLE, SessionState.STARTING)

    env.host_dies(ME)

    assert {ME: SessionState.UNSURE} == states(watch.refresh()) == states(read_fleet(env.paths))
    end(agent.pid)
    agent.communicate()
    assert {ME: SessionState.LOST} == states(watch.refresh()) == states(read_fleet(env.paths))


@pytest.mark.parametrize("look", [read_fleet, lambda paths: FleetWatch(paths).refresh()], ids=["once", "watch"])
def test_a_session_that_ends_during_a_read_has_ended_and_is_not_lost(
    env: Env, monkeypatch: pytest.MonkeyPatch, look: Callable[[Paths], Fleet]
) -> None:
    """The host's last fact and its death may fall between our look at its log and at its lock."""
    env.has(ME, started())
    env.hosts(ME)

    def ends_now(path: Path) -> int | None:
        if ME in env.locks:
            env.tells(ME, ended())
            env.host_dies(ME)
        return lock_holder(path)

    monkeypatch.setattr("kasmon.supervisor.fleet.snapshot.lock_holder", ends_now)

    assert {ME: SessionState.ENDED} == states(look(env.paths))


@pytest.mark.parametrize("look", [read_fleet, lambda paths: FleetWatch(paths).refresh()], ids=["once", "watch"])
def test_a_lost_session_that_restarts_during_a_read_runs(
    env: Env, monkeypatch: pytest.MonkeyPatch, look: Callable[[Paths], Fleet]
) -> None:
    env.has(ME, started())

    def starts_later(path: Path) -> int | None:
        holder = lock_holder(path)
        if ME not in env.locks:
            env.hosts(ME)
            env.tells(ME, started(2))
        return holder

    monkeypatch.setattr("kasmon.supervisor.fleet.snapshot.lock_holder", starts_later)

    assert {ME: SessionState.IDLE} == states(look(env.paths))


def test_another_process_with_the_same_id_is_not_the_agent(env: Env) -> None:
    here = started(mode=Mode.TMUX)
    assert here.pid_started is not None
    env.has(ME, here, mode=Mode.TMUX)
    env.has("bbbbbbbb", msgspec.structs.replace(here, pid_started=here.pid_started - 1), mode=Mode.TMUX)

    assert {ME: SessionState.UNSURE, "bbbbbbbb": SessionState.LOST} == states(read_fleet(env.paths))


def test_after_a_reboot_no_process_is_the_agent(env: Env) -> None:
    """It may have the id of the agent, and have started as long after the boot."""
    here = started(mode=Mode.TMUX)
    env.has(ME, msgspec.structs.replace(here, pid_boot="another boot"), mode=Mode.TMUX)
    env.has("zyxwvuts", msgspec.structs.replace(here, pid_boot=boot()), mode=Mode.TMUX)

    assert {ME: SessionState.LOST, "zyxwvuts": SessionState.UNSURE} == states(read_fleet(env.paths))


def test_a_session_that_is_never_started_is_lost_in_the_end(env: Env) -> None:
    env.has(ME)
    clock = Clock()
    watch = FleetWatch(env.paths, clock=clock)
    assert {ME: SessionState.STARTING} == states(watch.refresh())

    clock.at += START_S

    assert {ME: SessionState.LOST} == states(watch.refresh()) == states(read_fleet(env.paths, clock))
    env.hosts(ME)
    assert {ME: SessionState.STARTING} == states(watch.refresh())


def test_a_lost_session_returns_with_its_next_start(env: Env) -> None:
    env.has(ME, msgspec.structs.replace(started(), pid=None), TurnStarted(at=NOW))
    watch = FleetWatch(env.paths)
    assert {ME: SessionState.LOST} == states(watch.refresh())

    env.hosts(ME)
    env.tells(ME, started(2))

    assert {ME: SessionState.IDLE} == states(watch.refresh())
    assert "" == watch.refresh().sessions[0].end_why


def test_a_restarted_session_is_updated(env: Env) -> None:
    for number in range(30):
        env.has(f"aaaaaa{chr(97 + number // 8)}{chr(97 + number % 8)}", started(), ended())
    env.has(ME, started(), ended())
    watch = FleetWatch(env.paths)
    watch.refresh()
    env.tells(ME, started(2))
    env.hosts(ME)

    until(lambda: states(watch.refresh())[ME] is SessionState.IDLE, what=SLOW)
    assert SessionState.ENDED is states(watch.refresh())["aaaaaaaa"]


def test_a_partial_line_is_neither_lost_nor_repeated(env: Env) -> None:
    env.has(ME, started())
    env.hosts(ME)
    watch = FleetWatch(env.paths)
    watch.refresh()
    with env.paths.log(ME).open("ab") as log:
        log.write(b'{"kind":"turn.started","at":1790000')
        log.flush()
        assert {ME: SessionState.IDLE} == states(watch.refresh())
        log.write(b"000.0}\n")

    assert {ME: SessionState.WORKING} == states(watch.refresh())
    assert 1 == watch.refresh().sessions[0].turns


def test_an_unreadable_log_keeps_the_last_state_with_a_reason(env: Env) -> None:
    env.has(ME, started())
    env.has("bbbbbbbb", started())
    env.hosts(ME)
    env.hosts("bbbbbbbb")
    watch = FleetWatch(env.paths)
    watch.refresh()
    log = env.paths.log(ME)
    kept = log.rename(log.with_name("kept"))
    log.mkdir()
    env.tells("bbbbbbbb", TurnStarted(at=NOW))

    fleet = watch.refresh()

    assert {ME: SessionState.IDLE, "bbbbbbbb": SessionState.WORKING} == states(fleet)
    assert str(log) in fleet.read_only
    other = FleetWatch(env.paths)
    assert str(log) in other.refresh().read_only
    log.rmdir()
    kept.rename(log)
    for again in (watch.refresh(), other.refresh()):
        assert ("", SessionState.IDLE) == (again.read_only, states(again)[ME])


def test_an_unreadable_folder_keeps_the_last_state_with_a_reason(env: Env) -> None:
    env.has(ME, started())
    env.hosts(ME)
    watch = FleetWatch(env.paths)
    watch.refresh()
    kept = env.paths.sessions.rename(env.paths.state / "kept")
    env.paths.sessions.write_text("no folder")

    fleet = watch.refresh()

    assert {ME: SessionState.IDLE} == states(fleet)
    assert "cannot read" in fleet.read_only
    with pytest.raises(UnavailableError):
        read_fleet(env.paths)
    env.paths.sessions.unlink()
    kept.rename(env.paths.sessions)


NO_HANDLES = """
import os, resource
from kasmon.paths import user_paths
from kasmon.supervisor.fleet.watch import FleetWatch
watch = FleetWatch(user_paths(), writes=False)
print(watch.refresh().sessions[0].state)
soft = max(int(name) for name in os.listdir("/dev/fd")) + 1
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft))
handles = []
try:
    while True:
        handles.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
fleet = watch.refresh()
print(fleet.sessions[0].state, fleet.read_only)
"""


def test_without_file_handles_no_session_is_reported_as_lost(env: Env) -> None:
    env.has(ME, started())
    env.hosts(ME)

    told = subprocess.run(
        [sys.executable, "-c", NO_HANDLES], env=variables(env), capture_output=True, text=True, check=True
    )

    before, after = told.stdout.splitlines()
    assert "idle" == before
    assert after.startswith("idle cannot read")


def test_a_full_disk_and_a_read_only_file_system_with_room_are_said(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    env.has(ME, started(), ended())
    env.has("bbbbbbbb", started())
    env.hosts("bbbbbbbb")
    watch = FleetWatch(env.paths)
    assert "" == watch.refresh().read_only
    room = os.statvfs(env.paths.state)
    full = os.statvfs_result((*room[:3], 3, 3, *room[5:]))
    monkeypatch.setattr(os, "statvfs", lambda path: full)

    assert "No space left on device" == watch.refresh().read_only == read_fleet(env.paths).read_only
    assert {ME: SessionState.ENDED, "bbbbbbbb": SessionState.UNSURE} == states(watch.refresh())
    assert states(watch.refresh()) == states(read_fleet(env.paths))
    monkeypatch.setattr(os, "statvfs", lambda path: room)
    assert {ME: SessionState.ENDED, "bbbbbbbb": SessionState.IDLE} == states(watch.refresh())

    read_only = os.statvfs_result((*room[:8], room.f_flag | os.ST_RDONLY, *room[9:]))
    monkeypatch.setattr(os, "statvfs", lambda path: read_only)
    assert "Read-only file system" == watch.refresh().read_only == read_fleet(env.paths).read_only
    assert {ME: SessionState.ENDED, "bbbbbbbb": SessionState.UNSURE} == states(watch.refresh())


def test_a_full_disk_is_reported_before_the_first_write(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = msgspec.structs.replace(env.paths, state=env.folder / "not" / "made" / "kasmon")
    room = os.statvfs(env.folder)
    rooms = {env.folder: os.statvfs_result((*room[:3], 3, 3, *room[5:]))}
    monkeypatch.setattr(os, "statvfs", lambda path: rooms[path] if path in rooms else path.stat())

    assert "No space left on device" == read_fleet(paths).read_only


def test_events_are_those_after_a_cursor(env: Env) -> None:
    env.has(ME, started())
    env.has("bbbbbbbb")
    watch = FleetWatch(env.paths)
    known = list(watch.events(ME))
    env.tells(ME, TurnStarted(at=NOW))

    assert ["LogOpened", "SessionStarted"] == [type(event).__name__ for event, _ in known]
    assert ["TurnStarted"] == [type(event).__name__ for event, _ in watch.events(ME, known[-1][1])]
    assert [] == list(watch.events(SessionId("bbbbbbbb")))


# The index.


def test_a_watch_continues_from_the_index_of_another(env: Env) -> None:
    env.has(ME, started(), TurnStarted(at=NOW), ended())
    first = FleetWatch(env.paths)
    first.refresh()
    assert not env.paths.index.exists()
    keeps(first)
    first.refresh()
    env.tells(ME, started(2), TurnStarted(at=NOW), ended())
    until(lambda: 2 == first.refresh().sessions[0].turns, what=SLOW)
    first.close()
    size = env.paths.log(ME).stat().st_size
    env.paths.log(ME).write_bytes(b" " * (size - 1) + b"\n")

    for fleet in (read_fleet(env.paths), FleetWatch(env.paths).refresh()):
        assert (SessionState.ENDED, 2) == (fleet.sessions[0].state, fleet.sessions[0].turns)


def grown(env: Env, size: int) -> None:
    """The session's log, longer by *size* bytes at least."""
    line = encode(MessageWritten(at=NOW, text="x" * 10_000)) + b"\n"
    with env.paths.log(ME).open("ab") as log:
        log.write(line * (size // len(line) + 1))


def unread(env: Env) -> int:
    """How many bytes of the logs a reader would have to fold."""
    fold = FleetIndex(env.paths)
    load_cache(env.paths.index, fold)
    fold.read_fleet()
    fold.read_session(ME)
    return fold.folded_bytes


def test_a_single_listing_that_read_much_writes_the_index(env: Env) -> None:
    env.has(ME, started(), ended())
    read_fleet(env.paths)
    assert not env.paths.index.exists()

    grown(env, MUCH_BYTES)
    before = read_fleet(env.paths)

    assert 0 == unread(env)
    lock = HostLock(env.paths.fleet_lock)
    assert lock.acquire(), "it was let go"
    lock.let_go()
    assert states(before) == states(read_fleet(env.paths))
    grown(env, MUCH_BYTES // 2)
    read_fleet(env.paths)
    assert MUCH_BYTES // 2 <= unread(env) < MUCH_BYTES


@pytest.mark.parametrize("blocked", ["index", "fleet_lock"])
def test_a_single_listing_works_without_a_writable_index(env: Env, blocked: str) -> None:
    """The system refuses to open the index, or its lock: here a folder of that name."""
    env.has(ME, started(), ended())
    expected = states(read_fleet(env.paths))
    getattr(env.paths, blocked).mkdir()

    grown(env, MUCH_BYTES)

    assert expected == states(read_fleet(env.paths))


def test_a_single_listing_leaves_the_index_to_the_dashboard_that_maintains_it(
    env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And does not wait for it."""

    def wait(seconds: float) -> None:
        raise AssertionError(f"waited {seconds} s")

    env.has(ME, started(), ended())
    grown(env, MUCH_BYTES)
    dashboard = HostLock(env.paths.fleet_lock)
    assert dashboard.acquire()

    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", wait)
        read_fleet(env.paths)

    assert not env.paths.index.exists()
    dashboard.let_go()
    read_fleet(env.paths)
    assert 0 == unread(env)


def keeps(watch: FleetWatch) -> FleetCacheWriter:
    """A watch that writes the index at each look."""
    keeper = watch._cache_writer = FleetCacheWriter(watch.paths, every_s=0)
    return keeper


def test_a_watch_that_is_suspended_lets_another_one_write_and_writes_again_later(env: Env) -> None:
    env.has(ME, started())
    first, second = FleetWatch(env.paths), FleetWatch(env.paths)
    keeps(first)
    keeps(second)
    first.refresh()
    second.refresh()
    assert (True, False) == (first.is_writer, second.is_writer)

    first.close()
    second.refresh()
    assert second.is_writer
    second.close()
    first.refresh()
    assert first.is_writer
    first.close()


def test_of_two_watches_one_writes_the_index_and_both_see_all(env: Env) -> None:
    env.has(ME, started(), ended())
    first, second = FleetWatch(env.paths), FleetWatch(env.paths)
    keeps(first), keeps(second)
    assert states(first.refresh()) == states(second.refresh())
    with_one = env.paths.index.stat().st_mtime_ns
    env.has("bbbbbbbb", started(), ended())
    second.refresh()
    assert with_one == env.paths.index.stat().st_mtime_ns
    assert states(first.refresh()) == states(second.refresh())
    assert with_one < env.paths.index.stat().st_mtime_ns

    first.close()
    first.close()
    env.has("cccccccc", started(), ended())
    second.refresh()
    second.close()

    assert {ME, "bbbbbbbb", "cccccccc"} == states(FleetWatch(env.paths).refresh()).keys()
    assert states(read_fleet(env.paths)) == states(FleetWatch(env.paths).refresh())


def test_two_watches_and_a_busy_fleet_agree_in_the_end(env: Env) -> None:
    """Two dashboards look while sessions come, work and end."""
    watches = [FleetWatch(env.paths), FleetWatch(env.paths)]
    for watch in watches:
        keeps(watch)
    stop = threading.Event()

    def look(watch: FleetWatch) -> None:
        while not stop.is_set():
            watch.refresh()

    threads = ThreadPoolExecutor(len(watches))
    looking = [threads.submit(look, watch) for watch in watches]
    for number in range(40):
        session = env.has(f"aaaaaa{chr(97 + number // 8)}{chr(97 + number % 8)}", started())
        env.tells(session, TurnStarted(at=NOW), *([ended()] if number % 2 else []))
        if number % 5 == 0:
            env.says(SessionForgotten(at=NOW, session=session))
    stop.set()
    for task in looking:
        task.result()
    threads.shutdown()

    truth = states(read_fleet(env.paths))
    assert 32 == len(truth)
    for watch in watches:
        assert truth == states(watch.refresh())
        watch.close()


def test_a_watch_that_does_not_write_leaves_no_file(env: Env) -> None:
    env.has(ME, started(), ended())
    before = sorted(path.name for path in env.paths.state.iterdir())
    watch = FleetWatch(env.paths, writes=False)
    watch.refresh()
    watch.close()

    assert before == sorted(path.name for path in env.paths.state.iterdir())


# Changes.


@pytest.fixture
def hosted(env: Env) -> Env:
    """One session that runs."""
    env.has(ME, started())
    env.hosts(ME)
    return env


async def test_changes_yield_the_fleet_now_and_after_each_change(hosted: Env) -> None:
    async with asyncio.timeout(20), fleets(FleetWatch(hosted.paths)) as changes:
        assert {ME: SessionState.IDLE} == states(await anext(changes))
        await asyncio.to_thread(hosted.tells, ME, TurnStarted(at=NOW))
        assert {ME: SessionState.WORKING} == states(await anext(changes))
        await asyncio.to_thread(hosted.host_dies, ME)
        assert {ME: SessionState.UNSURE} == states(await anext(changes))
        await asyncio.to_thread(hosted.has, "bbbbbbbb")
        assert {ME, "bbbbbbbb"} == states(await anext(changes)).keys()


async def test_changes_arrive_without_any_hint_too(hosted: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """inotify may be missing, or drop what it should tell."""

    def none(*paths: object, **how: object) -> None:
        raise OSError("no watches left")

    monkeypatch.setattr(file_hints, "Inotify", none)
    monkeypatch.setattr("watchfiles.watch", none)
    async with asyncio.timeout(20), fleets(FleetWatch(hosted.paths)) as changes:
        await anext(changes)
        await asyncio.to_thread(hosted.tells, ME, TurnStarted(at=NOW))
        assert {ME: SessionState.WORKING} == states(await anext(changes))


def test_a_read_takes_a_part_of_hundreds_of_sessions_and_eight_reads_take_all(env: Env) -> None:
    sessions = [env.has(f"a{number:07d}", started()) for number in range(300)]
    watch = FleetWatch(env.paths, writes=False)
    watch.refresh()
    looks: list[int] = []
    for session in sessions:
        env.tells(session, ended())
    for _ in range(TURNS):
        before = len([each for each in states(watch.refresh()).values() if each is SessionState.ENDED])
        looks.append(before)

    assert [50, 100, 150, 200, 250, 300, 300, 300] == looks


def test_a_session_with_a_timed_change_is_read_at_its_time(env: Env) -> None:
    """Also where its turn is still to come."""
    clock = [NOW]
    for number in range(150):
        env.has(f"a{number:07d}", started(mode=Mode.TMUX), mode=Mode.TMUX)
        env.hosts(f"a{number:07d}")
    works = SignalSeen(at=NOW, source="title", value="working")
    silent = SignalSeen(at=NOW, source="output", value="quiet")  # after a while that makes it doubtful
    for session in env.locks:
        env.tells(session, works, silent)
    watch = FleetWatch(env.paths, writes=False, clock=lambda: clock[0])
    working = list(states(watch.refresh()).values()).count(SessionState.WORKING)
    clock[0] += 3600

    assert 150 == working
    assert SessionState.WORKING not in states(watch.refresh()).values()


async def test_a_reader_that_is_slow_gets_the_newest_fleet(hosted: Env) -> None:
    watch = FleetWatch(hosted.paths)

    def tell() -> None:
        for number in range(50):
            hosted.tells(ME, MessageWritten(at=NOW, text=f"{number} done"))
        until(lambda: "49 done" == watch.fleet.sessions[0].last_line, what="the last line")

    async with asyncio.timeout(20), fleets(watch) as changes:
        await anext(changes)
        await asyncio.to_thread(tell)
        seen = [await anext(changes)]
        while "49 done" != seen[-1].sessions[0].last_line:
            seen.append(await anext(changes))

    assert len(seen) <= 2


async def test_a_request_is_not_delayed_by_the_pause_between_two_fleets(hosted: Env) -> None:
    """A word more in a busy fleet may; who has to decide something may not."""
    asks = seal(Request(id=RequestId("req-1"), session=ME, kind=RequestKind.PERMISSION, title="make"))

    async with asyncio.timeout(20), aclosing(FleetWatch(hosted.paths).changes(gap_s=3600.0)) as changes:
        await anext(changes)
        await asyncio.to_thread(hosted.tells, ME, TurnStarted(at=NOW))
        assert {ME: SessionState.WORKING} == states(await anext(changes))
        await asyncio.to_thread(hosted.tells, ME, RequestOpened(at=NOW, request=asks))
        assert {ME: SessionState.ASKING} == states(await anext(changes))
        await asyncio.to_thread(hosted.tells, ME, RequestWithdrawn(at=NOW, request=asks.id))
        assert {ME: SessionState.WORKING} == states(await anext(changes))


async def test_a_new_state_is_not_delayed_by_the_pause_between_two_fleets(hosted: Env) -> None:
    async with asyncio.timeout(20), aclosing(FleetWatch(hosted.paths).changes(gap_s=3600.0)) as changes:
        await anext(changes)
        await asyncio.to_thread(hosted.tells, ME, MessageWritten(at=NOW, text="a line"))
        await asyncio.to_thread(hosted.tells, ME, TurnStarted(at=NOW))
        assert {ME: SessionState.WORKING} == states(await anext(changes))


async def test_a_word_more_after_a_new_state_waits_for_the_pause(hosted: Env) -> None:
    watch = FleetWatch(hosted.paths)
    asks = seal(Request(id=RequestId("req-1"), session=ME, kind=RequestKind.PERMISSION, title="make"))

    async with asyncio.timeout(20), aclosing(watch.changes(gap_s=3600.0)) as changes:
        await anext(changes)
        await asyncio.to_thread(hosted.tells, ME, TurnStarted(at=NOW))
        assert {ME: SessionState.WORKING} == states(await anext(changes))
        following = asyncio.ensure_future(anext(changes))
        await asyncio.to_thread(hosted.tells, ME, MessageWritten(at=NOW, text="a line"))
        await auntil(lambda: "a line" == watch.fleet.sessions[0].last_line)
        await asyncio.to_thread(hosted.tells, ME, RequestOpened(at=NOW, request=asks))
        assert {ME: SessionState.ASKING} == states(await following)


async def test_a_new_state_is_told_once_however_slow_the_thread_is(
    hosted: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread may lose the processor between any two of its calls, and the loop run on."""
    watch, loop = FleetWatch(hosted.paths), asyncio.get_running_loop()
    call, clock = loop.call_soon_threadsafe, loop.time

    def run_on(rounds: int, done: threading.Event) -> None:
        loop.call_soon(run_on, rounds - 1, done) if rounds else done.set()

    def call_slowly(*arguments: Any, **options: Any) -> asyncio.Handle:
        handle = call(*arguments, **options)
        if "follows the fleet" == threading.current_thread().name:
            call(run_on, 20, done := threading.Event())
            done.wait(10)
        return handle

    monkeypatch.setattr(loop, "call_soon_threadsafe", call_slowly)
    asks = seal(Request(id=RequestId("req-1"), session=ME, kind=RequestKind.PERMISSION, title="make"))
    async with asyncio.timeout(600), aclosing(watch.changes(gap_s=300.0)) as changes:
        await anext(changes)
        following = asyncio.ensure_future(anext(changes))
        await asyncio.to_thread(hosted.tells, ME, MessageWritten(at=NOW, text="a line"))
        await auntil(lambda: "a line" == watch.fleet.sessions[0].last_line)
        await asyncio.to_thread(hosted.tells, ME, TurnStarted(at=NOW))
        assert {ME: SessionState.WORKING} == states(await following)
        refreshed_at = watch.fleet.at
        await auntil(lambda: watch.fleet.at > refreshed_at)  # its calls are made
        monkeypatch.setattr(loop, "time", lambda: clock() + 301.0)
        following = asyncio.ensure_future(anext(changes))
        await asyncio.to_thread(hosted.tells, ME, RequestOpened(at=NOW, request=asks))
        assert {ME: SessionState.ASKING} == states(await following)


class WatchOfLooks(FleetWatch):
    """Notes which sessions each look covers after the first one, which covers all."""

    looks: list[set[SessionId]]

    def refresh_only(self, requested: Iterable[SessionId], *, probes_all: bool = False) -> None:
        if looked_at := {ME, OTHER} if probes_all else set(requested):
            self.looks.append(looked_at)
        super().refresh_only(requested, probes_all=probes_all)


async def test_a_change_during_a_pause_is_read_right_after_it(hosted: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a storm too a new state waits for the end of one pause, not of the next one."""
    await asyncio.to_thread(lambda: hosted.has(OTHER, started()))
    watch, before_pause = WatchOfLooks(hosted.paths, writes=False), list[int]()
    watch.looks = []

    class Stop(StopEvent):
        def wait(self, timeout: float | None = None) -> bool:
            """Let the other session change in the first pause."""
            if timeout and timeout > 0.1 and not before_pause:
                before_pause.append(len(watch.looks))
                hosted.tells(OTHER, TurnStarted(at=NOW))
            return super().wait(timeout)

    monkeypatch.setattr(follower, "StopEvent", Stop)
    monkeypatch.setattr(follower, "RESTS", 1e6)
    monkeypatch.setattr(follower, "LONGEST_REST_S", 0.2)
    async with asyncio.timeout(20), fleets(watch) as changes:
        await anext(changes)
        await asyncio.to_thread(hosted.tells, ME, TurnStarted(at=NOW))
        await auntil(lambda: any(ME in look for look in watch.looks[1:]))
        await asyncio.to_thread(hosted.tells, ME, MessageWritten(at=NOW, text="a line"))
        await auntil(lambda: any(OTHER in look for look in watch.looks[1:]) and bool(before_pause))
        await auntil(lambda: len(watch.looks) > before_pause[0])

    assert OTHER in watch.looks[before_pause[0]]


async def test_a_listener_that_stops_leaves_no_thread(hosted: Env) -> None:
    async with asyncio.timeout(20), fleets(FleetWatch(hosted.paths)) as changes:
        await anext(changes)
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    await auntil(lambda: "follows the fleet" not in [thread.name for thread in threading.enumerate()])


async def test_who_stops_listening_waits_for_the_refresh_that_runs(
    hosted: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the thread waits on is closed after its last use: else it would wait on another file."""
    is_refreshing, may_end, did = threading.Event(), threading.Event(), list[str]()

    class Watch(FleetWatch):
        def refresh_only(self, requested: Iterable[SessionId], *, probes_all: bool = False) -> None:
            super().refresh_only(requested, probes_all=probes_all)
            if not probes_all:
                is_refreshing.set()
                may_end.wait(20)
                did.append("refreshed")

    class Stop(StopEvent):
        def close(self) -> None:
            did.append("closed")
            super().close()

    monkeypatch.setattr(follower, "StopEvent", Stop)
    changes = Watch(hosted.paths).changes()
    await anext(changes)
    await auntil(is_refreshing.is_set)
    closing = asyncio.ensure_future(changes.aclose())
    await asyncio.to_thread(lambda: None)
    may_end.set()
    await closing

    assert ["refreshed", "closed"] == did


async def test_an_error_in_the_thread_is_reported(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = FleetWatch(env.paths)
    monkeypatch.setattr(watch, "refresh", lambda: 1 / 0)

    async with asyncio.timeout(20), fleets(watch) as changes:
        with pytest.raises(ZeroDivisionError):
            await anext(changes)


@pytest.mark.parametrize(
    ("path", "session"),
    [
        ("abcdefgh/events.jsonl", ME),
        ("abcdefgh/host.lock", ME),
        ("abcdefgh/host.log", None),
        ("abcdefgh", None),
        ("abcdefgh/blobs/events.jsonl", None),
    ],
)
def test_a_changed_log_or_lock_is_a_hint_about_its_session(path: str, session: SessionId | None) -> None:
    assert session == file_hints._session("/state/sessions", f"/state/sessions/{path}")
    assert None is file_hints._session("/state/sessions", f"/state/{path}")


# On the way of `kasmon ls`.

LOOK = """
import sys
from kasmon.paths import user_paths
from kasmon.supervisor.fleet.lookup import find
from kasmon.supervisor.fleet.snapshot import read_fleet
print(find(read_fleet(user_paths()), "abcdefgh").id)
print(*sys.modules)
"""
SLOW_TO_IMPORT = {
    "asyncio",
    "psutil",
    "watchfiles",
    "anyio",
    "textual",
    "rich",
    "libtmux",
    "pyte",
    "cyclopts",
    "tomlkit",
}


def variables(env: Env) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(env.folder), **env.paths.environment_variables()}


def test_a_read_imports_nothing_slow(env: Env) -> None:
    env.has(ME, started(), ended())
    watch = FleetWatch(env.paths)
    keeps(watch)
    watch.refresh()
    watch.close()

    told = subprocess.run([sys.executable, "-c", LOOK], env=variables(env), capture_output=True, text=True, check=True)

    found, modules = told.stdout.splitlines()
    assert found == ME
    assert set() == SLOW_TO_IMPORT & set(modules.split())
