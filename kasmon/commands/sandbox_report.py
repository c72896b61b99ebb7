"""What is shown of sandboxes and of what they run: rows, objects for programs, output as it comes."""

import contextlib
import sys
from typing import Any, Final

import msgspec

from kasmon.clean import clean_block
from kasmon.commands.objects import session_object
from kasmon.commands.output import note
from kasmon.host.wire import Printed
from kasmon.model.housing import Kept, Usage
from kasmon.model.sandbox import MIB, Ran
from kasmon.model.session import Session

REMEMBERED: Final = 4 * MIB
"""Of so many characters of a run's output it is known that they were printed; the answer has no more than that."""


def sandbox_object(session: Session) -> dict[str, Any]:
    """*session* as a program sees it, with what is known of its sandbox."""
    housing = session.housing
    confinement = housing.confinement if housing else None
    return session_object(session) | {
        "standby_at": housing.standby_at if housing else None,
        "held": housing.held if housing else False,
        "lost": housing.lost or None if housing else None,
        "sandbox_generation": housing.generation if housing else 0,
        "turn": housing.turn if housing else 0,
        "checkpoints": housing.checkpoints_counted if housing else 0,
        "confined": confinement.ok if confinement else None,
        "mismatches": list(confinement.mismatches) if confinement else [],
        "usage": msgspec.to_builtins(housing.usage) if housing and housing.usage else None,
    }


def row(session: Session) -> str:
    """One sandbox in a line."""
    housing = session.housing
    parts = [session.id, session.name, session.sandbox or "", session.state.value]
    if housing is not None:
        parts += [housing.phase.value, f"{housing.checkpoints_counted} checkpoints"]
        parts += [_used(housing.usage)] if housing.usage else []
    return "  ".join(part for part in parts if part)


def point_row(point: Kept) -> str:
    """One checkpoint in a line."""
    lost = f"could not keep {', '.join(point.lost)}" if point.lost else ""
    parts = (point.id, f"{point.when} turn {point.turn}", _mib(point.size_bytes), point.commit[:12], point.what, lost)
    return "  ".join(part for part in parts if part)


def _used(usage: Usage) -> str:
    of_memory = f" of {_mib(usage.memory_allowed)}" if usage.memory_allowed else ""
    of_disk = f" of {_mib(usage.disk_allowed)}" if usage.disk_allowed else ""
    return f"memory {_mib(usage.memory_bytes)}{of_memory}, disk {_mib(usage.disk_bytes)}{of_disk}"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / MIB:.0f} MiB" if size_bytes >= 10 * MIB else f"{size_bytes / MIB:.1f} MiB"


class Shown:
    """What a run prints, on our own stdout and stderr, each piece once."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._told = {"stdout": "", "stderr": ""}

    def take(self, printed: Printed) -> None:
        if self._is_quiet:
            return
        if printed.skipped:
            note(f"{printed.skipped} characters were not shown.")
        self._print("stdout", printed.stdout)
        self._print("stderr", printed.stderr)

    def finish(self, ran: Ran) -> None:
        """Print what was not shown meanwhile, and what there is to know of the run."""
        for name, whole in (("stdout", ran.stdout), ("stderr", ran.stderr)):
            told = self._told[name]
            if whole.startswith(told):
                self._print(name, whole[len(told) :])
        if ran.hint and ran.hint not in ran.stderr:
            note(ran.hint)
        elif ran.hint:
            self._print("stderr", "\n")

    def _print(self, name: str, text: str) -> None:
        if not text:
            return
        if len(self._told[name]) <= REMEMBERED:
            self._told[name] += text
        stream = sys.stdout if name == "stdout" else sys.stderr
        with contextlib.suppress(ValueError):
            print(clean_block(text) if stream.isatty() else text, end="", file=stream, flush=True)
