"""Answers to what stands on a terminal agent's screen, through the host: one wins, and the log says what was done."""

import asyncio
import contextlib
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kasmon.backends.tmux.input import answer_delivery
from kasmon.errors import PromptChangedError, RefusedError, RequestClosedError, UnableError
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.frames import ExecuteCommand
from kasmon.model.commands import Answer
from kasmon.model.events import RequestAnswered, RequestOpened, RequestWithdrawn
from kasmon.model.permission import Decision, Request, SessionId
from kasmon.model.session_state import SessionState
from tests.support.agents.menu_agent import NO, YES, MenuAgent, dialog
from tests.support.host.tmux_env import TmuxEnv, prompted
from tests.support.wait import auntil

pytestmark = pytest.mark.story

ME = SessionId("abcdefgh")


@pytest.fixture(autouse=True)
def _in_no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """These fakes hear a key at once."""
    monkeypatch.setattr(answer_delivery, "YOUNG_S", 0.0)


@asynccontextmanager
async def asking(*asks: dict[str, Any], **does: Any) -> AsyncIterator[tuple[TmuxEnv, HostLink, MenuAgent]]:
    """A host in this process, and a fake agent that asks."""
    root = Path(tempfile.mkdtemp(prefix="ka-", dir="/tmp"))
    tmux = await asyncio.to_thread(TmuxEnv, root)
    asker = MenuAgent(root / "bin", *asks, **does)
    try:
        async with tmux.serving() as link:
            await tmux.run(link, ME, *asker.argv, agent="scripted")
            yield tmux, link, asker
    finally:
        await asyncio.to_thread(tmux.close)
        shutil.rmtree(root, ignore_errors=True)


async def asked(tmux: TmuxEnv, text: str = "") -> Request:
    return await auntil(lambda: next((one for one in tmux.session(ME).requests if text in one.shown), None), 20, text)


async def answer(link: HostLink, request: Request, decision: Decision, **more: Any) -> None:
    wish = Answer(request=request.id, digest=more.pop("digest", request.digest), decision=decision, **more)
    await link.ask(ExecuteCommand(n=0, session=ME, command=wish), limit_s=40)


async def test_one_of_two_dashboards_answers_and_the_other_gets_the_name_of_the_first() -> None:
    async with asking(dialog("git push"), dialog("git pull")) as (tmux, link, asker):
        request = await asked(tmux)
        async with tmux.client() as other:
            told = await asyncio.gather(
                answer(link, request, Decision.ALLOW), answer(other, request, Decision.DENY), return_exceptions=True
            )

        won, said = (YES, "allow") if told[0] is None else (NO, "deny")
        [lost] = [error for error in told if error is not None]
        assert isinstance(lost, RequestClosedError)
        assert re.search(rf"user at .*\d+\)? answered {said}", lost.message)
        assert [("git push", won)] == asker.taken()


async def test_the_log_has_the_action_and_nothing_else() -> None:
    async with asking(dialog("git push"), dialog("git pull")) as (tmux, link, asker):
        first = await asked(tmux, "git push")
        await answer(link, first, Decision.ALWAYS)
        second = await asked(tmux, "git pull")
        await answer(link, second, Decision.DENY)
        await tmux.until_state(ME, SessionState.IDLE)

        told = [(fact.request, fact.decision, fact.by) for fact in tmux.only(RequestAnswered, ME)]
        assert [(first.id, Decision.ALWAYS, "user"), (second.id, Decision.DENY, "user")] == told
        assert [] == tmux.only(RequestWithdrawn, ME)
        assert not tmux.paths.rules.exists()
        assert ("git pull", NO) == asker.taken()[-1]


async def test_a_changed_prompt_is_another_request_and_no_answer_is_logged() -> None:
    async with asking(dialog("git push"), dialog("rm -rf /")) as (tmux, link, asker):
        request = await asked(tmux)
        pid = tmux.session(ME).pid
        assert pid
        asker.swap(pid)
        await tmux.shows(ME, "rm -rf")
        with pytest.raises((PromptChangedError, RequestClosedError)):
            await answer(link, request, Decision.ALLOW)
        again = await asked(tmux, "rm -rf /")

        assert [] == asker.heard()
        assert [] == tmux.only(RequestAnswered, ME)
        assert [request.id] == [fact.request for fact in tmux.only(RequestWithdrawn, ME)]
        assert again.id != request.id


async def test_an_unsupported_answer_leaves_the_request_open() -> None:
    async with asking(dialog("git push", YES, NO)) as (tmux, link, asker):
        request = await asked(tmux)
        with pytest.raises(RefusedError, match="does not accept"):
            await answer(link, request, Decision.ALWAYS)
        with pytest.raises(UnableError, match="no reason"):
            await answer(link, request, Decision.DENY, reason="not now")
        for digest in ("of another", ""):
            with pytest.raises(RefusedError, match="differs"):
                await answer(link, request, Decision.ALLOW, digest=digest)
        await answer(link, request, Decision.LATER)

        assert [True] == [one.later for one in tmux.session(ME).requests]
        assert [] == asker.heard()
        assert 1 == len(tmux.only(RequestOpened, ME))


async def test_an_agent_cannot_answer_a_request_on_its_screen() -> None:
    async with asking(dialog("git push")) as (tmux, _, asker):
        request = await asked(tmux)
        async with contextlib.aclosing(await HostLink.open(tmux.paths.tmux_host_socket, as_agent=True)) as link:
            with pytest.raises(RefusedError, match="an agent cannot answer"):
                await answer(link, request, Decision.ALLOW)

        assert [] == asker.heard()


@pytest.mark.parametrize("decision", [Decision.ALLOW, Decision.DENY])
async def test_kasmons_own_scripted_agent_is_answered_on_its_screen(decision: Decision) -> None:
    async with asking() as (tmux, link, _):
        other = SessionId("bcdefghi")
        await tmux.run(link, other, sys.executable, "-P", "-m", "kasmon.scripted", "--speed", "0", agent="scripted")
        await tmux.until_state(other, SessionState.IDLE)
        await prompted(link, other, "ask git push")
        request = await auntil(lambda: next(iter(tmux.session(other).requests), None))
        wish = Answer(request=request.id, digest=request.digest, decision=decision)
        await link.ask(ExecuteCommand(n=0, session=other, command=wish), limit_s=40)

        await tmux.until_state(other, SessionState.IDLE)
        assert [decision] == [fact.decision for fact in tmux.only(RequestAnswered, other)]
