"""The exit status of a command sent to a shell: once the shell is back at its prompt, kasmon queries it.

The query is a command of kasmon's own after a blank, which keeps it out of the history of shells configured so. It
prints a marker that no terminal displays, erases the rows in which it was typed, and leaves `$?` unchanged. It goes
only to a shell of kasmon's own at an empty prompt, and only if no user typed meanwhile.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final, NamedTuple, Protocol

from kasmon import system
from kasmon.backends.tmux.evidence.screen_reader import ScreenObservation
from kasmon.backends.tmux.input.pane_writer import PaneWriter
from kasmon.detection.reader import ScreenReading
from kasmon.errors import KasmonError

POSIX: Final = frozenset({"ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"})
FISH: Final = "fish"
"""Shells that understand the query; others are not asked."""
FIRST_S, LONGEST_S = 0.05, 0.5
"""The first and longest interval of looks, doubling, as for a pane's readiness."""
ANSWER_S: Final = 5.0
TAIL: Final = 128
"""How many of the last bytes may be the beginning of a marker."""
MARKER: Final = b"KASMON_DONE_"
TYPED_SINCE: Final = "someone typed since, so its result is unknown"
NO_ANSWER: Final = "its shell did not report the result"
GONE: Final = "its shell ended"


class CommandEnd(NamedTuple):
    exit_code: int | None
    why: str = ""


class ShellScreen(Protocol):
    @property
    def has_ended(self) -> bool: ...
    @property
    def is_asking(self) -> bool: ...
    async def see_now(self) -> ScreenObservation: ...


class CommandCompletion:
    """The end of one command, made before it is typed into the shell *pid*; `feed` gets all output after that."""

    def __init__(
        self, shell: ShellScreen, pane_writer: PaneWriter, pid: int, program: str = "sh", *, has_begun: bool = False
    ) -> None:
        """*program*: the shell's name. *has_begun*: an earlier host already sent it the command."""
        self._shell, self._pane_writer, self._pid, self._program = shell, pane_writer, pid, program
        self._nonce = os.urandom(8).hex()
        self._keyed_at = pane_writer.keyed_at
        self._tail = b""
        self._has_begun = has_begun
        """Whether its Enter was seen to be accepted: before that, a prompt on the screen is the earlier one."""
        self.is_queried = False
        """Whether the shell is being queried; `over` is set at most `ANSWER_S` later."""
        self.over = asyncio.Event()
        """Set once its end is known, or `ended` was given up."""
        self._exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def feed(self, data: bytes) -> None:
        """Process *data* that the pane printed; empty if output was missed."""
        self._has_begun = self._has_begun or not data or b"\n" in data
        text = self._tail + data
        self._tail = text[-TAIL:]
        found = re.search(MARKER + self._nonce.encode() + rb";(\d{1,3})\x07", text)
        if found is not None and not self._exit_code.done():
            self._exit_code.set_result(int(found[1]))

    async def wait_for_end(self) -> CommandEnd:
        """Return how it ended, once it has; waits for as long as the command runs."""
        try:
            return await self._poll()
        finally:
            self.over.set()

    async def _poll(self) -> CommandEnd:
        pause_s = FIRST_S
        while not self._shell.has_ended:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_S)
            if self._pane_writer.keyed_at != self._keyed_at:
                return CommandEnd(None, TYPED_SINCE)
            try:
                is_back = self._has_begun and await asyncio.to_thread(has_terminal, self._pid)
                if is_back and await self._ask():
                    self.is_queried = True
                    return await self._answer()
            except KasmonError:
                continue  # the prompt moved in that moment, or the screen could not be read
        return CommandEnd(None, GONE)

    async def _ask(self) -> bool:
        """Send the query if the shell waits at an empty prompt; whether it was sent."""
        if not is_at_prompt((await self._shell.see_now()).reading) or self._shell.is_asking:
            return False
        async with self._pane_writer.alone() as writer:
            seen = await self._shell.see_now()
            cursor = seen.shot.cursor
            if not is_at_prompt(seen.reading) or cursor is None or self._pane_writer.keyed_at != self._keyed_at:
                return False
            command = question(self._nonce, cursor[0], seen.size[0], self._program)
            await writer.press(f"{command}\r".encode(), seen.changed(range(cursor[1], cursor[1] + 1)))
            return True

    async def _answer(self) -> CommandEnd:
        """Wait for the answer, then for the shell to be in the foreground: the query ends after printing it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                await asyncio.wait([self._exit_code])
                is_back = False
                while not (is_back or self._shell.has_ended):
                    await asyncio.sleep(FIRST_S)
                    is_back = await asyncio.to_thread(has_terminal, self._pid)
        return CommandEnd(self._exit_code.result()) if self._exit_code.done() else CommandEnd(None, NO_ANSWER)


def question(nonce: str, column: int, columns: int, program: str = "sh") -> str:
    """Return the query to type at *column* (from 0) of a terminal of *columns*; it erases the rows that it fills.

    A query that ends just at the edge leaves the cursor's row undefined: it is made one longer.
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
    name, rest = MARKER.decode()[:6], MARKER.decode()[6:]  # so that its echo is not taken for the answer
    printed = f"'\\033[{rows}A\\r\\033[J\\033]1337;%s%s;%s\\007'"
    if program == FISH:  # outside of a function, fish cannot end with a status
        asked = f"printf {printed} {name} {rest}{nonce} $e"
        return f'{blanks}begin;set -l e $status;{asked};sh -c "exit $e";end'
    return f"{blanks}(e=$?;printf {printed} {name} {rest}{nonce} $e;exit $e)"


def is_at_prompt(reading: ScreenReading) -> bool:
    """Whether a shell waits at a prompt, and nothing is typed yet."""
    return reading.state == "idle" and reading.composer is not None and not reading.composer.draft


def supports_query(argv: Sequence[str]) -> bool:
    """Whether *argv* starts an interactive shell of a kind that understands the query."""
    if not argv or program_name(argv) not in {*POSIX, FISH}:
        return False
    return all(word.startswith(("-", "+")) and (word.startswith("--") or "c" not in word) for word in argv[1:])


def program_name(argv: Sequence[str]) -> str:
    """Return the name of the shell that *argv* (not empty) starts."""
    return PurePath(argv[0]).name.lstrip("-")


def has_terminal(pid: int) -> bool:
    """Whether process *pid*, a shell, is in the foreground of its terminal. Blocks briefly."""
    return system.HERE.is_in_foreground(pid)
