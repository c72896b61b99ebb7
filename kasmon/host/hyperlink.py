"""Links that a program put behind a label (OSC 8): their address is written out behind it, for who reads the text.

A label may say anything, also another address; where a link leads is what stands in `<...>` behind its label. tmux
keeps such links from 3.4 on. Only http and https are links; of all others the label is left.
"""

import re
from collections.abc import Iterator
from typing import Final

from kasmon.clean import clean_line
from kasmon.host.rows import CHANGE

OPENING: Final = "\x1b]8;"
_MARK: Final = re.compile(r"\x1b\]8;[^;\x07\x1b]*;([^\x07\x1b]*)(?:\x07|\x1b\\)")
_SCHEME: Final = re.compile(r"https?://", re.IGNORECASE)


def written_out(line: str) -> str:
    """*line*, as captured, with each link's address behind its label, where the label is not the address itself."""
    if OPENING not in line:
        return line
    return "".join(_told(text, address) for text, address in _pieces(line))


def _pieces(line: str) -> Iterator[tuple[str, str]]:
    """The texts of *line* with the addresses behind them; what was wrapped is one again."""
    first, *rest = _MARK.split(line)
    label, behind = first, ""
    for address, text in zip(rest[::2], rest[1::2], strict=True):
        if address == behind or not (address or CHANGE.sub("", text)):
            label += text
            continue
        yield label, behind
        label, behind = text, address
    yield label, behind


def _told(text: str, address: str) -> str:
    address = clean_line(address).replace(" ", "")
    if not _SCHEME.match(address):
        return text
    label = clean_line(CHANGE.sub("", text)).strip()
    return text if label == address else f"{text} <{address}>"
