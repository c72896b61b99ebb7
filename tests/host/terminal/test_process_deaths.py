"""Whatever dies - host, tmux server, our client, a dashboard - the others go on, and the log says what is true."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from kasmon.errors import SessionEndedError
from kasmon.host.rpc.frames import SendKeys, StartSession
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.host.rpc.server import HostServer
from kasmon.model.commands import ReceiptState
from kasmon.model.events import ConnectionLost, ConnectionRestored, SessionEnded, SessionStarted, SignalSeen
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.tmux.process_identity import signal as send_signal
from tests.support.cli.fork_server import Process
from tests.support.host.tmux_env import Screen, TmuxEnv, prompted, python, sh
from tests.support.tmux.sync_hub import end_window, have_all_ended
from tests.support.wait import auntil, until

pytestmark = pytest.mark.story
ME = SessionId("abcdefgh")
S = SessionState
COUNTER = "i=0; while :; do i=$((i+1)); echo count $i; sleep 0.05; done"
REPORTER = """
import os, sys, tty
tty.setraw(0)
def say(state): os.write(1, b"\\x1b]7501;state=%s\\x07" % state)
say(b"idle")
while data := os.read(0, 65536):
    open(sys.argv[1], "ab").write(data)
    if b"go" in data: say(b"working")
"""


def kill(process: Process) -> None:
    process.kill()
    process.wait(60)


def kill_server(tmux: TmuxEnv) -> None:
    server = tmux.server.process()
    assert server
    send_signal(server, signal.SIGKILL)


# The host dies


async def test_a_killed_host_leaves_its_agents_running_and_the_next_one_continues(tmux: TmuxEnv) -> None:
    host = tmux.open()
    async with tmux.client() as link:
        await tmux.run(link, ME, *sh(COUNTER))
        await tmux.ready(ME)
        kill(host)
        before = tmux.facts(ME)
        assert before
        assert not before.is_dead
        assert lock_holder(tmux.paths.host_lock(ME)) is None

        other = tmux.open()
        async with tmux.client() as link:
            screen = Screen(link, ME)
            screen.watch()
            await screen.until_has("count")
            after = tmux.facts(ME)

            assert after
            assert (before.pid, before.pane_id) == (after.pid, after.pane_id)
            assert 1 == len(tmux.only(SessionStarted, ME))
            assert other.pid == lock_holder(tmux.paths.host_lock(ME))
            await tmux.until_state(ME, S.WORKING)


async def test_a_session_that_ended_without_a_host_is_reported_by_the_next(tmux: TmuxEnv) -> None:
    host = tmux.open()
    async with tmux.client() as link:
        await tmux.run(link, ME, *sh("read x; exit 7"))
        await tmux.run(link, "killed23", "cat")
        await tmux.run(link, "gone2345", "cat")
        for name in (ME, "killed23", "gone2345"):
            await tmux.ready(name)
        kill(host)
        tmux.server.run("send-keys", "-t", f"={ME}:", "Enter")
        os.kill(tmux.session(SessionId("killed23")).pid or 0, signal.SIGKILL)
        gone = tmux.facts("gone2345")
        assert gone
        end_window(tmux.server, gone.window_id)
        tmux.open()
        ended = await tmux.ended(ME), await tmux.ended("killed23"), await tmux.ended("gone2345")

        assert [(7, None, ""), (None, "SIGKILL", ""), (None, None, "its pane no longer exists")] == [
            (end.exit_code, end.signal, end.why) for end in ended
        ]


async def test_a_host_answers_no_client_before_it_has_reported_earlier_ends(
    tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[S] = []
    start = HostServer.start

    async def observed(server: HostServer) -> None:
        told.append((await asyncio.to_thread(tmux.session, ME)).state)
        await start(server)

    host = tmux.open()
    async with tmux.client() as link:
        await tmux.run(link, ME, *sh("read x; exit 7"))
        await tmux.ready(ME)
    kill(host)
    tmux.server.run("send-keys", "-t", f"={ME}:", "Enter")
    await auntil(lambda: have_all_ended(tmux.server))
    monkeypatch.setattr(HostServer, "start", observed)
    async with tmux.serving():
        assert [S.ENDED] == told


async def test_a_queue_survives_its_host(tmux: TmuxEnv) -> None:
    host = tmux.open()
    async with tmux.client() as link:
        await tmux.run(link, ME, *python(REPORTER), str(tmux.root / "typed"))
        await tmux.until_state(ME, S.IDLE)
        await prompted(link, ME, "go")
        await tmux.until_state(ME, S.WORKING)
        await prompted(link, ME, "later", when="idle")
        kill(host)
        tmux.open()
        async with tmux.client() as link:
            assert [ReceiptState.QUEUED] == [
                receipt.state for receipt in tmux.session(ME).receipts if receipt.text == "later"
            ]
            assert b"go\r" == tmux.recorded("typed")


async def test_a_reported_state_holds_without_output_since(tmux: TmuxEnv) -> None:
    host = tmux.open()
    async with tmux.client() as link:
        await tmux.run(link, ME, *python(REPORTER), str(tmux.root / "typed"))
        await tmux.until_state(ME, S.IDLE)
        kill(host)
        tmux.open()
        async with tmux.client() as link:
            await tmux.pane(link, ME)

            assert S.IDLE is tmux.session(ME).state
            await prompted(link, ME, "go", when="idle")
            await tmux.until_state(ME, S.WORKING)


async def test_a_reported_state_is_void_after_output_since(tmux: TmuxEnv) -> None:
    """It may have said something that nobody heard: unsure, never idle."""
    host = tmux.open()
    async with tmux.client() as link:
        await tmux.run(link, ME, *python(REPORTER), str(tmux.root / "typed"))
        await tmux.until_state(ME, S.IDLE)
        said_at = tmux.only(SignalSeen, ME)[-1].at
        kill(host)
        until(lambda: int(time.time()) > int(said_at))
        tmux.server.run("send-keys", "-t", f"={ME}:", "go")
        until(lambda: b"go" == tmux.recorded("typed"))
        tmux.open()

        await tmux.until_state(ME, S.UNSURE)
        assert "clear" == [signal.value for signal in tmux.only(SignalSeen, ME) if signal.source == "program"][-1]


async def test_an_agent_that_started_while_its_host_was_killed_is_taken_over_too(tmux: TmuxEnv) -> None:
    tmux.wants(ME, "cat")
    tmux.server.start()
    tmux.server.create(ME, ["cat"])
    tmux.open()

    assert [1] == [started.generation for started in tmux.only(SessionStarted, ME)]
    assert tmux.session(ME).exists


async def test_many_sessions_are_taken_over_at_once(tmux: TmuxEnv) -> None:
    names = [f"ab{chr(97 + number)}defgh" for number in range(20)]
    host = tmux.open()
    async with tmux.client() as link:
        await asyncio.gather(*(tmux.run(link, name, "cat") for name in names))
        for name in names:
            await tmux.ready(name)
        kill(host)
        other = tmux.open()

        assert {other.pid} == {lock_holder(tmux.paths.host_lock(name)) for name in names}
        assert {S.UNSURE} == {tmux.session(SessionId(name)).state for name in names}


async def test_a_session_of_another_host_is_left_to_it(tmux: TmuxEnv) -> None:
    script = "import sys\nfrom pathlib import Path\nfrom kasmon.host.rpc.host_lock import HostLock\n"
    script += "assert HostLock(Path(sys.argv[1])).acquire(); print('held', flush=True); sys.stdin.read()"
    tmux.wants(ME, "cat")
    holder = subprocess.Popen(
        [sys.executable, "-P", "-c", script, str(tmux.paths.host_lock(ME))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout
    assert holder.stdin
    assert b"held\n" == holder.stdout.readline()
    tmux.open()
    async with tmux.client() as link:
        with pytest.raises(Exception, match="already has a host"):
            await link.ask(StartSession(n=0, session=ME))

        assert not tmux.events(ME)
        holder.stdin.close()
        holder.wait(60)
        holder.stdout.close()


# The tmux server dies


async def test_a_killed_tmux_server_is_detected_within_two_seconds(tmux: TmuxEnv) -> None:
    names = [ME, SessionId("other234")]
    tmux.open()
    async with tmux.client() as link:
        for name in names:
            await tmux.run(link, name, "cat")
            await tmux.ready(name)
        screen = Screen(link, ME)
        screen.watch()
        await auntil(lambda: screen.pushes)
        killed_at = time.time()
        kill_server(tmux)
        for name in names:
            await tmux.until_state(name, S.LOST)

        assert all(tmux.only(ConnectionLost, name)[0].at - killed_at < 2 for name in names)
        await auntil(lambda: screen.gone)
        await auntil(lambda: lock_holder(tmux.paths.host_lock(ME)) is None)


async def test_after_a_server_kill_a_session_is_started_again_in_a_new_server(tmux: TmuxEnv) -> None:
    tmux.open()
    async with tmux.client() as link:
        await tmux.run(link, ME, *sh("echo here; exec cat"))
        await tmux.ready(ME)
        kill_server(tmux)
        await tmux.until_state(ME, S.LOST)
        await link.ask(StartSession(n=0, session=ME), limit_s=40)
        screen = Screen(link, ME)
        screen.watch()
        await screen.until_has("here")

        assert [1, 2] == [started.generation for started in tmux.only(SessionStarted, ME)]
        assert tmux.session(ME).exists


async def test_a_server_that_died_without_a_host_is_reported_by_the_next(tmux: TmuxEnv) -> None:
    host = tmux.open()
    async with tmux.client() as link:
        await tmux.run(link, ME, "cat")
        await tmux.ready(ME)
        kill(host)
        kill_server(tmux)
        tmux.open()

        assert S.LOST is tmux.session(ME).state
        assert not tmux.only(SessionEnded, ME)


async def test_another_server_in_its_place_is_not_taken_for_it(tmux: TmuxEnv) -> None:
    host = tmux.open()
    async with tmux.client() as link:
        await tmux.run(link, ME, "cat")
        await tmux.ready(ME)
        kill(host)
        kill_server(tmux)
        until(lambda: tmux.server.process() is None)
        tmux.server.start()
        tmux.open()

        assert S.LOST is tmux.session(ME).state


async def test_a_deleted_socket_is_found_again(tmux: TmuxEnv) -> None:
    host = tmux.open()
    async with tmux.client() as link:
        await tmux.run(link, ME, "cat")
        await tmux.ready(ME)
        kill(host)
        tmux.paths.tmux_socket.unlink()
        tmux.open()
        async with tmux.client() as link:
            assert (await tmux.pane(link, ME)).width == 120
            assert tmux.session(ME).exists


# Our client dies


async def test_a_connection_that_tmux_ended_is_reopened_and_nothing_is_lost(tmux: TmuxEnv) -> None:
    host = tmux.open()
    async with tmux.client() as link:
        await tmux.run(link, ME, "cat")
        await tmux.ready(ME)
        screen = Screen(link, ME)
        screen.focus()
        await auntil(lambda: screen.pushes)
        clients = [child for child in psutil.Process(host.pid).children() if "attach-session" in child.cmdline()]
        output_monitor = [child for child in clients if any("pause-after" in argument for argument in child.cmdline())]
        assert 1 == len(output_monitor)
        output_monitor[0].kill()

        def typed() -> bool:
            link.send(SendKeys(session=ME, data=b"k"))
            return screen.has("k")

        await auntil(typed)
        assert not tmux.only(ConnectionLost, ME)
        assert tmux.session(ME).exists


# A dashboard dies

DASHBOARD = """
import asyncio, sys
from pathlib import Path
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.frames import Focus, Watch

