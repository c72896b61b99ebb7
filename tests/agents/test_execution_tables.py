"""The ancestor's session interface over the real agents: each row of `tests/support/execution`, a session for each."""

import asyncio
import json
import os
import re
import shutil
import signal
from collections.abc import Awaitable, Mapping
from typing import Any, Final

import psutil
import pytest

from kasmon import ExecutionSession, LaunchSpec
from kasmon.config import parse
from kasmon.errors import TimedOutError
from kasmon.model.permission import Decision
from tests.support.agents.full_stack import Stack, beside, stacked
from tests.support.execution.actor_session import INTERRUPT, KEPT, LAUNCH, asks, say, staged
from tests.support.execution.interface_rows import walk

pytestmark = [pytest.mark.agents, pytest.mark.timeout(120)]
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)
FLAGS: Final = {
    "claude": ("--permission-mode default",),
    "codex": ("-a on-request", "--sandbox workspace-write"),
    "gemini": ("--skip-trust",),
    "opencode": (),
}

MEMORY: Final = (".claude/projects", ".codex/sessions", ".gemini/tmp", "data/opencode")
"""Where they keep their conversations, below HOME."""


class Real:
    """A real agent, structured (`sdk`) or in a terminal (`tmux`)."""

    def __init__(self, stack: Stack, kind: str) -> None:
        self.stack, self.kind = stack, kind
        self.label = stack.agent.name
        self.begins = self.says("begun")
        self.paths, self.workdir = stack.paths, stack.agent.workdir
        self.variables: Mapping[str, str] = stack.variables

    def session(self, **more: Any) -> ExecutionSession:
        agent = self.stack.agent
        flags = json.dumps(FLAGS[agent.name])
        config = parse(f'[agents.{agent.name}]\nprogram = "{agent.program}"\nflags = {flags}')
        own: dict[str, Any] = {"agent": agent.name, "mode": self.kind, "environment": {**agent.own, **KEPT}}
        return ExecutionSession(LaunchSpec(**(LAUNCH | own | more)), where=self.paths, config=config)

    def says(self, word: str) -> str:
        return f"go %% say {word}"

    def hangs(self, word: str) -> str:
        return f"go %% say {word} %% hang"

    def asks(self, word: str, *, hangs: bool = True) -> str:
        then = "hang" if hangs else "say done"
        if self.stack.agent.name != "codex":
            return f"go %% bash touch {word} %% {then}"
        call = {"cmd": f"touch {word}", "sandbox_permissions": "require_escalated", "justification": "it is outside"}
        return f"go %% tool exec_command {json.dumps(call)} %% {then}"

    def did(self, word: str, shown: str) -> bool:
        return (self.workdir / word).exists()

    def runs(self, process: psutil.Process) -> bool:
        program = self.stack.agent.program
        command = (process.exe(), *process.cmdline())
        return process.cwd() == str(self.workdir) and bool({str(program), str(program.resolve())} & set(command))

    async def crash(self, one: ExecutionSession) -> None:
        pid = await one.pid()
        assert pid
        os.kill(pid, signal.SIGKILL)

    def forgets(self) -> bool:
        for folder in MEMORY:
            shutil.rmtree(self.stack.agent.home / folder, ignore_errors=True)
        return True

    def remembers(self, before: str, now: str) -> bool:
        heard = self.stack.heard(now)
        return any(before in said for said in heard)


@pytest.mark.parametrize("name", FLAGS)
async def test_every_row_structured(stack: Stack) -> None:
    await walk(Real(stack, "sdk"))


@pytest.mark.parametrize("name", ["claude", "codex"])
async def test_every_row_in_a_terminal(stack: Stack) -> None:
    await walk(Real(stack, "tmux"))


@pytest.mark.parametrize("name", ["claude"])
async def test_no_call_waits_longer_than_10_s_for_an_agent_or_a_host_that_hangs(stack: Stack) -> None:
    """What a host never heard has not happened."""
    async with staged(actor := Real(stack, "sdk")) as it:
        await it.said("begun")
        await it.waits()
        await say(it.one, actor.asks("never", hangs=False))
        await asks(it.one)
        agent = await asyncio.to_thread(stack.agent_of, it.one.id)
        host = await asyncio.to_thread(stack.host_of, it.one.id)
        await in_time(host, r"did not respond within (10|9\.\d+) s", it.one.respond(Decision.DENY), it.one.interrupt())
        await it.one.respond(Decision.DENY)
        await it.waits()
        await in_time(agent, "the agent did not accept it within 10 s", it.one.interrupt(), it.one.send_keys(INTERRUPT))
        await it.waits()
        assert [] == list(await it.one.permissions())
        await it.say("still here")
    assert not actor.did("never", "")


async def in_time(process: psutil.Process, told: str, *calls: Awaitable[None]) -> None:
    """While *process* hangs, each of *calls* fails in its 10 s, and says what matches *told*."""
    process.suspend()
    try:
        async with asyncio.timeout(14.0):
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
    finally:
        process.resume()
    assert all(isinstance(outcome, TimedOutError) and re.search(told, str(outcome)) for outcome in outcomes), outcomes
