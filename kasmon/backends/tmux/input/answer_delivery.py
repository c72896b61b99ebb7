"""An answer on its way to an agent's screen: compared with what stands there in the moment of each key, then watched.

| what stands there | what is done |
|---|---|
| another request, or another choice, than the one that was answered | nothing: the prompt changed |
| nothing that asks, by the word of a better source | nothing |
| the same, and the answer has a key | that key, once |
| the same, and it has none | the mark is moved to its choice, step by step, each of them seen; then Enter, once |
| the same, and several are wanted, or words | each is seen to be chosen, the words to stand there; then the last key |
| the same still, long after the key | if the mark moves when told to, the key was read and not taken: the mark's way |
| the same still after that | sent, and said to be open |

Each key goes with a question to tmux (`standing.changed`), which sends it only while the rows that were read stand
there: between look and key nothing can come. What is left: where the mark is nothing but a ground (opencode), or a row
is changed in signs alone, tmux cannot tell; and what the agent has drawn is older than what it thinks.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final, Protocol

from kasmon.backends.tmux.evidence.screen_reader import ScreenObservation
from kasmon.backends.tmux.evidence.screen_requests import ScreenRequest
from kasmon.backends.tmux.input.full_view import FullView
from kasmon.backends.tmux.input.menu import holds, is_open, is_toggled
from kasmon.detection.menu_answer import MenuAnswer, course
from kasmon.detection.menu_choices import ScreenMenu
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
from kasmon.tmux.screen_check import changed

TAKEN_S: Final = 1.5
"""A key that did nothing for so long was not taken, if the agent hears others; in seconds."""
MOVED_S: Final = 1.0
"""How long the mark may take to move."""
CLEARED_S: Final = 3.0
"""How long what was answered may still stand there after the last key."""
STILL_S: Final = 0.8
"""A mark that two keys may have moved stands where it is when it did not move for so long."""
YOUNG_S: Final = 0.7
"""A request gets no key before it has stood there for so long: agents ignore those that come at once."""
MOST_S: Final = 9.0
"""An answer takes no longer; who gave it waits for it."""
LOOK_S: Final = 0.05
TRIES: Final = 3
"""So often a key is offered while the same request stands there and its screen is drawn anew in between."""
ENTER: Final = b"\r"


class AnswerTarget(Protocol):
    """What is known of the agent, and its screen."""

    asked: ScreenRequest
    view: FullView | None

    @property
    def verdict(self) -> StateVerdict:
        """What it does, by all that is known."""
        ...

    async def see_now(self) -> ScreenObservation:
        """What stands on its screen, from a look that is taken now.

        Raises:
            SessionEndedError, TmuxError: if there is nothing to be seen.
        """
        ...

    def begin(self) -> None:
        """Look at it again as soon as that can be."""
        ...

    def answered(self) -> None:
        """What it asked was answered: whatever told that it asks is out of date."""
        ...


class AnswerWriter(Protocol):
    """Who types for it."""

    async def press(self, key: bytes, unless: str = "") -> None:
        """Type *key*, as `Line.press` does."""
        ...


class AnswerDelivery:
    """Carries answers to the screen of one agent, one after the other."""

    def __init__(self, watched: AnswerTarget, pane_writer: AnswerWriter) -> None:
        self._watched, self._pane_writer = watched, pane_writer
        self._turn = asyncio.Lock()

    async def carry(self, answer: Answer) -> None:
        """Give *answer* to the request that stands on the screen; when this returns it stands there no more.

        Raises:
            PromptChangedError: if something else stands there now; nothing was sent that could answer it.
            UnableError: if its menu cannot be told this.
            RefusedError: if the pane takes no keys now; nothing was sent.
            TimedOutError: if it was sent, and the request still stands there.
            SessionEndedError: if the agent ends meanwhile.
            TmuxError: if its screen cannot be looked at, or keys cannot be sent.
        """
        async with self._turn:
            open_now = self._watched.asked.open
            meant = open_now is not None and (open_now.id, open_now.digest) == (answer.request, answer.digest)
            if not meant or not answer.digest:
                raise PromptChangedError(answer.request)
            async with self._held():
                if answer.decision in CONSENTS:
                    await self._compare_cut_text(answer)
                way = _AnswerAttempt(self._watched, self._pane_writer, answer)
                try:
                    async with asyncio.timeout(MOST_S):
                        await way.walk()
                except TimeoutError as error:
                    raise way.stands() from error

    async def _compare_cut_text(self, answer: Answer) -> None:
        """Read once more what the request cuts, where only the agent's own view shows it.

        Raises:
            PromptChangedError: if it says something else now.
            RefusedError: if it cannot be read now.
        """
        view = self._watched.view
        is_same = True if view is None else await view.is_same(answer.digest)
        if is_same is None:
            raise RefusedError("its full text cannot be read again now.", hint="Open the terminal and answer there.")
        if not is_same:
            raise PromptChangedError(answer.request)

    @contextlib.asynccontextmanager
    async def _held(self) -> AsyncIterator[None]:
        """What stands there is neither asked anew nor withdrawn meanwhile."""
        asked = self._watched.asked
        asked.is_held = True
        try:
            yield
        except BaseException:
            asked.is_held = False
            self._watched.begin()
            raise
        asked.is_held = False
        self._watched.answered()


class _AnswerAttempt:
    """One answer on its way."""

    def __init__(self, watched: AnswerTarget, pane_writer: AnswerWriter, answer: Answer) -> None:
        self._watched, self._pane_writer, self._answer = watched, pane_writer, answer
        self._digest = answer.digest
        self._is_sent = False
        """Whether a key went that may have answered it."""
        self._loop = asyncio.get_running_loop()

    async def walk(self) -> None:
        await asyncio.sleep(self._watched.asked.opened_at + YOUNG_S - time.time())
        seen, menu = await self._standing()
        way = course(menu, self._answer.decision, self._answer.labels, self._answer.reason)
        if way.words:
            await self._write(way)
        elif way.wanted is not None:
            await self._toggle(way.wanted)
            seen, menu = await self._standing()
            await self._press(seen, menu, way.key.encode(), decides=True)
        elif way.key:
            await self._press(seen, menu, way.key.encode(), decides=True)
            if await self._is_cleared(TAKEN_S):
                return
            if await self._is_another(menu):
                return
            await self._second(way)
        else:
            await self._choose(way)
        if not await self._is_cleared(CLEARED_S):
            raise self.stands()

    async def _is_another(self, menu: ScreenMenu) -> bool:
        """Whether the next request stands there, which shows the same as the one that was answered and cuts the rest.

        Raises:
            TimedOutError: if nobody can tell: a second key could answer the next one.
        """
        view = self._watched.view
        is_same = True if view is None else await view.is_same(self._answer.digest)
        if is_same is None or not menu.is_whole:
            raise self.stands()
        return not is_same

    async def _second(self, way: MenuAnswer) -> None:
        """Its key did nothing so far: once more, in the other way where there is one, if the agent reads at all."""
        try:
            await self._move_away()
            if way.choice is not None:
                await self._choose(way)
            else:
                seen, menu = await self._standing()
                await self._press(seen, menu, way.key.encode(), decides=True)
        except PromptChangedError:
            return  # it was taken after all
        except RefusedError as error:
            raise self.stands() from error

    # -- the keys

    async def _choose(self, way: MenuAnswer) -> None:
        """Move the mark to the choice and press Enter there."""
        seen, menu = await self._move_to(way)
        await self._press(seen, menu, ENTER, marked=way.choice, decides=True)

    async def _write(self, way: MenuAnswer) -> None:
        """Type the words into the choice; Enter sends them once they are seen there, and nothing else has changed."""
        seen, before = await self._move_to(way)
        now = before
        if way.opens:
            await self._press(seen, now, way.opens.encode(), marked=way.choice)
            seen, now = await self._changed(lambda now: is_open(now, before, way), "does not open for a custom answer")
        await self._press(seen, now, way.words.encode(), marked=way.choice)
        seen, now = await self._changed(lambda now: holds(now, before, way), "does not show what was typed")
        await self._press(seen, now, ENTER, marked=way.choice, decides=True)

    async def _toggle(self, wanted: frozenset[int]) -> None:
        """Have exactly the choices *wanted* chosen, one key after the other, each of them seen to do what it should."""
        for at in range(len((await self._standing())[1].choices)):
            seen, before = await self._standing()
            choice = before.choices[at]
            if choice.is_on is None or choice.is_on is (at in wanted):
                continue
            await self._press(seen, before, choice.key.encode())
            await self._changed(partial(is_toggled, before, at), "does not react")

    async def _changed(
        self, is_right: Callable[[ScreenMenu], bool], fault: str
    ) -> tuple[ScreenObservation, ScreenMenu]:
        """The same request once its menu *is_right*; from then on that is what stands there.

        Raises:
            RefusedError: if it does not come to that; *fault* says what it does. Nothing was sent.
        """
        until = self._loop.time() + MOVED_S
        while True:
            seen = await self._watched.see_now()
            now = seen.reading.menu
            if now is not None and is_right(now):
                self._digest = now.digest
                return seen, now
            if self._loop.time() > until:
                raise RefusedError(
                    f"its menu {fault}, and nothing was sent.", hint=("Answer it in the session's terminal.")
                )
            await asyncio.sleep(LOOK_S)

    async def _move_to(self, way: MenuAnswer) -> tuple[ScreenObservation, ScreenMenu]:
        """The request with the mark on the choice."""
        choice = way.choice
        assert choice is not None
        while True:
            seen, menu = await self._standing()
            if menu.marked is None:
                raise PromptChangedError(self._answer.request)
            if menu.marked == choice:
                return seen, menu
            await self._step(seen, menu, 1 if choice > menu.marked else -1)

    async def _move_away(self) -> None:
        """Have the mark move: whoever moves it has read all that was typed before.

        Raises:
            TimedOutError: if it does not move: the agent reads nothing now.
        """
        seen, menu = await self._standing()
        if menu.marked is None or len(menu.choices) < 2 or not menu.hears:
            raise self.stands()
        await self._step(seen, menu, 1 if menu.marked + 1 < len(menu.choices) else -1)

    async def _step(self, seen: ScreenObservation, menu: ScreenMenu, step: int) -> None:
        """Move the mark, by one where the agent hears at once; once more where it does not.

        Raises:
            KasmonError: if the mark stays.
        """
        assert menu.marked is not None
        for is_first in (True, False):
            await self._press(seen, menu, menu.moves[step > 0].encode(), marked=menu.marked)
            moved = await self._is_other(menu.marked, MOVED_S)
            if moved is None:
                continue
            if not is_first and await self._is_other(moved, STILL_S) is not None:
                raise self.stands()  # both were heard, late: nobody knows where it will stand
            return
        raise self.stands()

    async def _is_other(self, marked: int | None, within_s: float) -> int | None:
        """Where the mark stands, as soon as that is not *marked*; None if it stays."""
        until = self._loop.time() + within_s
        while True:
            _, now = await self._standing()
            if now.marked is not None and now.marked != marked:
                return now.marked
            if self._loop.time() > until:
                return None
            await asyncio.sleep(LOOK_S)

    async def _press(
        self, seen: ScreenObservation, menu: ScreenMenu, key: bytes, marked: int | None = None, *, decides: bool = False
    ) -> None:
        """*key*, while all that *seen* showed of *menu* stands there, with the mark on *marked* where that is given.

        *decides*: the key may answer the request.

        Raises:
            PromptChangedError: if it does not; *key* was not sent.
        """
        was_sent = self._is_sent
        for _ in range(TRIES):
            rows = [""] * seen.above + [row.text for row in seen.shot.rows]
            read = range(menu.rows[0] + seen.above, menu.rows[1] + seen.above)
            self._is_sent = was_sent or decides
            try:
                await self._pane_writer.press(key, changed(seen.size, rows, read))
            except ScreenChangedError:
                self._is_sent = was_sent
                seen, menu = await self._standing()
                if marked is not None and menu.marked != marked:
                    break
            except PasteRefusedError as error:
                raise RefusedError(f"nothing was sent: {error.why}.", hint="Close that, then answer again.") from error
            else:
                return
        raise PromptChangedError(self._answer.request)

    # -- the looks

    async def _standing(self) -> tuple[ScreenObservation, ScreenMenu]:
        """A look that is taken now, at the request that is answered.

        Raises:
            PromptChangedError: if it does not stand there, or is not what the agent waits for.
        """
        seen, menu = await self._shown()
        if menu is None or self._watched.verdict.state is not SessionState.ASKING:
            raise PromptChangedError(self._answer.request)
        return seen, menu

    async def _shown(self) -> tuple[ScreenObservation, ScreenMenu | None]:
        """A look that is taken now, and the request on it; None if a second look does not see it either."""
        for again in (True, False):
            seen = await self._watched.see_now()
            menu = seen.reading.menu
            if menu is not None and menu.digest == self._digest:
                return seen, menu
            if again:  # it may be half drawn
                await asyncio.sleep(LOOK_S)
        return seen, None

    async def _is_cleared(self, within_s: float) -> bool:
        """Whether the request is gone from the screen before *within_s* are over."""
        until = self._loop.time() + within_s
        while True:
            _, menu = await self._shown()
            if menu is None:
                return True
            if self._loop.time() > until:
                return False
            await asyncio.sleep(LOOK_S)

    def stands(self) -> KasmonError:
        """Why it is not answered, though the same request stands there."""
        if not self._is_sent:
            return RefusedError(
                "its menu does not react, and nothing that answers it was sent.",
                hint="Answer it in the session's terminal.",
            )
        return TimedOutError(
            f"request {self._answer.request!r}: the answer was sent, but the request is still on the screen.",
            hint="Answer it in the session's terminal.",
        )
