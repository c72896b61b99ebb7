"""The cost of processes: processor time over a period, and memory."""

import contextlib
import subprocess
import time
from collections.abc import Mapping, Sequence

import psutil

from kasmon.bench.support.figure import took_ms


def share_of_a_core(pids: Sequence[int], seconds: float) -> float:
    """Measure the total use of *pids* over *seconds*, in percent of one core; children count only if listed."""
    processes = [psutil.Process(pid) for pid in pids]
    before = sum(_measure_time(process) for process in processes)
    began = time.perf_counter()
    time.sleep(seconds)
    after = sum(_measure_time(process) for process in processes)
    return 100.0 * (after - before) / (time.perf_counter() - began)


def run_ms(argv: Sequence[str], own: Mapping[str, str], *, check: bool = False) -> float:
    """Run *argv* without output and return how long it took, in ms.

    Raises:
        CalledProcessError: with *check*, if it failed.
    """
    null = subprocess.DEVNULL
    return took_ms(lambda: subprocess.run(argv, env=dict(own), stdout=null, stderr=null, check=check))


def processor_s(pid: int) -> float:
    """Return the processor time that process *pid* has used, in seconds; 0 if it is gone."""
    with contextlib.suppress(psutil.Error):
        return _measure_time(psutil.Process(pid))
    return 0.0


def memory_mb(pid: int) -> float:
    """Return the memory of process *pid* and its children, in MB; shared pages count once."""
    return sum(_measure_memory(process) for process in family([pid])) / 1e6


def held_mb(pid: int) -> float:
    """Return the memory of process *pid* without its children, in MB.

    Raises:
        psutil.NoSuchProcess: if it is gone; 0 would meet every target.
    """
    return _measure_memory(psutil.Process(pid)) / 1e6


def family(pids: Sequence[int]) -> list[psutil.Process]:
    """Return the processes *pids* and all their descendants, each once."""
    found: dict[int, psutil.Process] = {}
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            found.update({p.pid: p for p in (process, *process.children(recursive=True))})
    return list(found.values())


def _measure_time(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0


def _measure_memory(process: psutil.Process) -> float:
    """Return the proportional set size where the system reports it (Linux), else the resident set size."""
    with contextlib.suppress(psutil.Error):
        return float(getattr(process.memory_full_info(), "pss", 0) or process.memory_info().rss)
    return 0.0
