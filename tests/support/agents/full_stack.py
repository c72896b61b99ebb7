"""All of kasmon over a real agent: the command line, the supervisor, the session's host, the agent, and a model stub.

A test module takes both fixtures: `stub, stack = pytest.fixture(beside), pytest.fixture(stacked)`, and a test names its
agent by the parameter `name`.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar

import psutil
import pytest

from kasmon.demo.scratch import clear
from kasmon.host.sandboxed.egress_requests import TOOL
from kasmon.model.events import Event
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths, private_folder, user_paths, write_private
from kasmon.store.event_log import EventLog
from kasmon.supervisor.fleet.snapshot import read_fleet
from tests.support.agents.real_agent import RealAgent
from tests.support.cli.cli_runner import Done
from tests.support.cli.fork_server import KASMON, ForkServer
from tests.support.model_stub import ModelStub
from tests.support.wait import until

ASKING: Final[dict[str, tuple[str, ...]]] = {"claude": (), "codex": ("-a untrusted", "--sandbox workspace-write")}
PROMPT: Final = {"claude": "❯", "codex": "Ask Codex"}
"""What stands on a screen that takes a prompt."""
LIMIT_S: Final = 45.0
"""A net under an agent that hangs, no expectation."""

FactT = TypeVar("FactT", bound=Event)


class Stack:
    """One kasmon in the XDG folders of the test, and *agent* as one that its command line can start."""

    def __init__(self, agent: RealAgent, stub: ModelStub, fork_server: ForkServer) -> None:
        self.agent = agent
        self.stub = stub
        self._fork_server = fork_server
        self.path = Path(os.environ["XDG_STATE_HOME"]).parent
        self.paths: Paths = user_paths()
        self.paths.make()
        self.variables = {
            **os.environ,
            **agent.own,
            "PATH": f"{agent.program.parent}:{os.environ['PATH']}",
            "PYTHONUTF8": "1",
        }

    @property
    def asking(self) -> tuple[str, ...]:
        """Flags with which the agent asks before every command."""
        return ASKING[self.agent.name]

    def configure(self, *flags: str) -> None:
        """Give the agent these flags from now on, by the config."""
        private_folder(self.paths.config)
        profile = f"[agents.{self.agent.name}]\nflags = {json.dumps(flags)}\n"
        write_private(self.paths.config_file, profile.encode())

    def begun(self, *arguments: str) -> subprocess.Popen[str]:
        """A command that runs, with a Python of its own."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*KASMON, *arguments],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            env=self.variables,
            cwd=self.agent.workdir,
        )

    def __call__(self, *arguments: str, given: str = "") -> Done:
        """What a command did, with *given* on its stdin."""
        return Done(*self._fork_server.run(arguments, self.variables, self.agent.workdir, given, LIMIT_S))

    def json(self, *arguments: str) -> Any:
        """What a command that succeeds prints with --json."""
        done = self(*arguments, "--json")
        assert 0 == done.code, done.err
        return json.loads(done.out)

    def new(self, name: str, prompt: str = "", *more: str, mode: str = "sdk", env: str = "--env") -> SessionId:
        """Start the agent with *prompt* on stdin; its variables reach it by name, by the option *env*."""
        own = [word for variable in self.agent.own for word in (env, variable)]
        wanted = ("--agent", self.agent.name, "--mode", mode, "--prompt", "-")
        done = self("new", name, *wanted, *own, *more, given=prompt)
        assert 0 == done.code, done.err
        return SessionId(done.out.strip())

    def session(self, session: SessionId) -> Session:
        seen = read_fleet(self.paths).get(session)
        assert seen is not None
        return seen

    def until_state(self, session: SessionId, *states: SessionState) -> Session:
        """The session, once it is in one of *states*."""

        def there() -> Session | None:
            now = self.session(session)
            return now if now.state in states else None

        try:
            return until(there, LIMIT_S)
        except TimeoutError:
            now = self.session(session)
            text = "\n".join(f"{event}"[:300] for event in EventLog(self.paths.log(session)).events())
            raise AssertionError(f"it is {now.state} and not {states}\n{text}") from None

    def turn(self, session: SessionId, prompt: str) -> Session:
        """Give *prompt* and wait for the end of its turn."""
        before = self.session(session).turns
        done = self("send", session, "-", given=prompt)
        assert 0 == done.code, done.err
        return self.turned(session, before)

    def turned(self, session: SessionId, before: int = 0) -> Session:
        """The session, once it has ended more turns than *before*."""

        def over() -> Session | None:
            now = self.session(session)
            return now if now.turns > before and now.state is SessionState.IDLE else None

        return until(over, LIMIT_S, "the end of the turn")

    def turn_in_terminal(self, session: SessionId, prompt: str) -> None:
        """Give *prompt* to the agent in its terminal, and wait until the model has answered it."""
        done = self("send", session, prompt)
        assert 0 == done.code, done
        try:
            until(lambda: any(turn["user"] == prompt and "took_s" in turn for turn in self.stub.turns), LIMIT_S)
        except TimeoutError:
            raise AssertionError(f"no turn for {prompt!r}; on the screen:\n{self('read', session).out}") from None

    def keys(self, session: SessionId, *names: str) -> None:
        """Press keys in the agent's terminal, by tmux's names, as a person does who is attached to it."""
        tmux = ("tmux", "-S", str(self.paths.tmux_socket), "send-keys", "-t", f"={session}:", *names)
        subprocess.run(tmux, check=True, timeout=LIMIT_S)

    def shows(self, session: SessionId, text: str) -> str:
        """What `kasmon read` prints, once *text* is in it."""

        def there() -> str:
            printed = self("read", session).out
            return printed if text in printed else ""

        try:
            return until(there, LIMIT_S)
        except TimeoutError:
            raise AssertionError(f"no {text!r} in:\n{self('read', session)}") from None

    def facts(self, session: SessionId, kind: type[FactT]) -> list[FactT]:
        return [event for event in EventLog(self.paths.log(session)).events() if isinstance(event, kind)]

    def asked(self, session: SessionId | None = None) -> Any:
        """The oldest request of an agent in `kasmon inbox`, of *session* where it is given; hosts ask beside them."""

        def waiting() -> Any:
            requests = self.json("inbox")["requests"]
            agents_own = (one for one in requests if one["tool"] != TOOL)
            return next((one for one in agents_own if session in (None, one["session"])), None)

        return until(waiting, LIMIT_S, "a request")

    def answer(self, request: Any, decision: str, *more: str) -> Done:
        return self("answer", request["id"], decision, "--digest", request["digest"], *more)

    def host_of(self, session: SessionId) -> psutil.Process:
        seen = self.session(session).host
        assert seen is not None
        assert seen.pid
        return psutil.Process(seen.pid)

    def agent_of(self, session: SessionId) -> psutil.Process:
        pid = self.session(session).pid
        assert pid
        return psutil.Process(pid)

    def heard(self, prompt: str) -> tuple[str, ...]:
        """All that the user had said in the request in which *prompt* was new, as the model was told it."""
        requests = [turn for turn in self.stub.turns if turn["user"] == prompt]
        assert requests, f"no request for {prompt!r}"
        return tuple(requests[-1]["users"])


