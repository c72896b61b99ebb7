"""Records what scrolls off one pane's screen, as text without secrets; see `store/terminal_record`.

It reads after the pane has printed, and more rarely the fewer lines are new; an idle pane costs nothing. Output lost
in a flood between two readings is marked as missing.

tmux reports the end of its history, never what is new in it: a changed width rewraps it, a full history loses its
beginning, a program may clear it and print all of it again. So the lines that were seen last are searched in it.
"""

import asyncio
import logging
import re
import time
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from kasmon.backends.tmux.pane_events import PaneListener
from kasmon.backends.tmux.server_connection import ServerConnection
from kasmon.errors import KasmonError
from kasmon.host.journal.known_secrets import hidden
from kasmon.host.terminal.row_styles import plain
from kasmon.sanitize import hidden_mark
from kasmon.store.terminal_record import TerminalRecord
from kasmon.tmux.control import requests as ask
from kasmon.tmux.control.requests import PaneHistory

SEEN: Final = 6
"""The number of lines by which the last reading is identified."""
RECALLED: Final = 1000
"""How many lines of an alternate screen are remembered, so that none is recorded twice within them."""
KEY_LINES: Final = 100
"""The body of a private key has fewer lines."""

HEADERS: Final = 4
"""The most lines between its beginning and its body."""

_BEGINS: Final = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----")
_ENDS: Final = re.compile(r"-----END [A-Z ]{0,30}PRIVATE KEY-----")
_SHORT: Final = re.compile(r"[A-Za-z0-9+/=]{1,80}")
_LONG: Final = re.compile(r"[A-Za-z0-9+/=]{40,}")
_VARIES: Final = re.compile(r"[\W\d_]+")


def behind(lines: Sequence[str], seen: Sequence[str], expected: int | None) -> int | None:
    """Return the index in *lines* behind *seen*, the lines seen last; None if *seen* is not among them.

    Args:
        lines: the oldest first.
        seen: at most a few.
        expected: the approximate index, if known: of several matches the nearest is taken, else the last.
    """
    size, last = len(seen), seen[-1] if seen else ""
    positions = [
        at + 1
        for at in range(size - 1, len(lines))
        if lines[at] == last and [*lines[at + 1 - size : at + 1]] == [*seen]
    ]
    if not positions or not size:
        return None
    return positions[-1] if expected is None else min(positions, key=lambda place: (abs(place - expected), -place))


def keyless(lines: Sequence[str]) -> list[str]:
    """Return *lines* without the bodies of private keys, also if a key's beginning or end is not among them."""
    kept = list(lines)
    if not any("-----" in line for line in lines):
        return kept
    for at, line in enumerate(lines):
        if _BEGINS.search(line):
            _cover(kept, range(at + 1, min(at + KEY_LINES, len(kept))), headers=HEADERS)
        elif _ENDS.search(line):
            last = at - 1
            if last > 0 and _SHORT.fullmatch(kept[last]) and _LONG.search(kept[last - 1]):
                kept[last] = hidden_mark(len(kept[last]))
                last -= 1
            _cover(kept, range(last, max(last - KEY_LINES, -1), -1))
    return kept


def _cover(lines: list[str], positions: Iterable[int], headers: int = 0) -> None:
    """Cover a key's body that begins at the first of *positions*, or behind at most *headers* lines."""
    is_body, is_downward = False, headers > 0
    for at in positions:
        covered = _LONG.sub(lambda body: hidden_mark(len(body[0])), lines[at])
        if covered == lines[at]:
            if is_body and is_downward and _SHORT.fullmatch(lines[at]):
                lines[at] = hidden_mark(len(lines[at]))
            if is_body or not headers:
                return
            headers -= 1
        is_body = is_body or covered != lines[at]
        lines[at] = covered


class ScrolledOffLines:
    """Lines that disappeared from an alternate screen, where nothing scrolls off.

    A line of which only a counter or spinner changes is the same line; one that comes and goes is returned once.
    """

    def __init__(self) -> None:
        self._shown: tuple[str, ...] = ()
        self._returned: OrderedDict[str, None] = OrderedDict()

    def since(self, shown: Iterable[str]) -> list[str]:
        """Return the lines that are gone now that *shown* is the screen, from its top."""
        before, self._shown = self._shown, tuple(shown)
        shown_lines = {_normalise(line) for line in self._shown}
        gone: list[str] = []
        for line in before:
            key = _normalise(line)
            if key and key not in shown_lines and key not in self._returned:
                self._returned[key] = None
                gone.append(line)
        while len(self._returned) > RECALLED:
            self._returned.popitem(last=False)
        return gone


def _normalise(line: str) -> str:
    return _VARIES.sub(" ", line).strip()


EVERY_S: Final = 5.0
"""How long after its first output a pane is read, and how often while lines leave its screen."""
SELDOM_S: Final = 30.0
"""The longest interval while a pane prints, and nothing leaves its screen."""
ROWS: Final = 100
"""How many rows above the screen are requested if few are new, to include some that were seen before."""
MOST_ROWS: Final = 3000
"""The most rows requested in one reading."""

log = logging.getLogger(__name__)


