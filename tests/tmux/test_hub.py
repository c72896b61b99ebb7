"""One client that hears every pane, through everything that happens to it."""

import contextlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kasmon.errors import TmuxError, TmuxServerGoneError
from kasmon.tmux.control import requests
from kasmon.tmux.formats import HUB
from kasmon.tmux.process_identity import identify
from kasmon.tmux.server import TmuxServer
from kasmon.tmux.server_config import parse
from tests.support.tmux.hub_listener import Kept, Listener, python
from tests.support.tmux.sync_hub import SyncHub, end_window, panes_of
from tests.support.wait import until

FLOOD = "import os\ninput()\nn = 0\nwhile n := n + 1: os.write(1, b'flood %d ' % n * 1000 + b'\\n')\n"


def clients(server: TmuxServer, kind: str = "") -> list[int]:
    """The pids of the clients whose flags name *kind*: `pause-after` the one that hears, `no-output` the keeper."""
    lines = server.run("list-clients", "-F", "#{client_pid} #{client_flags}").decode().splitlines()
    return [int(line.split()[0]) for line in lines if kind in line]


def test_panes_from_before_and_after_the_connection_are_read(server: TmuxServer) -> None:
    before = server.create("before", ["cat"]).pane_id
    listener = Listener(SyncHub(server))
    listener.hub.open()
    after = server.create("after", ["cat"]).pane_id

    assert [before, after] == [listener.hears(before), listener.hears(after)]
    listener.hub.close()


def test_a_new_pane_is_reported_as_skipped_output_so_that_nothing_is_missed(
    listener: Listener, server: TmuxServer
) -> None:
    """What it printed before its window was linked was not heard."""
    pane = server.create("quick", ["/bin/sh", "-c", "echo first words; exec cat"]).pane_id

    listener.until(lambda: pane in listener.skipped)
    listener.until_shown(pane, "first words")


def test_opening_and_closing_may_be_repeated(listener: Listener, server: TmuxServer) -> None:
    listener.hub.open()
    listener.until(lambda: 2 == len(clients(server)))
    listener.hub.close()
    listener.hub.close()
    assert [] == clients(server)
    listener.hub.open()

    assert listener.hears(server.create("heard", ["cat"]).pane_id)
    assert 1 == server.run("list-sessions", "-F", "#{session_name}").split().count(HUB.encode())


def test_a_killed_agent_is_reported_with_the_signal_every_time(listener: Listener, server: TmuxServer) -> None:
    """tmux misses every second of these deaths; the hub wakes it."""
    pane = listener.hears(server.create("agent", ["cat"]).pane_id)
    for _ in range(10):
        listener.deaths.clear()
        again = server.respawn(pane, ["cat"])
        pane = listener.hears(again.pane_id)
        os.kill(again.pid, signal.SIGKILL)

        assert (None, signal.SIGKILL) == listener.ending(pane)


def test_without_a_server_the_connection_fails(idle_server: TmuxServer) -> None:
    hub = SyncHub(idle_server)
    kept = Kept()
    hub.submit(requests.capture("%1"), kept.append)

    assert isinstance(kept.error, TmuxServerGoneError)
    with pytest.raises(TmuxServerGoneError):
        hub.open()
    assert not hub.is_open


def test_two_hubs_read_the_same_output(listener: Listener, server: TmuxServer) -> None:
    pane = listener.hears(server.create("shared", ["cat"]).pane_id)
    other = Listener(SyncHub(server))
    other.hub.open()
    dead = server.create("dead", ["false"]).pane_id

    assert other.hears(pane)
    assert (1, None) == listener.ending(dead) == other.ending(dead)
    other.hub.close()
    assert listener.hears(pane)


def test_a_hub_finds_its_own_window_while_an_agents_is_the_current_one(listener: Listener, server: TmuxServer) -> None:
    """A host that was killed while a person was in a session leaves it so."""
    pane = server.create("agent", ["/bin/sh", "-c", "stty raw -echo; printf 'ready \\033[?1004h'; exec cat -v"])
    listener.until_shown(pane.pane_id, "ready ^[[O")
    listener.hub.focus([pane.window_id])
    listener.until_shown(pane.pane_id, "ready ^[[O^[[I")
    listener.hub.close()
    listener.hub.focus([])
    listener.hub.open()

    listener.until_shown(pane.pane_id, "ready ^[[O^[[I^[[O")
    assert listener.hears(pane.pane_id)
    assert 2 == len(set(server.run("list-windows", "-a", "-F", "#{window_id}").split()))
    assert identify(pane.pid) is not None


def test_a_killed_client_affects_no_agent_and_reconnects(listener: Listener, server: TmuxServer) -> None:
    pane = server.create("agent", ["cat"])
    listener.hears(pane.pane_id)
    os.kill(clients(server, "pause-after")[0], signal.SIGKILL)
    until(lambda: not listener.hub.client.pump())

    assert 1 == listener.gone
    assert identify(pane.pid) is not None
    listener.said.clear()
    listener.hub.open()
    assert listener.hears(pane.pane_id)


def test_a_killed_server_is_reported_at_once(listener: Listener, server: TmuxServer) -> None:
    os.kill(listener.hub.server_pid, signal.SIGKILL)
    until(lambda: not listener.hub.client.pump())

    assert 1 == listener.gone
    with pytest.raises(TmuxServerGoneError):
        listener.hub.open()


def test_ending_the_server_waits_for_no_client_of_ours(listener: Listener, server: TmuxServer) -> None:
    server.create("agent", ["cat"])
    listener.hub.close()
    server.kill_server()

    assert server.process() is None


