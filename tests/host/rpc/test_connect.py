"""Reaching a host: the right one, started where that is wanted, and never an agent by accident. Real processes."""

import asyncio
import contextlib
import os
import re
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kasmon import errors
from kasmon.host.journal import log_file
from kasmon.host.rpc import connect, spawn
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.connect import open_link
from kasmon.host.rpc.frames import VERSION, Hello
from kasmon.host.rpc.host_lock import HostLock, lock_holder
from kasmon.host.rpc.server import HostServer
from kasmon.model.commands import Mode, Stop
from kasmon.model.events import MessageWritten, SessionEnded, SessionStarted
from kasmon.model.permission import SessionId
from kasmon.paths import write_private
from kasmon.process_identity import is_running, started_at
from kasmon.store.event_log import START
from tests.support.agents.fake_agent import FakeAgent
from tests.support.host.env import ME, Env, do
from tests.support.tui.pty_program import OnTerminal
from tests.support.wait import auntil, until

Reach = Callable[..., Coroutine[Any, Any, HostLink]]


@pytest.fixture
async def reach(env: Env) -> AsyncIterator[Reach]:
    """`link` to the session, closed when the test is over."""
    lines: list[HostLink] = []

    async def reached(**more: Any) -> HostLink:
        lines.append(await open_link(env.paths, ME, Mode.SDK, **more))
        return lines[-1]

    yield reached
    for line in lines:
        await line.aclose()


async def until_gone(env: Env) -> None:
    await auntil(lambda: env.pid() is None, what="the host's end")


async def test_connecting_to_a_requested_session_starts_its_host(env: Env, reach: Reach) -> None:
    env.wants(prompt="say hello")
    line = await reach()

    assert env.pid() == line.welcome.pid
    await auntil(lambda: env.only(MessageWritten))


async def test_a_host_that_was_started_is_a_process_of_its_own(env: Env, reach: Reach) -> None:
    env.wants()
    line = await reach()
    pid = line.welcome.pid

    assert os.getpgid(pid) == os.getsid(pid) == pid
    assert os.getsid(0) != pid
    assert "Umask:\t0077" in Path(f"/proc/{pid}/status").read_text()
    assert Path("/") == Path(f"/proc/{pid}/cwd").readlink()


def test_only_one_of_many_starters_starts_the_tmux_host_which_inherits_its_lock(env: Env) -> None:
    """Fifty commands at once started fifty of them, and each took a third of a second."""
    host = spawn.spawn_tmux_host(env.paths)

    assert host is not None
    assert (host.pid, None) == (lock_holder(env.paths.tmux_host_lock), spawn.spawn_tmux_host(env.paths))
    until(env.paths.tmux_host_socket.exists)
    assert host.pid == lock_holder(env.paths.tmux_host_lock)
    os.kill(host.pid, signal.SIGKILL)
    until(lambda: lock_holder(env.paths.tmux_host_lock) is None)


def test_a_process_that_only_starts_the_tmux_host_is_not_taken_for_it(
    env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever ends the holder of the lock must not end a dashboard."""
    holders, start = list[int | None](), spawn._start

    def see(*arguments: Any) -> Any:
        holders.append(lock_holder(env.paths.tmux_host_lock))
        return start(*arguments)

    monkeypatch.setattr(spawn, "_start", see)
    host = spawn.spawn_tmux_host(env.paths)

    assert host is not None
    assert ([0], host.pid) == (holders, lock_holder(env.paths.tmux_host_lock))
    os.kill(host.pid, signal.SIGKILL)
    until(lambda: lock_holder(env.paths.tmux_host_lock) is None)


def test_a_tmux_host_whose_starter_is_interrupted_is_known_by_its_own_pid(
    env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts, start = list[Any](), spawn._start

    def interrupt(*arguments: Any) -> Any:
        hosts.append(start(*arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr(spawn, "_start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        spawn.spawn_tmux_host(env.paths)
    try:
        until(env.paths.tmux_host_socket.exists)

        assert hosts[0].pid == lock_holder(env.paths.tmux_host_lock)
    finally:
        hosts[0].kill()
        until(lambda: lock_holder(env.paths.tmux_host_lock) is None)


STARTS = """
import os, signal, sys
from kasmon.host.rpc.spawn import spawn, spawn_tmux_host
from kasmon.paths import user_paths
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.SIG_DFL)
host = spawn(user_paths(), sys.argv[1]) if len(sys.argv) > 1 else spawn_tmux_host(user_paths())
print("host", host.pid, flush=True)
signal.pause()
"""
"""A terminal program that starts the host of a session, or the tmux host.

