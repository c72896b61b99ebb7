"""The ancestor's session interface, row by row of its four tables, in both modes.

The rows are those of `tests.support.execution.interface_rows`, on one session of each kind: of the scripted agent,
structured and in a terminal, and of a program that knows nothing of kasmon. What follows them is true of one kind of
session only.
"""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import psutil
import pytest

import kasmon
from kasmon import ExecutionSession, InteractiveOnlyError, LaunchSpec
from kasmon.config import Config, parse
from kasmon.errors import ConfigError, SessionNotFoundError, UsageError
from kasmon.execution.spec import Poll
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Mode
from kasmon.model.permission import Decision
from kasmon.paths import Paths
from kasmon.supervisor.sessions import list_entry
from kasmon.tmux.server import TmuxServer
from tests.support.execution.actor_session import KEPT, LAUNCH, asks, eventually, say, shows, until_gone
from tests.support.execution.interface_rows import walk
from tests.support.tui.dashboard import Home
from tests.support.wait import auntil

ECHO: Final = (
    sys.executable,
    "-I",
    "-S",
    "-c",
    "import sys\nfor line in sys.stdin: print('heard', line.strip(), flush=True)",
)
"""A program that knows nothing of kasmon."""
KINDS: Final[dict[str, dict[str, Any]]] = {
    "tmux": {"agent": "scripted", "mode": "tmux"},
    "program": {"argv": ECHO},
    "sdk": {"agent": "scripted", "mode": "sdk"},
}


class Scripted:
    """The scripted agent, or the program that says what it hears."""

    def __init__(self, home: Home, kind: str) -> None:
        self.home, self.kind = home, kind
        self.label = KINDS[kind].get("agent", "")
        self.begins = "" if kind == "program" else self.says("begun")
        self.paths: Paths = home.paths
        self.workdir = home.path
        self.variables: Mapping[str, str] = home.variables

    def session(self, **more: Any) -> ExecutionSession:
        fields = LAUNCH | {"speed": 0.0, "environment": KEPT} | KINDS[self.kind] | more
        return ExecutionSession(LaunchSpec(**fields), where=self.paths, config=Config())

    def says(self, word: str) -> str:
        return f"say {word}"

    def hangs(self, word: str) -> str:
        return self._lines(f"say {word}", "hang")

    def asks(self, word: str, *, hangs: bool = True) -> str:
        return self._lines(f"ask git {word}", "hang" if hangs else "say after")

    def did(self, word: str, shown: str) -> bool:
        return f"● Bash git {word}" in shown

    def runs(self, process: psutil.Process) -> bool:
        if self.kind == "sdk":  # it lives in its host
            return process.pid in {lock_holder(lock) for lock in self.paths.sessions.glob("*/host.lock")}
        return "python" in "".join(process.cmdline()[:1]) and process.cwd() == str(self.workdir)

    async def crash(self, one: ExecutionSession) -> None:
        if self.kind == "program":
            await one.send_keys("\x04")
        else:
            await say(one, "crash 3")

    def forgets(self) -> bool:
        return False

    def remembers(self, before: str, now: str) -> bool:
        """It forgets everything, and needs no memory."""
        return True

    def _lines(self, *lines: str) -> str:
        return ("\n" if self.kind == "sdk" else "\x1b\r").join(lines)


@pytest.mark.parametrize("kind", KINDS)
async def test_every_row_of_the_interface(home: Home, kind: str) -> None:
    await walk(Scripted(home, kind))


@asynccontextmanager
async def started(home: Home, kind: str, **more: Any) -> AsyncIterator[ExecutionSession]:
    """A session that was started just now."""
    actor = Scripted(home, kind)
    one = actor.session(**more)
    await one.start(actor.workdir)
    try:
        yield one
    finally:
        await one.close()


async def test_a_structured_capture_starts_at_its_beginning(home: Home) -> None:
    async with started(home, "sdk", prompt="\n".join(f"say line {n}." for n in range(200))) as one:
        await shows(one, "line 199.")
        whole = await one.capture()

        assert all(f"line {n}." in whole for n in range(200))


async def test_a_terminals_capture_is_its_screen_and_the_range_reaches_its_history(home: Home) -> None:
    argv = (sys.executable, "-c", "for n in range(200): print(f'line {n}.')\ninput()")
    async with started(home, "program", argv=argv) as one:
        await shows(one, "line 199.")

        assert "line 0." not in await one.capture()
        assert "line 0." == await one.capture_range("0", "0")