def test_a_session_killed_by_hand_ends_its_agent(listener: Listener, server: TmuxServer) -> None:
    """The hub's link alone would keep the window and its program."""
    pane = server.create("agent", ["cat"])
    listener.hears(pane.pane_id)
    server.run("kill-session", "-t", "=agent")

    listener.until(lambda: [pane.pane_id] == listener.closed)
    until(lambda: identify(pane.pid) is None)


def test_windows_orphaned_while_no_hub_ran_are_swept(listener: Listener, server: TmuxServer) -> None:
    pane = server.create("agent", ["cat"])
    listener.hears(pane.pane_id)
    listener.hub.close()
    server.run("kill-session", "-t", "=agent")
    assert identify(pane.pid) is not None
    listener.hub.open()

    listener.until(lambda: identify(pane.pid) is None)


def test_the_hub_sets_no_size(listener: Listener, server: TmuxServer) -> None:
    pane = server.create("wide", ["cat"], size=(200, 60))
    listener.hears(pane.pane_id)

    assert (200, 60) == next((seen.width, seen.height) for seen in panes_of(server))


def test_a_flooding_pane_is_turned_off_and_affects_no_other_pane(listener: Listener, server: TmuxServer) -> None:
    flooding = server.create("flood", python(FLOOD)).pane_id
    other = listener.hears(server.create("other", ["cat"]).pane_id)
    listener.hub.keys(flooding, b"\r")
    listener.until(lambda: (flooding, True) in listener.floods)
    assert {flooding} == listener.hub.flooded
    listener.hub.call(requests.command("display-message -p paused"))
    heard = len(listener.said[flooding])
    listener.said[other] = b""

    listener.hears(other)
    assert heard == len(listener.said[flooding])
    before = listener.rows(flooding)
    listener.until(lambda: before != listener.rows(flooding))


def test_a_flooding_pane_with_a_viewer_is_read(listener: Listener, server: TmuxServer) -> None:
    flooding = server.create("flood", python(FLOOD)).pane_id
    listener.hub.keys(flooding, b"\r")
    listener.until(lambda: (flooding, True) in listener.floods)
    heard = len(listener.said[flooding])
    listener.hub.watch([flooding])

    assert [(flooding, True), (flooding, False)] == listener.floods
    listener.until(lambda: len(listener.said[flooding]) > heard + 1_000_000)
    assert frozenset() == listener.hub.flooded


def test_a_pane_that_has_calmed_down_is_read_again(server: TmuxServer) -> None:
    now = [0.0]
    listener = Listener(SyncHub(server, clock=lambda: now[0]))
    listener.hub.open()
    burst = "import os\nwhile input(): pass\nos.write(1, b'x' * 600_000)\nwhile True: print(input())\n"
    pane = server.create("burst", python(burst)).pane_id
    listener.hears(pane)
    listener.hub.keys(pane, b"\r\r")
    listener.until(lambda: listener.floods)
    now[0] = 100.0
    listener.hub.tick()
    listener.said[pane] = b""

    assert [(pane, True), (pane, False)] == listener.floods
    listener.hears(pane)
    listener.hub.close()


def test_a_reader_that_hangs_stops_no_agent(listener: Listener, server: TmuxServer, folder: Path) -> None:
    """tmux skips what waited longer than it lets it wait, and the hub says so."""
    flood = (
        "import os, time\ninput()\nwritten, until = 0, time.monotonic() + 4\n"
        "while time.monotonic() < until: written += os.write(1, b'many words ' * 9090 + b'\\n')\n"
    )
    written = folder / "written"
    done = f"open({str(written)!r}, 'x').write(str(written))\nwhile True: print(input())\n"
    pane = server.create("long", python(flood + done)).pane_id
    listener.until(lambda: pane in listener.skipped)
    listener.until(lambda: clients(server, "no-output"))
    listener.skipped.clear()
    listener.hub.watch([pane])
    server.run("send-keys", "-t", pane, "Enter")

    until(lambda: written.exists() and written.read_text())
    listener.until(lambda: pane in listener.skipped)
    assert len(listener.said[pane]) < int(written.read_text()) // 10
    assert listener.hears(pane)


def test_a_client_that_keeps_agents_running_is_replaced(listener: Listener, server: TmuxServer) -> None:
    listener.until(lambda: clients(server, "no-output"))
    keeper = clients(server, "no-output")[0]
    os.kill(keeper, signal.SIGKILL)

    listener.until(lambda: clients(server, "no-output") not in ([], [keeper]))


def attach_while_sessions_come(server: TmuxServer, times: int) -> bool:
    """Open hubs, each at the same moment as somebody makes and ends sessions; whether the server outlived it."""
    pid = server.start()

    def churn(turn: int) -> None:
        with contextlib.suppress(TmuxError):
            for number in range(4):
                end_window(server, server.create(f"s{turn}-{number}", ["cat"]).window_id)

    with ThreadPoolExecutor(1) as pool:
        for turn in range(times):
            churning = pool.submit(churn, turn)
            hub = SyncHub(server)
            with contextlib.suppress(TmuxError):
                hub.open()
            hub.close()
            churning.result()
            process = server.process()
            if process is None or process.pid != pid:
                return False
    return True


def test_a_client_attaches_while_no_session_changes(server: TmuxServer) -> None:
    """tmux 3.3a dies if sessions come or go while a control client is half attached."""
    assert attach_while_sessions_come(server, times=20)


def test_without_the_wait_the_server_dies(server: TmuxServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above can see the hole."""
    if parse(server.version()) != (3, 3):
        pytest.skip("seen with tmux 3.3a")
    monkeypatch.setattr(TmuxServer, "quiet", lambda _: contextlib.nullcontext())

    assert not attach_while_sessions_come(server, times=300)
