"""Processes that are stopped all at once and go on as if nothing had been: by signals, and by a control group."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kasmon.sandbox.jail import cgroup
from kasmon.sandbox.shared import processes
from kasmon.sandbox.shared.processes import children, tree
from kasmon.system.linux import fields
from tests.sandbox.conftest import JailedAgent, command_of, cpu_s
from tests.support.sandbox.full_disk import full_disk
from tests.support.wait import until

Make = Callable[..., JailedAgent]

BUSY = "import os, time\n{}\nprint('ready', flush=True)\nwhile True: time.sleep(0.002)"
BREEDS = """
import os, time
print('ready', flush=True)
for _ in range(300):
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            time.sleep(60)
        os._exit(0)
    os.waitpid(child, 0)
time.sleep(60)
"""
REAPS = """
import ctypes, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
sys.exit(subprocess.run([sys.executable, '-c', sys.argv[1]]).returncode)
"""
STOPS_ONE = """
if (child := os.fork()) == 0:
    os.kill(os.getpid(), 19)
    time.sleep(60)
os.waitpid(child, os.WUNTRACED)
"""


class Family:
    """A process of this test that starts others, with a subreaper above them all so that none gets away."""

    def __init__(self, code: str) -> None:
        self.child = subprocess.Popen([sys.executable, "-c", REAPS, code], stdout=subprocess.PIPE)

    def ready(self) -> "Family":
        assert self.child.stdout is not None
        assert self.child.stdout.readline().startswith(b"ready")
        return self

    @property
    def pids(self) -> list[int]:
        return tree(self.child.pid)

    def switches(self) -> int:
        """How often they came to run."""
        status = [Path(f"/proc/{pid}/status").read_text() for pid in self.pids]
        return sum(int(line.split()[1]) for text in status for line in text.splitlines() if "ctxt_switches" in line)

    def end(self) -> None:
        """Kill them all, whoever is born meanwhile too; the one above them all is last."""
        while below := self.pids[1:]:
            for pid in below:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.child.send_signal(signal.SIGCONT)
            if states(below) <= {b"Z"}:
                break
        self.child.kill()
        self.child.wait()
        assert self.child.stdout is not None
        self.child.stdout.close()


@pytest.fixture
def family() -> Iterator[Callable[[str], Family]]:
    made: list[Family] = []

    def make(code: str) -> Family:
        made.append(Family(code))
        return made[-1].ready()

    yield make
    for each in made:
        each.end()


def states(pids: list[int]) -> set[bytes]:
    return {told[0] for pid in pids if (told := fields(pid))}


def test_all_processes_of_a_group_are_paused_and_continue(family: Callable[[str], Family]) -> None:
    busy = family(BUSY.format("os.fork(); os.fork()"))
    stopped = cgroup.stop_tree(busy.child.pid)
    assert stopped is not None
    before = busy.switches()

    assert set(busy.pids) == set(stopped[0])
    assert {b"T"} == states(busy.pids)
    assert before == busy.switches()
    cgroup.continue_tree(busy.child.pid)
    until(lambda: busy.switches() > before)
    assert not states(busy.pids) & {b"T"}


def test_no_process_is_forked_during_the_pause(family: Callable[[str], Family]) -> None:
    """It forks as fast as it can, and its children lose their parents."""
    breeding = family(BREEDS)
    stopped = cgroup.stop_tree(breeding.child.pid)
    assert stopped is not None

    first, second = breeding.pids, breeding.pids
    assert first == second
    assert states(first) <= {b"T", b"Z"}
    assert set(first) <= set(stopped[0])


def test_a_single_scan_would_not_be_enough(family: Callable[[str], Family], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without looking again until nobody new is found, somebody gets away."""
    looked: dict[int, list[int]] = {}

    def as_at_first(pid: int) -> list[int]:
        if pid not in looked:  # the first of a family: one look at all of it
            fresh = [pid]
            while fresh:
                looked.update({each: list(children(each)) for each in fresh})
                fresh = [child for each in fresh for child in looked[each]]
        return looked[pid]

    monkeypatch.setattr(cgroup, "children", as_at_first)

    def gets_away() -> bool:
        breeding = family(BREEDS)
        cgroup.stop_tree(breeding.child.pid)
        return bool(states(breeding.pids) - {b"T", b"Z"})

    assert any(gets_away() for _ in range(30))


def test_a_process_stopped_before_stays_stopped(family: Callable[[str], Family]) -> None:
    one = family(BUSY.format(STOPS_ONE))
    stopped = cgroup.stop_tree(one.child.pid)
    assert stopped is not None
    everybody, before = stopped
    cgroup.continue_processes(everybody, before)

    assert 1 == len(before)
    assert {b"T"} == states(before)
    assert not states([pid for pid in one.pids if pid not in before]) & {b"T"}
    cgroup.continue_tree(one.child.pid)


def test_on_a_full_disk_groups_without_stopped_processes_are_paused(
    family: Callable[[str], Family], tmp_path: Path
) -> None:
    busy, note = family(BUSY.format("os.fork()")), tmp_path / "stopped.json"
    note.write_text("[1]")  # left by another time
    with full_disk():
        assert cgroup.freeze_jail(busy.child.pid, None, note)

    assert {b"T"} == states(busy.pids)
    assert not note.exists()
    cgroup.unfreeze_jail(busy.child.pid, None, note)
    until(lambda: not states(busy.pids) & {b"T"})


