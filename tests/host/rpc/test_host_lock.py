"""Nobody is taken for the agent who is not: a process is its id, its start time and its boot together."""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kasmon.boot_id import boot
from kasmon.host.rpc import host_lock
from kasmon.host.rpc.host_lock import HostLock, lock_holder
from kasmon.process_identity import is_running, started_at
from tests.support.wait import until


def test_a_running_process_is_identified_by_its_id_start_and_boot() -> None:
    born = started_at(os.getpid())
    assert born is not None

    assert is_running(os.getpid(), born, boot())
    assert is_running(os.getpid(), born)
    assert not is_running(os.getpid(), born - 1, boot())
    assert not is_running(os.getpid(), born, "another boot")


def test_a_process_without_a_known_start_counts_as_exited() -> None:
    assert not is_running(os.getpid(), None, boot())
    assert not is_running(None, None)


def test_an_exited_process_is_gone_also_before_its_parent_reaps_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    born = started_at(child.pid)
    assert is_running(child.pid, born, boot())
    assert child.stdin
    child.stdin.close()

    until(lambda: not is_running(child.pid, born, boot()))
    child.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere start times are times of day")
def test_start_times_restart_with_each_boot_so_the_boot_counts_too() -> None:
    """So a process of after a reboot can have both the id and the start time of one from before."""
    born, up_s = started_at(os.getpid()), float(Path("/proc/uptime").read_text().split()[0])

    assert born is not None
    assert 0 < born < up_s
    assert Path("/proc/sys/kernel/random/boot_id").read_text().strip() == boot()


def test_a_lock_that_is_only_probed_is_taken_however_long_that_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a process that a busy machine interrupts while it looks keeps a host from starting."""
    path = tmp_path / "lock"
    path.touch()
    probe = os.open(path, os.O_RDONLY)
    fcntl.flock(probe, fcntl.LOCK_SH)
    lock = HostLock(path)
    monkeypatch.setattr(time, "sleep", lambda _pause_s: fcntl.flock(probe, fcntl.LOCK_UN))

    assert lock.acquire(wait_s=-1)
    assert os.getpid() == lock_holder(path)
    lock.let_go()
    os.close(probe)


def test_a_held_lock_is_waited_for_within_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = HostLock(tmp_path / "lock")
    assert held.acquire()
    monkeypatch.setattr(time, "sleep", lambda _pause_s: pytest.fail("it waits"))

    assert not HostLock(tmp_path / "lock").acquire(wait_s=-1)
    held.let_go()


def test_a_probe_that_never_ends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    path.touch()
    probe = os.open(path, os.O_RDONLY)
    fcntl.flock(probe, fcntl.LOCK_SH)
    monkeypatch.setattr(time, "sleep", lambda _pause_s: pytest.fail("it waits"))

    assert not HostLock(path).acquire(wait_s=-host_lock.STALLED_S - 1)
    os.close(probe)
