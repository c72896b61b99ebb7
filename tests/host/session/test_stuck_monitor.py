"""A host says when nothing comes of its agent's work: by files, children and facts, never by what it prints."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kasmon.backends.base import Chunk
from kasmon.config import Limits
from kasmon.errors import SessionNotFoundError
from kasmon.host.journal.redaction import Redactor
from kasmon.host.rpc.frames import CommandResult, ReportContext
from kasmon.host.session.stuck_monitor import ChildActivity, limits_of, rest_s, written_since
from kasmon.host.structured.live_text import LiveText
from kasmon.model.events import ContextReported, StuckSeen, TurnStarted
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from tests.support.agents.fake_agent import FakeAgent
from tests.support.host.env import ME, Env
from tests.support.wait import auntil, until

SOON = Limits(stuck_after_minutes=0.6 / 60)
NOTHING = "no progress for 0.6 s"


def reasons(env: Env) -> list[str]:
    return [fact.why for fact in env.only(StuckSeen)]


async def test_an_agent_without_effect_is_stuck_until_there_is_one(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake, env.wants(backend="fake", workdir=str(env.paths.config)), SOON):
        fake.say(TurnStarted(at=time.time(), prompt="go"))
        await auntil(lambda: [NOTHING] == reasons(env), what="stuck")
        assert env.session().stuck
        env.paths.config.mkdir(exist_ok=True)
        (env.paths.config / "made").write_text("so")

        await auntil(lambda: reasons(env)[1:2] == [""], what="not stuck any more")


async def test_streamed_text_is_an_effect() -> None:
    """Until it is a message it is no fact; its host knows when it came."""
    live, before = LiveText(ME, Redactor(), lambda _: None), time.time()
    assert 0 == live.written_at
    live.write(Chunk(text="word"))

    assert before <= live.written_at <= time.time()


async def test_the_reported_reason_of_waiting_is_an_event(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link = await env.linked()
        await auntil(lambda: env.session().exists)  # its start ends every wait
        assert isinstance(
            await link.ask(ReportContext(n=0, session=ME, waiting="the\x1b[2J other\ntasks" + "!" * 900)), CommandResult
        )
        (said,) = env.only(ContextReported)

        assert env.session().waits == said.waiting
        assert said.waiting is not None
        assert said.waiting.startswith("the")
        assert "\x1b" not in said.waiting
        assert 200 == len(said.waiting)
        with pytest.raises(SessionNotFoundError):
            await link.ask(ReportContext(n=0, session=SessionId("other"), waiting="x"))
        await link.aclose()


def test_a_file_written_in_a_deep_folder_is_an_effect(tmp_path: Path) -> None:
    before = time.time() - 100
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "node_modules").mkdir()
    for path in (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "node_modules"):
        os.utime(path, (before, before))
    assert written_since(str(tmp_path), time.time() - 50) is None
    (tmp_path / "a" / "b" / "new").write_text("x")

    found = written_since(str(tmp_path), time.time() - 50)
    assert found is not None
    assert abs(found - time.time()) < 10


def test_an_unreadable_folder_is_no_effect(tmp_path: Path) -> None:
    assert written_since(str(tmp_path / "gone"), 0) is None


def test_computing_children_are_an_effect_and_sleeping_ones_are_not() -> None:
    spins, sleeps = parent(sys.executable, "-c", "while True: pass"), parent("sleep", "60")
    try:
        busy, idle = ChildActivity(), ChildActivity()
        assert busy.work(spins.pid) is None
        assert idle.work(sleeps.pid) is None
        until(lambda: busy.work(spins.pid), what="its child's work")
        until(lambda: idle.work(sleeps.pid) is False, what="its child's rest")
    finally:
        for process in (spins, sleeps):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def parent(*argv: str) -> subprocess.Popen[bytes]:
    """A process that only waits for its child, which runs *argv*."""
    return subprocess.Popen(
        [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *argv], start_new_session=True
    )


def test_the_limits_come_from_the_config_in_minutes() -> None:
    limits = limits_of(Limits(stuck_after_minutes=2, stuck_after_calls=0))

    assert (120.0, 0) == (limits.after_s, limits.calls)


@pytest.mark.parametrize(("state", "together"), [(SessionState.IDLE, True), (SessionState.WORKING, False)])
async def test_the_idle_sessions_of_a_host_are_checked_together(state: SessionState, together: bool) -> None:
    """Two hundred at rest wake their host once for all, not one after the other."""
    loop = asyncio.get_running_loop()
    pause_s = 4 * (loop.time() + 1)  # longer than the clock has run, and no part of it is a multiple

    due_at = loop.time() + rest_s(state, pause_s)

    assert together is (abs(due_at - pause_s) < 0.5)
