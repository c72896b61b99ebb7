"""One client that hears every pane, through everything that happens to it."""

import contextlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kasmon.errors import TmuxError, TmuxServerGoneError
from kasmon.tmux import requests
from kasmon.tmux.formats import HUB
from kasmon.tmux.process_identity import identify
from kasmon.tmux.server import TmuxServer
from kasmon.tmux.server_config import parse
from tests.tmux.asked import AskedHub, end_window, panes_of
from tests.tmux.ears import Ears, Kept, python
from tests.waiting import until

FLOOD = "import os\ninput()\nn = 0\nwhile n := n + 1: os.write(1, b'flood %d ' % n * 1000 + b'\\n')\n"


def clients(server: TmuxServer, kind: str = "") -> list[int]:
    """The pids of the clients whose flags name *kind*: `pause-after` the one that hears, `no-output` the keeper."""
    lines = server.run("list-clients", "-F", "#{client_pid} #{client_flags}").decode().splitlines()
    return [int(line.split()[0]) for line in lines if kind in line]


def test_panes_from_before_and_after_the_opening_are_heard(server: TmuxServer) -> None:
    before = server.create("before", ["cat"]).pane_id
    ears = Ears(AskedHub(server))
    ears.hub.open()
    after = server.create("after", ["cat"]).pane_id

    assert [before, after] == [ears.hears(before), ears.hears(after)]
    ears.hub.close()


def test_a_new_pane_is_told_as_skipped_output_so_that_nothing_is_missed(ears: Ears, server: TmuxServer) -> None:
    """What it printed before its window was linked was not heard."""
    pane = server.create("quick", ["/bin/sh", "-c", "echo first words; exec cat"]).pane_id

    ears.until(lambda: pane in ears.skipped)
    ears.until_shown(pane, "first words")


def test_opening_and_closing_may_be_repeated(ears: Ears, server: TmuxServer) -> None:
    ears.hub.open()
    ears.until(lambda: 2 == len(clients(server)))
    ears.hub.close()
    ears.hub.close()
    assert [] == clients(server)
    ears.hub.open()

    assert ears.hears(server.create("heard", ["cat"]).pane_id)
    assert 1 == server.run("list-sessions", "-F", "#{session_name}").split().count(HUB.encode())


def test_who_is_killed_is_told_with_the_signal_every_time(ears: Ears, server: TmuxServer) -> None:
    """tmux misses every second of these deaths; the hub wakes it."""
    pane = ears.hears(server.create("agent", ["cat"]).pane_id)
    for _ in range(10):
        ears.deaths.clear()
        again = server.respawn(pane, ["cat"])
        pane = ears.hears(again.pane_id)
        os.kill(again.pid, signal.SIGKILL)

        assert (None, signal.SIGKILL) == ears.ending(pane)


def test_without_a_server_there_is_nothing_to_open(idle_server: TmuxServer) -> None:
    hub = AskedHub(idle_server)
    kept = Kept()
    hub.submit(requests.capture("%1"), kept.append)

    assert isinstance(kept.error, TmuxServerGoneError)
    with pytest.raises(TmuxServerGoneError):
        hub.open()
    assert not hub.is_open


def test_two_hubs_hear_the_same(ears: Ears, server: TmuxServer) -> None:
    pane = ears.hears(server.create("shared", ["cat"]).pane_id)
    other = Ears(AskedHub(server))
    other.hub.open()
    dead = server.create("dead", ["false"]).pane_id

    assert other.hears(pane)
    assert (1, None) == ears.ending(dead) == other.ending(dead)
    other.hub.close()
    assert ears.hears(pane)


def test_a_hub_finds_its_own_window_while_an_agents_is_the_current_one(ears: Ears, server: TmuxServer) -> None:
    """A host that was killed while a person was in a session leaves it so."""
    pane = server.create("agent", ["/bin/sh", "-c", "stty raw -echo; printf 'ready \\033[?1004h'; exec cat -v"])
    ears.until_shown(pane.pane_id, "ready ^[[O")
    ears.hub.focus([pane.window_id])
    ears.until_shown(pane.pane_id, "ready ^[[O^[[I")
    ears.hub.close()
    ears.hub.focus([])
    ears.hub.open()

    ears.until_shown(pane.pane_id, "ready ^[[O^[[I^[[O")
    assert ears.hears(pane.pane_id)
    assert 2 == len(set(server.run("list-windows", "-a", "-F", "#{window_id}").split()))
    assert identify(pane.pid) is not None


def test_killing_the_client_harms_no_agent_and_it_comes_back(ears: Ears, server: TmuxServer) -> None:
    pane = server.create("agent", ["cat"])
    ears.hears(pane.pane_id)
    os.kill(clients(server, "pause-after")[0], signal.SIGKILL)
    until(lambda: not ears.hub.pump())

    assert 1 == ears.gone
    assert identify(pane.pid) is not None
    ears.said.clear()
    ears.hub.open()
    assert ears.hears(pane.pane_id)


def test_killing_the_server_is_told_at_once(ears: Ears, server: TmuxServer) -> None:
    os.kill(ears.hub.server_pid, signal.SIGKILL)
    until(lambda: not ears.hub.pump())

    assert 1 == ears.gone
    with pytest.raises(TmuxServerGoneError):
        ears.hub.open()


def test_ending_the_server_waits_for_no_client_of_ours(ears: Ears, server: TmuxServer) -> None:
    server.create("agent", ["cat"])
    ears.hub.close()
    server.kill_server()

    assert server.process() is None


