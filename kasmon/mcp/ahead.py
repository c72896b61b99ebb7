"""A sandbox that is made before somebody asks for it, so that a run without a session needs not wait for one."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from kasmon.errors import KasmonError
from kasmon.model.session import Session
from kasmon.model.state import SessionState


class Ahead:
    """Holds one at most. None is made before the first was taken: a client that never runs code costs nothing."""

    def __init__(
        self, make: Callable[[], Coroutine[Any, Any, Session]], look: Callable[[Session], Awaitable[Session]]
    ) -> None:
        """
        Args:
            make: makes one.
            look: how one is now.
        """
        self._make = make
        self._look = look
        self._next: asyncio.Task[Session] | None = None

    async def take(self) -> Session:
        """The one that is there or on its way; else a new one.

        Raises:
            KasmonError: if none can be made.
        """
        return await self.ready() or await self._make()

    async def ready(self) -> Session | None:
        """The one that is there or on its way; None where there is none, or it did not last."""
        coming, self._next = self._next, None
        if coming is None:
            return None
        with contextlib.suppress(KasmonError):
            session = await self._look(await asyncio.shield(coming))
            if session.state not in (SessionState.ENDED, SessionState.LOST):
                return session
        return None

    def prepare(self, beside: Callable[[Coroutine[Any, Any, Session]], asyncio.Task[Session]]) -> None:
        """Have one made *beside*, unless there is one."""
        if self._next is None:
            self._next = beside(self._make())
