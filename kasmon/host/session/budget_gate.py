"""Whether the budgets of the config allow a queued prompt to be delivered now, by `kasmon limits check`.

A host is small and knows nothing of other sessions, so it runs the command: only for queued prompts, and only if the
config has a budget. While one holds a prompt, the command runs again once the config changed, a day began, or after
`AGAIN_S`.
"""

import json
import subprocess
import sys
import time
from typing import Final

from kasmon.config import load
from kasmon.config.schema import BudgetConfig
from kasmon.errors import ConfigError
from kasmon.host.journal.async_writer import LogWriter
from kasmon.model.session import DAY_S

AGAIN_S: Final = 60.0
LIMIT_S: Final = 30.0


class BudgetGate:
    """Finds what holds the queued prompts of one session."""

    def __init__(self, log_writer: LogWriter) -> None:
        self._log_writer = log_writer
        self._held = ""
        self._held_of: tuple[object, ...] = ()
        """The state of the config file, and the day, when that was found."""
        self._held_at = 0.0

    def find_hold(self) -> str:
        """Return why no queued prompt may be delivered now: a budget that is used up. Empty if one may. Blocks."""
        paths = self._log_writer.session_log.paths
        try:
            facts = paths.config_file.stat()
            now: tuple[object, ...] = (facts.st_mtime_ns, facts.st_size, facts.st_ino, int(time.time() // DAY_S))
        except OSError:
            return ""
        if self._held and now == self._held_of and time.monotonic() < self._held_at + AGAIN_S:
            return self._held
        try:
            has_budget = load(paths).budget != BudgetConfig()
        except ConfigError:  # a person is editing it: what was held stays so
            has_budget = bool(self._held)
        self._held = self._check() if has_budget else ""
        self._held_of, self._held_at = now, time.monotonic()
        return self._held

    def _check(self) -> str:
        argv = [sys.executable, "-P", "-m", "kasmon", "limits", "check", self._log_writer.session.id, "--json"]
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=LIMIT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"the budgets could not be checked: {error}"
        if not done.returncode:
            return ""
        try:
            return str(json.loads(done.stdout)["error"]["message"])
        except (ValueError, KeyError, TypeError):
            return f"the budgets could not be checked: exit code {done.returncode}"