def stacked(name: str, request: pytest.FixtureRequest, stub: ModelStub, fork_server: ForkServer) -> Iterator[Stack]:
    """The fixture `stack`: a kasmon that knows the agent *name*; at the end all that runs for it is ended."""
    stack = Stack(request.getfixturevalue(name), stub, fork_server)
    try:
        yield stack
    finally:
        clear(stack.path)


def beside() -> Iterator[ModelStub]:
    """The fixture `stub`, in a thread of its own, for tests that wait for processes."""
    ready: Future[tuple[ModelStub, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        over = asyncio.Event()
        async with ModelStub(delay=0) as stub:
            ready.set_result((stub, asyncio.get_running_loop(), over))
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="model stub")
    thread.start()
    stub, loop, over = ready.result(LIMIT_S)
    try:
        yield stub
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(LIMIT_S)


def killed(*processes: psutil.Process) -> None:
    """End *processes* with -9, and wait until they are gone."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    gone(*processes)


def gone(*processes: psutil.Process) -> None:
    """Wait until none of *processes* runs."""
    until(lambda: not any(_runs(process) for process in processes), LIMIT_S, "their end")


def _runs(process: psutil.Process) -> bool:
    """Whether any of its threads runs: the others hold its files and locks after the first has ended as a zombie."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return process.num_threads() > 1
        return process.is_running()
    except psutil.NoSuchProcess:
        return False
