"""What both implementations answer about real processes of this machine. psutil and `ps` read them without /proc."""

import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.system.base import System
from kasmon.system.linux import Linux
from kasmon.system.macos import MacOS
from tests.support.wait import until

SLEEPER = "import sys; print('up', flush=True); open(sys.argv[1]); file = open(sys.argv[1]); sys.stdin.read()"


@pytest.fixture(
    params=[pytest.param(Linux(), marks=pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")), MacOS()],
    ids=["linux", "macos"],
)
def here(request: pytest.FixtureRequest) -> System:
    found: System = request.param
    return found


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a variable, a folder and an open file of its own, that waits for ever."""
    (tmp_path / "file").touch()
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPER, str(tmp_path / "file")],
        env={**os.environ, "A_MARK": "1=2"},
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as started:
        assert started.stdout is not None
        started.stdout.readline()
        try:
            yield started
        finally:
            started.kill()


def test_a_process_is_described_by_its_fields(here: System, process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    pid = process.pid
    facts = tmp_path.stat()

    assert pid in here.list_pids()
    assert (os.getpid(), pid, pid, False) == here.read_stat(pid)
    assert "1=2" == here.find_variable(pid, "A_MARK") == here.read_variables(pid)["A_MARK"]
    assert here.find_variable(pid, "NO_MARK") is None
    assert str(tmp_path / "file") == here.read_arguments(pid)[-1]
    assert str(tmp_path) == here.read_folder(pid)
    assert (facts.st_dev, facts.st_ino) == here.locate_folder(pid)
    until(lambda: here.is_waiting(pid))
    until(lambda: str(tmp_path / "file") in dict(here.list_open_files(pid)))
    assert here.count_open_files(pid) in {0, len(list(here.list_open_files(pid)))}
    assert not here.is_in_foreground(pid)


def test_its_start_is_a_time_and_a_text(here: System, process: subprocess.Popen[bytes]) -> None:
    started = here.read_start(process.pid)

    assert started is not None
    assert abs(time.time() - here.convert_start(started)) < 3600
    assert here.read_start_text(process.pid)
    assert here.read_start_text(process.pid).isdecimal() is here.reports_ticks


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere start times are times of day")
@pytest.mark.parametrize("stalled", range(3))
def test_its_start_is_right_where_the_machine_was_busy_between_two_clocks(
    stalled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what an agent left is taken for older than its start, and goes on, or for younger, and is ended."""
    reads, up_s = itertools.count(), [50.0]

    def read(since: float) -> float:
        seen, up_s[0] = since + up_s[0], up_s[0] + (0.5 if next(reads) == stalled else 0.0)
        return seen

    with monkeypatch.context() as clocks:
        clocks.setattr(time, "time", lambda: read(1000.0))
        clocks.setattr(time, "clock_gettime", lambda _clock: read(0.0))
        assert 1007.0 == Linux().convert_start(7.0)


def test_it_is_in_the_lists_of_all_processes(here: System, process: subprocess.Popen[bytes]) -> None:
    entry, usage = dict(here.list_processes())[process.pid], dict(here.measure_processes())[process.pid]

    assert (os.getpid(), process.pid, "python") == (entry.parent, entry.group, entry.name[:6])
    assert os.getpid() == usage.parent
    assert usage.resident_bytes > 1_000_000


def test_an_exited_process_has_no_values(here: System, process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    pid = process.pid

    assert [None] * 3 == [here.read_stat(pid), here.read_start(pid), here.locate_folder(pid)]
    assert ["", "", {}, []] == [
        here.read_start_text(pid),
        here.read_folder(pid),
        here.read_variables(pid),
        list(here.read_arguments(pid)),
    ]
    assert not here.is_waiting(pid)
    assert not here.is_in_foreground(pid)
    assert here.count_open_files(pid) == 0
    with pytest.raises(OSError, match=r"."):
        list(here.list_open_files(pid))


@pytest.mark.skipif(sys.platform != "linux", reason="asks this kernel")
def test_linux_reports_the_peer_the_end_of_a_process_and_an_open_folder(
    process: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    ours, theirs = socket.socketpair()
    folder = os.open(tmp_path, os.O_RDONLY)
    handle = Linux().open_exit_handle(process.pid)
    try:
        assert (os.geteuid(), os.getpid()) == Linux().identify_peer(ours)
        assert str(tmp_path) == Linux().find_path(folder)
        process.kill()
        process.wait()
        import select

        assert [handle] == select.select([handle], [], [], 10)[0]
    finally:
        handle.close()
        os.close(folder)
        ours.close()
        theirs.close()
