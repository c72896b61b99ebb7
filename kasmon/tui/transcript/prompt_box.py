"""The boxes for prompts and code: several lines, with keys to send and for a new line. Heavy; imported on demand."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import TextArea

from kasmon.errors import KasmonError
from kasmon.model.commands import Prompt, ReceiptId, Requeue, Run, When
from kasmon.model.events import SlashCommand
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import INTERPRETERS, Interpreter
from kasmon.supervisor.worktrees.code_symbols import CodeSymbol
from kasmon.tui.action import Action, Handlers, KeyContext
from kasmon.tui.app_protocols import dashboard_of
from kasmon.tui.error_text import what_failed
from kasmon.tui.keymap import KeyMap, Keys
from kasmon.tui.textual_ext.inputs import OrderedKeys, PasteHandler
from kasmon.tui.transcript.completion import (
    Suggestion,
    Suggestions,
    find_command,
    find_mention,
    find_pasted_picture,
    mention,
    suggest_commands,
    suggest_mentions,
    suggest_prompts,
)


class TextBox(OrderedKeys, PasteHandler, TextArea):
    """Several lines; Enter posts `Submitted`, the keys for a new line insert one."""

    class Submitted(Message):
        """Enter was pressed."""

    def __init__(self, keys: KeyMap, placeholder: str = "", text: str = "", *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        quiet = Content(placeholder)  # a plain string would be read as markup
        super().__init__(text, soft_wrap=True, show_line_numbers=False, placeholder=quiet, id=id)
        self.keys = keys
        self.cursor_blink = False
        self.highlight_cursor_line = False
        self.move_cursor(self.document.end)
        self.handlers: Handlers = {
            Keys.SUBMIT: lambda: self.post_message(self.Submitted()),
            Keys.NEWLINE: self._insert_line,
        }
        """One that returns False leaves the key to the next handler."""

    def takes(self, event: events.Key) -> bool:
        row = self.keys.action(event.key, KeyContext.PROMPT)
        return row is not None and self.means(row)

    def means(self, action: Action) -> bool:
        """Run the action of a key; False leaves the key to the next handler."""
        return (handler := self.handlers.get(action)) is not None and handler() is not False

    def _insert_line(self) -> None:
        self.insert("\n")


COMMAND_SIGN: Final = "!"
"""A prompt that begins with it is a command of the person, which runs in the session's folder."""


