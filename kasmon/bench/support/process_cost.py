"""What processes cost: processor time over a while, and memory."""

import contextlib
import time
from collections.abc import Sequence

import psutil


def share_of_a_core(pids: Sequence[int], seconds: float) -> float:
    """What *pids* use together over *seconds*, in percent of one core; their children only where they are named."""
    processes = [psutil.Process(pid) for pid in pids]
    before = sum(_spent(process) for process in processes)
    began = time.perf_counter()
    time.sleep(seconds)
    after = sum(_spent(process) for process in processes)
    return 100.0 * (after - before) / (time.perf_counter() - began)


def memory_mb(pid: int) -> float:
    """What the process *pid* and its children hold in memory together, in MB; pages they share count once."""
    return sum(_held(process) for process in family([pid])) / 1e6


def held_mb(pid: int) -> float:
    """What the process *pid* holds by itself, its children left out, in MB."""
    return _held(psutil.Process(pid)) / 1e6


def family(pids: Sequence[int]) -> list[psutil.Process]:
    """The processes *pids* and all below them, each once."""
    found: dict[int, psutil.Process] = {}
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            found.update({p.pid: p for p in (process, *process.children(recursive=True))})
    return list(found.values())


def _spent(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0


def _held(process: psutil.Process) -> float:
    """The proportional share where the system tells (Linux), else what is resident."""
    with contextlib.suppress(psutil.Error):
        return float(getattr(process.memory_full_info(), "pss", 0) or process.memory_info().rss)
    return 0.0
