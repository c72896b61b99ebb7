"""Lines out of a terminal's buffer, by the ranges of the seed: counted from the beginning, from the end, or open."""

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
    """What to ask tmux for, so that `lines` can answer *read*: wrapped lines come joined."""
    start = -max(read.screen_and, 0) if read.screen_and is not None else "-"
    return ask.capture(pane, start=start, ansi=read.ansi, join=True)


def lines(captured: Sequence[bytes], read: ReadTerminal) -> tuple[str, ...]:
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
        text, style = alone(_with_addresses(row.decode("utf-8", "replace")), style)
        if not CHANGE.sub("", text).strip():
            rows.append("")
        else:
            rows.append(f"{text.rstrip()}\x1b[m" if "\x1b" in text else text.rstrip())
    return rows


def _with_addresses(line: str) -> str:
    """*line*, as captured, with the address of each link (OSC 8) in `<...>` behind its label, unless it is the label.

    A label may say anything, also another address. tmux keeps links from 3.4 on. Only http and https are links; of all
    others the label is left.
    """
    if LINK_OPENING not in line:
        return line
    return "".join(_with_address(text, address) for text, address in _links(line))


def _links(line: str) -> Iterator[tuple[str, str]]:
    """The texts of *line* with the addresses behind them; what was wrapped is one again."""
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