class PromptBox(TextBox):
    """Writes to one session: new prompts, earlier ones again, and changes of queued ones.

    Args:
        history: returns the earlier prompts, the last one last.
        offered: the list that shows suggestions.
    """

    def __init__(
        self,
        session: SessionId,
        keys: KeyMap,
        placeholder: str,
        text: str = "",
        *,
        history: Callable[[], Sequence[str]] = tuple,
        offered: Suggestions | None = None,
    ) -> None:
        super().__init__(keys, placeholder, text, id="prompt")
        self.session = session
        self.changes: ReceiptId | None = None
        """The queued prompt that is being edited; None for a new one."""
        self._history, self._offered = history, offered
        self._back: tuple[Sequence[str], int] | None = None
        """The earlier prompts, and the index of the shown one."""
        self._draft = ""
        """The text before an earlier prompt was shown."""
        self._files: Sequence[str] | None = None
        """None until they are wanted."""
        self._symbols: Sequence[CodeSymbol] = ()
        self._commands: Sequence[SlashCommand] = ()
        self._knows_commands = False
        """Whether the commands were read since the prompt was empty."""
        self._searched_draft: str | None = None
        """The text before the search of earlier prompts began; None while there is no search."""
        self.handlers = {
            Keys.SUBMIT: lambda: self._submit("now"),
            Keys.NEWLINE: self._insert_line,
            Keys.SUBMIT_LATER: lambda: self._submit("idle"),
            Keys.HISTORY_BACK: lambda: self.cursor_location[0] == 0 and self._show_earlier(1),
            Keys.HISTORY_ON: lambda: self.cursor_location[0] == self.document.line_count - 1 and self._show_earlier(-1),
            Keys.HISTORY_SEARCH: self._search_history,
            Keys.LEAVE_PROMPT: self._leave,
        }

    def takes(self, event: events.Key) -> bool:
        if self._searched_draft is not None and event.key in ("enter", "escape", "tab"):
            self._end_search(event.key)
            return True
        has_suggestions = self._offered is not None and bool(self._offered.offered)
        return (has_suggestions and self._chooses(event.key)) or super().takes(event)

    def means(self, action: Action) -> bool:
        if action in self.handlers:
            return super().means(action)
        dashboard_of(self).perform(action)
        return True

    def _leave(self) -> None:
        """End the change of a queued prompt; without one, leave the session."""
        if self.changes is not None:
            self.change(None, "")
        else:
            dashboard_of(self).perform(Keys.LEAVE_PROMPT)

    def change(self, receipt: ReceiptId | None, text: str) -> None:
        """Edit the queued prompt *receipt*; None ends that and restores the earlier draft."""
        if self.changes is None:
            self._draft = self.text
        self.changes = receipt
        self._put(text if receipt is not None else self._draft)
        self.set_class(receipt is not None, "-changing")
        self.border_title = Content("Editing a queued prompt" if receipt is not None else "")

    def on_mount(self) -> None:
        """Read the commands ahead, so that `/` shows them at once."""
        if self._offered is not None:
            self.run_worker(self._load_commands(), exclusive=True, group="commands")

    async def _load_commands(self) -> None:
        if (gateway := dashboard_of(self).gateway) is not None:
            with contextlib.suppress(KasmonError):  # a log that cannot be read shows its error in the transcript
                self._commands = await gateway.slash_commands(self.session)
            self._complete()

    async def _load_mentions(self) -> None:
        if (gateway := dashboard_of(self).gateway) is not None:
            try:
                self._files = await gateway.files(self.session)
                self._complete()
                self._symbols = await gateway.symbols(self.session)
            except KasmonError as error:
                dashboard_of(self).say(what_failed(error), severity="warning")
            self._complete()

    def takes_paste(self, text: str) -> bool:
        """Paste; the path of a picture, which terminals paste for a dropped file, becomes a mention of it."""
        if self._offered is None or not (file := find_pasted_picture(text)):
            return False
        self.insert(f"{mention(file)} ")
        return True

    def on_text_area_changed(self) -> None:
        self._complete()

    def on_text_area_selection_changed(self) -> None:
        self._complete()

    def on_blur(self) -> None:
        self._searched_draft = None
        if self._offered is not None:
            self._offered.offer(())

    def _submit(self, when: When) -> None:
        if not self.text.strip():
            return
        self._back, text, sender = None, self.text, dashboard_of(self).session_pane
        if self.changes is not None:
            sender.change_queue(self.session, Requeue(receipt=self.changes, text=text))
            self.change(None, "")
        elif self.text.startswith(COMMAND_SIGN) and self.text.strip() != COMMAND_SIGN:
            sender.run_command(self.session, self.text.removeprefix(COMMAND_SIGN).strip())
        else:
            sender.send_prompt(self.session, Prompt(text=text, when=when))
            self.clear()

    def _show_earlier(self, by: int) -> bool:
        """Show the previous or next prompt; False if there is none to show."""
        if self.changes is not None:
            return False
        if self._back is None or self.text != self._back[0][self._back[1]]:
            self._back = None
        if self._back is None:
            prompts = [*self._history()]
            if by < 0 or not prompts:
                return False
            self._draft, self._back = self.text, (prompts, len(prompts))
        prompts_then, at = self._back
        wanted = at - by
        if wanted >= len(prompts_then):
            self._back = None
            self._put(self._draft)
        elif wanted >= 0:
            self._back = (prompts_then, wanted)
            self._put(prompts_then[wanted])
        return True

    def _put(self, text: str) -> None:
        self.text = text
        self.move_cursor(self.document.end)

    # Completion.

    def _chooses(self, key: str) -> bool:
        assert self._offered is not None
        if key in ("up", "down"):
            self._offered.move(1 if key == "down" else -1)
        elif key in ("tab", "enter"):
            self._insert(self._offered.accept())
        elif key == "escape":
            self._offered.offer(())
        else:
            return False
        return True

    def _before(self) -> str:
        row, column = self.cursor_location
        return self.document.get_line(row)[:column]

    def _complete(self) -> None:
        if self._offered is not None:
            self._offered.offer(self._suggest() if self.has_focus else ())

    def _suggest(self) -> Sequence[Suggestion]:
        if self._searched_draft is not None:
            return suggest_prompts(self._history(), self.text)
        before = self._before()
        command = find_command(before) if self.cursor_location[0] == 0 else None
        if command is not None:
            if not self._knows_commands:
                self._knows_commands = True
                self.run_worker(self._load_commands(), exclusive=True, group="commands")
            return suggest_commands(self._commands, command)
        self._knows_commands = self._knows_commands and bool(self.text)
        if (mention := find_mention(before)) is None:
            return ()
        if self._files is None:
            self._files = ()
            self.run_worker(self._load_mentions(), exclusive=True)
            return ()
        others = (each for each in dashboard_of(self).fleet.sessions if each.id != self.session)
        return suggest_mentions(self._files, others, self._symbols, mention)

    def _insert(self, text: str) -> None:
        (row, column), mention = self.cursor_location, find_mention(self._before())
        start = 0 if mention is None else column - len(mention) - 1
        self.replace(text, (row, start), (row, column))

    # The search of earlier prompts.

    def _search_history(self) -> bool:
        """Begin the search, with the text as its words; again: choose the next match."""
        if self._offered is None or self.changes is not None:
            return False
        if self._searched_draft is not None:
            self._offered.move(1)
            return True
        self._searched_draft = self.text
        self.border_title = Content("Search earlier prompts")
        self._complete()
        return True

    def _end_search(self, key: str) -> None:
        """Put the chosen prompt into the box; Esc restores the text before, and without a match nothing changes."""
        assert self._offered is not None
        draft, self._searched_draft = self._searched_draft or "", None
        self.border_title = Content("")
        if key == "escape":
            self._put(draft)
        elif self._offered.offered:
            self._put(self._offered.accept())
        self._offered.offer(())


