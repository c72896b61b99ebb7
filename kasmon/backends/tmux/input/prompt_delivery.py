"""Delivers a prompt to a pane: typed where possible, verified on the screen, sent, and verified as accepted.

| where a detection file describes the input box | |
|---|---|
| a request is open, history is shown, the program has ended | refused at once; `interrupt` leaves the history |
| the agent is starting; the box is absent, or contains a user's draft | checked again for `PATIENCE_S`, then refused |
| a user typed in the last seconds, here or attached | likewise |
| it is still absent, and the prompt is to be typed anyway | as below, unless a request is open; a draft is not seen |
| empty | the text is pasted; Enter follows once all of it is visible, `ENTER_S` later at the earliest |
| the same text still in it, long after Enter | Enter again, `PRESSES` times in all |
| the box is empty, or a turn began, in two readings | accepted |
| anything else | lost, with the observed screen; nothing is typed again |

Enter is sent under a condition (`screen_check.changed`): only while the rows that were read are still there. For all
other programs the text is pasted and Enter pressed, and the receipt reports that acceptance was not verified.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from kasmon.asyncio_tasks import wait_within
from kasmon.backends.tmux.evidence.screen_reader import LOOK_S
from kasmon.backends.tmux.input.command_completion import CommandCompletion, has_terminal, program_name, supports_query
from kasmon.backends.tmux.input.pane_writer import PERSON_S, ExclusivePaneWriter, PaneWriter
from kasmon.backends.tmux.input.prompt_entry import (
    LINES,
    SHOWN,
    EntryMethod,
    EntryObserver,
    EntryTarget,
    PromptEntry,
    has_question,
    unchanged,
)
from kasmon.backends.tmux.server_connection import ServerConnection
from kasmon.detection.menus.heuristic import probably_asking
from kasmon.detection.prompt_box import contains_text, visible_characters
from kasmon.detection.rules.schema import UNCLEAR
from kasmon.errors import (
    KasmonError,
    PasteRefusedError,
    PromptBoxError,
    ScreenChangedError,
    SessionBusyError,
    SessionEndedError,
    UsageError,
)
from kasmon.model.commands import Launch, Prompt
from kasmon.sanitize import outgoing
from kasmon.tmux.control import requests as ask
from kasmon.tmux.output_scanner import BracketedPasteTracker
from kasmon.tmux.screen_check import cursor_moved

PATIENCE_S: Final = 3.0
"""How long to wait for a box that is absent or not empty."""
BEFORE_S: Final = 2.0
"""How long a new command waits before kasmon asks the shell how the previous one ended."""
SECOND_S: Final = 1.0
"""The resolution of tmux's time of the last key."""
STARTING: Final = "its session has not begun"
NO_BOX_SEEN: Final = "its screen shows no input box"
NO_BOX_HINT: Final = "Type in its terminal, or send anyway (`kasmon send --anyway`) without verification."
NO_FILE: Final = "unverified: kasmon does not know the input box of this program"
NO_BOX: Final = "unverified: no agent detected in that terminal"
UNSEEN: Final = "unverified: its screen showed no input box"
NO_INK: Final = "unverified: its screen cannot be read"


class PromptTarget(NamedTuple):
    launch: Launch
    id: str
    line: ServerConnection
    pane_writer: PaneWriter
    brackets: BracketedPasteTracker

    @property
    def name(self) -> str:
        """The session's display name."""
        return self.launch.name or self.launch.session

    @property
    def is_ours(self) -> bool:
        """Whether the pane is not in the user's own tmux."""
        return self.launch.adopted is None


