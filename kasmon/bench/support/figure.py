"""A measured figure with its limit and its target, and the table that shows figures."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from kasmon.errors import TimedOutError

VERDICTS: Final = {True: "met", False: "NOT MET", None: ""}


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement: `value` in `unit`, and what it is compared with."""

    name: str
    value: float
    unit: Literal["ms", "% of a core", "KB", "MB", "x", "prompts", "machines", "bytes/s"]
    target: float | None = None
    """The most that `judged` should be; None if there is no target."""
    limit: float | None = None
    """The limit, measured in the same run, in the same unit."""
    limit_name: str = ""
    samples: int = 0
    spread: float | None = None
    """Half of the range that holds the middle half of the samples, in the same unit."""
    note: str = ""

    @property
    def judged(self) -> float:
        """The value compared with the target: `value` divided by the limit, or `value` itself without a limit."""
        return self.value if self.limit is None else self.value / self.limit

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without a target."""
        return None if self.target is None else self.judged <= self.target


def ratio(
    name: str,
    values: Sequence[float],
    limits: Sequence[float] | None,
    limit_name: str,
    target: float | None,
    note: str = "",
) -> Figure:
    """Return the median of *values*, in ms, as a multiple of the median of *limits*, if there are any."""
    value, limit = statistics.median(values), None if limits is None else statistics.median(limits)
    low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else (value, value, value)
    return Figure(
        name=name,
        value=value,
        unit="ms",
        target=target,
        limit=limit,
        limit_name=limit_name,
        samples=len(values),
        spread=(high - low) / 2,
        note=note,
    )


def timed(name: str, times_ms: Sequence[float], target: float | None, note: str = "", *, share: float = 0.5) -> Figure:
    """Return the value that *share* (0..1) of *times_ms* do not exceed."""
    value = percentile(times_ms, share)
    return Figure(name=name, value=value, unit="ms", target=target, samples=len(times_ms), note=note)


def took_ms(act: Callable[[], object]) -> float:
    """Call *act* and return how long it took, in ms."""
    began = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - began)


def run_in_turn(rounds: int, *measures: Callable[[], float]) -> list[list[float]]:
    """Call *measures* one after the other, *rounds* times; return what each returned."""
    rows = [[measure() for measure in measures] for _ in range(rounds)]
    return [list(column) for column in zip(*rows, strict=True)]


def wait_until(condition: Callable[[], object], limit_s: float, problem: str) -> None:
    """Wait until *condition* returns something true. Raises `TimedOutError` with *problem* after *limit_s*."""
    until = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > until:
            raise TimedOutError(f"{problem} within {limit_s:g} s.")
        time.sleep(0.002)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that *share* (0..1) of *values* do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def table(figures: Sequence[Figure], earlier: Mapping[str, float] | None = None) -> str:
    """Return the figures as a table; with *earlier*, the `judged` of another run by name, also the changes since."""
    head = ["what", "measured", "limit in the same run", "held against", "target", ""]
    rows = [[*head, "earlier", "change"] if earlier else head]
    for f in figures:
        measured = f"{f.value:.1f} {f.unit}" if f.spread is None else f"{f.value:.1f} ± {f.spread:.1f} {f.unit}"
        limit = f"{f.limit:.1f} {f.unit} {f.limit_name}" if f.limit is not None else ""
        unit = "x" if f.limit is not None else f" {f.unit}"
        judged = f"{f.judged:.2f}x" if f.limit is not None else f"{f.judged:.1f} {f.unit}"
        row = [f.name, measured, limit, judged, "" if f.target is None else f"<= {f.target:g}{unit}", VERDICTS[f.met]]
        if earlier:
            before = earlier.get(f.name)
            row += (
                ["", ""]
                if before is None
                else [f"{before:.2f}{unit}", f"{f.judged / before - 1:+.0%}" if before else ""]
            )
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    notes = [f"{f.name}: {f.note}" for f in figures if f.note]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], *(["", *notes] if notes else [])])
