"""The tmux backend keeps every promise: the scripted program in a real pane of a server of its own."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from kasmon.backends import load, names
from kasmon.backends.tmux import TmuxAgent, TmuxBackend
from kasmon.errors import RefusedError, UnableError
from kasmon.model.command import Answer, Launch, Mode
from kasmon.model.permission import Decision, RequestId
from kasmon.paths import places
from kasmon.tmux.server import Server
from tests.backends.backend_contract import BackendContract, Heard, InterruptingContract


class TestTmux(BackendContract, InterruptingContract):
    @pytest.fixture(autouse=True)
    def _own_server(self) -> Iterator[None]:
        self.here = places()
        self.here.make()
        self.here.folder("contract").mkdir()
        self.backend = self.tmux = TmuxBackend(self.here)
        yield
        Server(self.here.tmux_socket).kill_server()

    def launch(self, generation: int = 1, resume: str | None = None) -> Launch:
        launch = super().launch(generation, resume)
        argv = (sys.executable, "-P", "-m", "kasmon.scripted", "--speed", "0")
        return msgspec.structs.replace(launch, mode=Mode.TMUX, argv=argv, workdir=str(self.here.state))

    @asynccontextmanager
    async def opened(self, launch: Launch | None = None) -> AsyncIterator[Heard]:
        try:
            async with super().opened(launch) as heard:
                yield heard
        finally:
            await self.tmux.aclose()

    async def test_what_is_asked_on_a_terminal_is_not_answered_from_elsewhere(self) -> None:
        async with self.opened() as heard:
            with pytest.raises(UnableError):
                await heard.agent.send(Answer(request=RequestId("x-1"), digest="", decision=Decision.ALLOW))

    async def test_its_screen_can_be_looked_at_at_any_moment(self) -> None:
        async with self.opened() as heard:
            assert isinstance(heard.agent, TmuxAgent)
            reading = await heard.agent.look_now()

            assert "idle" == reading.state
            assert reading.composer is not None

    async def test_a_session_that_runs_is_not_opened_again(self) -> None:
        async with self.opened() as heard:
            with pytest.raises(RefusedError, match="runs already"):
                await self.backend.open(self.launch())

            assert heard.session.exists

    async def test_an_agent_that_is_let_go_runs_on(self) -> None:
        async with self.opened() as heard:
            assert isinstance(heard.agent, TmuxAgent)
            heard.agent.let_go()
            await heard.until_over()
            facts = (await self.tmux.line.panes())["contract"]

            assert not facts.is_dead


def test_it_is_found_by_its_name() -> None:
    assert "tmux" in names()
    assert isinstance(load("tmux"), TmuxBackend)
