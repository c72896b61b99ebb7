"""Lines out of a terminal's buffer, by the ranges of the seed: counted from the beginning, from the end, or open."""

from collections.abc import Sequence

from kasmon.clean import Clean, clean_line
from kasmon.host.hyperlink import written_out
from kasmon.host.rows import CHANGE, PLAIN, alone
from kasmon.host.wire import Read
from kasmon.tmux import request as ask
from kasmon.tmux.request import Lines, Request


def wanted(pane: str, read: Read) -> Request[Lines]:
    """What to ask tmux for, so that `lines` can answer *read*: wrapped lines come joined."""
    start = -max(read.screen_and, 0) if read.screen_and is not None else "-"
    return ask.capture(pane, start=start, ansi=read.ansi, join=True)


def lines(captured: Sequence[bytes], read: Read) -> tuple[str, ...]:
    """The lines of *captured*, the whole buffer or what of it was asked for, that *read* wants, cleaned.

    The blank rows below the last text are no lines of the buffer.
    """
    rows = _with_style(captured) if read.ansi else [plain(row) for row in captured]
    while rows and not rows[-1]:
        rows.pop()
    if read.screen_and is not None:
        return tuple(rows)
    first, last = bounds(len(rows), read.start, read.end)
    return tuple(rows[first : last + 1])


def bounds(count: int, start: int | None, end: int | None) -> tuple[int, int]:
    """The first and the last index, of *count* lines; nothing is between them where the last is the smaller one."""
    first = 0 if start is None else start if start >= 0 else max(count + start, 0)
    last = count - 1 if end is None else end if end >= 0 else count + end
    return first, min(last, count - 1)


def plain(row: bytes) -> Clean:
    """A captured *row* as cleaned text, without styles and without blanks at its end."""
    return Clean(clean_line(row.decode("utf-8", "replace")).rstrip())


def _with_style(captured: Sequence[bytes]) -> list[str]:
    rows: list[str] = []
    style = PLAIN
    for row in captured:
        text, style = alone(written_out(row.decode("utf-8", "replace")), style)
        if not CHANGE.sub("", text).strip():
            rows.append("")
        else:
            rows.append(f"{text.rstrip()}\x1b[m" if "\x1b" in text else text.rstrip())
    return rows
