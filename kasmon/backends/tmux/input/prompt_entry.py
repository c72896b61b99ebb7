"""One prompt from its first character to the reading that shows acceptance, in a reserved pane.

Enter is sent under a condition (`screen_check.changed`): only while the rows that were read are still there.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from kasmon import errors
from kasmon.backends.tmux.evidence.screen_reader import LOOK_S, ScreenObservation
from kasmon.backends.tmux.input.command_completion import ShellScreen
from kasmon.backends.tmux.input.pane_writer import ExclusivePaneWriter
from kasmon.detection.prompt_box import Composer, contains_text
from kasmon.detection.rules.schema import ComposerRule
from kasmon.tmux.control.requests import KEY_BYTES

ENTER: Final = b"\r"
ENTER_S: Final = 0.15
"""The minimum delay of Enter after a paste. Some agents take an Enter within 120 ms for a part of it."""
TYPED_S: Final = 20.0
"""How long a text may take to appear; an agent that has just started may be busy for long."""
TAKEN_S: Final = 2.5
"""How long Enter may take to have an effect. An agent busy for longer reads all Enters at once, and a second one on
an empty box does nothing."""
GONE_S: Final = 6.0
"""How long acceptance may remain undecided."""
PRESSES: Final = 3
SHOWN: Final = 40
LINES: Final = "it reads each line of a paste as a separate prompt"
ENDED: Final = "the agent ended when it received this"


class EntryObserver(Protocol):
    """The sender of the prompt, which is informed of its progress."""

    async def begin(self) -> str:
        """Return the text, which is typed next. Raises RefusedError if the prompt was cancelled."""

    def mark_visible(self) -> None:
        """Record that the whole text was seen in the box."""


class EntryTarget(ShellScreen, Protocol):
    """The state of the agent, and its screen."""

    pid: int

    @property
    def box_rule(self) -> ComposerRule | None: ...


class EntryMethod(NamedTuple):
    """How a text can be typed now."""

    rule: ComposerRule | None
    """The rule to read the box by; None if the result cannot be verified."""
    caveat: str
    newline: bytes
    """The keys for a new line; empty if paste is bracketed, or there is only one line."""
    is_whole: bool
    """Whether a paste is taken as one."""
    unless: str = ""
    """A format that holds if a user typed since the reading (`screen_check.cursor_moved`)."""


class PromptEntry:
    """The prompt *text* for the session *name* in *pane*, typed by method *method*."""

    def __init__(
        self,
        name: str,
        pane: str,
        target: EntryTarget,
        clock: Callable[[], float],
        writer: ExclusivePaneWriter,
        method: EntryMethod,
        text: str,
        observer: EntryObserver,
    ) -> None:
        self._name, self._pane, self._target, self._clock = name, pane, target, clock
        self._writer, self._method, self._text, self._observer = writer, method, text, observer

    async def submit(self) -> str:
        """Type it and send it; return why acceptance was not verified, or empty.

        Raises:
            ScreenChangedError: if a user typed there since the reading; nothing was typed.
            PaneDeadError, PasteRefusedError: if the pane accepts nothing now; nothing was typed.
            PromptLostError: if all or part of it was typed, and acceptance was not observed.
        """
        method, text, rule = self._method, self._text, self._method.rule
        keys = pieces(text.strip("\n").split("\n"), method.newline) if method.newline else []
        try:
            if keys:
                await self._writer.press(keys[0], method.unless)
            elif not method.is_whole and "\n" in text.strip("\n"):  # changed in the last moment
                raise errors.PasteRefusedError(self._pane, LINES)
            else:
                await self._writer.paste(text if method.is_whole else text.rstrip("\n"), method.unless)
        except errors.TmuxError as error:
            raise self._build_lost_error(f"tmux did not report whether it was typed ({error.message})") from error
        await self._type_rest(keys[1:])
        typed_at = self._clock()
        if rule is None:
            await asyncio.sleep(ENTER_S)
            seen = await self._observe()
            if self._target.is_asking or (seen is not None and has_question(seen)):
                raise self._build_lost_error("the text was typed, but not Enter: a request is open there now")
            await self._press_enter()
            return method.caveat
        seen = await self._await_text(rule)
        self._observer.mark_visible()
        was_working = "working" in seen.reading.state
        await asyncio.sleep(max(0.0, typed_at + ENTER_S - self._clock()))
        for _ in range(PRESSES):
            await self._press_enter(rule)
            try:
                if await self._is_accepted(rule, was_working=was_working):
                    return ""
            except errors.PromptLostError:
                if self._target.has_ended:  # maybe because of the prompt; its session shows how
                    return ENDED
                raise
        raise self._build_lost_error("the text is in its input box, and Enter was not accepted")

    async def _type_rest(self, keys: Sequence[bytes]) -> None:
        try:
            for piece in keys:
                await self._writer.press(piece)
        except errors.KasmonError as error:
            raise self._build_lost_error(f"only a part of it was typed ({error.message})") from error

    async def _await_text(self, rule: ComposerRule) -> ScreenObservation:
        """Wait until the box contains the text and nothing else; return that reading."""
        until = self._clock() + TYPED_S
        while True:
            seen = await self._observe()
            box = seen.reading.composer if seen is not None else None
            if seen is not None and box is not None and contains_text(self._text, box, rule):
                return seen
            if self._clock() > until:
                state = f"its input box shows {box.draft[:SHOWN]!r}" if box else "its screen does not show it"
                raise self._build_lost_error(f"it was typed, and {state}; Enter was not pressed")
            await asyncio.sleep(LOOK_S)

    async def _press_enter(self, rule: ComposerRule | None = None) -> None:
        """Press Enter; with a *rule* at a moment when the text is in the box."""
        until = self._clock() + TYPED_S
        while True:
            unless = ""
            if rule is not None:
                seen = await self._await_text(rule)
                assert seen.reading.composer is not None
                unless = unchanged(seen, seen.reading.composer)
            try:
                await self._writer.press(ENTER, unless)
            except (errors.ScreenChangedError, errors.PasteRefusedError) as error:
                if isinstance(error, errors.PasteRefusedError) and not unless:
                    raise self._build_lost_error(f"the text was typed, but not Enter: {error.why}") from error
                if self._clock() > until:
                    raise self._build_lost_error(
                        f"it is in the input box, and Enter was not pressed: {error.message}"
                    ) from error
                await asyncio.sleep(LOOK_S)
            except errors.PaneDeadError as error:
                raise self._build_lost_error("the agent ended when the text was typed") from error
            except errors.TmuxError as error:
                raise self._build_lost_error(
                    f"tmux did not report whether Enter was pressed ({error.message})"
                ) from error
            else:
                return

    async def _is_accepted(self, rule: ComposerRule, *, was_working: bool) -> bool:
        """Whether the text has left its box in two readings; false if it is still there."""
        again_at, until = self._clock() + TAKEN_S, self._clock() + GONE_S
        was_gone = False
        while True:
            await asyncio.sleep(LOOK_S)
            seen = await self._observe()
            box = seen.reading.composer if seen is not None else None
            if seen is None:
                is_gone = False
            elif seen.reading.state == "starting":  # accepted; the text stays visible until its session begins
                is_gone = True
            elif box is None:  # a turn that begins, or a request that it opens at once, may hide the box
                is_gone = not was_working and seen.reading.state in ("working", "asking")
            else:
                is_gone = not box.draft
            if is_gone and was_gone:
                return True
            was_gone = is_gone
            now = self._clock()
            if now > again_at and box is not None and contains_text(self._text, box, rule):
                return False
            if now > until:
                there = (
                    f"its input box shows {box.draft[:SHOWN]!r}"
                    if box and box.draft
                    else ("its input box is not visible")
                )
                raise self._build_lost_error(f"Enter was pressed, but it is unknown whether it was accepted: {there}")

    async def _observe(self) -> ScreenObservation | None:
        """Read the screen now; None if that fails at this moment."""
        try:
            return await self._target.see_now()
        except errors.SessionEndedError as error:
            raise self._build_lost_error("the agent ended or was released before delivery was confirmed") from error
        except errors.TmuxServerGoneError as error:
            raise self._build_lost_error(f"delivery was not confirmed ({error.message})") from error
        except errors.TmuxError:
            return None

    def _build_lost_error(self, why: str) -> errors.PromptLostError:
        return errors.PromptLostError(self._name, why)


def has_question(seen: ScreenObservation) -> bool:
    """Whether a question that a rule matches is on the screen, whatever other sources report: Enter might answer it."""
    return seen.reading.menu is not None or "asking" in seen.reading.state


def unchanged(seen: ScreenObservation, box: Composer) -> str:
    """Return a format that is 1 unless *box* is still as *seen*."""
    return seen.changed(box.rows)


def pieces(lines: Sequence[str], newline: bytes) -> list[bytes]:
    """Return *lines* as keys, in pieces that can be pressed at once; no key and no character is split."""
    cut = [b""]
    for key in (key for at, line in enumerate(lines) for key in ([newline] if at else []) + [*map(str.encode, line)]):
        if len(cut[-1]) + len(key) > KEY_BYTES:
            cut.append(b"")
        cut[-1] += key
    return cut
