"""A kasmon of its own whose tmux host runs, with the agents that a test needs in its panes."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kasmon.config import Config
from kasmon.host.rpc import frames
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.host_lock import HostLock, lock_holder
from kasmon.host.terminal.host import TmuxHost
from kasmon.model.commands import Launch, Mode, Prompt, Receipt
from kasmon.model.events import SessionEnded, SignalSeen
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.process_identity import is_running, started_at
from kasmon.tmux.formats import PaneFacts
from kasmon.tmux.server import TmuxServer
from tests.support.cli.fork_server import Process, start_host
from tests.support.host.env import Env
from tests.support.tmux.sync_hub import panes_of
from tests.support.wait import auntil, until

RECORDER = """
import os, sys, tty
tty.setraw(0)
file = open(sys.argv[1], "ab", buffering=0)
os.write(1, sys.argv[2].encode().decode("unicode_escape").encode("latin-1"))
while data := os.read(0, 65536):
    file.write(data)
"""
"""A program that writes down what is typed into it, byte by byte; what it prints first is its second argument."""


class TmuxEnv(Env):
    """One kasmon under a folder of its own, for sessions in tmux."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.root = root
        self.server = TmuxServer(self.paths.tmux_socket, environment=self.environment)

    def wants(self, session: str = "abcdefgh", *argv: str, **more: Any) -> Launch:
        """Write how the terminal session *session* is to be started: it runs *argv*."""
        fields = {"name": session, "agent": "shell", "mode": Mode.TMUX, "backend": "tmux", "workdir": str(self.root)}
        return super().wants(SessionId(session), **(fields | {"argv": argv} | more))

    # The host, in a process of its own or in this one

    def open(self) -> Process:
        """Start the tmux host and wait until it listens."""
        with self.paths.tmux_host_log.open("ab") as output:
            process = start_host(["--tmux"], self.environment, output)
        self.processes.append(process)
        until(lambda: process.poll() is not None or self.listens(process.pid), what="the host's start")
        return process

    def listens(self, pid: int) -> bool:
        """Whether the host *pid* lets clients in; a socket that one before it left does not count."""
        with socket.socket(socket.AF_UNIX) as asking:
            is_there = asking.connect_ex(str(self.paths.tmux_host_socket)) == 0
        return is_there and lock_holder(self.paths.tmux_host_lock) == pid

    @contextlib.asynccontextmanager
    async def serving(self, config: Config | None = None) -> AsyncIterator[HostLink]:
        """The tmux host in this process, and a link to it."""
        lock = HostLock(self.paths.tmux_host_lock)
        assert lock.acquire()
        host = TmuxHost(self.paths, config)
        running = asyncio.create_task(host.run())
        try:
            await auntil(lambda: running.done() or self.listens(os.getpid()))
            async with self.client() as link:
                yield link
        finally:
            host.end()
            await asyncio.wait([running], timeout=20)
            lock.let_go()
        await running

    async def link(self) -> HostLink:
        """A link that the test hangs up itself."""
        return await HostLink.open(self.paths.tmux_host_socket)

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[HostLink]:
        """A link to the host, hung up at the end."""
        link = await self.link()
        try:
            yield link
        finally:
            await link.aclose()

    # Sessions

    async def run(self, link: HostLink, session: str, *argv: str, **more: Any) -> SessionId:
        """Start *argv* as *session*."""
        launch = self.wants(session, *argv, **more)
        await link.ask(frames.StartSession(n=0, session=launch.session), limit_s=40)
        return launch.session

    async def ready(self, session: str) -> None:
        await auntil(lambda: any(signal.value == "ready" for signal in self.only(SignalSeen, SessionId(session))))

    async def shows(self, session: str, text: str) -> None:
        """Wait until *text* stands on the session's screen, asked behind the host's back."""
        await auntil(lambda: text.encode() in self.server.run("capture-pane", "-p", "-t", f"={session}:"))

    async def until_state(self, session: str, state: SessionState) -> None:
        await auntil(lambda: self.session(SessionId(session)).state is state, what=f"{session} {state}")

    async def ended(self, session: str) -> SessionEnded:
        await auntil(lambda: self.only(SessionEnded, SessionId(session)), what="the end")
        return self.only(SessionEnded, SessionId(session))[-1]

    def recorder(self, name: str, says: str = "ready") -> tuple[str, ...]:
        """The command of a program that writes what is typed into the file *name*; *says* may hold escapes."""
        return sys.executable, "-c", RECORDER, str(self.root / name), says

    def recorded(self, name: str) -> bytes:
        path = self.root / name
        return path.read_bytes() if path.exists() else b""

    async def text(self, link: HostLink, session: str, **more: Any) -> tuple[str, ...]:
        answer = await link.ask(frames.ReadTerminal(n=0, session=SessionId(session), **({"screen_and": 50} | more)))
        assert isinstance(answer, frames.TerminalText)
        return answer.lines

    async def pane(self, link: HostLink, session: str) -> frames.PaneDescription:
        answer = await link.ask(frames.DescribePane(n=0, session=SessionId(session)))
        assert isinstance(answer, frames.PaneDescription)
        return answer

    def facts(self, session: str) -> PaneFacts | None:
        """What tmux says of the session's pane, asked behind the host's back."""
        return next((facts for facts in panes_of(self.server) if facts.kasmon_id == session), None)

    def close(self) -> None:
        """End the host and the tmux server with all that runs in it."""
        pid = lock_holder(self.paths.tmux_host_lock)
        born = started_at(pid) if pid else None
        if pid and born and pid != os.getpid():
            os.kill(pid, signal.SIGKILL)
            until(lambda: not is_running(pid, born))
        self.server.kill_server()
        super().close()


