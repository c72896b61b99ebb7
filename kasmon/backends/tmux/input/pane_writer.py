"""The one writer of a pane: a prompt is written whole, and a user's typing meanwhile is queued behind it."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final

from kasmon.agents.catalog import find
from kasmon.backends.tmux.server_connection import ServerConnection
from kasmon.errors import KasmonError, SessionBusyError
from kasmon.model.commands import Launch
from kasmon.sanitize import outgoing
from kasmon.tmux.control import requests as ask

PERSON_S: Final = 2.0
"""A prompt waits until no user typed for this long: a user who pauses within a draft soon continues."""
LOOK_S: Final = 0.05
PATIENCE_S: Final = 5.0
"""The longest such wait."""

log = logging.getLogger(__name__)

CTRL_C, ESCAPE = b"\x03", b"\x1b"
AGAIN_S: Final = 0.3


class PaneWriter:
    """Types into *pane* for the session called *session*."""

    def __init__(self, line: ServerConnection, pane: str, session: str) -> None:
        self.on_typed: Callable[[], None] = lambda: None
        """Called whenever something is typed."""
        self._line = line
        self._pane = pane
        self._session = session
        self._exclusive = ExclusivePaneWriter(line, pane, lambda: self.on_typed())
        self._writing = asyncio.Lock()
        self._behind: deque[bytes | str] = deque()
        self._catching_up: asyncio.Task[None] | None = None
        self.keyed_at = float("-inf")
        """When a user last typed, by the loop's clock; minus infinity before that."""

    def type_keys(self, data: bytes) -> None:
        """Type *data* from a user: at once, unless something is being written."""
        self.keyed_at = asyncio.get_running_loop().time()
        if self._writing.locked() or self._behind:
            self._queue(data)
        else:
            self._line.type_keys(self._pane, data)
            self.on_typed()

    def paste(self, text: str) -> None:
        """Paste *text* from a user, in order with the keys; dropped if the pane accepts no paste."""
        self.keyed_at = asyncio.get_running_loop().time()
        self._queue(text)

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator["ExclusivePaneWriter"]:
        """Reserve the pane once no user types; a user's typing meanwhile is queued.

        Raises:
            SessionBusyError: if a user keeps typing for 5 s.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while True:
            while (quiet_at := self.keyed_at + PERSON_S) > loop.time():
                if loop.time() > deadline:
                    raise SessionBusyError(self._session, "being typed into")
                await asyncio.sleep(min(quiet_at, deadline + LOOK_S) - loop.time())
            async with self._writing:
                if self.keyed_at + PERSON_S > loop.time():
                    continue
                yield self._exclusive
                return

    async def press(self, key: bytes, unless: str = "") -> None:
        """Press one key, after what is being written; not where *unless* holds (`screen_check.changed`).

        Raises:
            PaneDeadError, PasteRefusedError: if the pane accepts no keys.
            ScreenChangedError: if *unless* holds.
            TmuxError: if tmux fails.
        """
        async with self._writing:
            await self._exclusive.press(key, unless)

    def _queue(self, item: bytes | str) -> None:
        self._behind.append(item)
        if self._catching_up is None or self._catching_up.done():
            self._catching_up = asyncio.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        async with self._writing:
            while self._behind:
                item = self._behind[0]
                try:
                    if isinstance(item, bytes):
                        self._line.type_keys(self._pane, item)
                        self.on_typed()
                    else:
                        await self._exclusive.paste(item, as_typed=True)
                except KasmonError as error:
                    log.info("%s: a paste was dropped: %s", self._session, error)
                self._behind.popleft()


class ExclusivePaneWriter:
    """Types into *pane*, which is reserved; *typed* is called whenever something was typed.

    Each method raises:
        PaneDeadError, PasteRefusedError: if the pane accepts no input now; nothing was typed.
        ScreenChangedError: if *unless* holds (`screen_check.changed`); nothing was typed.
        TmuxError: if tmux fails.
    """

    def __init__(self, line: ServerConnection, pane: str, typed: Callable[[], None]) -> None:
        self._line, self._pane, self._typed = line, pane, typed

    async def paste(self, text: str, unless: str = "", *, as_typed: bool = False) -> None:
        """Insert *text* as one paste, without control characters; the one operation that starts a process.

        Its line breaks become newlines, or remain as a terminal sent them if *as_typed*. A text that is empty after
        sanitizing is not sent.
        """
        content = ("\r".join(map(outgoing, text.split("\r"))) if as_typed else outgoing(text)).encode()
        if content:
            buffer = await asyncio.to_thread(self._line.server.load, content)
            try:
                await self._line.ask(ask.paste(self._pane, buffer, unless))
            except BaseException:
                self._line.submit(ask.drop_buffer(buffer))
                raise
        self._typed()

    async def press(self, keys: bytes, unless: str = "") -> None:
        """Type *keys*, at most 256 bytes."""
        await self._line.ask(ask.press(self._pane, keys, unless))
        self._typed()


async def interrupt(launch: Launch, pane_writer: PaneWriter) -> None:
    """Press the key that ends the turn of the agent that *launch* describes.

    Raises:
        PaneDeadError, PasteRefusedError: if the pane accepts no key now.
    """
    key = interrupt_key(launch)
    await pane_writer.press(key)
    if key == ESCAPE and _key_name(launch) == "escape twice":
        await asyncio.sleep(AGAIN_S)
        await pane_writer.press(key)


def interrupt_key(launch: Launch) -> bytes:
    """Return the key that ends the agent's turn: its launch's, else the one for agents of this name."""
    named = {"ctrl-c": CTRL_C, "escape": ESCAPE}
    return named.get(launch.interrupt_key) or (CTRL_C if _key_name(launch) == "ctrl-c" else ESCAPE)


def _key_name(launch: Launch) -> str:
    return find(launch.agent.partition("@")[0]).interrupt
