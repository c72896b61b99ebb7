"""Reads screens by the detection rules: in the loop if that is fast, else in a thread."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

from kasmon.agents.catalog import AgentCatalog
from kasmon.detection.menus.heuristic import MenuGuess, probably_asking
from kasmon.detection.reader import ScreenReading, lasting, read
from kasmon.detection.rules.catalog import RuleCatalog
from kasmon.detection.rules.file import ScreenRules
from kasmon.detection.terminal_screen import TerminalScreen, captured
from kasmon.tmux.control.requests import PaneScreen
from kasmon.tmux.screen_check import changed

LOOK_S: Final = 0.05
"""How often a screen is read while something on it is awaited."""
QUICK_S: Final = 0.002
"""A screen whose last reading took longer is read in a thread."""


log = logging.getLogger(__name__)
Value = TypeVar("Value")


class ScreenObservation(NamedTuple):
    shot: TerminalScreen
    reading: ScreenReading
    guess: MenuGuess | None
    """What an unchanged screen probably asks, if no rule matches it."""
    size: tuple[int, int] = (0, 0)
    """Columns and rows of the pane."""
    above: int = 0
    """How many of its rows are not in `shot`, which has only the lowest of a very tall screen."""

    def changed(self, rows: range | None = None) -> str:
        """Return the format that is 1 unless *rows* of `shot`, by default all, are still there (`screen_check`)."""
        everything = [""] * self.above + [row.text for row in self.shot.rows]
        start, stop = (rows.start, rows.stop) if rows is not None else (-self.above, len(self.shot.rows))
        return changed(self.size, everything, range(start + self.above, stop + self.above))


class AgentScreen(Protocol):
    async def see_now(self) -> ScreenObservation:
        """Read it now and return the observation. Raises `SessionEndedError` or `TmuxError` if it cannot be read."""

    def begin(self) -> None:
        """Read it again as soon as possible."""


async def poll(read: Callable[[], Awaitable[Value]], is_right: Callable[[Value], bool], limit_s: float) -> Value:
    """Return the first result of *read* that *is_right*, or the last one within *limit_s* seconds."""
    loop = asyncio.get_running_loop()
    until = loop.time() + limit_s
    while True:
        seen = await read()
        if is_right(seen) or loop.time() > until:
            return seen
        await asyncio.sleep(LOOK_S)


class ScreenReader:
    """The rules for all agents of one host."""

    def __init__(self, folders: Sequence[Path] = (), agents: AgentCatalog | None = None) -> None:
        """*folders* hold the user's own detection files; those of *agents* follow, by default only kasmon's."""
        self._folders, self._agents = folders, agents
        self._catalogue: RuleCatalog | None = None

    def refresh(self) -> None:
        """Reload the files that changed. Blocks; the first call reads all of them."""
        if self._catalogue is None:
            self._catalogue = RuleCatalog(self._folders, agents=self._agents)
        else:
            self._catalogue.reload()

    def rules(self, program: str, version: str) -> ScreenRules | None:
        """Return the rules for *program*; None if there are none, or none were loaded yet."""
        chosen = self._catalogue.rules(program, version) if self._catalogue is not None else None
        return chosen.rules if chosen is not None else None


class PaneScreenReader:
    """Reads one agent's screens. It remembers the last reading and how long it took."""

    def __init__(self) -> None:
        self.seen: ScreenObservation | None = None
        self._last_read_s = 0.0

    def read(
        self,
        screen: PaneScreen,
        title: str,
        rules: ScreenRules | None,
        *,
        is_still: bool,
        done: Callable[[ScreenObservation | BaseException], None],
    ) -> None:
        """Call *done* with the observation of *screen*, or the error: at once, or when a thread has read it."""
        now, before = time.time(), self.seen.reading if self.seen is not None else None

        def work() -> ScreenObservation | BaseException:
            began = time.perf_counter()
            try:
                return observe(screen, title, rules, now, before, is_still=is_still)
            except Exception as error:  # a screen, or the user's rules for it, must not end all readings
                log.warning("a screen could not be read", exc_info=True)
                return error
            finally:
                self._last_read_s = time.perf_counter() - began

        def finish(seen: ScreenObservation | BaseException) -> None:
            if isinstance(seen, ScreenObservation):
                self.seen = seen
            done(seen)

        if self._last_read_s < QUICK_S:
            finish(work())
        else:
            reading = asyncio.get_running_loop().run_in_executor(None, work)
            reading.add_done_callback(lambda read: None if read.cancelled() else finish(read.result()))


def observe(
    screen: PaneScreen,
    title: str,
    rules: ScreenRules | None,
    now: float,
    before: ScreenReading | None = None,
    *,
    is_still: bool = False,
) -> ScreenObservation:
    """Return what *screen* shows at *now*, in seconds since the epoch. Pure."""
    facts = screen.facts
    text = b"\n".join(screen.rows).decode("utf-8", "replace")
    shot = captured(
        text,
        title,
        cursor=(facts.cursor_x, facts.cursor_y),
        cursor_visible=facts.cursor_visible,
        alternate=facts.alternate,
        columns=facts.width,
    )
    reading = lasting(before, read(shot, rules, now), now) if rules is not None else ScreenReading()
    guess = probably_asking(shot) if is_still and reading.state == "unclear" else None
    above = text.removesuffix("\n").count("\n") + 1 - len(shot.rows)
    return ScreenObservation(shot, reading, guess, (facts.width, facts.height), above)