class Screen:
    """What a client sees that takes every push of one link, as a dashboard does."""

    def __init__(self, link: HostLink, session: str) -> None:
        self.session = SessionId(session)
        self.rows: list[str] = []
        self.last: frames.TerminalRows | None = None
        self.pushes: list[frames.TerminalRows] = []
        self.gone = ""
        self.clips: list[str | None] = []
        self._link = link
        link.on_push = self.take

    def take(self, frame: frames.FromHost) -> None:
        if isinstance(frame, frames.TerminalRows) and frame.session == self.session:
            self.pushes.append(frame)
            self.last = frame
            if frame.full:
                self.rows = [""] * frame.height
            for y, row in frame.changed:
                self.rows[y] = row
        elif isinstance(frame, frames.ClipboardCopy) and frame.session == self.session:
            self.clips.append(frame.text)
        elif isinstance(frame, frames.SubscriptionEnd) and frame.session == self.session:
            self.gone = frame.why

    def watch(self, rate_hz: float = 20.0) -> None:
        self._link.send(frames.Watch(session=self.session, rate_hz=rate_hz))

    def focus(self, columns: int = 120, rows: int = 40) -> None:
        self._link.send(frames.Focus(session=self.session, columns=columns, rows=rows))

    def tell(self, frame: frames.Frame) -> None:
        self._link.send(frame)

    def has(self, text: str) -> bool:
        return any(text in row for row in self.rows)

    async def until_has(self, text: str) -> None:
        await auntil(lambda: self.has(text), what=f"{text!r} on the screen")


async def prompted(link: HostLink, session: str, text: str, **more: Any) -> Receipt:
    done = await link.ask(
        frames.ExecuteCommand(n=0, session=SessionId(session), command=Prompt(text=text, **more)), limit_s=25
    )
    assert isinstance(done, frames.CommandResult)
    assert done.receipt is not None
    return done.receipt


def sh(script: str) -> tuple[str, ...]:
    """The command that runs *script*."""
    return "/bin/sh", "-c", script


def python(script: str) -> tuple[str, ...]:
    return sys.executable, "-c", script