def test_a_session_killed_by_hand_takes_its_agent_along(ears: Ears, server: TmuxServer) -> None:
    """The hub's link alone would keep the window and its program."""
    pane = server.create("agent", ["cat"])
    ears.hears(pane.pane_id)
    server.run("kill-session", "-t", "=agent")

    ears.until(lambda: [pane.pane_id] == ears.closed)
    until(lambda: identify(pane.pid) is None)


def test_windows_orphaned_while_nobody_listened_are_swept(ears: Ears, server: TmuxServer) -> None:
    pane = server.create("agent", ["cat"])
    ears.hears(pane.pane_id)
    ears.hub.close()
    server.run("kill-session", "-t", "=agent")
    assert identify(pane.pid) is not None
    ears.hub.open()

    ears.until(lambda: identify(pane.pid) is None)


def test_the_hub_gives_nobody_a_size(ears: Ears, server: TmuxServer) -> None:
    pane = server.create("wide", ["cat"], size=(200, 60))
    ears.hears(pane.pane_id)

    assert (200, 60) == next((seen.width, seen.height) for seen in panes_of(server))


def test_a_flood_is_turned_off_and_harms_no_other_pane(ears: Ears, server: TmuxServer) -> None:
    flooding = server.create("flood", python(FLOOD)).pane_id
    other = ears.hears(server.create("other", ["cat"]).pane_id)
    ears.hub.keys(flooding, b"\r")
    ears.until(lambda: (flooding, True) in ears.floods)
    assert {flooding} == ears.hub.flooded
    ears.hub.call(requests.command("display-message -p paused"))
    heard = len(ears.said[flooding])
    ears.said[other] = b""

    ears.hears(other)
    assert heard == len(ears.said[flooding])
    before = ears.rows(flooding)
    ears.until(lambda: before != ears.rows(flooding))


def test_a_flooding_pane_that_somebody_looks_at_is_heard(ears: Ears, server: TmuxServer) -> None:
    flooding = server.create("flood", python(FLOOD)).pane_id
    ears.hub.keys(flooding, b"\r")
    ears.until(lambda: (flooding, True) in ears.floods)
    heard = len(ears.said[flooding])
    ears.hub.watch([flooding])

    assert [(flooding, True), (flooding, False)] == ears.floods
    ears.until(lambda: len(ears.said[flooding]) > heard + 1_000_000)
    assert frozenset() == ears.hub.flooded


def test_a_pane_that_has_calmed_down_is_heard_again(server: TmuxServer) -> None:
    now = [0.0]
    ears = Ears(AskedHub(server, clock=lambda: now[0]))
    ears.hub.open()
    burst = "import os\nwhile input(): pass\nos.write(1, b'x' * 600_000)\nwhile True: print(input())\n"
    pane = server.create("burst", python(burst)).pane_id
    ears.hears(pane)
    ears.hub.keys(pane, b"\r\r")
    ears.until(lambda: ears.floods)
    now[0] = 100.0
    ears.hub.tick()
    ears.said[pane] = b""

    assert [(pane, True), (pane, False)] == ears.floods
    ears.hears(pane)
    ears.hub.close()


def test_a_reader_that_hangs_stops_no_agent(ears: Ears, server: TmuxServer, folder: Path) -> None:
    """tmux skips what waited longer than it lets it wait, and the hub says so."""
    flood = (
        "import os, time\ninput()\nwritten, until = 0, time.monotonic() + 4\n"
        "while time.monotonic() < until: written += os.write(1, b'many words ' * 9090 + b'\\n')\n"
    )
    written = folder / "written"
    done = f"open({str(written)!r}, 'x').write(str(written))\nwhile True: print(input())\n"
    pane = server.create("long", python(flood + done)).pane_id
    ears.until(lambda: pane in ears.skipped)
    ears.until(lambda: clients(server, "no-output"))
    ears.skipped.clear()
    ears.hub.watch([pane])
    server.run("send-keys", "-t", pane, "Enter")

    until(lambda: written.exists() and written.read_text(), limit_s=30)
    ears.until(lambda: pane in ears.skipped)
    assert len(ears.said[pane]) < int(written.read_text()) // 10
    assert ears.hears(pane)


def test_a_client_that_keeps_agents_running_is_replaced(ears: Ears, server: TmuxServer) -> None:
    ears.until(lambda: clients(server, "no-output"))
    keeper = clients(server, "no-output")[0]
    os.kill(keeper, signal.SIGKILL)

    ears.until(lambda: clients(server, "no-output") not in ([], [keeper]))


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
            hub = AskedHub(server)
            with contextlib.suppress(TmuxError):
                hub.open()
            hub.close()
            churning.result()
            process = server.process()
            if process is None or process.pid != pid:
                return False
    return True


def test_a_client_attaches_in_a_quiet_moment(server: TmuxServer) -> None:
    """tmux 3.3a dies if sessions come or go while a control client is half attached."""
    assert attach_while_sessions_come(server, times=20)


def test_without_the_quiet_the_server_dies(server: TmuxServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above can see the hole."""
    if parse(server.version()) != (3, 3):
        pytest.skip("seen with tmux 3.3a")
    monkeypatch.setattr(TmuxServer, "quiet", lambda _: contextlib.nullcontext())

    assert not attach_while_sessions_come(server, times=300)
