"""`kasmon top`: processor and memory of each session on this machine."""

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec

from kasmon.cli.arguments import Arg, Json, OnMachine
from kasmon.cli.ls import is_utf8
from kasmon.cli.output.console import check_machine, note_other_machines, print_json, say
from kasmon.cli.output.table import aligned, cut, state_words
from kasmon.config.parser import load_or_default
from kasmon.model.fleet import Fleet
from kasmon.model.formatting import GLYPHS, mb
from kasmon.model.hibernation import propose_for_budget
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import user_paths
from kasmon.sanitize import clean_line
from kasmon.store.machines import ALL
from kasmon.supervisor.fleet.process_usage import SessionUsage, read_usage
from kasmon.supervisor.fleet.snapshot import read_fleet

HEADS: Final = ("NAME", "ID", "AGENT", "CPU", "MEMORY", "PROCESSES", "STATE")
ONE_SAMPLE_S: Final = 0.5
"""The time over which a single sample measures the processor, in seconds."""
ENTER, LEAVE, HOME, CLEAR_LINE, CLEAR_BELOW = (
    "\x1b[?1049h\x1b[?25l",
    "\x1b[?25h\x1b[?1049l",
    "\x1b[H",
    "\x1b[K",
    "\x1b[J",
)

Usages = Mapping[SessionId, SessionUsage]


class UsageSample(msgspec.Struct, frozen=True):
    """The sessions at one moment, and what those that run used until then."""

    fleet: Fleet
    usages: Usages
    processor: Mapping[SessionId, float]
    """The share of one processor core since the previous sample, in percent."""

    @property
    def memory_bytes(self) -> int:
        return sum(usage.memory_bytes for usage in self.usages.values())

    @property
    def rows(self) -> list[Session]:
        """The sessions that run or are hibernated here, those that use most memory first."""
        shown = [each for each in self.fleet.here if each.id in self.usages or is_hibernated(each)]
        return sorted(shown, key=lambda each: -self.usages[each.id].memory_bytes if each.id in self.usages else 1)


def top(
    *,
    interval: Annotated[float, Arg("Seconds between two samples on a terminal.", at_least=0.5)] = 2.0,
    machine: OnMachine = "",
    wants_json: Json = False,
) -> int:
    """List the processor and memory use of sessions: live on a terminal, else one sample."""
    if machine == ALL:
        from kasmon.cli.machines.tables import MachineTable, print_all  # only for several machines

        table = MachineTable(("top",), "sessions", _ListedUsage, HEADS, _listed_row, "No session runs.")
        return print_all(table, wants_json=wants_json)
    check_machine(machine)
    if wants_json or not sys.stdout.isatty():
        before, began = read_usage(read_fleet(user_paths()).sessions), time.monotonic()
        time.sleep(ONE_SAMPLE_S)
        sample = read_sample(before, began)
        budget_bytes = _budget_bytes()
        if wants_json:
            print_json(
                memory_bytes=sample.memory_bytes,
                budget_bytes=budget_bytes or None,
                proposed=[each.id for each in proposals(sample, budget_bytes)],
                sessions=[_session_object(session, sample) for session in sample.rows],
            )
        else:
            say(*lines(sample, budget_bytes))
            note_other_machines(user_paths(), machine, "top")
        return 0
    sys.stdout.write(ENTER)
    try:
        _show_live(interval)
    finally:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()
    return 0


def _show_live(interval_s: float) -> None:
    before: Usages = read_usage(read_fleet(user_paths()).sessions)
    began = time.monotonic()
    time.sleep(ONE_SAMPLE_S)
    while True:
        sample, taken_at = read_sample(before, began), time.monotonic()
        columns, rows = shutil.get_terminal_size()
        shown = [cut(clean_line(line), columns, utf8=is_utf8()) for line in lines(sample, _budget_bytes())[:rows]]
        sys.stdout.write(HOME + f"{CLEAR_LINE}\n".join(shown) + CLEAR_LINE + CLEAR_BELOW)
        sys.stdout.flush()
        before, began = sample.usages, taken_at
        time.sleep(interval_s)