Its signals act also where the tests run in the background of a shell, which has them ignored.
"""


@pytest.mark.parametrize("session", [ME, None], ids=["of a session", "of tmux"])
@pytest.mark.parametrize("end", ["its terminal closes", "Ctrl+C", "its group is killed"])
def test_closing_the_terminal_that_started_it_does_not_end_a_host(env: Env, session: str | None, end: str) -> None:
    """The first promise: also where it has only begun."""
    env.wants()
    words = [session] if session else []
    with OnTerminal([sys.executable, "-P", "-c", STARTS, *words], Path("/"), environment=env.environment) as screen:
        found = until(lambda: re.search(rb"host (\d+)\r", screen.seen))
        pid = int(found[1])
        born = started_at(pid)
        assert born
        match end:
            case "its terminal closes":
                screen.hang_up()
            case "Ctrl+C":
                screen.send(b"\x03")
            case _:
                os.killpg(screen.pid, signal.SIGKILL)
        screen.ended()
        until(lambda: lock_holder(env.paths.host_lock(ME) if session else env.paths.tmux_host_lock) == pid)

        assert is_running(pid, born)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not is_running(pid, born))


async def test_connecting_to_a_running_host_starts_none(env: Env, reach: Reach) -> None:
    env.wants()
    first = await reach()
    second = await reach(start=True)

    assert first.welcome.pid == second.welcome.pid
    await auntil(lambda: env.only(SessionStarted))
    assert 1 == len(env.only(SessionStarted))


async def test_many_clients_that_connect_at_once_reach_the_same_host(env: Env, reach: Reach) -> None:
    """Each starts one; the lock decides which stays."""
    env.wants()
    lines = await asyncio.gather(*(reach() for _ in range(5)))

    assert {env.pid()} == {line.welcome.pid for line in lines}
    await auntil(lambda: env.only(SessionStarted))
    assert 1 == len(env.only(SessionStarted))


async def test_a_late_second_host_starts_nothing(env: Env, reach: Reach) -> None:
    """It was started beside another one, which has had its session, and whose agent has ended meanwhile."""
    env.wants()
    await do(await reach(), Stop())
    await until_gone(env)

    late = await asyncio.to_thread(spawn.spawn, env.paths, ME, START)
    assert 0 == await asyncio.to_thread(late.wait, 20)
    assert 1 == len(env.only(SessionStarted)) == len(env.only(SessionEnded))


async def test_connecting_to_an_ended_session_does_not_restart_it(env: Env, reach: Reach) -> None:
    env.wants()
    await do(await reach(), Stop())
    await until_gone(env)
    with pytest.raises(errors.SessionEndedError):
        await reach()

    assert env.pid() is None
    assert 1 == len(env.only(SessionStarted))


async def test_connecting_to_a_lost_session_does_not_restart_it(env: Env, reach: Reach) -> None:
    env.wants()
    line = await reach()
    await auntil(lambda: env.only(SessionStarted))
    os.kill(line.welcome.pid, signal.SIGKILL)
    await until_gone(env)
    with pytest.raises(errors.HostUnreachableError, match="kasmon restart"):
        await reach()

    assert env.pid() is None


async def test_connecting_to_a_lost_session_with_an_unreadable_log_does_not_restart_it(env: Env, reach: Reach) -> None:
    env.wants()
    line = await reach()
    await auntil(lambda: env.only(SessionStarted))
    os.kill(line.welcome.pid, signal.SIGKILL)
    await until_gone(env)
    log = env.paths.log(ME)
    log.unlink()
    log.symlink_to("nowhere")
    with pytest.raises(errors.HostUnreachableError):
        await reach()

    assert env.pid() is None


async def test_a_host_with_a_start_request_starts_the_next_generation(env: Env, reach: Reach) -> None:
    env.wants()
    await do(await reach(), Stop())
    await until_gone(env)
    await reach(start=True)
    await auntil(lambda: len(env.only(SessionStarted)) == 2)

    assert 2 == env.session().generation


async def test_a_launch_with_a_later_generation_is_a_start_request(env: Env, reach: Reach) -> None:
    launch = env.wants()
    await do(await reach(), Stop())
    await until_gone(env)
    write_private(env.paths.launch(ME), msgspec.json.encode(msgspec.structs.replace(launch, generation=2)))
    await reach()
    await auntil(lambda: len(env.only(SessionStarted)) == 2)


async def test_a_restart_waits_for_the_last_host_to_exit(
    env: Env, reach: Reach, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its agent has ended, but it still listens and holds the lock."""
    goodbye = asyncio.Event()

    async def closes_slowly() -> None:
        await goodbye.wait()

    monkeypatch.setattr(fake, "aclose", closes_slowly)
    async with env.hosting(fake, env.wants()):
        await auntil(lambda: env.only(SessionStarted))
        fake.say(SessionEnded(at=1.0, exit_code=0))
        await auntil(lambda: env.only(SessionEnded))
        reaching = asyncio.create_task(reach(start=True))
        link = await env.linked()
        goodbye.set()
        await auntil(lambda: not link.is_open)
    line = await reaching
    await auntil(lambda: len(env.only(SessionStarted)) == 2)

    assert line.welcome.pid == env.pid() != os.getpid()


