"""Runs a command of the person in a session's folder, and shows its output; the prompt box gets it on request."""

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from kasmon.errors import KasmonError
from kasmon.model.session import Session
from kasmon.model.transcript.text import TextLine, Token, wrap
from kasmon.sanitize import clean_block, clean_line
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.dialogs.common import Confirmation
from kasmon.tui.keymap import KeyMap
from kasmon.tui.theme.look import ThemeStyles

SHOWN_LINES: Final = 2000
"""How many lines of output are shown: the last ones."""
GIVEN_CHARACTERS: Final = 20_000
"""How much of the output the prompt box gets: the last characters."""


def confirm_command(session: Session, command: str) -> Confirmation:
    """Return the question whether to run *command* in the folder of *session*, on the machine of its kasmon."""
    confined = ", outside of the session's sandbox" if session.sandbox else ""
    machine = session.via or "this machine"
    where = f"It runs on {clean_line(machine)}, in {clean_line(session.workdir)}, with your rights{confined}."
    note = "The agent does not see it. The command ends when you close its output."
    return Confirmation("Run this command?", (command, where, note), "run")


class ShellCommandDialog(Dialog):
    """Runs *command* and shows its output; *insert* puts a text into the prompt box."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "give", "to the prompt", show=False),
        Binding("y", "copy", "copy", show=False),
    ]
    title_text = "Command"

    def __init__(
        self,
        look: ThemeStyles,
        keys: KeyMap,
        session: Session,
        command: str,
        insert: Callable[[str], None],
        copy: Callable[[str], None],
    ) -> None:
        super().__init__(look, keys, self._rows)
        self.session, self.command, self._insert, self._copy = session, command, insert, copy
        self.output = ""
        self.ended = ""
        """How it ended; empty while it runs."""

    def on_mount(self) -> None:
        self.run_worker(self._run())

    def offered(self, scroll: tuple[str, str]) -> Sequence[tuple[str, str]]:
        done = (("enter", "insert into the prompt"), ("y", "copy output")) if self.ended else ()
        return *done, scroll, ("esc", "close" if self.ended else "end and close")

    def action_give(self) -> None:
        if self.ended:
            self.dismiss()
            output = self._clean_output().rstrip("\n")[-GIVEN_CHARACTERS:]
            fence = "`" * max(3, 1 + _longest_run(output))
            ran = f"I ran this command in {clean_line(self.session.locate(self.session.workdir))}; it {self.ended}:"
            self._insert(f"{ran}\n\n{fence}\n$ {self.command}\n{output}\n{fence}\n")

    def action_copy(self) -> None:
        if self.ended:
            self._copy(self._clean_output())

    async def _run(self) -> None:
        gateway = self.dashboard.gateway
        if gateway is None:
            return
        drawing = asyncio.create_task(self._draw())
        try:
            code = await gateway.run_command(self.session.id, self.command, self._add)
            self.ended = f"exited with code {code}" if code >= 0 else f"was ended by signal {-code}"
        except KasmonError as error:
            self.ended = "failed"
            self.complain(error.message, error.hint)
        finally:
            drawing.cancel()
        self._show()

    async def _draw(self) -> None:
        shown = ""
        while True:
            await asyncio.sleep(0.1)
            if self.output != shown:
                shown = self.output
                self._show()

    def _add(self, text: str) -> None:
        self.output += text

    def _show(self) -> None:
        if self.is_mounted:
            follows, row = not self.text.below, self.text.scroll_offset.y
            self.text.read(self._rows)
            self.offer(*self.offered(("up down", "scroll")))
            place = self.text.rows if follows else row
            self.text.scroll_rows(place)
            self.call_after_refresh(lambda: self.text.scroll_to(y=place, animate=False, immediate=True))

    def _clean_output(self) -> str:
        return clean_block(self.output)

    def _rows(self, width: int) -> Sequence[TextLine]:
        rows = wrap([(clean_line(self.command), Token.PROMPT)], width, (("$ ", Token.PROMPT),))
        for line in self._clean_output().rstrip("\n").split("\n")[-SHOWN_LINES:]:
            rows += wrap([(line, Token.OUTPUT)], width)
        last = f"It {self.ended}." if self.ended else "It is running."
        return [*rows, *wrap([(last, Token.FAINT)], width)]


def _longest_run(text: str) -> int:
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest
