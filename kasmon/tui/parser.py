"""Textual's reading of what a terminal sends, with two ways of a modified Enter that it takes for something else.

Alt+Enter comes as ESC and a return from every terminal that knows no newer way; Textual 8.2 drops the Alt. And where
xterm's own numbers are used (`CSI 27`, as by a tmux with extended keys), it names Enter by its character.
"""

import re
from collections.abc import Iterable
from typing import Final

from textual import events
from textual._xterm_parser import XTermParser

_XTERM_ENTER: Final = re.compile(r"\x1b\[27;(\d+);13~")


class KeyParser(XTermParser):
    """Tells an Enter that begins a new line from one that sends."""

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        if alt and sequence == "\r":
            yield events.Key("alt+enter", None)
        else:
            yield from super()._sequence_to_key_events(_XTERM_ENTER.sub("\x1b[13;\\1u", sequence), alt)
