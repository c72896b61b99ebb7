"""Delivers an answer to an agent's screen: the screen is compared at each key, then watched.

| on the screen | what is done |
|---|---|
| another request, or another choice, than the one that was answered | nothing: the prompt changed |
| no request, according to a better source | nothing |
| the same, and the answer has a key | that key, once |
| the same, and it has none | the mark is moved to its choice, each step verified; then Enter, once |
| the same, with several choices or a text | each choice and the text are verified on the screen; then the last key |
| still the same, long after the key | if the mark moves on a key, the answer's key was ignored: use the mark |
| still the same after that | sent, and reported as still open |

Each key is sent by tmux under a condition (`screen_check.changed`), only while the rows that were read are still there.
Nothing can come between reading and key, with two limits. tmux cannot see a mark that is only a background colour
(opencode), or a row changed in attributes alone; and an agent's drawing is older than its state.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final, Protocol

from kasmon.backends.tmux.evidence.screen_reader import LOOK_S, AgentScreen, ScreenObservation, poll
from kasmon.backends.tmux.evidence.screen_requests import ScreenRequest
from kasmon.backends.tmux.input.full_view import FullView, KeyWriter
from kasmon.detection.menus.answer import MenuAnswer, is_filled_in, is_open, is_toggled, plan_keys
from kasmon.detection.menus.choices import ScreenMenu
from kasmon.errors import (
    KasmonError,
    PasteRefusedError,
    PromptChangedError,
    RefusedError,
    ScreenChangedError,
    TimedOutError,
)
from kasmon.model.commands import Answer
from kasmon.model.evidence import StateVerdict
from kasmon.model.permission import CONSENTS
from kasmon.model.session_state import SessionState

TAKEN_S: Final = 1.5
"""A key without effect for this long was ignored, if the agent reacts to others; in seconds."""
MOVED_S: Final = 1.0
CLEARED_S: Final = 3.0
"""How long the answered request may remain on the screen after the last key."""
STILL_S: Final = 0.8
"""A mark that two keys may have moved is final when it has not moved for this long."""
YOUNG_S: Final = 0.7
"""A request gets no key before it was on the screen for this long: agents ignore keys that come at once."""
MOST_S: Final = 9.0
"""An answer takes no longer; its sender waits for it."""
TRIES: Final = 3
"""How often a key is tried while the same request is redrawn in between."""
ENTER: Final = b"\r"


class AnswerTarget(AgentScreen, Protocol):
    """The state of the agent, and its screen."""

    asked: ScreenRequest
    view: FullView | None

    @property
    def verdict(self) -> StateVerdict:
        """Its state, by all evidence."""

    def handle_answer(self) -> None:
        """Record that its request was answered: evidence that it asks is outdated."""


class AnswerDelivery:
    """Delivers answers to the screen of one agent, one after the other."""

    def __init__(self, target: AnswerTarget, pane_writer: KeyWriter) -> None:
        self._target, self._pane_writer = target, pane_writer
        self._turn = asyncio.Lock()

    async def deliver(self, answer: Answer) -> None:
        """Give *answer* to the request on the screen; when this returns, the request has left the screen.

        Raises:
            PromptChangedError: if something else is on the screen; no key that could answer it was sent.
            UnableError: if its menu cannot take this answer.
            RefusedError: if the pane accepts no keys now; nothing was sent.
            TimedOutError: if it was sent, and the request is still on the screen.
            SessionEndedError: if the agent ends meanwhile.
            TmuxError: if its screen cannot be read, or keys cannot be sent.
        """
        async with self._turn:
            open_now = self._target.asked.open
            meant = open_now is not None and (open_now.id, open_now.digest) == (answer.request, answer.digest)
            if not meant or not answer.digest:
                raise PromptChangedError(answer.request)
            async with self._hold_request():
                if answer.decision in CONSENTS:
                    await self._compare_cut_text(answer)
                attempt = _AnswerAttempt(self._target, self._pane_writer, answer)
                try:
                    async with asyncio.timeout(MOST_S):
                        await attempt.run()
                except TimeoutError as error:
                    raise attempt.still_open_error() from error

    async def _compare_cut_text(self, answer: Answer) -> None:
        """Read once more what the request cuts, where only the agent's own view shows it.

        Raises:
            PromptChangedError: if the text has changed.
            RefusedError: if it cannot be read now.
        """
        view = self._target.view
        is_same = True if view is None else await view.is_same(answer.digest)
        if is_same is None:
            raise RefusedError("its full text cannot be read again now.", hint="Open the terminal and answer there.")
        if not is_same:
            raise PromptChangedError(answer.request)

    @contextlib.asynccontextmanager
    async def _hold_request(self) -> AsyncIterator[None]:
        """Keep the on-screen request as it is meanwhile: neither reopened nor withdrawn."""
        asked = self._target.asked
        asked.is_held = True
        try:
            yield
        except BaseException:
            asked.is_held = False
            self._target.begin()
            raise
        asked.is_held = False
        self._target.handle_answer()


class _AnswerAttempt:
    def __init__(self, target: AnswerTarget, pane_writer: KeyWriter, answer: Answer) -> None:
        self._target, self._pane_writer, self._answer = target, pane_writer, answer
        self._digest = answer.digest
        self._is_sent = False
        """Whether a key was sent that may have answered it."""

    async def run(self) -> None:
        await asyncio.sleep(self._target.asked.opened_at + YOUNG_S - time.time())
        seen, menu = await self._expect_request()
        menu_answer = plan_keys(menu, self._answer.decision, self._answer.labels, self._answer.reason)
        if menu_answer.text:
            await self._write(menu_answer)
        elif menu_answer.selected is not None:
            await self._toggle(menu_answer.selected)
            seen, menu = await self._expect_request()
            await self._press(seen, menu, menu_answer.key.encode(), decides=True)
        elif menu_answer.key:
            await self._press(seen, menu, menu_answer.key.encode(), decides=True)
            if await self._is_cleared(TAKEN_S):
                return
            if await self._is_another(menu):
                return
            await self._retry(menu_answer)
        else:
            await self._choose(menu_answer)
        if not await self._is_cleared(CLEARED_S):
            raise self.still_open_error()

    async def _is_another(self, menu: ScreenMenu) -> bool:
        """Whether the screen shows the next request, which looks the same as the answered one and cuts the rest.

        Raises:
            TimedOutError: if that is unknown: a second key could answer the next one.
        """
        view = self._target.view
        is_same = True if view is None else await view.is_same(self._answer.digest)
        if is_same is None or not menu.is_whole:
            raise self.still_open_error()
        return not is_same

    async def _retry(self, menu_answer: MenuAnswer) -> None:
        """Retry after a key without effect, with the other method if there is one, if the agent reads keys at all."""
        try:
            await self._move_away()
            if menu_answer.choice is not None:
                await self._choose(menu_answer)
            else:
                seen, menu = await self._expect_request()
                await self._press(seen, menu, menu_answer.key.encode(), decides=True)
        except PromptChangedError:
            return  # it was accepted after all
        except RefusedError as error:
            raise self.still_open_error() from error

    # -- the keys

    async def _choose(self, menu_answer: MenuAnswer) -> None:
        seen, menu = await self._move_to(menu_answer)
        await self._press(seen, menu, ENTER, marked=menu_answer.choice, decides=True)

    async def _write(self, menu_answer: MenuAnswer) -> None:
        """Type the text into the choice; press Enter once the text is visible and nothing else has changed."""
        seen, before = await self._move_to(menu_answer)
        now = before
        if menu_answer.opens:
            await self._press(seen, now, menu_answer.opens.encode(), marked=menu_answer.choice)
            seen, now = await self._wait_for_menu(
                lambda now: is_open(now, before, menu_answer), "does not open for a custom answer"
            )
        await self._press(seen, now, menu_answer.text.encode(), marked=menu_answer.choice)
        seen, now = await self._wait_for_menu(
            lambda now: is_filled_in(now, before, menu_answer), "does not show what was typed"
        )
        await self._press(seen, now, ENTER, marked=menu_answer.choice, decides=True)

    async def _toggle(self, wanted: frozenset[int]) -> None:
        """Toggle choices until exactly *wanted* are chosen, one key after the other, each effect verified."""
        for at in range(len((await self._expect_request())[1].choices)):
            seen, before = await self._expect_request()
            choice = before.choices[at]
            if choice.is_on is None or choice.is_on is (at in wanted):
                continue
            await self._press(seen, before, choice.key.encode())
            await self._wait_for_menu(partial(is_toggled, before, at), "does not react")

    async def _wait_for_menu(
        self, is_right: Callable[[ScreenMenu], bool], fault: str
    ) -> tuple[ScreenObservation, ScreenMenu]:
        """Wait until the menu of the same request *is_right*, and expect that menu from then on.

        Raises:
            RefusedError: if that does not happen; *fault* describes the menu. Nothing was sent.
        """
        seen = await poll(
            self._target.see_now, lambda seen: seen.reading.menu is not None and is_right(seen.reading.menu), MOVED_S
        )
        now = seen.reading.menu
        if now is None or not is_right(now):
            raise RefusedError(
                f"its menu {fault}, and nothing was sent.", hint=("Answer it in the session's terminal.")
            )
        self._digest = now.digest
        return seen, now

    async def _move_to(self, menu_answer: MenuAnswer) -> tuple[ScreenObservation, ScreenMenu]:
        choice = menu_answer.choice
        assert choice is not None
        while True:
            seen, menu = await self._expect_request()
            if menu.marked is None:
                raise PromptChangedError(self._answer.request)
            if menu.marked == choice:
                return seen, menu
            await self._step(seen, menu, 1 if choice > menu.marked else -1)

    async def _move_away(self) -> None:
        """Move the mark: an agent that moves it has read all that was typed before. Raises `TimedOutError`."""
        seen, menu = await self._expect_request()
        if menu.marked is None or len(menu.choices) < 2 or not menu.reads_keys:
            raise self.still_open_error()
        await self._step(seen, menu, 1 if menu.marked + 1 < len(menu.choices) else -1)

    async def _step(self, seen: ScreenObservation, menu: ScreenMenu, step: int) -> None:
        """Move the mark by one, with a second key if the agent does not react to the first.

        Raises:
            KasmonError: if the mark does not move.
        """
        assert menu.marked is not None
        for is_first in (True, False):
            await self._press(seen, menu, menu.moves[step > 0].encode(), marked=menu.marked)
            moved = await self._wait_for_move(menu.marked, MOVED_S)
            if moved is None:
                continue
            if not is_first and await self._wait_for_move(moved, STILL_S) is not None:
                raise self.still_open_error()  # both were read, late: its final position is unknown
            return
        raise self.still_open_error()

    async def _wait_for_move(self, marked: int | None, within_s: float) -> int | None:
        """Return the mark's position as soon as it is not *marked*; None if it does not move."""
        _, now = await poll(self._expect_request, lambda reading: reading[1].marked not in (None, marked), within_s)
        return now.marked if now.marked != marked else None

    async def _press(
        self, seen: ScreenObservation, menu: ScreenMenu, key: bytes, marked: int | None = None, *, decides: bool = False
    ) -> None:
        """Press *key* while *menu* is on the screen as *seen*, with the mark on *marked* if given.

        *decides*: the key may answer the request.

        Raises:
            PromptChangedError: if the screen differs; *key* was not sent.
        """
        was_sent = self._is_sent
        for _ in range(TRIES):
            self._is_sent = was_sent or decides
            try:
                await self._pane_writer.press(key, seen.changed(range(*menu.rows)))
            except ScreenChangedError:
                self._is_sent = was_sent
                seen, menu = await self._expect_request()
                if marked is not None and menu.marked != marked:
                    break
            except PasteRefusedError as error:
                raise RefusedError(f"nothing was sent: {error.why}.", hint="Close that, then answer again.") from error
            else:
                return
        raise PromptChangedError(self._answer.request)

    # -- screen readings

    async def _expect_request(self) -> tuple[ScreenObservation, ScreenMenu]:
        """Read the screen now and return the request that is answered.

        Raises:
            PromptChangedError: if it is not on the screen, or not what the agent waits for.
        """
        seen, menu = await self._find_request()
        if menu is None or self._target.verdict.state is not SessionState.ASKING:
            raise PromptChangedError(self._answer.request)
        return seen, menu

    async def _find_request(self) -> tuple[ScreenObservation, ScreenMenu | None]:
        """Read the screen now, with the request on it; None if a second reading does not show it either."""
        for again in (True, False):
            seen = await self._target.see_now()
            menu = seen.reading.menu
            if menu is not None and menu.digest == self._digest:
                return seen, menu
            if again:  # it may be half drawn
                await asyncio.sleep(LOOK_S)
        return seen, None

    async def _is_cleared(self, within_s: float) -> bool:
        _, menu = await poll(self._find_request, lambda reading: reading[1] is None, within_s)
        return menu is None

    def still_open_error(self) -> KasmonError:
        if not self._is_sent:
            return RefusedError(
                "its menu does not react, and nothing that answers it was sent.",
                hint="Answer it in the session's terminal.",
            )
        return TimedOutError(
            f"request {self._answer.request!r}: the answer was sent, but the request is still on the screen.",
            hint="Answer it in the session's terminal.",
        )