async def main():
    link = await HostLink.open(Path(sys.argv[1]))
    link.on_push = lambda frame: print("pushed", flush=True)
    link.send(Watch(session=sys.argv[2]))
    link.send(Focus(session=sys.argv[2], columns=90, rows=30))
    await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_a_killed_dashboard_changes_nothing(tmux: TmuxEnv) -> None:
    host = tmux.open()
    async with tmux.client() as link:
        await tmux.run(link, ME, *sh(COUNTER))
        await tmux.ready(ME)
        dashboard = subprocess.Popen(
            [sys.executable, "-P", "-c", DASHBOARD, str(tmux.paths.tmux_host_socket), ME], stdout=subprocess.PIPE
        )
        assert dashboard.stdout
        assert b"pushed\n" == await asyncio.to_thread(dashboard.stdout.readline)
        kill(dashboard)
        dashboard.stdout.close()
        screen = Screen(link, ME)
        screen.watch()
        await screen.until_has("count")
        first = list(screen.rows)
        await auntil(lambda: screen.rows != first)

        assert host.poll() is None
        assert tmux.session(ME).exists
        assert not tmux.only(ConnectionRestored, ME)


async def test_a_queue_waits_for_the_restart_of_a_lost_agent(tmux: TmuxEnv) -> None:
    tmux.open()
    async with tmux.client() as link:
        await tmux.run(link, ME, *python(REPORTER), str(tmux.root / "typed"))
        await tmux.until_state(ME, S.IDLE)
        await prompted(link, ME, "go")
        await tmux.until_state(ME, S.WORKING)
        await prompted(link, ME, "later", when="idle")
        kill_server(tmux)
        await tmux.until_state(ME, S.LOST)
        with pytest.raises(SessionEndedError):
            await prompted(link, ME, "now")
        await link.ask(StartSession(n=0, session=ME), limit_s=40)

        await auntil(lambda: 2 == len(tmux.only(SessionStarted, ME)), what="the restart")
        await tmux.until_state(ME, S.IDLE)
        await auntil(lambda: b"go\rlater\r" == tmux.recorded("typed"), what="the prompt that was queued")
