"""The check of a task whose plan runs on another machine: a process of its own, which a cut line does not end.

Its files are in the folder of the task's claim. It holds its lock while it runs, so no check runs twice at once.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import UsageError
from kasmon.host.journal import process_log
from kasmon.host.rpc import secret_stdin
from kasmon.host.rpc.host_lock import HostLock, lock_holder
from kasmon.host.rpc.spawn import spawn_task_check
from kasmon.model.plan.events import TaskChecked, TaskChecking
from kasmon.model.plan.plan import GIT_LOCAL
from kasmon.paths import Paths, write_private
from kasmon.supervisor.plans.machines.task_requests import CheckState

ENDING_S: Final = 5.0


class CheckOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What the process runs."""

    task: str
    attempt: int
    command: str
    workdir: str
    variables: dict[str, str]
    """Added to those of this machine's kasmon."""
    limit_s: float


def build_variables(plan: str, number: int, wave: int, session: str) -> dict[str, str]:
    """Return the variables by which a check finds its task."""
    own = {"PLAN": plan, "TASK": str(number), "WAVE": str(wave), "SESSION": session}
    return {f"KASMON_{name}": value for name, value in own.items()}


class TaskCheck:
    """The check of one attempt, as placed once; *order* is its file, and the others are beside that."""

    def __init__(self, order: Path) -> None:
        self._order = order
        self._result, self._process = order.with_suffix(".result"), order.with_suffix(".process")
        self._lock = order.with_suffix(".lock")

    def start(self, paths: Paths, order: CheckOrder) -> None:
        """Start it unless it runs, or has ended. Raises `OSError` if no process can be started."""
        if self._result.exists() or lock_holder(self._lock) is not None:
            return
        write_private(self._order, msgspec.json.encode(order))
        spawn_task_check(paths, self._order)

    def read(self) -> CheckState:
        """Return its state."""
        try:
            checked = msgspec.json.decode(self._result.read_bytes(), type=TaskChecked)
        except FileNotFoundError:
            return CheckState(has_ended=False)
        return CheckState(
            has_ended=True,
            is_passed=checked.ok,
            exit_code=checked.exit_code,
            why=checked.why,
            output=checked.output,
            took_s=checked.took_s,
        )

    def end(self) -> None:
        """End it, with all that it started; it cannot be started again. Blocks."""
        self._order.unlink(missing_ok=True)
        deadline = time.monotonic() + ENDING_S
        while (pid := lock_holder(self._lock)) is not None and time.monotonic() < deadline:
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        self._end_orphan()

    def run(self) -> None:
        """Run it in this process, and store its result; do nothing if another process does, or it has ended."""
        lock = HostLock(self._lock)
        if not lock.acquire():
            return
        try:
            if self._result.exists() or not self._order.exists():
                return
            order = msgspec.json.decode(self._order.read_bytes(), type=CheckOrder)
            self._end_orphan()
            import asyncio  # only here: commands of tasks do without

            from kasmon.supervisor.plans.check import run_check

            variables = {name: value for name, value in os.environ.items() if name not in GIT_LOCAL} | order.variables
            checked = asyncio.run(
                run_check(
                    order.task,
                    order.attempt,
                    order.command,
                    order.workdir,
                    variables,
                    self._note_process,
                    order.limit_s,
                )
            )
            write_private(self._result, msgspec.json.encode(checked), durable=True)
        finally:
            lock.let_go()

    async def _note_process(self, checking: TaskChecking) -> None:
        write_private(self._process, msgspec.json.encode(checking), durable=True)

    def _end_orphan(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            left = msgspec.json.decode(self._process.read_bytes(), type=TaskChecking)
            from kasmon.supervisor.plans.check import end_orphaned_check  # loads asyncio and psutil

            end_orphaned_check(left)


def main(argv: Sequence[str]) -> int:
    """Run the check whose order is the file that is the only argument."""
    if len(argv) != 1:
        sys.stderr.write("a task's check requires the file of its order.\n")
        return UsageError.exit_code
    os.umask(0o077)
    process_log.configure()
    secret_stdin.load_environment()
    TaskCheck(Path(argv[0])).run()
    return 0