class CodeBox(PromptBox):
    """Runs code in one session's sandbox; the history keys recall earlier code.

    Args:
        codes: returns the earlier code, the last one last.
    """

    def __init__(
        self, session: SessionId, keys: KeyMap, text: str = "", *, codes: Callable[[], Sequence[str]] = tuple
    ) -> None:
        super().__init__(session, keys, "", text, history=codes)
        self.interpreter: Interpreter = "python"
        self.handlers = {
            **self.handlers,
            Keys.RUN_CODE: lambda: self._submit("now"),
            Keys.INTERPRETER: self._choose_interpreter,
            Keys.READ_RUN: lambda: dashboard_of(self).perform(Keys.READ),
        }
        self._show_interpreter()

    def takes(self, event: events.Key) -> bool:
        row = self.keys.action_of(event.aliases, KeyContext.CODE)
        return (row is not None and self.means(row)) or super().takes(event)

    def _choose_interpreter(self) -> None:
        self.interpreter = INTERPRETERS[(INTERPRETERS.index(self.interpreter) + 1) % len(INTERPRETERS)]
        self._show_interpreter()

    def _show_interpreter(self) -> None:
        others = "  ".join(f"[{each}]" if each == self.interpreter else each for each in INTERPRETERS)
        self.border_title = Content(others)
        self.placeholder = Content(f"Code for {self.interpreter}")

    def _submit(self, when: When) -> None:
        if self.text.strip():
            dashboard_of(self).session_pane.run_code(self.session, Run(interpreter=self.interpreter, code=self.text))
            self._back = None
            self.clear()
