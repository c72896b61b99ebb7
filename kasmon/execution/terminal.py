"""What only a session in tmux has: keys that are typed, a menu on its screen, a size, somebody who sits at it."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from kasmon.clean import HIDDEN
from kasmon.errors import (
    RequestNotFoundError,
    SessionEndedError,
    StaleRequestError,
    TimedOutError,
    UnableError,
)
from kasmon.host.client import HostLink, link
from kasmon.host.wire import Blur, Focus, Keys
from kasmon.model.permission import Request
from kasmon.model.session import Session
from kasmon.model.state import ALIVE
from kasmon.paths import Places
from kasmon.screens.menu import Menu, menu, screen
from kasmon.supervisor import verb

CALL_S: Final = 10.0
"""How long a call may take, in seconds."""
ENTER_S: Final = 0.15
"""How long after keys Enter is typed, in seconds. Some agents take an earlier one for a part of a paste."""
LOOK_S: Final = 0.02


class Terminal:
    """The terminal of one session; each call says which state the session is in."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._keyed_at = float("-inf")
        """When keys were typed last, on the loop's clock."""
        self._attached: asyncio.subprocess.Process | None = None

    async def rows(self, session: Session) -> list[str]:
        """The visible screen."""
        pane = await verb.pane(self._places, session)
        return await verb.read(self._places, session, -pane.height, None)

    async def type(self, session: Session, keys: str) -> None:
        """Type *keys*.

        Raises:
            KasmonError: if nobody takes them.
        """
        if session.state not in ALIVE:
            raise SessionEndedError(session.name)
        async with self._host(session) as host:
            host.tell(Keys(session=session.id, data=keys.encode("utf-8", "surrogateescape")))
        self._keyed_at = asyncio.get_running_loop().time()

    async def enter(self, session: Session) -> None:
        """Type Enter, so long after the keys that no program takes it for a part of a paste."""
        await asyncio.sleep(self._keyed_at + ENTER_S - asyncio.get_running_loop().time())
        await self.type(session, "\r")

    async def menu(self, session: Session) -> Menu | None:
        """The menu that stands on its screen, where a screen file knows it."""
        rules = await asyncio.to_thread(screen, session.agent)
        return None if rules is None else menu(await self.rows(session), rules)

    async def asked(self, look: Callable[[], Awaitable[Session]], wanted: str | None) -> Request:
        """The request of the menu that stands on its screen, as its host has it, which may see it a moment later.

        Args:
            look: the session as it is now.
            wanted: the digest of the menu that is meant, or its request's id.

        Raises:
            UnableError: if nobody knows its menu.
            RequestNotFoundError: if none stands there.
            StaleRequestError: if it is not the one that is *wanted*.
            TimedOutError: if the host has not made a request of it within `CALL_S`.
        """
        session = await look()
        if await asyncio.to_thread(screen, session.agent) is None:
            raise UnableError(f"nobody knows the menu of {session.agent!r}.", hint="Answer in its terminal.")
        try:
            async with asyncio.timeout(CALL_S):
                while (shown := await self.menu(session)) is not None:
                    request = next((asked for asked in session.asks if _is_of(asked, shown)), None)
                    if wanted not in (None, shown.digest) and (request is None or wanted != request.id):
                        raise StaleRequestError(str(wanted))
                    if request is not None:
                        return request
                    await asyncio.sleep(LOOK_S)
                    session = await look()
        except TimeoutError as error:
            raise TimedOutError(f"what stands on the screen of {session.name!r} became no request.") from error
        raise RequestNotFoundError(session.name)

    async def attach(self, session: Session) -> None:
        """Sit down at it, in the caller's own terminal; returns when the person leaves it, or `detach` is called.

        Raises:
            UnavailableError: if tmux is not there.
        """
        argv = await verb.attach_argv(self._places, session)
        self._attached = await asyncio.create_subprocess_exec(*argv)
        try:
            await self._attached.wait()
        finally:
            self._attached = None

    async def detach(self) -> None:
        """End what `attach` began. Nothing happens where nobody is attached."""
        if self._attached is not None and self._attached.returncode is None:
            self._attached.send_signal(signal.SIGHUP)
            await self._attached.wait()

    async def resize(self, session: Session, columns: int, rows: int) -> None:
        """Give it this size; it has it when this returns.

        Raises:
            TimedOutError: if it does not take it within `CALL_S`.
        """
        async with self._host(session) as host:
            host.tell(Focus(session=session.id, columns=columns, rows=rows))
            host.tell(Blur(session=session.id))
            await self._until_size(session, columns, rows)

    @contextlib.asynccontextmanager
    async def _host(self, session: Session) -> AsyncIterator[HostLink]:
        async with contextlib.aclosing(await link(self._places, session.id, session.mode)) as host:
            yield host

    async def _until_size(self, session: Session, columns: int, rows: int) -> None:
        try:
            async with asyncio.timeout(CALL_S):
                while True:
                    pane = await verb.pane(self._places, session)
                    if (pane.width, pane.height) == (columns, rows):
                        return
                    await asyncio.sleep(LOOK_S)
        except TimeoutError as error:
            raise TimedOutError(f"{session.name!r} did not take the size {columns}x{rows}.") from error


def _is_of(request: Request, menu: Menu) -> bool:
    """Whether *request* is what *menu* asks; where it holds secrets, its host has hidden them."""
    return request.answerable and (request.shown == menu.text or HIDDEN in request.shown)
