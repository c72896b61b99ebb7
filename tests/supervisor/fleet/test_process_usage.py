"""What the processes of sessions use: real processes."""

import os
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.model.session import HostProbe, Session
from kasmon.model.session_state import SessionState
from kasmon.supervisor.fleet import process_usage
from kasmon.supervisor.fleet.process_usage import MemoryCache, ProcessTree, find_root, read_usage
from kasmon.system.base import ProcessUsage

HOLDS = "import subprocess, sys\nheld = bytes(range(256)) * (200_000)\n"
AGENT = f"{HOLDS}child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=-1)\nchild.stdout.readline()\n"
WAITS = "print('ready', flush=True)\ninput()\n"


@pytest.fixture
def agent() -> Iterator[subprocess.Popen[str]]:
    """A process of over 50 MB, with a child of as much."""
    argv = [sys.executable, "-c", AGENT + WAITS, HOLDS + WAITS]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert "ready\n" == process.stdout.readline()
    yield process
    process.communicate("\n\n")


def test_a_session_uses_what_all_its_processes_use_and_not_what_another_session_does(
    agent: subprocess.Popen[str],
) -> None:
    runs = Session(id=SessionId("aaaa"), mode=Mode.TMUX, state=SessionState.IDLE, generation=1, pid=agent.pid)
    caller = msgspec.structs.replace(runs, id=SessionId("bbbb"), pid=os.getppid())
    gone = msgspec.structs.replace(runs, id=SessionId("cccc"), pid=2**22 + 1)

    usages = read_usage([runs, caller, gone])

    assert {"aaaa", "bbbb"} == set(usages)
    assert (2, True) == (usages[runs.id].processes, 2 * 51_000_000 < usages[runs.id].memory_bytes < 2 * 90_000_000)
    assert usages[runs.id].processor_s > 0


def test_memory_is_read_again_after_it_changed_or_another_process_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def proportional(pid: int, tree: ProcessTree) -> int:
        read.append(pid)
        return 7

    monkeypatch.setattr(process_usage, "_proportional", proportional)
    cache = MemoryCache()

    def memory(resident: dict[int, int]) -> tuple[list[int], list[int]]:
        read.clear()
        tree = ProcessTree({pid: ProcessUsage(1, 0.0, size) for pid, size in resident.items()})
        cache.begin(frozenset(resident))
        return [cache.read(pid, tree) for pid in resident], [*read]

    assert ([7, 7], [10, 11]) == memory({10: 500, 11: 600})
    assert ([7, 7], []) == memory({10: 500, 11: 600})
    assert ([7, 7], [11]) == memory({10: 500, 11: 601})
    assert ([7], [10]) == memory({10: 500})
    assert ([7, 7], [10, 12]) == memory({10: 500, 12: 601})


def test_only_processes_of_this_machine_that_run_are_read() -> None:
    runs = Session(id=SessionId("aaaa"), mode=Mode.SDK, state=SessionState.IDLE, generation=1, pid=7)
    put = msgspec.structs.replace

    assert 9 == find_root(put(runs, host=HostProbe(pid=9, alive=True)))
    assert 7 == find_root(put(runs, host=HostProbe(pid=9, alive=False)))
    assert None is find_root(put(runs, state=SessionState.HIBERNATED))
    assert None is find_root(put(runs, via="gpu-1"))
