"""Reads an agent's own full view of a request that its menu cuts (`detection.rules.schema.ViewRule`) and closes it.

Each key is sent only while the screen is the one that was read, and none while the terminal is focused: then the
request remains possibly cut. The text counts for the menu on which the view was opened, while that is on the screen;
before a consent it is read once more.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from kasmon.backends.tmux.evidence.screen_reader import AgentScreen, ScreenObservation, poll
from kasmon.detection.menus.choices import ScreenMenu, has_certain_lines, squeezed
from kasmon.detection.rules.schema import MenuRule, ViewRule
from kasmon.detection.terminal_screen import ScreenRow
from kasmon.errors import KasmonError, RefusedError, ScreenChangedError

SHOWN_S: Final = 3.0
"""How long a view may take to open, and its menu to come back."""
MOVED_S: Final = 0.6
"""A view that does not move within this time after a scroll key is at its end."""
TRIES: Final = 3
AGAIN_S: Final = 5.0
"""The delay before another try after a user was focused on the terminal."""
WATCHED: Final = "the terminal is focused"

log = logging.getLogger(__name__)


class KeyWriter(Protocol):
    """The writer of the agent's pane."""

    async def press(self, key: bytes, unless: str = "") -> None:
        """Type *key*, as `PaneWriter.press` does."""


class FullView:
    def __init__(self, target: AgentScreen, pane_writer: KeyWriter, is_focused: Callable[[], Awaitable[bool]]) -> None:
        self._target, self._pane_writer, self._is_focused = target, pane_writer, is_focused
        self._text = ""
        self._menu = ""
        """The digest of the menu whose view was read last; `_text` is its text if proven complete, else empty."""
        self._opened: tuple[ScreenMenu, MenuRule] | None = None
        self._reading: asyncio.Task[None] | None = None
        self.is_open = False
        """Whether it is being read: then the screen does not show the agent's request."""

    def find_text(self, menu: ScreenMenu) -> str:
        """Return the whole text that *menu* cuts; empty if unknown."""
        if self._menu != menu.digest:
            self.forget()
        return self._text if self._menu == menu.digest else ""

    def forget(self) -> None:
        """Forget the text, because another menu or none is on the screen; no effect while the view is being read."""
        if not self.is_open:
            self._menu = self._text = ""
            self._opened = None

    def begin(self, seen: ScreenObservation, menu: ScreenMenu, rule: MenuRule) -> bool:
        """Read what *menu* cuts, once; whether that is in progress. The screen is read again afterwards."""
        if self.is_open:
            return True
        if self._menu == menu.digest:
            return False
        self.is_open = True
        self._reading = asyncio.create_task(self._read(seen, menu, rule))
        return True

    async def is_same(self, digest: str) -> bool | None:
        """Whether the menu of *digest* still cuts the text that was read; None if it cannot be read now.

        True if nothing was read for it: then its own rows, or the agent's records, are complete.
        """
        if self._opened is None or not self._text:
            return True
        (menu, rule), before = self._opened, self._text
        seen = await self._target.see_now()
        now = seen.reading.menu
        if now is None or now.digest != digest:
            return False
        self.is_open = True
        await self._read(seen, menu, rule)
        return self._text == before if self._text else None

    async def _read(self, seen: ScreenObservation, menu: ScreenMenu, rule: MenuRule) -> None:
        text = ""
        try:
            if await self._is_focused():
                asyncio.get_running_loop().call_later(AGAIN_S, self._retry, menu.digest)
            elif rule.view is not None:
                text = await self._text_in(seen, menu, rule, rule.view)
        except KasmonError as error:
            log.warning("a full view was not read: %s", error)
        finally:
            self._menu, self._text, self._opened = menu.digest, text, (menu, rule)
            self.is_open = False
            self._target.begin()

    def _retry(self, digest: str) -> None:
        if self._menu == digest and not self._text and not self.is_open:
            self._reading = asyncio.create_task(self._retry_unless_focused(digest))

    async def _retry_unless_focused(self, digest: str) -> None:
        if await self._is_focused():
            asyncio.get_running_loop().call_later(AGAIN_S, self._retry, digest)
        else:
            self.forget()
            self._target.begin()

    async def _text_in(self, seen: ScreenObservation, menu: ScreenMenu, rule: MenuRule, view: ViewRule) -> str:
        """Return the whole text of the view; empty if the view does not prove that it is complete."""
        await self._press(view.key, seen, range(*menu.rows))
        seen = await self._wait_until(lambda now: is_open(now.shot.rows, rule))
        if not is_open(seen.shot.rows, rule):
            return ""
        seen = await self._still(rule)
        lines = extract_lines(seen.shot.rows, rule)
        is_whole = lines is not None
        if lines is not None and view.on:
            await self._press_in(view.on, seen, rule)
            # A half-drawn view has no end yet: it has not moved.
            seen = await self._wait_until(lambda now: extract_lines(now.shot.rows, rule) not in (None, lines), MOVED_S)
            is_whole = extract_lines(seen.shot.rows, rule) == lines
            if not is_whole and view.undo:
                await self._press_in(view.undo, seen, rule)
                seen = await self._wait_until(lambda now: extract_lines(now.shot.rows, rule) == lines)
        await self._press_in(view.back, seen, rule)
        back = await self._wait_until(lambda now: _is(now, menu))
        text = "\n".join(lines or ()).strip("\n")
        return text if is_whole and _is(back, menu) and menu.call in squeezed(text) else ""

    async def _still(self, rule: MenuRule) -> ScreenObservation:
        """Return the view once two readings are equal: it may be half drawn at first."""
        before: list[str] = []

        def is_same(seen: ScreenObservation) -> bool:
            nonlocal before
            earlier, before = before, [row.text for row in seen.shot.rows]
            return before == earlier and is_open(seen.shot.rows, rule)

        return await self._wait_until(is_same)

    async def _wait_until(
        self, is_right: Callable[[ScreenObservation], bool], limit_s: float = SHOWN_S
    ) -> ScreenObservation:
        return await poll(self._target.see_now, is_right, limit_s)

    async def _press_in(self, key: str, seen: ScreenObservation, rule: MenuRule) -> None:
        """Type *key* while the view that was *seen* is open; again if only another row was redrawn."""
        for _ in range(TRIES):
            try:
                await self._press(key, seen)
            except ScreenChangedError:
                seen = await self._target.see_now()
                if not is_open(seen.shot.rows, rule):
                    raise
            else:
                return
        raise RefusedError("its view keeps changing.")

    async def _press(self, key: str, seen: ScreenObservation, read: range | None = None) -> None:
        """Type *key* while the screen is as *seen*, and no user is focused on it."""
        if await self._is_focused():
            raise RefusedError(f"nothing is typed while {WATCHED}.")
        await self._pane_writer.press(key.encode(), seen.changed(read))


