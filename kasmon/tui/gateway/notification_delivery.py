"""Sends alerts out of the terminal: to the desktop, then to the command of the user's config.

Each is a process without a shell or our terminal, one at a time, killed with its children after `LIMIT_S`.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from typing import Final

from kasmon.config import Notify
from kasmon.errors import UnavailableError
from kasmon.supervisor.notifications.alerts import Alert
from kasmon.tui.gateway.desktop_notification import MISSING

LIMIT_S: Final = 10.0
"""How long a desktop or a command may take, in seconds."""
DESKTOP: Final = (sys.executable, "-P", "-m", "kasmon.tui.gateway.desktop_notification")
WAITING: Final = 3
"""While this many alerts wait for a slow desktop or command, a further one is dropped: it would be late."""


class NotificationDelivery:
    """Sends alerts in order. A failure is reported once, and the desktop is not tried again then."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._has_desktop = True
        self._reported: set[str] = set()

    async def call(self, alert: Alert, how: Notify) -> None:
        """Send *alert* in the ways that *how* enables.

        Raises:
            UnavailableError: if one of them fails, for the first time; the other was tried all the same.
        """
        if self._waiting >= WAITING:
            return
        self._waiting += 1
        try:
            async with self._lock:
                problems = [await self._desktop(alert, how), await self._command(alert, how)]
        finally:
            self._waiting -= 1
        for problem in problems:
            if problem and problem not in self._reported:
                self._reported.add(problem)
                raise UnavailableError(problem, hint="See [notify] in the config.")

    async def _desktop(self, alert: Alert, how: Notify) -> str:
        """Show it on the desktop; return why that failed, where the config requires the desktop."""
        if how.desktop == "no" or not self._has_desktop:
            return ""
        code, output = await self._run(DESKTOP, alert)
        if code == 0:
            return ""
        self._has_desktop = False
        if how.desktop == "auto":
            return ""
        why = "kasmon[desktop] is not installed" if code == MISSING else output or "unknown reason"
        return f"cannot show a desktop notification: {why}."

    async def _command(self, alert: Alert, how: Notify) -> str:
        if not how.command:
            return ""
        code, output = await self._run(how.command, alert)
        if code == 0:
            return ""
        outcome = f"ended with exit code {code}" if code is not None else output
        return f"the command {how.command[0]!r} of [notify] {outcome}."

    async def _run(self, argv: Sequence[str], alert: Alert) -> tuple[int | None, str]:
        """The exit code of *argv* and its last line on stderr; None and the reason if it did not exit by itself."""
        fields = {"kind": alert.kind, "title": alert.title, "text": alert.text, "sessions": list(alert.sessions)}
        variables = {f"KASMON_NOTIFY_{name.upper()}": _as_variable(value) for name, value in fields.items()}
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=PIPE, stdout=DEVNULL, stderr=PIPE, env={**os.environ, **variables}, start_new_session=True
            )
        except (OSError, ValueError) as error:
            return None, f"cannot be run: {getattr(error, 'strerror', None) or error}"
        try:
            async with asyncio.timeout(self._limit_s):
                _, errors = await process.communicate(json.dumps(fields).encode())
        except TimeoutError:
            return None, f"took longer than {self._limit_s:g} s"
        finally:
            with contextlib.suppress(OSError):  # also what it left behind
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        return process.returncode, lines[-1][:200] if lines else ""


def _as_variable(value: str | Sequence[str]) -> str:
    """*value* for an environment variable: no NUL, names separated by spaces."""
    return (value if isinstance(value, str) else " ".join(value)).replace("\0", "")
