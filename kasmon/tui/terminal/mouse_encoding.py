"""Mouse reports as bytes: read from SGR, and written in the form that a pane's program enabled."""

import re
from typing import NamedTuple

from kasmon.host.rpc.frames import TerminalModes

RELEASE, MOVED, WHEEL = 3, 32, 64
X10_CELLS = 223
"""The last column or row that the old form can encode."""

REPORT = re.compile(rb"\x1b\[<(\d{1,4});(-?\d{1,6});(-?\d{1,6})([Mm])")


class MouseReport(NamedTuple):
    """One report; cells count from 0."""

    button: int
    """xterm's number: the button in its lowest two bits, then 4 Shift, 8 Meta, 16 Ctrl, 32 moved, 64 wheel."""
    x: int
    y: int
    up: bool = False

    @property
    def wheel(self) -> bool:
        return bool(self.button & WHEEL)

    @property
    def motion(self) -> bool:
        return bool(self.button & MOVED) and not self.wheel

    @property
    def dragged(self) -> bool:
        return self.motion and self.button & 3 != RELEASE


def read(match: re.Match[bytes], cell: tuple[float, float] = (1.0, 1.0)) -> MouseReport:
    """Return the report that `REPORT` matched; *cell* is a cell's width and height in the terminal's units."""
    width, height = cell
    x, y = (int(match[2]) - 1) / width, (int(match[3]) - 1) / height
    return MouseReport(int(match[1]), int(x // 1), int(y // 1), match[4] == b"m")


def wanted(report: MouseReport, modes: TerminalModes) -> bool:
    """Whether a program in these modes wants *report*."""
    match modes.mouse:
        case "all":
            return True
        case "button":
            return report.dragged or not report.motion
        case "standard":
            return not report.motion
        case _:
            return False


def written(report: MouseReport, modes: TerminalModes) -> bytes:
    """Encode *report* for the program: SGR, or the old form, which is empty if a coordinate is too large."""
    if modes.mouse_sgr:
        return b"\x1b[<%d;%d;%d%c" % (report.button, report.x + 1, report.y + 1, b"m" if report.up else b"M")
    if report.x >= X10_CELLS or report.y >= X10_CELLS or report.button > X10_CELLS:
        return b""
    button = report.button | RELEASE if report.up else report.button
    return b"\x1b[M%c%c%c" % (32 + button, 33 + report.x, 33 + report.y)
