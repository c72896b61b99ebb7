"""The plan files in the configured folders, read again when they change. Calls block; use a thread."""

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.errors import KasmonError
from kasmon.model.plan.parser import MARKS, is_plan, parse_for_display
from kasmon.model.plan.plan import Plan, PlanFault
from kasmon.paths import expanded
from kasmon.supervisor.plans.start import text_of

MOST: Final = 500
"""At most this many files of one folder are read."""


class PlanFile(NamedTuple):
    """One plan file as of the last refresh."""

    file: str
    plan: Plan
    """Can be run if there are no faults; else it is for display only."""
    faults: tuple[PlanFault, ...] = ()


class PlanFolders:
    """The plan files in *folders*; unchanged ones are not read again."""

    def __init__(self, folders: Iterable[str], agents: Sequence[str] | None = None) -> None:
        self._folders = [expanded(folder) for folder in folders]
        self._agents = agents
        self._cache: dict[str, tuple[tuple[int, int], PlanFile | None]] = {}

    def read(self) -> tuple[PlanFile, ...]:
        """Return all plans, sorted by file; an unreadable one has a fault."""
        seen: dict[str, tuple[tuple[int, int], PlanFile | None]] = {}
        for path, facts in self._files():
            before = self._cache.get(str(path))
            mark = facts.st_mtime_ns, facts.st_size
            seen[str(path)] = before if before is not None and before[0] == mark else (mark, self._read(path))
        self._cache = seen
        return tuple(found for _, (_, found) in sorted(seen.items()) if found is not None)

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        found = []
        for folder in self._folders:
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in [entry for entry in entries if is_plan(entry.name)][:MOST]:
                    with contextlib.suppress(OSError):  # a symlink loop, a file deleted meanwhile
                        if entry.is_file():
                            found.append((Path(entry.path), entry.stat()))
        return found

    def _read(self, path: Path) -> PlanFile | None:
        try:
            text = text_of(path)
        except (KasmonError, OSError) as error:
            why = error.message if isinstance(error, KasmonError) else str(error.strerror)
            return PlanFile(str(path), Plan(name=path.stem), (PlanFault(line=0, why=why.rstrip(".")),))
        return PlanFile(str(path), *parse_for_display(text, path.name, self._agents)) if MARKS.search(text) else None
