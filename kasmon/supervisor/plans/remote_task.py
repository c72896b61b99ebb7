"""Tasks on other machines, for the plan's runner: their folder, result and check there.

A check that an earlier runner began there continues without it; the next runner waits for the same check.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from kasmon.errors import KasmonError, RemoteLaunchError, RemoteUnreachableError
from kasmon.model.plan.events import TaskChecked, TaskChecking
from kasmon.model.plan.plan import CHECK_LIMIT_S, Plan, Task, host_of
from kasmon.model.plan.progress import PlanRun
from kasmon.sanitize import clean_block
from kasmon.supervisor.plans.check import KEPT_BYTES
from kasmon.tmux.remote import task as remote_task
from kasmon.tmux.remote.ssh import RemoteMachine, ssh_environment

HOME: Final = ""
"""The folder in which tasks work there: the home folder."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.3, 5.0
"""How long to wait before the machine is asked again, in seconds; doubling in between."""
ENDING_S: Final = (0.1, 0.3, 1.0, 3.0)
"""How long to wait before each test whether an ended check is gone there, in seconds."""

log = logging.getLogger(__name__)


class RemoteTasks:
    """The machines that the tasks of one plan run on. Methods raise `RemoteUnreachableError` or `RemoteLaunchError`."""

    def __init__(self, ssh: tuple[str, ...]) -> None:
        self._ssh = ssh

    def machine(self, plan: Plan, run: PlanRun, task: Task) -> RemoteMachine | None:
        """Return the machine where *task* runs; None for this one."""
        host = host_of(plan, task, run.of(task.id).agent)
        return RemoteMachine(host, self._ssh) if host else None

    async def lay_out(self, machine: RemoteMachine, task: Task) -> None:
        """Create the folder there for the result of *task*."""
        await asyncio.to_thread(remote_task.lay_out, machine, HOME, task.number, ssh_environment())

    async def result(self, machine: RemoteMachine, task: Task, longest: int) -> str:
        """Return the result of *task* there, at most *longest* bytes; may be empty."""
        return await asyncio.to_thread(remote_task.result, machine, HOME, task.number, longest, ssh_environment())

    async def check(
        self,
        machine: RemoteMachine,
        task: Task,
        attempt: int,
        session: str,
        variables: Mapping[str, str],
        begins: Callable[[TaskChecking], Awaitable[None]],
        limit_s: float = CHECK_LIMIT_S,
    ) -> TaskChecked:
        """Run the check of *task* there and return its result; *begins* logs that it begins, as for `run_check`.

        *limit_s*: how long it may take, in seconds, including time without a connection. It raises nothing.
        """
        began, unreachable = time.monotonic(), ""
        has_begun, pause_s = False, FIRST_PAUSE_S

        def build_result(exit_code: int | None, why: str, output: str = "") -> TaskChecked:
            cleaned = clean_block(output).encode()[-KEPT_BYTES:].decode("utf-8", "ignore")
            took_s = time.monotonic() - began
            return TaskChecked(
                at=time.time(),
                task=task.id,
                attempt=attempt,
                ok=exit_code == 0,
                exit_code=exit_code,
                why=why,
                output=cleaned,
                took_s=took_s,
            )

        await begins(TaskChecking(at=time.time(), task=task.id, attempt=attempt, machine=machine.host))
        while time.monotonic() < began + limit_s:
            try:
                answer, shown = await asyncio.to_thread(remote_task.check, machine, session, ssh_environment())
                unreachable = ""
                if answer.state == "ended":
                    by_signal = f"it was ended by signal {answer.signal}" if answer.signal else ""
                    return build_result(answer.exit_code, by_signal, shown)
                if answer.state == "gone" and has_begun:
                    return build_result(None, f"it no longer exists on {machine.host!r}")
                if answer.state == "gone":
                    await asyncio.to_thread(
                        remote_task.begin_check, machine, session, task.check, HOME, variables, ssh_environment()
                    )
                has_begun = True
            except RemoteUnreachableError as error:
                unreachable = error.message
            except RemoteLaunchError as error:
                return build_result(None, error.message.rstrip("."))
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        await self.end_check(machine.host, session)
        return build_result(None, unreachable.rstrip(".") or f"it took longer than {limit_s:g} s")

    async def end_check(self, host: str, session: str) -> None:
        """End the check of *session* on the machine *host*, if it can be reached."""
        machine = RemoteMachine(host, self._ssh)
        try:
            await asyncio.to_thread(remote_task.end_check, machine, session, ssh_environment())
            for pause_s in ENDING_S:
                await asyncio.sleep(pause_s)
                answer, _ = await asyncio.to_thread(remote_task.check, machine, session, ssh_environment())
                if answer.state != "runs":
                    return
        except KasmonError as error:
            log.warning("a check on %s was not ended: %s", host, error)
