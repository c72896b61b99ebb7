"""Features of tmux sessions only: typing keys, menus on the screen, resizing, attaching."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from kasmon.agents.catalog import catalog
from kasmon.detection.menus.choices import ScreenMenu, squeezed
from kasmon.detection.prompt_box import Composer, composer, contains_text, visible_characters
from kasmon.detection.reader import menu
from kasmon.detection.rules.catalog import RuleCatalog
from kasmon.detection.rules.file import ScreenRules
from kasmon.detection.rules.schema import ComposerRule
from kasmon.detection.terminal_screen import shown
from kasmon.errors import RequestNotFoundError, SessionEndedError, StaleRequestError, TimedOutError, UnableError
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.connect import open_link
from kasmon.host.rpc.frames import Blur, Focus, SendKeys
from kasmon.model.permission import Request
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE
from kasmon.paths import Paths
from kasmon.sanitize import HIDDEN, clean_line
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.explain import program_in
from kasmon.supervisor.sessions.read import read

CALL_S: Final = 10.0
ENTER_S: Final = 0.15
"""The delay of Enter after keys, in seconds. Some agents take an earlier one for a part of a paste."""
BOX_S: Final = 2.0
"""How long Enter waits on a screen without a prompt box, and for text with a newline, in seconds.

A program may take that newline for Enter, and show the rest alone.
"""
LOOK_S: Final = 0.02


class SessionTerminal:
    """The terminal of one session; each call gets the session's current state."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._keyed_at = float("-inf")
        """When keys were last typed, on the loop's clock."""
        self._typed = ""
        """The keys since the last Enter."""
        self._screens: RuleCatalog | None = None
        self._attached: asyncio.subprocess.Process | None = None

    async def rows(self, session: Session) -> list[str]:
        """Return the visible screen."""
        pane = await session_operations.pane(self._paths, session)
        return await read(self._paths, session, -pane.height, None)

    async def type(self, session: Session, keys: str) -> None:
        """Type *keys*. Raises `KasmonError` if the session does not accept them."""
        if session.state not in ALIVE:
            raise SessionEndedError(session.name)
        async with self._host(session) as host:
            host.send(SendKeys(session=session.id, data=keys.encode("utf-8", "surrogateescape")))
        self._keyed_at = asyncio.get_running_loop().time()
        self._typed += keys

    async def enter(self, session: Session) -> None:
        """Type Enter, late enough after the keys that no program takes it for a part of a paste.

        If a screen file describes the agent's prompt box, Enter waits until the text is in it. The call waits until the
        text is gone: keys that follow are another prompt.

        Raises:
            TimedOutError: if the box does not contain the text within `CALL_S`, and Enter was not typed; or if it still
                does `CALL_S` after Enter.
        """
        text, self._typed = self._typed, ""
        is_shown = visible_characters(text) and text.replace("\n", " ").isprintable()
        rules = await self._rules(session) if is_shown else None
        rule = None if rules is None else rules.file.composer
        await asyncio.sleep(self._keyed_at + ENTER_S - asyncio.get_running_loop().time())
        is_seen = rule is not None and await self._wait_for_text(session, rule, text)
        await self.type(session, "\r")
        self._typed = ""
        if is_seen and rule is not None and not await self._wait_for_removal(session, rule, text):
            raise TimedOutError(
                f"the input box of {session.name!r} still contains {clean_line(text)!r} {CALL_S:g} s after Enter.",
                hint="Check its screen: a dialog may cover the input box.",
            )

    async def _wait_for_text(self, session: Session, rule: ComposerRule, text: str) -> bool:
        """Whether *text* gets into the prompt box; False after `BOX_S` without a box. May raise `TimedOutError`."""
        began = asyncio.get_running_loop().time()
        while True:
            box = await self._box(session, rule)
            if box is not None and contains_text(text, box, rule):
                return True
            waited_s = asyncio.get_running_loop().time() - began
            if waited_s > BOX_S and (box is None or "\n" in text):
                return False
            if waited_s > CALL_S:
                raise TimedOutError(
                    f"the input box of {session.name!r} does not contain {clean_line(text)!r} {CALL_S:g} s after it "
                    "was typed. Enter was not typed.",
                    hint="Check its screen: the box may contain other text.",
                )
            await asyncio.sleep(LOOK_S)

    async def _wait_for_removal(self, session: Session, rule: ComposerRule, text: str) -> bool:
        """Whether *text* leaves the prompt box within `CALL_S`."""
        deadline = asyncio.get_running_loop().time() + CALL_S
        while (box := await self._box(session, rule)) is not None and contains_text(text, box, rule):
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    async def _box(self, session: Session, rule: ComposerRule) -> Composer | None:
        pane = await session_operations.pane(self._paths, session)
        rows = await read(self._paths, session, -pane.height, None, ansi=True)
        return composer(shown(rows), rule)

    async def menu(self, session: Session) -> ScreenMenu | None:
        """Return the menu on its screen, if a screen file describes it."""
        rules = await self._rules(session)
        return None if rules is None else menu(await self.rows(session), rules)

    async def wait_for_request(self, read: Callable[[], Awaitable[Session]], wanted: str | None) -> Request:
        """Return the host's request for the menu on the screen, which the host may detect a moment later.

        Args:
            read: returns the current state of the session.
            wanted: the digest of the expected menu, or its request's id.

        Raises:
            UnableError: if no screen file describes its menus.
            RequestNotFoundError: if there is no menu.
            StaleRequestError: if it is another one than *wanted*.
            TimedOutError: if the host has not opened a request for it within `CALL_S`.
        """
        session = await read()
        if await self._rules(session) is None:
            raise UnableError(f"kasmon does not know the menus of {session.agent!r}.", hint="Answer in its terminal.")
        try:
            async with asyncio.timeout(CALL_S):
                while (shown := await self.menu(session)) is not None:
                    request = next((asked for asked in session.requests if _is_of(asked, shown)), None)
                    if wanted not in (None, shown.digest) and (request is None or wanted != request.id):
                        raise StaleRequestError(str(wanted))
                    if request is not None:
                        return request
                    await asyncio.sleep(LOOK_S)
                    session = await read()
        except TimeoutError as error:
            raise TimedOutError(f"the screen of {session.name!r} did not become a request.") from error
        raise RequestNotFoundError(session=session.name)

    async def attach(self, session: Session) -> None:
        """Attach to it in the caller's own terminal; returns when the user detaches, or `detach` is called."""
        argv = await session_operations.attach_argv(self._paths, session)
        self._attached = await asyncio.create_subprocess_exec(*argv)
        try:
            await self._attached.wait()
        finally:
            self._attached = None

    async def detach(self) -> None:
        """End `attach`. Does nothing if nothing is attached."""
        if self._attached is not None and self._attached.returncode is None:
            self._attached.send_signal(signal.SIGHUP)
            await self._attached.wait()

    async def resize(self, session: Session, columns: int, rows: int) -> None:
        """Resize it; it has the new size when this returns. Raises `TimedOutError` after `CALL_S`."""
        async with self._host(session) as host:
            host.send(Focus(session=session.id, columns=columns, rows=rows))
            host.send(Blur(session=session.id))
            try:
                async with asyncio.timeout(CALL_S):
                    while True:
                        pane = await session_operations.pane(self._paths, session)
                        if (pane.width, pane.height) == (columns, rows):
                            return
                        await asyncio.sleep(LOOK_S)
            except TimeoutError as error:
                raise TimedOutError(f"{session.name!r} did not accept the size {columns}x{rows}.") from error

    async def _rules(self, session: Session) -> ScreenRules | None:
        """Return the screen file of its program, the user's own before a built-in one."""

        def read() -> ScreenRules | None:
            self._screens = self._screens or RuleCatalog([self._paths.config / "screens"], agents=catalog(self._paths))
            self._screens.reload()
            chosen = self._screens.rules(program_in(self._paths, session))
            return None if chosen is None else chosen.rules

        return await asyncio.to_thread(read)

    @contextlib.asynccontextmanager
    async def _host(self, session: Session) -> AsyncIterator[HostLink]:
        async with contextlib.aclosing(await open_link(self._paths, session.id, session.mode)) as host:
            yield host


def _is_of(request: Request, menu: ScreenMenu) -> bool:
    """Whether *request* is that of *menu*; its host has hidden secrets in it."""
    shows_call = bool(menu.call) and menu.call in squeezed(request.shown)  # its host may know more of the call
    return request.answerable and (request.shown == menu.text or HIDDEN in request.shown or shows_call)
