"""What `kasmon bench` promises: each measurement runs alone, ends by itself, and tells of what it cannot measure here.

The counts are small and the figures are not judged: how fast this machine is, is no property of kasmon.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from kasmon import system
from kasmon.bench import machines, peers, run
from kasmon.bench.agents import host_cost, offline
from kasmon.bench.dashboard import event_latency, idle_cost, long_transcript, permission_latency
from kasmon.bench.dashboard.startup import warm
from kasmon.bench.phone import flood, page, push
from kasmon.bench.support import machine_links, process_cost
from kasmon.bench.support.figure import Figure, ratio, table
from kasmon.bench.support.fleet import create_sessions, scratch
from kasmon.bench.support.machine_links import Transport, joined
from kasmon.bench.support.process_cost import family
from kasmon.bench.support.terminal import environment, read_for
from kasmon.bus.nats.cluster import ClusterFolder
from kasmon.bus.nats.process import read_server
from kasmon.demo.fleet import CLUSTER
from kasmon.errors import AgentNotFoundError, UsageError
from kasmon.paths import Paths, user_paths
from kasmon.store.fleet_cache import FleetCache, load_cache
from kasmon.store.fleet_index import FleetIndex
from tests.support.bus.server_programs import need_server
from tests.support.cli.fork_server import ForkServer
from tests.support.host import sshd
from tests.support.wait import until

pytestmark = pytest.mark.story

KNOWN = {
    "evidence",
    "evidence-late",
    "delivery",
    "talk",
    "last-page",
    "dialog",
    "host-scripted",
    "host-claude",
    "host-codex",
    "host-opencode",
    "host-gemini",
}


@pytest.fixture(autouse=True)
def _leaves_nothing(fork_server: ForkServer) -> Iterator[None]:
    """Whatever is measured, no process and no folder of it is left."""
    yield
    assert [] == list(user_paths().demos.glob("*.json"))

    def is_all_gone() -> bool:  # what was killed may still be ending, or nothing has waited for it yet
        return all(each.pid == fork_server.pid for each in psutil.Process().children(recursive=True))

    until(is_all_gone, what="the end of all that was measured")


@pytest.fixture
def no_agents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which no agent is installed."""
    monkeypatch.delenv(offline.BIN_DIR, raising=False)
    monkeypatch.setattr(offline, "CHECKOUT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_the_measurements_of_issue_3_have_names() -> None:
    assert run.scenes(1, 1.0).keys() >= KNOWN
    with pytest.raises(UsageError, match="luck"):
        run.main(["luck"])


def test_the_memory_of_a_host_is_compared_with_bare_python(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_cost, "REST_S", 0.1)
    assert 0 == run.main(["host-scripted"], rounds=1, json=True)

    told = json.loads(capsys.readouterr().out)
    start, memory = told["figures"]
    assert {} == told["left_out"]
    assert ("ms", "MB", None, None) == (start["unit"], memory["unit"], start["target"], memory["target"])
    assert 0 < start["limit"] < start["value"]
    assert 0 < memory["limit"] < memory["value"]


def test_a_fleet_tool_call_is_measured_as_an_agent_makes_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run.main(["fleet-list"], rounds=1, json=True)

    told = json.loads(capsys.readouterr().out)
    (figure,) = told["figures"]
    assert ({}, 5, 30) == (told["left_out"], figure["samples"], figure["target"])
    assert 0 < figure["value"]


@pytest.mark.usefixtures("no_agents")
def test_an_agent_that_is_not_installed_is_left_out_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run.main(["host-claude"])
    assert "host-claude: not measured: cannot start 'claude': 'claude' is not on PATH." in capsys.readouterr().out

    assert 0 == run.main(["host-gemini"], json=True)
    assert "'gemini' is not on PATH" in json.loads(capsys.readouterr().out)["left_out"]["host-gemini"]


def test_a_fault_in_one_measurement_loses_none_of_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> list[Figure]:
        raise ValueError("flush of closed file")

    def fail_in_a_library() -> list[Figure]:
        subprocess.run([sys.executable, "-c", "exit(3)"], check=True)
        return []

    first, last = Figure(name="first", value=1.0, unit="ms"), Figure(name="last", value=1.0, unit="ms")
    found = {"good": lambda: first, "bad": fail, "worse": fail_in_a_library, "best": lambda: last}
    monkeypatch.setattr(run, "scenes", lambda _rounds, _seconds: found)

    assert 0 == run.main(json=True)

    told = json.loads(capsys.readouterr().out)
    assert ["first", "last"] == [each["name"] for each in told["figures"]]
    assert re.fullmatch(r"ValueError in run\.py:\d+: flush of closed file", told["left_out"]["bad"])
    assert told["left_out"]["worse"].startswith("CalledProcessError in run.py:")  # where ours called it


def test_results_before_ctrl_c_are_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> list[Figure]:
        raise KeyboardInterrupt

    figure = Figure(name="first", value=1.0, unit="ms")
    monkeypatch.setattr(run, "scenes", lambda _rounds, _seconds: {"good": lambda: figure, "ended": interrupt})

    with pytest.raises(KeyboardInterrupt):
        run.main(json=True)

    assert ["first"] == [each["name"] for each in json.loads(capsys.readouterr().out)["figures"]]


def _program(folder: Path) -> Path:
    folder.mkdir()
    (folder / "claude").write_text("#!/bin/sh\n")
    (folder / "claude").chmod(0o755)
    return folder


def test_an_agent_is_looked_for_in_the_named_folder_then_in_the_checkout_then_on_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    named, checkout, path = (_program(tmp_path / name) for name in ("named", "checkout", "path"))
    monkeypatch.setattr(offline, "CHECKOUT", checkout)
    variables = {offline.BIN_DIR: str(named), "PATH": str(path)}

    assert named / "claude" == offline.program("claude", variables)
    assert checkout / "claude" == offline.program("claude", variables | {offline.BIN_DIR: ""})
    monkeypatch.setattr(offline, "CHECKOUT", tmp_path / "nowhere")
    assert path / "claude" == offline.program("claude", {"PATH": str(path)})
    with pytest.raises(AgentNotFoundError):
        offline.program("claude", {"PATH": str(tmp_path / "nowhere")})


@pytest.mark.parametrize("agent", host_cost.REAL)
def test_a_measured_agent_has_its_own_home_and_no_network_service(agent: str, tmp_path: Path) -> None:
    around, own = offline.create_home(agent, tmp_path)

    folders = [Path(around[name]).resolve() for name in ("HOME", "TMPDIR", "XDG_DATA_HOME", "XDG_CACHE_HOME")]
    assert all(folder.is_dir() and folder.is_relative_to(tmp_path.resolve()) for folder in folders)
    assert not folders[0].is_relative_to(folders[1])
    assert around["HTTPS_PROXY"].startswith("http://127.0.0.1:")
    written = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    urls = [word for text in (*own.values(), *written) for word in text.split('"') if "://" in word]
    assert urls
    assert [] == [url for url in urls if not url.startswith("http://127.0.0.1:")]


PEER = """#!/bin/sh
[ "$1" = --version ] && echo 4.5.6 && exit
[ "$PWD" = "$HOME/work" ] || exit 1
printf 'Go on? '
read -r answer
setsid sleep 600 &
echo "$HOME" >>"$PEER_HOMES"
echo "screen $answer"
exec sleep 600
"""


def test_another_program_is_measured_in_a_home_of_its_own_and_ends_with_all_it_started(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "peer"
    program.parent.mkdir()
    program.write_text(PEER.replace('"$PEER_HOMES"', f"{tmp_path}/homes"))
    program.chmod(0o755)
    peer = peers.Peer(str(program), (str(program),), b"screen yes", (str(program), "--version"), {b"Go on?": b"yes\r"})
    monkeypatch.setattr(peers, "PEERS", {"other": peer, "absent": peers.Peer("no-such-program", (), b"")})
    monkeypatch.setattr(peers, "OURS", peer)
    monkeypatch.setattr(run, "scenes", lambda _rounds, _seconds: {"nothing": list})
    monkeypatch.setattr(peers, "SETTLE_S", 0.1)

    assert 0 == run.main(rounds=1, seconds=0.1, json=True, with_peers=True)

    report = json.loads(capsys.readouterr().out)
    names = ["other 4.5.6: first screen", "other 4.5.6: memory", "other 4.5.6: at rest"]
    assert names == [figure["name"] for figure in report["figures"]]
    assert {"peer-absent": "cannot measure 'absent': 'no-such-program' is not on PATH."} == report["left_out"]
    homes = set((tmp_path / "homes").read_text().splitlines())
    assert 2 == len(homes)
    assert not homes & {system.HERE.read_variables(pid).get("HOME") for pid in psutil.pids()}
    assert not [home for home in homes if Path(home).exists()]


def _talk() -> list[Figure]:
    return event_latency.measure_event_to_screen(1.5, sessions=2, rate_hz=20.0)


def _last_page() -> list[Figure]:
    return long_transcript.measure_last_page(1, events=1000)


def _dialog() -> list[Figure]:
    return [permission_latency.measure_event_to_dialog(2, sessions=3)]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is written here, not by a dashboard after a while; and no dashboard is left to calm down for long."""

    def warm(where: Paths, _own: dict[str, str]) -> None:
        fold, index = FleetIndex(where), FleetCache(where.index)
        index.write(fold, set(fold.sessions), set())
        index.close()

    monkeypatch.setattr(long_transcript, "warm", warm)
    for module in (long_transcript, event_latency, machines):
        monkeypatch.setattr(module, "read_for", lambda terminal, seconds: read_for(terminal, min(seconds, 0.3)))


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("measure", [_talk, _last_page, _dialog], ids=["talk", "last page", "dialog"])
def test_a_real_dashboard_shows_the_screens_that_are_timed(measure: Callable[[], list[Figure]]) -> None:
    figures = measure()

    assert all(figure.value > 0 and figure.samples > 0 for figure in figures)
    assert {"ms"} | {"% of a core"} >= {figure.unit for figure in figures}
    assert figures[0].target in (50, 60, 300)


def test_a_push_and_a_flood_are_measured() -> None:
    [pushed] = push.measure_push(1)
    median, late, memory = flood.measure_flood(10)

    assert (1, 300, "ms") == (pushed.samples, pushed.target, pushed.unit)
    assert pushed.value > 100, "the time in which requests are gathered is part of it"
    assert [(10, 2.0), (10, 2.0)] == [(each.samples, each.target) for each in (median, late)]
    assert all((each.limit or 0) > 0 for each in (median, late))
    assert memory.value > 0


@pytest.mark.nightly
@pytest.mark.usefixtures("hurried")
def test_the_delays_of_another_machine_are_measured_against_its_own() -> None:
    need_server()
    keys = machines.measure_keys(1, "nats", keys=2)
    states, dialog, answer = machines.measure_events(4, "nats", changing=2)

    assert all(" over nats" in each.name and each.value > 0 for each in (keys, states, dialog, answer))
    assert (2, 150, 50) == (keys.target, dialog.target, answer.target)
    assert (states.target or 0) > 30, "the target is the local figure and 30 ms"
    assert (keys.limit or 0) > 0
    assert [2, 2, 4, 4] == [each.samples for each in (keys, states, dialog, answer)]


@pytest.mark.parametrize("transport", ["direct", "ssh", "nats"])
def test_a_machine_is_reached_by_the_way_that_is_measured(transport: Transport) -> None:
    if transport == "ssh":
        sshd.program()
    elif transport == "nats":
        need_server()
    with (
        scratch() as remote,
        create_sessions(remote, 1) as ids,
        scratch() as near,
        joined(near, [remote], ids, transport) as links,
    ):
        words = [process.cmdline() for process in family(links)]
        assert (transport == "ssh") is any("sshd" in each[0] for each in words)
        assert (transport != "nats") is any("--stdio" in each for each in words)
        server = read_server(ClusterFolder(near, CLUSTER)) if transport == "nats" else None
        assert (transport == "nats") is (server is not None)
    assert server is None or not server.is_running()


NO_EXTRA = """
import sys
sys.modules["nkeys"] = None
from kasmon.bench import run
sys.exit(run.main(["machines-nats"]))
"""


def test_a_connection_to_a_machine_that_is_not_available_here_is_left_out_with_the_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = subprocess.run([sys.executable, "-P", "-c", NO_EXTRA], capture_output=True, text=True, check=True)
    assert "machines-nats: not measured: a cluster requires more packages: nkeys is not installed." in done.stdout

    monkeypatch.setattr(machine_links, "PROGRAMS", str(tmp_path))
    tmux = os.environ.get("KASMON_TMUX") or shutil.which("tmux")
    assert tmux is not None
    (tmp_path / "tmux").symlink_to(tmux)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert 0 == run.main(["machines-ssh"])
    assert "machines-ssh: not measured: 'sshd' or 'ssh' is not on PATH." in capsys.readouterr().out


@pytest.mark.web
def test_the_page_of_a_request_is_measured() -> None:
    view, size = page.measure_page(1)

    assert (500, 60) == (view.target, size.target)
    assert view.value > 0
    assert 1 < size.value < 60


def test_the_index_exists_before_it_is_measured_as_warm() -> None:
    with scratch() as where, create_sessions(where, 1) as ids:
        warm(where, environment(where.environment_variables()))
        fold = FleetIndex(where)
        assert load_cache(where.index, fold)
        assert set(ids) == set(fold.sessions)


def test_a_generated_log_has_the_stated_length(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    log.touch()
    long_transcript.lengthen(log, 1000)

    lines = log.read_bytes().splitlines()
    assert 1000 == len(lines)
    assert long_transcript.LAST.encode() in lines[-1]


@pytest.mark.parametrize(
    "measure", [process_cost.held_mb, lambda pid: idle_cost._spent_s([pid])], ids=["memory", "time"]
)
def test_an_exited_process_gives_no_figure(measure: Callable[[int], float]) -> None:
    """It would use nothing, and meet every target: a host that crashed, say."""
    with subprocess.Popen(["true"]) as gone:
        pass

    with pytest.raises(psutil.NoSuchProcess):
        measure(gone.pid)


def test_a_figure_without_a_target_is_shown_and_not_judged() -> None:
    told = Figure(name="weight", value=3.0, unit="MB", limit=2.0, limit_name="bare")

    assert told.met is None
    assert table([told]).splitlines()[-1].split() == ["weight", "3.0", "MB", "2.0", "MB", "bare", "1.50x"]
    assert "NOT MET" in table([Figure(name="late", value=3.0, unit="ms", target=2.0)])


def test_a_figure_shows_the_range_of_the_middle_half_of_its_samples() -> None:
    figure = ratio("start", [10.0, 12.0, 14.0, 16.0, 40.0], [2.0], "bare", None)

    assert 8.5 == figure.spread
    assert "14.0 ± 8.5 ms" in table([figure])


def test_a_table_shows_the_change_since_an_earlier_run(tmp_path: Path) -> None:
    report = tmp_path / "earlier.json"
    report.write_text(json.dumps({"schema": 1, "figures": [{"name": "start", "judged": 2.0, "value": 3.0}]}))
    figures = [
        Figure(name="start", value=3.0, unit="ms", limit=2.0, limit_name="bare"),
        Figure(name="new", value=3.0, unit="MB"),
    ]

    start, new = table(figures, run.read_report(report)).splitlines()[-2:]

    assert ["2.00x", "-25%"] == start.split()[-2:]
    assert ["new", "3.0", "MB", "3.0", "MB"] == new.split()


@pytest.mark.parametrize("text", ["", "{}", '{"figures": [{"name": "start"}]}', '{"figures": [3]}'])
def test_nothing_is_measured_where_the_earlier_run_cannot_be_read(tmp_path: Path, text: str) -> None:
    report = tmp_path / "earlier.json"
    report.write_text(text)
    with pytest.raises(UsageError, match=str(report)):
        run.main(["ls"], compare=report)
    with pytest.raises(UsageError, match="missing"):
        run.main(["ls"], compare=tmp_path / "missing")
