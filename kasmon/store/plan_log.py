"""The log of one plan's run, and the run folded from it. Any kasmon process may append, without asking the runner."""

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kasmon.errors import LogMissingError, PlanNotFoundError, UnavailableError
from kasmon.model.plan.events import PlanAction, PlanDecisionMade, PlanFact, decode
from kasmon.model.plan.parser import is_plan
from kasmon.model.plan.plan import Task
from kasmon.model.plan.progress import PlanRun, apply
from kasmon.paths import Paths
from kasmon.store.event_log import START, EventLog


class PlanLog:
    """One plan's events, folded as far as they were read."""

    def __init__(self, paths: Paths, plan: str) -> None:
        self.plan, self.paths = plan, paths
        self.folder = paths.plan(plan)
        self.run = PlanRun(plan=plan)
        self._log = EventLog(self.folder / "events.jsonl")
        self._cursor = START
        self._busy = threading.Lock()

    @property
    def lock(self) -> Path:
        """The lock file that the plan's runner holds while it runs."""
        return self.folder / "host.lock"

    @property
    def runner_log(self) -> Path:
        """The log file of the runner process itself."""
        return self.folder / "host.log"

    @property
    def notes(self) -> Path:
        """The notes that the plan's tasks share."""
        return self.folder / "notes.md"

    def result(self, task: Task) -> Path:
        """Return the file with the result of *task*, which dependent tasks read after it was claimed."""
        return self.folder / "results" / f"task-{task.number}.md"

    @property
    def agreed(self) -> Path:
        """The plan file that the user approved, under its own name. Raises `PlanNotFoundError` if there is none."""
        try:
            return next(path for path in (self.folder / "agreed").iterdir() if is_plan(path.name))
        except (OSError, StopIteration) as error:
            raise PlanNotFoundError(self.plan) from error

    def size(self) -> int:
        return self._log.size()

    def more(self) -> bool:
        """Fold the events added since the last call; return whether there were any.

        Raises:
            OSError: if the log exists and cannot be read.
        """
        with self._busy, contextlib.suppress(LogMissingError):
            before = self._cursor
            for line, cursor in self._log.lines(before):
                if line[:1] == b"{" and line[-1:] == b"}":
                    self.run = apply(self.run, decode(line))
                self._cursor = cursor
            return self._cursor != before
        return False

    def add(self, fact: PlanFact, check: Callable[[], None] | None = None) -> None:
        """Append *fact* durably.

        Raises:
            UnavailableError: if it cannot be written.
            KasmonError: raised by *check*, which runs while the log is locked; nothing was written then.
        """
        try:
            self._log.append(fact, durable=True, check=check)
        except OSError as error:
            raise UnavailableError(f"cannot write {str(self._log.path)!r}: {error.strerror or error}.") from error

    def note(self, fact: PlanFact) -> None:
        """Append *fact* as `add` does, then fold it and all events that others wrote before it."""
        self.add(fact)
        self.more()

    def record_decision(self, decision: PlanAction, task: str = "", agent: str = "") -> None:
        self.add(PlanDecisionMade(at=time.time(), decision=decision, task=task, agent=agent))


def plans(paths: Paths) -> list[str]:
    """Return the ids of all plans that were ever run, newest last."""
    try:
        folders = [path for path in paths.plans.iterdir() if path.is_dir()]
    except OSError:
        return []
    return [path.name for path in sorted(folders, key=lambda path: path.stat().st_mtime)]
