"""The demo: alive within seconds, every state that can be reached, nothing of the user's touched, nothing left."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from kasmon.demo.cast import CAST, DemoAgent, cast
from kasmon.demo.fleet import MACHINES
from kasmon.demo.populate import populate
from kasmon.demo.scratch import Scratch, scratch_paths, sweep
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.session_state import SessionState
from kasmon.paths import user_paths
from kasmon.scripted_agent.script import parse
from kasmon.scripted_agent.steps import BadStep
from kasmon.store.machines import read_machine
from kasmon.supervisor.fleet.snapshot import read_fleet
from tests.support.bus.server_programs import need_server
from tests.support.cli.fork_server import KASMON
from tests.support.tui.demo_terminal import DemoTerminal, run
from tests.support.wait import until


@pytest.fixture
def outside() -> Iterator[DemoTerminal]:
    with DemoTerminal() as made:
        yield made


@pytest.mark.parametrize("part", [part for part in CAST if part.script], ids=lambda part: part.name)
def test_every_script_of_the_cast_is_valid(part: Any) -> None:
    assert [] == [step for step in parse(part.script) if isinstance(step, BadStep)]


def test_the_cast_has_twelve_agents_in_both_modes_and_two_waves_with_peers() -> None:
    agents = [part for part in cast(12) if part.script]

    assert 12 == len(agents)
    assert {"sdk", "tmux"} == {part.mode for part in agents}
    assert {1: 4, 2: 3} == Counter(part.wave for part in agents if part.wave)
    assert all(part.peers == {1: 4, 2: 3}[part.wave] for part in agents if part.wave)


def test_a_larger_demo_has_more_agents_and_a_smaller_one_the_first() -> None:
    assert 40 == sum(bool(part.script) for part in cast(40))
    assert [part.name for part in CAST[:3]] == [part.name for part in cast(3)]


@pytest.mark.parametrize("mode", ["sdk", "no mode at all"], ids=["nothing to run", "not foreseen"])
def test_an_agent_that_cannot_start_is_reported_and_delays_no_other(tmp_path: Path, mode: Any) -> None:
    above = DemoAgent(name="above", mode=mode)
    below = DemoAgent(name="below", mode="sdk", parent="above"), DemoAgent(name="lowest", mode="sdk", parent="below")

    failures = asyncio.run(populate(scratch_paths(tmp_path), [above, *below], 1))

    assert ["above", "below", "lowest"] == [failure.partition(": ")[0] for failure in failures]


@pytest.mark.story
@pytest.mark.timeout(120)
def test_a_headless_demo_ends_with_the_whole_fleet_as_json_and_its_picture_and_leaves_nothing(
    outside: DemoTerminal,
) -> None:
    svg = outside.folder / "fleet.svg"
    printed = run((*KASMON, "demo", "--headless", "8", "--svg", str(svg)), outside.environment)

    sessions = json.loads(printed.splitlines()[-1])["sessions"]
    states = Counter(session["state"] for session in sessions)
    assert {"starting", "idle", "asking", "limited", "unsure", "lost", "ended"} <= set(states)
    assert {"working", "idle"} & set(states)
    asked = [session for session in sessions if session["asking"] == "permission" and session["mode"] == "sdk"]
    assert 4 == len(asked)
    assert any(session["exit_code"] == 139 for session in sessions)
    assert "billing" in svg.read_text("utf-8")
    assert [] == outside.records()
    assert [] == [*(outside.folder / "t").iterdir()]


@pytest.mark.story
@pytest.mark.timeout(120)
def test_files_left_by_a_demo_killed_with_9_are_removed_by_the_next_start(outside: DemoTerminal) -> None:
    demo = subprocess.Popen(
        (*KASMON, "demo", "--headless", "60"),
        env=outside.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    inside = Path(until(outside.records, what="the demo's record")[0].folder)
    hosts = until(lambda: [p for path in inside.glob("s/kasmon/**/*.lock") if (p := lock_holder(path))], what="hosts")
    os.kill(demo.pid, signal.SIGKILL)
    demo.wait()

    # a process that it forked, and that is not another program yet, still holds the record's lock
    assert [inside] == until(lambda: sweep(user_paths(outside.environment)), what="the demo's end")

    assert not inside.exists()
    assert [] == outside.records()
    assert [] == [pid for pid in hosts if Path(f"/proc/{pid}/cmdline").exists() and _is_ours(pid)]


@pytest.mark.story
@pytest.mark.timeout(180)
def test_a_fleet_has_a_request_on_each_of_three_machines_and_after_a_kill_with_9_nothing_is_left(
    outside: DemoTerminal,
) -> None:
    need_server()
    demo = subprocess.Popen(
        (*KASMON, "demo", "--fleet", "--agents", "3", "--headless", "120"),
        env=outside.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    inside = Path(until(outside.records, what="the demo's record")[0].folder)

    def asking() -> set[str]:
        sessions = read_fleet(scratch_paths(inside)).sessions
        return {session.via for session in sessions if session.state is SessionState.ASKING}

    until(lambda: asking() == set(MACHINES), 60.0, "a request on each machine")
    assert {"demo"} == {read_machine(scratch_paths(inside), name).cluster for name in MACHINES[1:]}
    held = until(lambda: [p for path in inside.glob("**/*.lock") if (p := lock_holder(path))], what="their processes")
    os.kill(demo.pid, signal.SIGKILL)
    demo.wait()

    assert [inside] == sweep(user_paths(outside.environment))
    assert not inside.exists()
    assert len(held) >= 6, "three hosts, two links, and the service of the cluster"
    assert [] == [pid for pid in psutil.pids() if _names(pid, inside)]
    assert [] == [pid for pid in held if Path(f"/proc/{pid}/cmdline").exists() and _is_ours(pid)]


def test_a_running_demo_is_not_removed(outside: DemoTerminal, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in outside.environment.items():
        monkeypatch.setenv(name, value)
    scratch = Scratch(user_paths())
    try:
        assert [] == sweep(user_paths())
        assert scratch_paths(scratch.folder).state.is_dir()
    finally:
        scratch.close()
    assert not scratch.folder.exists()


def _names(pid: int, folder: Path) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(str(folder) in word for word in psutil.Process(pid).cmdline())
    return False


def _is_ours(pid: int) -> bool:
    return b"kasmon" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_the_fleet_starts_without_the_packages_of_a_cluster() -> None:
    absent = "import sys; sys.modules['nkeys'] = None; import kasmon.demo.fleet"
    subprocess.run([sys.executable, "-P", "-c", absent], check=True)