def _is(seen: ScreenObservation, menu: ScreenMenu) -> bool:
    now = seen.reading.menu
    return now is not None and now.on_screen == menu.on_screen


def is_open(rows: Sequence[ScreenRow], rule: MenuRule) -> bool:
    """Whether *rows* show the view of *rule*, and not the menu that cuts."""
    view = rule.view
    if view is None or (rule.cut and any(re.search(rule.cut, row.pattern_text) for row in rows)):
        return False
    return any(re.search(view.shows, row.pattern_text) for row in rows)


def extract_lines(rows: Sequence[ScreenRow], rule: MenuRule) -> list[str] | None:
    """Return the text rows in the view of *rule*; None unless *rows* show its beginning and exactly one end.

    Which of two rows that match the end is text is unknown. So is, of a command, what a wrapped row is.
    """
    view = rule.view
    if view is None or not is_open(rows, rule):
        return None
    start = next((at for at, row in enumerate(rows) if re.search(view.start, row.pattern_text)), None)
    if start is None or sum(re.search(view.end, row.pattern_text) is not None for row in rows[start + 1 :]) != 1:
        return None
    matches: list[re.Match[str]] = []
    ended = False
    for row in rows[start + 1 :]:
        if re.search(view.end, row.pattern_text):
            return [match["text"] or "" for match in matches] if has_certain_lines(rule.call, matches, rows) else None
        match = re.search(view.row, row.pattern_text)
        if match is not None and ended:
            return None  # what looked like the end was text
        ended = match is None
        if match is not None:
            matches.append(match)
    return None
