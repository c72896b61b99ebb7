"""kasmon's own ACP backend as the editor of `kasmon acp`: what one writes, the other reads."""

import asyncio
import sys
from pathlib import Path

import pytest

from kasmon.backends.acp import backend
from kasmon.backends.base import Chunk
from kasmon.config import Config
from kasmon.host.rpc.peer import MARKS
from kasmon.model.commands import Interrupt, Launch, Mode
from kasmon.model.events import MessageWritten, RequestOpened, ToolFinished, TurnEnded, UsageReported
from kasmon.model.permission import Decision, SessionId
from kasmon.paths import Paths, user_paths
from kasmon.supervisor.fleet.lookup import OWN_ID
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.create import NewSession
from tests.support.agents.backend_contract import LIMIT_S, Contract, Listener
from tests.support.wait import auntil

pytestmark = pytest.mark.story

ARGV = (sys.executable, "-P", "-m", "kasmon", "acp")
AS_A_PERSON = ("env", *(f"--unset={mark}" for mark in {*MARKS, *OWN_ID}), *ARGV)
"""The backend marks what it starts as an agent's: without the marks it is a person's editor, as its parent is."""


class Outer(Contract):
    """A session whose agent is `kasmon acp`."""

    backend = backend


where = pytest.fixture(user_paths)


def launch(workdir: Path, *argv: str, resume: str | None = None, remembers: str = "") -> Launch:
    return Launch(
        session=SessionId("outer"),
        name="outer",
        agent="kasmon",
        mode=Mode.SDK,
        backend="acp",
        argv=argv,
        workdir=str(workdir),
        handshake_s=LIMIT_S,
        resume=resume,
        remembers=remembers,
        generation=2 if resume else 1,
    )


def reasons(heard: Listener) -> list[str]:
    """How its turns ended."""
    return [each.reason for each in heard.facts if isinstance(each, TurnEnded)]


def streamed(heard: Listener) -> str:
    return "".join(each.text for each in heard.all if isinstance(each, Chunk))


async def stop(where: Paths, session: str) -> None:
    found = (await asyncio.to_thread(read_fleet, where)).get(SessionId(session))
    assert found is not None
    await session_operations.stop(where, found, grace_s=0)


async def test_a_turn_a_permission_an_interrupt_and_the_same_conversation_again(where: Paths, tmp_path: Path) -> None:
    script = "say one two\nask make => built\nchange a.py\n  -x\n  +y\nusage 1 2 30 100\nsay after"
    async with Outer().opened(launch(tmp_path, *AS_A_PERSON, "--agent", "scripted")) as heard:
        inner = heard.session.resume_id
        assert inner
        await heard.prompt(script)
        request = await heard.until_asked()
        assert "make" in request.shown
        await heard.answer(request, Decision.ALLOW)
        await heard.until_said(TurnEnded)
        assert ["one two", "after"] == [each.text for each in heard.facts if isinstance(each, MessageWritten)]
        diffs = [each.diff for each in heard.facts if isinstance(each, ToolFinished) and each.diff]
        assert ["--- a/a.py\n+++ b/a.py\n@@ -1,1 +1,1 @@\n-x\n+y\n"] == diffs
        assert [(30, 100)] == [(each.context, each.limit) for each in heard.facts if isinstance(each, UsageReported)]
        await heard.prompt("hang")
        await heard.agent.send(Interrupt())
        ends = ["done", "interrupted"]
        await auntil(lambda: ends == reasons(heard), LIMIT_S, "the end of the interrupted turn")

    async with Outer().opened(launch(tmp_path, *AS_A_PERSON, resume=inner, remembers="hang")) as heard:
        assert inner == heard.session.resume_id
        assert heard.session.proof
    await stop(where, inner)


async def test_an_agent_below_the_host_reads_and_prompts_but_receives_no_request(where: Paths, tmp_path: Path) -> None:
    scripted = NewSession(name="inner", agent="scripted", mode=Mode.SDK, workdir=str(tmp_path), speed=0.0)
    inner = await session_operations.create(where, Config(), scripted)
    async with Outer().opened(launch(tmp_path, *ARGV, inner)) as heard:
        assert inner == heard.session.resume_id
        await heard.prompt("say hello\nask make")
        await auntil(lambda: "An agent cannot answer requests" in streamed(heard), LIMIT_S, "the refusal")
        await heard.agent.send(Interrupt())
        await heard.until_said(TurnEnded)
        assert streamed(heard).startswith("hello")
        assert [] == [each for each in heard.facts if isinstance(each, RequestOpened)]
    found = (await asyncio.to_thread(read_fleet, where)).get(inner)
    assert found is not None
    assert [] == [each for each in found.closed if each.decision is not None]