async def test_an_agent_that_cannot_start_gives_the_reason_in_its_log(env: Env, reach: Reach) -> None:
    env.wants(backend="no-such-backend")
    with contextlib.suppress(errors.LaunchError):  # unless its host answers before it knows
        await reach()

    await auntil(lambda: "no-such-backend" in env.session().end_why)


async def test_a_failed_start_is_reported_to_its_requester(env: Env, reach: Reach) -> None:
    env.wants()
    env.paths.socket(ME).mkdir()  # so that it cannot listen
    with pytest.raises(errors.LaunchError, match="cannot listen"):
        await reach()


async def test_a_failed_start_is_not_retried_by_a_later_client(env: Env, reach: Reach) -> None:
    env.wants(backend="no-such-backend")
    with contextlib.suppress(errors.LaunchError):
        await reach()
    await auntil(lambda: env.only(SessionEnded))
    await until_gone(env)
    for more in ({}, {"only_looks": True}):
        with pytest.raises(errors.SessionEndedError):
            await reach(**more)

    assert 1 == len(env.only(SessionEnded))


async def test_a_read_only_client_starts_nothing(env: Env, reach: Reach) -> None:
    env.wants()
    with pytest.raises(errors.HostUnreachableError):
        await reach(only_looks=True)

    assert env.pid() is None


async def test_an_agent_that_ends_at_once_is_not_started_again(env: Env, reach: Reach) -> None:
    """It was started, and is over, before anybody could reach it."""
    env.wants(prompt="crash 3")
    try:
        line = await reach()
    except errors.SessionEndedError:
        pass
    else:
        await auntil(lambda: not line.is_open)
    await until_gone(env)

    assert 1 == len(env.only(SessionStarted))
    assert 3 == env.session().exit_code


async def test_a_session_without_a_start_request_is_not_started(env: Env) -> None:
    with pytest.raises((errors.LaunchError, errors.HostUnreachableError)):
        await open_link(env.paths, SessionId("nobodyyy"), Mode.SDK)

    assert not env.paths.folder("nobodyyy").exists()


async def test_a_stale_socket_is_detected(env: Env, reach: Reach) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(env.paths.socket(ME)))
    env.wants()

    assert (await reach()).is_open


async def test_a_host_of_another_version_reports_it(env: Env, reach: Reach, monkeypatch: pytest.MonkeyPatch) -> None:
    env.wants()
    await reach()
    monkeypatch.setattr("kasmon.host.rpc.client.Hello", lambda n, as_agent: Hello(n=n, version=VERSION + 1))
    with pytest.raises(errors.RefusedError, match=f"version {VERSION}"):
        await reach()