class Recorder(PaneListener):
    """Maintains *record* of what *pane* prints, from its construction until it is closed."""

    def __init__(
        self,
        line: ServerConnection,
        pane: str,
        record: TerminalRecord,
        *,
        is_blank: bool = False,
        every_s: float = EVERY_S,
    ) -> None:
        """*is_blank*: nothing was printed there yet; else earlier output may be missing. *every_s*: as `EVERY_S`."""
        self._line, self._pane, self._record = line, pane, record
        self._loop = asyncio.get_running_loop()
        self._least_s = self._every_s = every_s
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._looked_at = self._loop.time()
        self._is_stale = self._is_closed = self._is_open = False
        self._seen: list[str] = []
        """The last lines that were recorded."""
        self._are_hidden = False
        """Whether those are as recorded, without secrets; else as printed."""
        self._history: int | None = None
        """How many rows had scrolled off at the last reading."""
        self._vanished = ScrolledOffLines()
        self._screen: tuple[str, ...] = ()
        self._trouble = ""
        line.listeners.listen(pane, self)
        if not is_blank:
            # a host that finds a thousand panes reads them in turn
            self._plan(self._least_s * (zlib.crc32(pane.encode()) % 100) / 20)

    def handle_output(self, data: bytes) -> None:
        self._plan()

    def handle_exit(self, status: int | None, number: int | None) -> None:
        self.read()

    def read(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._looking is None:
            self._is_stale = False
            self._looking = self._loop.create_task(self._read())
        else:
            self._is_stale = True

    def close(self) -> None:
        """Stop recording. Idempotent."""
        self._is_closed = True
        self._line.listeners.unlisten(self._pane, self)
        if self._timer is not None:
            self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()

    def _plan(self, later_s: float = 0.0) -> None:
        """Schedule the next reading, at the due time or *later_s* later; never later than scheduled before."""
        if self._is_closed:
            return
        if self._looking is not None:
            self._is_stale = True
            return
        now = self._loop.time()
        if self._timer is None and now - self._looked_at > self._every_s:
            self._every_s = self._least_s  # the least again after a silence
        due_at = now + self._every_s + later_s
        if self._timer is not None:
            if self._timer.when() <= due_at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due_at, self.read)

    async def _read(self) -> None:
        try:
            history = await self._read_history()
            if history is not None:
                came = await asyncio.to_thread(self._note, history)
                self._every_s = self._least_s if came else min(2 * self._every_s, max(SELDOM_S, self._least_s))
        finally:
            self._looking, self._looked_at = None, self._loop.time()
        if self._is_stale:
            self._is_stale = False
            self._plan()

    async def _read_history(self) -> PaneHistory | None:
        """Return the pane's last rows, up to the lines that were seen before; None if tmux does not answer."""
        try:
            history = await self._line.ask(ask.above(self._pane, ROWS))
            if history.facts.history > ROWS and await asyncio.to_thread(self._place, history) is None:
                history = await self._line.ask(ask.above(self._pane, MOST_ROWS))
        except KasmonError:
            return None
        return history

    def _ensure_open(self) -> bool:
        """In a thread: continue the existing record; whether it could be opened."""
        if not self._is_open:
            try:
                self._seen, self._are_hidden, self._is_open = self._record.open(SEEN), True, True
            except OSError as error:
                self._complain(error)
        return self._is_open

    def _place(self, history: PaneHistory) -> int | None:
        """In a thread: return the index in *history* where new lines begin; None if it does not include seen ones."""
        if not self._ensure_open():
            return None
        lines = _lines(history)
        known = [hidden(line) for line in lines] if self._are_hidden else lines
        expected = None
        if self._history is not None and history.facts.history >= self._history:
            expected = history.left - (history.facts.history - self._history)
        return behind(known, self._seen, expected)

    def _note(self, history: PaneHistory) -> bool:
        """In a thread: record the new lines; whether there are any."""
        if not self._ensure_open():
            return False
        lines = _lines(history)
        place = self._place(history)
        is_cut = place is None and history.facts.history > MOST_ROWS
        self._history = history.facts.history
        first = place if place is not None else int(is_cut)
        fresh, shown = lines[first : history.left], lines[history.left :]
        while shown and not shown[-1]:
            shown.pop()
        is_gap = place is None and bool(self._seen)
        try:
            if fresh:
                self._record.append(_redact_lines(fresh), time.time(), gap=is_gap)
                before = [] if is_gap or self._are_hidden else self._seen  # as printed, if that is known
                self._seen, self._are_hidden = [*before, *fresh][-SEEN:], False
            vanished = self._vanished.since(shown if history.facts.alternate else ())
            if vanished:
                self._record.append(_redact_lines(vanished), time.time())
            if tuple(shown) != self._screen or fresh or vanished:
                self._record.show(_redact_lines(shown), time.time())
                self._screen = tuple(shown)
            self._trouble = ""
        except OSError as error:
            self._complain(error)
        return bool(fresh or vanished)

    def _complain(self, error: OSError) -> None:
        """Log once that recording fails."""
        why = error.strerror or str(error)
        if why != self._trouble:
            self._trouble = why
            log.warning("what pane %s prints cannot be recorded: %s", self._pane, why)


def _lines(history: PaneHistory) -> list[str]:
    return keyless([plain(line) if line else "" for line in history.lines])


def _redact_lines(lines: Sequence[str]) -> list[str]:
    """Return *lines* without secrets, also without those that span several."""
    return hidden("\n".join(lines)).split("\n") if lines else []
