"""Line ranges of a terminal's buffer: counted from the beginning, from the end, or open."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from kasmon.host.rpc.frames import ReadTerminal
from kasmon.host.terminal.row_styles import alone
from kasmon.sanitize import Clean, clean_line
from kasmon.terminal_text.styles import CHANGE, PLAIN
from kasmon.tmux import requests as ask
from kasmon.tmux.requests import Lines, TmuxRequest

LINK_OPENING: Final = "\x1b]8;"
_LINK: Final = re.compile(r"\x1b\]8;[^;\x07\x1b]*;([^\x07\x1b]*)(?:\x07|\x1b\\)")
_SCHEME: Final = re.compile(r"https?://", re.IGNORECASE)


def wanted(pane: str, read: ReadTerminal) -> TmuxRequest[Lines]:
    """Return the tmux request for the rows that `lines` needs to answer *read*: wrapped lines come joined."""
    start = -max(read.screen_and, 0) if read.screen_and is not None else "-"
    return ask.capture(pane, start=start, ansi=read.ansi, join=True)


def lines(captured: Sequence[bytes], read: ReadTerminal) -> tuple[str, ...]:
    """Return the lines that *read* requests, sanitized, from *captured*: the whole buffer or the requested part.

    The blank rows below the last text are not lines of the buffer.
    """
    rows = _with_style(captured) if read.ansi else [plain(row) for row in captured]
    while rows and not rows[-1]:
        rows.pop()
    if read.screen_and is not None:
        return tuple(rows)
    first, last = bounds(len(rows), read.start, read.end)
    return tuple(rows[first : last + 1])


def bounds(count: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Return the first and the last index, of *count* lines; the range is empty if the last is the smaller one."""
    first = 0 if start is None else start if start >= 0 else max(count + start, 0)
    last = count - 1 if end is None else end if end >= 0 else count + end
    return first, min(last, count - 1)


def plain(row: bytes) -> Clean:
    """Return a captured *row* as sanitized text, without styles and without trailing blanks."""
    return Clean(clean_line(row.decode("utf-8", "replace")).rstrip())


def _with_style(captured: Sequence[bytes]) -> list[str]:
    rows: list[str] = []
    style = PLAIN
    for row in captured:
        text, style = alone(_with_addresses(row.decode("utf-8", "replace")), style)
        if not CHANGE.sub("", text).strip():
            rows.append("")
        else:
            rows.append(f"{text.rstrip()}\x1b[m" if "\x1b" in text else text.rstrip())
    return rows


def _with_addresses(line: str) -> str:
    """Return *line*, as captured, with the address of each link (OSC 8) in `<...>` behind its label, if they differ.

    A label may contain anything, also another address. tmux keeps links from 3.4 on. Only http and https are links; of
    all others only the label remains.
    """
    if LINK_OPENING not in line:
        return line
    return "".join(_with_address(text, address) for text, address in _links(line))


def _links(line: str) -> Iterator[tuple[str, str]]:
    """Yield the texts of *line* with the addresses of their links; a wrapped label is joined."""
    first, *rest = _LINK.split(line)
    label, behind = first, ""
    for address, text in zip(rest[::2], rest[1::2], strict=True):
        if address == behind or not (address or CHANGE.sub("", text)):
            label += text
            continue
        yield label, behind
        label, behind = text, address
    yield label, behind


def _with_address(text: str, address: str) -> str:
    address = clean_line(address).replace(" ", "")
    if not _SCHEME.match(address):
        return text
    label = clean_line(CHANGE.sub("", text)).strip()
    return text if label == address else f"{text} <{address}>"