def test_if_stopped_processes_cannot_be_logged_all_continue(family: Callable[[str], Family], tmp_path: Path) -> None:
    mixed = family(BUSY.format(STOPS_ONE))
    with full_disk(), pytest.raises(OSError, match="too large"):
        cgroup.freeze_jail(mixed.child.pid, None, tmp_path / "stopped.json")

    until(lambda: 1 == len([pid for pid in mixed.pids if b"T" in states([pid])]))


def test_a_process_that_does_not_stop_lets_all_continue(
    family: Callable[[str], Family], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = family(BUSY.format("os.fork()"))
    monkeypatch.setattr(cgroup, "is_stopped", lambda pid: False)

    assert cgroup.stop_tree(busy.child.pid, limit_s=0.05) is None
    until(lambda: not states(busy.pids) & {b"T"})


def test_children_are_found_also_if_the_kernel_does_not_list_them(
    family: Callable[[str], Family], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = family(BUSY.format("os.fork(); os.fork()"))
    listed = until(lambda: len(pids := set(busy.pids)) == 5 and pids)
    monkeypatch.setattr(processes, "TELLS_CHILDREN", False)

    assert listed == set(busy.pids)


# In a jail.


def counts(one: JailedAgent) -> None:
    """Something that counts on inside, in a file."""
    one.run(
        "import os, time\nif os.fork() == 0:\n    os.setsid(); [os.close(each) for each in (0, 1, 2)]\n    number = 0\n"
        "    while True:\n        number += 1\n        time.sleep(0.005)\n"
        "        file = os.open('/workspace/new', os.O_CREAT | os.O_WRONLY | os.O_TRUNC)\n"
        "        os.write(file, b'%d' % number); os.close(file); os.rename('/workspace/new', '/workspace/count')"
    )


def counted(one: JailedAgent) -> int:
    path = one.workspace / "count"
    return int(path.read_text()) if path.exists() else 0


@pytest.mark.sandboxes
@pytest.mark.parametrize("grouped", [True, False], ids=["by a group", "by signals"])
def test_a_jail_is_paused_and_resumes_with_its_whole_state(
    jailed_agent: Make, monkeypatch: pytest.MonkeyPatch, grouped: bool
) -> None:
    if not grouped:
        monkeypatch.setattr(cgroup, "find_group", lambda *_: None)
    elif cgroup.find_group("a" * 8) is None:
        pytest.skip("no control group can be made here")
    one = jailed_agent()
    counts(one)
    until(lambda: counted(one))
    slept = one.jail.pause(one.policy, one.runtime)
    before, used_s = counted(one), cpu_s(one.runtime.pid)

    assert slept.held
    assert one.lives()
    one.jail.pause(one.policy, one.runtime)  # twice is once
    assert used_s == cpu_s(one.runtime.pid)
    assert before == counted(one)
    assert one.runtime == one.jail.resume(one.policy, one.runtime, slept)
    until(lambda: counted(one) > before)
    assert "2" == one.run("print(1 + 1)").out.strip()


@pytest.mark.sandboxes
@pytest.mark.parametrize("grouped", [True, False], ids=["by a group", "by signals"])
def test_a_paused_jail_can_be_destroyed(jailed_agent: Make, monkeypatch: pytest.MonkeyPatch, grouped: bool) -> None:
    if not grouped:
        monkeypatch.setattr(cgroup, "find_group", lambda *_: None)
    one = jailed_agent()
    counts(one)
    pids = tree(one.runtime.pid)
    one.jail.pause(one.policy, one.runtime)
    one.jail.destroy(one.policy, one.runtime)

    assert not one.lives()
    assert states(pids) <= {b"Z", b"X"}


@pytest.mark.sandboxes
def test_a_shell_in_the_guest_does_not_detect_the_pause(jailed_agent: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell with job control would take its child for one that a person stopped."""
    monkeypatch.setattr(cgroup, "find_group", lambda *_: None)
    one = jailed_agent()
    one.run(
        "import os, subprocess\nif os.fork() == 0:\n    os.setsid(); [os.close(each) for each in (0, 1, 2)]\n"
        "    script = 'set -m; touch began; read line < one; cat two > /dev/null; echo \"done $? $(jobs)\" > ended'\n"
        "    subprocess.run(['mkfifo', 'one', 'two']); subprocess.run(['bash', '-c', script])"
    )
    until(lambda: (one.workspace / "began").exists() and len(tree(one.runtime.pid)) >= 4)
    one.jail.resume(one.policy, one.runtime, one.jail.pause(one.policy, one.runtime))
    one.run("open('one', 'w').write('line\\n')")
    until(lambda: b"cat\0two\0" in [command_of(pid) for pid in tree(one.runtime.pid)])
    one.jail.resume(one.policy, one.runtime, one.jail.pause(one.policy, one.runtime))
    one.run("open('two', 'w').close()")

    ended = one.workspace / "ended"
    assert "done 0 \n" == until(lambda: ended.exists() and ended.read_text())