async def test_unavailable_content_is_reported_and_the_last_one_stays(home: Home) -> None:
    async with started(home, "program") as one:
        await say(one, "hello")
        await shows(one, "heard hello")
        before = await one.poll()
        server = await asyncio.to_thread(TmuxServer(home.paths.tmux_socket).process)
        assert server is not None
        os.kill(server.pid, signal.SIGKILL)
        await until_gone(one)
        after = await one.poll()

        assert (False, False, before.content) == (after.updated, after.captured, after.content)


async def test_a_poll_has_the_text_that_is_being_written_and_its_later_parts(home: Home) -> None:
    """The message is not whole before the last of its words."""
    words = [f"word{number:03}" for number in range(1000)]
    async with started(home, "sdk", prompt=f"say {' '.join(words)}", speed=1.0) as one:

        async def written(least: int) -> Poll | None:
            polled = await one.poll()
            return polled if sum(polled.content.count(word) > 1 for word in words) > least else None

        first = await eventually(lambda: written(0), "some of it")
        assert first is not None
        count = sum(first.content.count(word) > 1 for word in words)
        later = await eventually(lambda: written(count), "more of it")

        assert later is not None
        assert later.updated
        assert later.content.count(words[-1]) == 1


@pytest.mark.parametrize("kind", ["tmux", "sdk"])
async def test_a_denied_permission_is_answered_as_denied(home: Home, kind: str) -> None:
    async with started(home, kind, prompt="ask git push\nsay after") as one:
        await asks(one)
        await one.respond(Decision.DENY)

        await shows(one, "I did not use Bash")


@pytest.mark.parametrize("kind", ["sdk", "tmux"])
async def test_a_cancelled_start_can_be_closed(home: Home, kind: str) -> None:
    one = Scripted(home, kind).session()
    starting = asyncio.create_task(one.start(home.path))
    await auntil(lambda: one.id)
    starting.cancel()
    await asyncio.wait([starting])
    await one.close()
    assert not await one.exists()

    await one.restore()
    assert await one.exists() is not bool(one.why_not)
    await asyncio.gather(one.close(), one.close())
    assert not await one.exists()


async def test_a_removed_session_does_not_exist(home: Home) -> None:
    async with started(home, "sdk") as one:
        await one.close()
        await list_entry.forget(home.paths, await one.state())

        assert (False, None) == (await one.exists(), await one.pid())
        await one.close()
        await one.restore()
        assert one.id in one.why_not
        with pytest.raises(SessionNotFoundError):
            await one.capture()


async def test_a_prompt_that_no_agent_can_accept_is_not_queued(home: Home) -> None:
    async with started(home, "sdk") as one:
        await one.send_keys("\udcff")
        with pytest.raises(UsageError):
            await one.tap_enter()
        await say(one, "say fresh")

        await shows(one, "fresh")


def test_the_error_for_terminal_only_calls_is_public() -> None:
    assert InteractiveOnlyError is kasmon.InteractiveOnlyError


# Choosing the mode

SEED = """
[agents.coder]
enabled = true
program = "claude"
flags = ["--permission-mode bypassPermissions"]
execution_mode = "sdk"
[agents.reviewer]
enabled = true
program = "claude"
execution_mode = "tmux"
"""


def test_the_interface_block_of_the_specification_is_read(home: Home) -> None:
    config = parse(SEED)

    assert ("sdk", "tmux") == (config.agents["coder"].execution_mode, config.agents["reviewer"].execution_mode)
    assert ("--permission-mode bypassPermissions",) == config.agents["coder"].flags


async def test_a_program_without_a_protocol_runs_in_tmux_and_gives_the_reason(home: Home) -> None:
    config = parse('[agents.mine]\nprogram = "cat"\nexecution_mode = "sdk"')
    one = ExecutionSession(LaunchSpec(name="worker", agent="mine"), where=home.paths, config=config)
    await one.start(home.path)
    now = await one.state()
    await one.close()

    assert (Mode.TMUX, "cat has no structured protocol") == (now.mode, now.fallback)


@pytest.mark.parametrize("mode", ["SDK", "headless", "sdkk", " tmux"])
async def test_a_misspelt_mode_is_an_error(home: Home, mode: str) -> None:
    with pytest.raises(UsageError, match=re.escape(repr(mode))):
        await Scripted(home, "sdk").session(mode=mode).start(home.path)
    with pytest.raises(ConfigError, match="execution_mode"):
        parse(f'[agents.claude]\nexecution_mode = "{mode}"')