def read_sample(before: Usages, began: float) -> UsageSample:
    """Read the sessions and what they use; *before* was read at *began*, by the monotonic clock. Blocks."""
    fleet = read_fleet(user_paths())
    usages, passed_s = read_usage(fleet.sessions), max(time.monotonic() - began, 1e-3)
    spent = {
        session: max(0.0, usage.processor_s - before[session].processor_s)
        for session, usage in usages.items()
        if session in before
    }
    return UsageSample(fleet, usages, {session: 100.0 * each / passed_s for session, each in spent.items()})


def is_hibernated(session: Session) -> bool:
    return session.state is SessionState.HIBERNATED


def lines(sample: UsageSample, budget_bytes: int) -> list[str]:
    """Return *sample* as lines: the totals, a row for each session, and what to hibernate at *budget_bytes*."""
    utf8 = is_utf8()
    rows = [HEADS, *(_row(session, sample, utf8=utf8) for session in sample.rows)]
    freed = sum(each.freed_bytes or 0 for each in sample.rows if is_hibernated(each))
    of_budget = f" of {mb(budget_bytes)}" if budget_bytes else ""
    facts = [f"{len(sample.usages)} running", f"{mb(sample.memory_bytes)}{of_budget} of memory"]
    facts += [f"{sum(sample.processor.values()):.0f} % of a core", *([f"{mb(freed)} freed"] if freed else [])]
    proposed = proposals(sample, budget_bytes)
    names = " ".join(each.id for each in proposed)
    advice = [f"Over the budget. To free memory: kasmon hibernate {names}"] if proposed else []
    return [(" · " if utf8 else ", ").join(facts), *aligned(rows), *advice]


def proposals(sample: UsageSample, budget_bytes: int) -> Sequence[Session]:
    """Return the sessions to hibernate so that the others stay within *budget_bytes*; none for 0."""
    memory = {session: usage.memory_bytes for session, usage in sample.usages.items()}
    return propose_for_budget(sample.fleet.sessions, memory, budget_bytes)


def _session_object(session: Session, sample: UsageSample) -> dict[str, object]:
    usage, processor = sample.usages.get(session.id), sample.processor.get(session.id)
    return {
        "id": session.id,
        "name": session.name,
        "agent": session.agent,
        "state": session.state.value,
        "processor": None if processor is None else round(processor, 1),
        "memory_bytes": None if usage is None else usage.memory_bytes,
        "processes": 0 if usage is None else usage.processes,
        "freed_bytes": session.freed_bytes if is_hibernated(session) else None,
    }


class _ListedUsage(msgspec.Struct, frozen=True):
    """One of those that `kasmon top --json` prints, as far as a row shows it."""

    id: str
    name: str
    state: str
    agent: str = ""
    processor: float | None = None
    memory_bytes: int | None = None
    processes: int = 0


def _row(session: Session, sample: UsageSample, *, utf8: bool) -> tuple[str, ...]:
    listed = msgspec.convert(_session_object(session, sample), _ListedUsage)
    return (*_usage_cells(listed, utf8=utf8), state_words(session, utf8=utf8))


def _listed_row(listed: _ListedUsage) -> tuple[str, ...]:
    glyph = GLYPHS.get(listed.state, ("", ""))[0 if is_utf8() else 1]
    return (*_usage_cells(listed, utf8=is_utf8()), f"{glyph} {listed.state}".strip())


def _usage_cells(listed: _ListedUsage, *, utf8: bool) -> tuple[str, ...]:
    return (
        cut(clean_line(listed.name or listed.id), 32, utf8=utf8),
        listed.id,
        cut(clean_line(listed.agent), 16, utf8=utf8),
        "-" if listed.processor is None else f"{listed.processor:.0f} %",
        "-" if listed.memory_bytes is None else mb(listed.memory_bytes),
        "-" if listed.memory_bytes is None else str(listed.processes),
    )


def _budget_bytes() -> int:
    return load_or_default(user_paths()).session.memory_budget * 1_000_000