@pytest.mark.parametrize("ahead_s", [0, 3600], ids=["", "after the clock was set back"])
async def test_a_host_that_hangs_is_waited_for_within_a_limit(
    env: Env, reach: Reach, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    monkeypatch.setattr(connect, "START_S", 0.1)
    env.wants()
    lock = HostLock(env.paths.host_lock(ME))
    assert lock.acquire()
    taken_at = env.paths.host_lock(ME).stat().st_mtime + ahead_s
    os.utime(env.paths.host_lock(ME), (taken_at, taken_at))
    with pytest.raises(errors.TimedOutError, match="did not start"):
        await reach(limit_s=0.2)
    lock.let_go()


async def test_a_host_that_another_process_has_just_started_is_waited_for_as_long_as_one_started_here(
    env: Env, reach: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many that start at once on a busy machine, one starts the tmux host, and all need it."""
    env.wants()
    lock = HostLock(env.paths.host_lock(ME))
    assert lock.acquire()
    server = HostServer(env.paths.socket(ME), lambda connection, frame: None, lambda connection: None)
    monkeypatch.setattr(connect, "sleep", lambda _pause_s: server.start())  # it listens while it is waited for

    assert os.getpid() == (await reach(limit_s=0.0)).welcome.pid
    await server.aclose()
    lock.let_go()


async def test_a_host_that_fails_to_start_shows_its_last_output(
    env: Env, reach: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.wants()
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(errors.HostUnreachableError, match="exit code 1"):
        await reach()


async def test_an_error_of_the_system_names_the_operation_and_the_reason(
    env: Env, reach: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.wants()
    env.paths.log(ME).mkdir()
    with pytest.raises(
        errors.HostUnreachableError, match=rf"'{ME}' does not respond: '{env.paths.log(ME)}': it is not a regular file"
    ):
        await reach(start=True)

    env.paths.log(ME).rmdir()
    env.paths.host_log(ME).mkdir()
    with pytest.raises(errors.HostUnreachableError, match=rf"cannot be started: '{env.paths.host_log(ME)}': Is a dir"):
        await reach()

    env.paths.host_log(ME).rmdir()
    env.paths.host_lock(ME).symlink_to("elsewhere")
    with pytest.raises(errors.HostUnreachableError, match=rf"'{env.paths.host_lock(ME)}': "):
        await reach()
    env.paths.host_lock(ME).unlink()


@pytest.mark.parametrize("mode", [Mode.SDK, Mode.TMUX])
async def test_missing_file_handles_are_reported(env: Env, mode: Mode) -> None:
    env.wants(mode=mode)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(errors.HostUnreachableError, match="open files"):
            await open_link(env.paths, ME, mode)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# The process


def test_a_host_gets_the_paths_of_kasmon_and_not_the_folder_of_its_starter(env: Env) -> None:
    given = {"PATH": "/bin", "KASMON_SESSION": "x", "KASMOS_TASK": "1", "TMUX": "/t,1,0", "KASMON_TMUX": "/opt/tmux"}

    passed, _ = spawn.build_host_environment(env.paths, given | {"XDG_STATE_HOME": "/elsewhere"})

    assert {"PATH": "/bin", "KASMON_TMUX": "/opt/tmux"} | env.paths.environment_variables() == passed


def test_a_hosts_own_log_is_private_and_of_bounded_size(env: Env) -> None:
    env.wants()
    log = env.paths.host_log(ME)
    log.write_bytes(b"x" * (log_file.LOG_BYTES + 1))
    process = spawn.spawn(env.paths, ME)
    until(lambda: env.paths.socket(ME).exists())
    os.kill(process.pid, signal.SIGKILL)

    assert log.stat().st_size < 10_000
    log.unlink()
    spawn.spawn(env.paths, ME)
    assert 0o600 == log.stat().st_mode & 0o777


def test_no_zombie_process_is_left(env: Env) -> None:
    env.wants()
    process = spawn.spawn(env.paths, ME)
    until(lambda: env.pid() == process.pid)
    os.kill(process.pid, signal.SIGKILL)

    until(lambda: not Path(f"/proc/{process.pid}").exists())


def test_the_last_output_of_a_host_is_its_last_line(env: Env) -> None:
    env.wants()
    env.paths.host_log(ME).write_text("Traceback:\n  ...\nValueError: no\n\n")

    assert "ValueError: no" == spawn.read_last_line(env.paths.host_log(ME))
    assert "" == spawn.read_last_line(env.paths.host_log("nobodyyy"))
