"""The tmux backend keeps every promise: the scripted program in a real pane of a server of its own."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from kasmon.backends import load, names
from kasmon.backends.tmux import TmuxBackend
from kasmon.errors import RefusedError, SessionBusyError, UnableError
from kasmon.model.command import Answer, Launch, Mode, Prompt, Stop
from kasmon.model.event import SessionEnded, SignalSeen
from kasmon.model.permission import Decision, RequestId, SessionId
from kasmon.model.state import SessionState
from kasmon.paths import places
from kasmon.tmux.server import Server
from tests.backends.backend_contract import LIMIT_S, BackendContract, Heard, InterruptingContract
from tests.waiting import auntil


class TestTmux(BackendContract, InterruptingContract):
    @pytest.fixture(autouse=True)
    def _own_server(self) -> Iterator[None]:
        self.here = places()
        self.here.make()
        self.here.folder("contract").mkdir()
        self.backend = TmuxBackend(self.here)
        yield
        Server(self.here.tmux_socket).kill_server()

    def launch(self, generation: int = 1, resume: str | None = None) -> Launch:
        launch = super().launch(generation, resume)
        argv = (sys.executable, "-P", "-m", "kasmon.scripted", "--speed", "0")
        return msgspec.structs.replace(launch, mode=Mode.TMUX, argv=argv, workdir=str(self.here.state))

    def running(self, *argv: str) -> Launch:
        return msgspec.structs.replace(self.launch(), agent="shell", argv=argv)

    @asynccontextmanager
    async def opened(self, launch: Launch | None = None) -> AsyncIterator[Heard]:
        try:
            async with super().opened(launch) as heard:
                yield heard
        finally:
            await self.backend.aclose()

    @asynccontextmanager
    async def listening(self, launch: Launch) -> AsyncIterator[Heard]:
        """An agent that need not be idle ever."""
        agent = await self.backend.open(launch)
        heard = Heard(agent, launch)
        task = asyncio.create_task(heard.listen())
        try:
            yield heard
        finally:
            await agent.aclose()
            await asyncio.wait([task])
            await self.backend.aclose()

    async def test_what_is_asked_on_a_terminal_is_not_answered_from_elsewhere(self) -> None:
        async with self.opened() as heard:
            with pytest.raises(UnableError):
                await heard.agent.send(Answer(request=RequestId("x-1"), digest="", decision=Decision.ALLOW))