class PromptDelivery:
    """Delivers prompts to one agent, one after the other."""

    def __init__(self, pane: PromptTarget, target: EntryTarget, clock: Callable[[], float]) -> None:
        self.completion: CommandCompletion | None = None
        """The completion of the last command sent to it, if it is a shell."""
        self._pane, self._target, self._clock = pane, target, clock
        self._last, self._last_at = "", math.inf
        """The text that was typed last, and when."""

    async def deliver(self, prompt: Prompt, observer: EntryObserver) -> str:
        """Type *prompt* and send it, reporting to *observer*; return why acceptance was not verified, or empty.

        Raises:
            SessionEndedError: if the agent has ended.
            UsageError: if the sanitized prompt is empty.
            SessionBusyError: if a request is open, which Enter would answer; or if a user keeps typing.
            PromptBoxError: if nothing can be typed there now, or the box contains a user's draft.
            PaneDeadError, PasteRefusedError: if the pane accepts nothing now, or not several lines.
            PromptLostError: if it was typed, and acceptance was not observed.
            TmuxError: if tmux fails. Nothing was typed, except for `PromptLostError`.
        """
        if self._target.has_ended:
            raise SessionEndedError(self._pane.launch.session)
        if not outgoing(prompt.text).strip():
            raise UsageError("a prompt must not be empty.")
        await self._begin_completion()
        until, own = self._clock() + PATIENCE_S, ""
        try:
            while True:
                is_late = self._clock() > until
                async with self._pane.pane_writer.alone() as writer:
                    method = await self._choose_method(prompt, is_late=is_late)
                    if isinstance(method, EntryMethod):
                        text = self._last = outgoing(await observer.begin())
                        self._last_at = self._clock()
                        try:
                            pane, target, clock = self._pane, self._target, self._clock
                            entry = PromptEntry(pane.name, pane.id, target, clock, writer, method, text, observer)
                            return await entry.submit()
                        except ScreenChangedError:
                            method = _typing_error(self._pane)
                    own = await self._clear_draft(writer, own) if prompt.when == "interrupt" else ""
                if is_late:
                    raise method
                if not own:
                    await asyncio.sleep(LOOK_S)
        except KasmonError:
            self.completion = None
            raise

    async def _begin_completion(self) -> None:
        """Wait for the end of the last command, if it is about to be known; follow the next one from here."""
        if (before := self.completion) is not None:
            await wait_within(BEFORE_S if await self._is_at_prompt() else 0, before.over)
            if before.is_queried:
                await before.over.wait()
        self.completion = None
        if await self._is_at_prompt():
            self.completion = self._build_completion()

    def resume_completion(self) -> CommandCompletion | None:
        """Return the completion of a command that an earlier host sent; None unless it is kasmon's local shell."""
        if self._is_shell:
            self.completion = self._build_completion(has_begun=True)
        return self.completion

    def _build_completion(self, *, has_begun: bool = False) -> CommandCompletion:
        pane, program = self._pane, program_name(self._pane.launch.argv)
        return CommandCompletion(self._target, pane.pane_writer, self._target.pid, program, has_begun=has_begun)

    @property
    def _is_shell(self) -> bool:
        """Whether it is a shell in kasmon's tmux, of this machine: the foreground of a remote one is not visible."""
        pane = self._pane
        return pane.is_ours and not pane.launch.machine and supports_query(pane.launch.argv)

    async def _is_at_prompt(self) -> bool:
        """Whether it is a shell that is in the foreground of its terminal."""
        return self._is_shell and await asyncio.to_thread(has_terminal, self._target.pid)

    async def _choose_method(self, prompt: Prompt, *, is_late: bool) -> EntryMethod | KasmonError:
        """Return how *prompt* can be typed now, or an error that may pass by itself; *is_late*: it did not pass."""
        self._refuse_asking()
        pane, rule, text = self._pane, self._target.box_rule, outgoing(prompt.text)
        if time.time() - await pane.line.ask(ask.last_key_at(pane.id)) <= PERSON_S + SECOND_S:
            return _typing_error(pane)
        facts = await pane.line.ask(ask.screen_facts(pane.id))
        if facts.in_mode and prompt.when == "interrupt" and pane.is_ours:
            await pane.line.ask(ask.leave_mode(pane.id))
        await pane.line.ask(ask.typeable(pane.id))
        is_bracketed = pane.brackets.is_on if facts.bracketed_paste is None else facts.bracketed_paste
        is_whole = bool(is_bracketed) or (rule is not None and rule.brackets)
        newline = b""
        if "\n" in text.strip("\n") and not is_whole:
            newline = rule.newline.encode() if rule is not None else b""
            if not newline:
                raise PasteRefusedError(pane.id, LINES)
        if rule is None:
            return EntryMethod(None, NO_FILE, newline, is_whole)
        seen = await self._target.see_now()
        box = seen.reading.composer
        self._refuse_asking()
        if box is None and rule.shows_all:
            if not (prompt.anyway and is_late):
                return PromptBoxError(pane.name, NO_BOX_SEEN, hint=NO_BOX_HINT, is_unseen=True)
            if has_question(seen) or (seen.reading.state == UNCLEAR and probably_asking(seen.shot) is not None):
                raise SessionBusyError(pane.name, "asking")
            return EntryMethod(None, UNSEEN, newline, is_whole)
        if box is not None and box.draft:
            why = f"its input box contains a draft ({box.draft[:SHOWN]!r})"
            return PromptBoxError(pane.name, why, hint="Send it or clear it there first.")
        if "starting" in seen.reading.state and not (prompt.anyway and is_late):
            return PromptBoxError(pane.name, STARTING, hint=NO_BOX_HINT)
        is_seen = rule.shows_all and bool(visible_characters(text))
        cursor = seen.shot.cursor
        unless = "" if cursor is None or is_late else cursor_moved(cursor[0], cursor[1] + seen.above)
        return EntryMethod(rule if is_seen else None, NO_INK if rule.shows_all else NO_BOX, newline, is_whole, unless)

    async def _clear_draft(self, writer: ExclusivePaneWriter, own: str) -> str:
        """Clear what the agent put back into its box when its turn was interrupted, by one key; return what that left.

        *own*: what such a key left before, empty for the first one. Only the text that kasmon typed last, untouched
        since, is cleared.
        """
        rule, seen = self._target.box_rule, await self._target.see_now()
        box = seen.reading.composer
        if rule is None or not rule.clear or box is None or not box.draft:
            return ""
        is_own = own.startswith(visible_characters(box.draft)) if own else contains_text(self._last, box, rule)
        if not is_own or self._pane.pane_writer.keyed_at > self._last_at:
            return ""
        with contextlib.suppress(ScreenChangedError):
            await writer.press(rule.clear.encode(), unchanged(seen, box))
        await asyncio.sleep(LOOK_S)
        return visible_characters(box.draft) if own else visible_characters(self._last)

    def _refuse_asking(self) -> None:
        if self._target.is_asking:
            raise SessionBusyError(self._pane.name, "asking")


def _typing_error(pane: PromptTarget) -> SessionBusyError:
    return SessionBusyError(pane.name, "being typed into")
