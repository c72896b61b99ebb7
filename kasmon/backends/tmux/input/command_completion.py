"""How a command ended that was given to a shell: once the shell is back at its prompt, it is asked for that.

What is typed for it is a command of our own behind a blank, which keeps it out of the history of shells that are told
so. It prints a marker that no terminal shows, takes the rows in which it was typed off the screen, and leaves `$?` as
it was. It goes only to a shell of kasmon's own that waits at an empty prompt, and only if nobody typed meanwhile.
"""

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final, NamedTuple, Protocol

from kasmon.backends.tmux.evidence.process_table import table
from kasmon.backends.tmux.evidence.screen_reader import ScreenObservation
from kasmon.backends.tmux.input.pane_writer import PaneWriter
from kasmon.detection.reader import ScreenReading
from kasmon.errors import KasmonError
from kasmon.process_identity import fields
from kasmon.tmux.screen_check import changed

POSIX: Final = frozenset({"ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"})
FISH: Final = "fish"
"""Shells that understand what is typed; others are not asked."""
FIRST_S, LONGEST_S = 0.05, 0.5
"""How long after a look the next one follows: doubling, as it is awaited that a pane is ready."""
ANSWER_S: Final = 5.0
"""How long the shell may take to answer."""
TAIL: Final = 128
"""So many bytes of what came last may be the beginning of a marker."""
MARKER: Final = b"KASMON_DONE_"
TYPED_SINCE: Final = "someone typed since, so its result is unknown"
NO_ANSWER: Final = "its shell did not report the result"
GONE: Final = "its shell ended"


class CommandEnd(NamedTuple):
    """How a command ended."""

    exit_code: int | None
    why: str = ""
    """Why there is no exit code."""


class ShellScreen(Protocol):
    """The shell, and its screen."""

    @property
    def has_ended(self) -> bool: ...
    @property
    def is_asking(self) -> bool: ...
    async def see_now(self) -> ScreenObservation: ...


class CommandCompletion:
    """Of one command, made before that is typed into the shell of process *pid*; the output is `heard` from then on."""

    def __init__(
        self, shell: ShellScreen, pane_writer: PaneWriter, pid: int, program: str = "sh", *, has_begun: bool = False
    ) -> None:
        """*program* is the shell's name. *has_begun*: the command was given to it already, by an earlier host."""
        self._shell, self._pane_writer, self._pid, self._program = shell, pane_writer, pid, program
        self._nonce = os.urandom(8).hex()
        self._keyed_at = pane_writer.keyed_at
        self._tail = b""
        self._has_begun = has_begun
        """The Enter behind it was seen to be taken: before that, the prompt that stands there is the one before it."""
        self.has_asked = False
        """The shell is being asked, and `over` is set `ANSWER_S` later at most."""
        self.over = asyncio.Event()
        """It is known how it ended, or nobody asks any more."""
        self._told: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def heard(self, data: bytes) -> None:
        """The pane printed *data*; empty data says that some of it was not heard."""
        self._has_begun = self._has_begun or not data or b"\n" in data
        text = self._tail + data
        self._tail = text[-TAIL:]
        found = re.search(MARKER + self._nonce.encode() + rb";(\d{1,3})\x07", text)
        if found is not None and not self._told.done():
            self._told.set_result(int(found[1]))

    async def ended(self) -> CommandEnd:
        """How it ended, once it has; waits for as long as the command runs."""
        try:
            return await self._ended()
        finally:
            self.over.set()

    async def _ended(self) -> CommandEnd:
        pause_s = FIRST_S
        while not self._shell.has_ended:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_S)
            if self._pane_writer.keyed_at != self._keyed_at:
                return CommandEnd(None, TYPED_SINCE)
            try:
                is_back = self._has_begun and await asyncio.to_thread(has_terminal, self._pid)
                if is_back and await self._ask():
                    self.has_asked = True
                    return await self._answer()
            except KasmonError:
                continue  # the prompt moved in that moment, or nobody could look
        return CommandEnd(None, GONE)

    async def _ask(self) -> bool:
        """Ask the shell, if it waits at an empty prompt; whether it was asked."""
        if not is_at_prompt((await self._shell.see_now()).reading) or self._shell.is_asking:
            return False
        async with self._pane_writer.alone() as writer:
            seen = await self._shell.see_now()
            cursor = seen.shot.cursor
            if not is_at_prompt(seen.reading) or cursor is None or self._pane_writer.keyed_at != self._keyed_at:
                return False
            rows = [""] * seen.above + [row.text for row in seen.shot.rows]
            at = cursor[1] + seen.above
            command = question(self._nonce, cursor[0], seen.size[0], self._program)
            await writer.press(f"{command}\r".encode(), changed(seen.size, rows, range(at, at + 1)))
            return True

    async def _answer(self) -> CommandEnd:
        """What the shell says, once it has its terminal back: what asked it ends after it printed the answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                await asyncio.wait([self._told])
                is_back = False
                while not (is_back or self._shell.has_ended):
                    await asyncio.sleep(FIRST_S)
                    is_back = await asyncio.to_thread(has_terminal, self._pid)
        return CommandEnd(self._told.result()) if self._told.done() else CommandEnd(None, NO_ANSWER)


def question(nonce: str, column: int, columns: int, program: str = "sh") -> str:
    """What is typed at *column* (from 0) of a terminal of *columns*; it takes the rows that it fills off the screen.

    A command that ends just at the edge leaves it open in which row the cursor is then: it is made one longer.
    """
    columns = max(columns, 1)
    for blanks in (" ", "  "):
        for digits in (1, 2, 3):
            length = len(_question(blanks, nonce, 10 ** (digits - 1), program))
            rows = (column + length) // columns + 1
            if len(str(rows)) == digits and (column + length) % columns:
                return _question(blanks, nonce, rows, program)
    return _question(" ", nonce, 1, program)


def _question(blanks: str, nonce: str, rows: int, program: str) -> str:
    name, rest = MARKER.decode()[:6], MARKER.decode()[6:]  # so that no echo of it is taken for the answer
    printed = f"'\\033[{rows}A\\r\\033[J\\033]1337;%s%s;%s\\007'"
    if program == FISH:  # it has no way of its own to end with a status outside of a function
        asked = f"printf {printed} {name} {rest}{nonce} $e"
        return f'{blanks}begin;set -l e $status;{asked};sh -c "exit $e";end'
    return f"{blanks}(e=$?;printf {printed} {name} {rest}{nonce} $e;exit $e)"


def is_at_prompt(reading: ScreenReading) -> bool:
    """Whether a shell waits there, and nothing is typed yet."""
    return reading.state == "idle" and reading.composer is not None and not reading.composer.draft


def can_be_asked(argv: Sequence[str]) -> bool:
    """Whether *argv* starts a shell for somebody who types, of a kind that understands what is asked."""
    if not argv or program_name(argv) not in {*POSIX, FISH}:
        return False
    return all(word.startswith(("-", "+")) and (word.startswith("--") or "c" not in word) for word in argv[1:])


def program_name(argv: Sequence[str]) -> str:
    """The name of the shell that *argv* starts, not empty."""
    return PurePath(argv[0]).name.lstrip("-")


def has_terminal(pid: int) -> bool:
    """Whether process *pid*, a shell, has its terminal to itself. Blocks, shortly."""
    if sys.platform != "linux":
        return table().is_back_at_shell(pid) is True
    told = fields(pid)
    return told is not None and told[2] == told[5]
