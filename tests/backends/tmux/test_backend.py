"""The tmux backend keeps every promise: the scripted program in a real pane of a server of its own."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from kasmon.backends import load, names
from kasmon.backends.tmux.agent import TmuxAgent
from kasmon.backends.tmux.input.pane_writer import ExclusivePaneWriter
from kasmon.backends.tmux.pane_events import PaneListener
from kasmon.backends.tmux.server_connection import ServerConnection
from kasmon.backends.tmux.terminal_backend import TmuxBackend
from kasmon.errors import LaunchError, PasteRefusedError, PromptChangedError, RefusedError
from kasmon.model.commands import Answer, Launch, Mode
from kasmon.model.permission import Decision, RequestId
from kasmon.paths import user_paths
from kasmon.tmux.control import requests as ask
from kasmon.tmux.server import TmuxServer
from tests.support.agents.backend_contract import LIMIT_S, BackendContract, InterruptingContract, Listener
from tests.support.wait import auntil

pytestmark = pytest.mark.story


def writer(line: ServerConnection, pane: str) -> ExclusivePaneWriter:
    return ExclusivePaneWriter(line, pane, lambda: None)


class TestTmux(BackendContract, InterruptingContract):
    @pytest.fixture(autouse=True)
    def _own_server(self) -> Iterator[None]:
        self.here = user_paths()
        self.here.make()
        self.here.folder("contract").mkdir()
        self.backend = self.tmux = TmuxBackend(self.here)
        yield
        TmuxServer(self.here.tmux_socket).kill_server()

    def launch(self, generation: int = 1, resume: str | None = None) -> Launch:
        launch = super().launch(generation, resume)
        argv = (sys.executable, "-P", "-m", "kasmon.scripted", "--speed", "0")
        return msgspec.structs.replace(launch, mode=Mode.TMUX, argv=argv, workdir=str(self.here.state))

    @asynccontextmanager
    async def opened(self, launch: Launch | None = None) -> AsyncIterator[Listener]:
        try:
            async with super().opened(launch) as heard:
                yield heard
        finally:
            await self.tmux.aclose()

    async def test_a_request_that_is_not_on_the_screen_cannot_be_answered(self) -> None:
        async with self.opened() as heard:
            with pytest.raises(PromptChangedError):
                await heard.agent.send(Answer(request=RequestId("x-1"), digest="", decision=Decision.ALLOW))

    async def test_the_screen_can_be_captured_at_any_time(self) -> None:
        async with self.opened() as heard:
            assert isinstance(heard.agent, TmuxAgent)
            reading = (await heard.agent.see_now()).reading

            assert "idle" == reading.state
            assert reading.composer is not None

    async def test_a_running_session_is_not_opened_again(self) -> None:
        async with self.opened() as heard:
            with pytest.raises(RefusedError, match="is already running"):
                await self.backend.open(self.launch())

            assert heard.session.exists

    async def test_a_version_with_unknown_screens_is_not_started(self) -> None:
        path = self.here.state / "opencode"
        path.write_text("#!/bin/sh\necho 2.1.3\n")
        path.chmod(0o700)
        with pytest.raises(LaunchError, match=r"opencode 2\.1\.3 cannot run in a terminal session"):
            await self.backend.open(msgspec.structs.replace(self.launch(), argv=(str(path),), agent="opencode"))

        assert {} == await self.tmux.line.panes()
        await self.tmux.aclose()

    async def test_a_released_agent_keeps_running(self) -> None:
        async with self.opened() as heard:
            assert isinstance(heard.agent, TmuxAgent)
            heard.agent.let_go()
            await heard.until_over()

            assert not (await self.tmux.line.panes())["contract"].is_dead

    async def test_output_without_a_listener_is_reported_to_the_next_one(self) -> None:
        """So the first words of a program are heard that has begun before its agent is made."""
        async with self.opened() as heard:
            assert isinstance(heard.agent, TmuxAgent)
            heard.agent.let_go()
            await heard.until_over()
            pane, told = heard.agent.pane, Told()
            await writer(self.tmux.line, pane).paste("nobody listens")

            await auntil(lambda: told.by(self.tmux.line, pane) and b"nobody listens" in told.words)

    @pytest.mark.parametrize("mode", ["copy-mode", "select-pane -d"])
    async def test_a_paste_that_the_pane_refuses_leaves_no_buffer(self, mode: str) -> None:
        agent = await self.tmux.open(msgspec.structs.replace(self.launch(), argv=("cat",)))
        try:
            line = self.tmux.line
            await asyncio.to_thread(line.server.run, *mode.split(), "-t", agent.pane)
            with pytest.raises(PasteRefusedError):
                await writer(line, agent.pane).paste("refused")

            assert [] == await line.ask(ask.command("list-buffers"))
        finally:
            await agent.aclose()
            await self.tmux.aclose()

    async def test_output_before_a_restart_is_not_reported(self) -> None:
        agent = await self.tmux.open(msgspec.structs.replace(self.launch(), argv=("cat",)))
        try:
            agent.let_go()
            line, told = self.tmux.line, Told()
            await writer(line, agent.pane).paste("first ")
            await auntil(lambda: told.by(line, agent.pane) and b"first" in told.words)
            await writer(line, agent.pane).paste("old ")
            async with asyncio.timeout(LIMIT_S):
                while not any(b"old" in row for row in await line.ask(ask.capture(agent.pane, ansi=False))):
                    pass  # the answer comes behind the output that it shows
            line.listeners.forget(agent.pane)
            await writer(line, agent.pane).paste("new ")
            await auntil(lambda: told.by(line, agent.pane) and b"new" in told.words)

            assert b"old" not in told.words
        finally:
            await agent.aclose()
            await self.tmux.aclose()


class Told(PaneListener):
    """What a pane tells to somebody who listens for a moment at a time."""

    def __init__(self) -> None:
        self.words = b""

    def by(self, line: ServerConnection, pane: str) -> bool:
        line.listeners.listen(pane, self)
        line.listeners.unlisten(pane, self)
        return True

    def handle_output(self, data: bytes) -> None:
        self.words += data


def test_the_backend_is_found_by_its_name() -> None:
    assert "tmux" in names()
    assert isinstance(load("tmux"), TmuxBackend)
