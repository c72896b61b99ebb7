"""Prompts typed into the real agents in tmux: the model gets each whole and once, and its receipt says how far it is.

The first one is the launch's, which waits until the agent has started; the others are sent while it stands idle.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kasmon.backends.common.environment import encoded
from kasmon.errors import KasmonError, PromptBoxError, SessionBusyError
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.frames import SendKeys, StartSession
from kasmon.model.commands import Receipt, ReceiptState, When
from kasmon.model.events import ReceiptChanged
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.paths import write_private
from tests.support.agents.full_stack import beside
from tests.support.agents.real_agent import RealAgent
from tests.support.host.tmux_env import TmuxEnv, prompted
from tests.support.model_stub import ModelStub
from tests.support.wait import auntil

pytestmark = [pytest.mark.agents, pytest.mark.timeout(240)]
stub = pytest.fixture(beside)
ME: Final = SessionId("abcdefgh")
LIMIT_S: Final = 60.0
"""A net under an agent that hangs, no expectation."""
FLAGS: Final[dict[str, tuple[str, ...]]] = {
    "claude": ("--permission-mode", "default"),
    "codex": ("-c", "features.daemon_auto_start=false", "-a", "on-request", "--sandbox", "workspace-write"),
}
FIRST: Final = "go %% wait 2 %% say the first"
TEXTS: Final = {
    "one line": "go %% wait 2 %% say one; with 漢字 and `x` behind;",
    "several lines": "go %% wait 2 %% say several\n  lines, indented\n\nand the last;",
    "3 KB": "go %% wait 2 %% say " + "\n".join(f"{number:03} of the text that is pasted" for number in range(95)),
    "one character": "y",
}
LONG: Final = "go %% wait 45 %% say too late"
ALONE: Final = "go %% wait 46 %% say never either\n\n  in lines;"
NAMING: Final = frozenset({"claude", "codex"})
"""Agents whose hooks name the prompts that they take."""
TAKEN: Final = (ReceiptState.SUBMITTED, ReceiptState.STARTED, ReceiptState.FINISHED)


@pytest.fixture
def tmux(scratch: Path) -> Iterator[TmuxEnv]:
    (scratch / "k").mkdir()
    built = TmuxEnv(scratch / "k")
    built.open()
    yield built
    built.close()


@pytest.fixture(params=["claude", "codex", "gemini", "opencode"])
def agent(request: pytest.FixtureRequest) -> RealAgent:
    made: RealAgent = request.getfixturevalue(request.param)
    return made


def started(tmux: TmuxEnv, agent: RealAgent) -> None:
    """Have the agent of *tmux* wanted, with its own variables and a first prompt."""
    argv = (str(agent.program), *FLAGS.get(agent.name, ()))
    launch = tmux.wants(ME, *argv, agent=agent.name, workdir=str(agent.workdir), prompt=FIRST)
    write_private(tmux.paths.environment(launch.session), encoded({**agent.own, "GEMINI_CLI_NO_RELAUNCH": "true"}))


def steps(tmux: TmuxEnv, receipt: str) -> list[str]:
    return [str(moved.receipt.state) for moved in tmux.only(ReceiptChanged, ME) if moved.receipt.id == receipt]


def screen(tmux: TmuxEnv) -> str:
    return tmux.server.run("capture-pane", "-p", "-t", f"={ME}:").decode()


async def sent(tmux: TmuxEnv, link: HostLink, text: str, when: When = "now") -> Receipt:
    try:
        return await prompted(link, ME, text, when=when)
    except KasmonError:
        print(*(str(moved.receipt) for moved in tmux.only(ReceiptChanged, ME)), screen(tmux), sep="\n")
        raise


async def finished(tmux: TmuxEnv, receipt: str, *, or_unsure: bool = False) -> None:
    ends = {"finished", "unsure"} if or_unsure else {"finished"}
    try:
        await auntil(lambda: ends & {*steps(tmux, receipt)}, LIMIT_S, f"{receipt} finished")
        await auntil(lambda: tmux.session(ME).state is SessionState.IDLE, LIMIT_S, "idle")
    except TimeoutError:
        told = [moved.receipt for moved in tmux.only(ReceiptChanged, ME)]
        raise AssertionError("\n".join([*map(str, told), str(tmux.session(ME).signals), screen(tmux)])) from None


async def _delivers(tmux: TmuxEnv, agent: RealAgent, stub: ModelStub) -> None:
    """Each text is given once and whole; then a person's draft is left alone."""
    async with tmux.client() as link:
        await link.ask(StartSession(n=0, session=ME), limit_s=40)
        await finished(tmux, f"{ME}-r1")
        for name, text in TEXTS.items():
            receipt = await sent(tmux, link, text)
            print(agent.name, name, receipt.state, receipt.reason)
            assert (receipt.state in TAKEN, receipt.reason) == (True, "")
            await finished(tmux, receipt.id)
        credited = {known.carried_by for known in tmux.session(ME).receipts}
        assert {"text" if agent.name in NAMING else "alone"} == credited
        link.send(SendKeys(session=ME, data=b"half a thought"))
        await auntil(lambda: "half a thought" in screen(tmux), LIMIT_S)
        with pytest.raises(PromptBoxError, match="half a thought"):
            await prompted(link, ME, "go %% say never")
    assert "half a thought" in screen(tmux)
    for text in (FIRST, *TEXTS.values()):
        given = [turn["user"] for turn in stub.turns if text in turn["user"]] if len(text) > 1 else [text]
        assert 1 == len(given), [turn["user"] for turn in stub.turns]
    assert "y" == stub.turns[-1]["user"]


async def _takes_in(tmux: TmuxEnv, agent: RealAgent, stub: ModelStub) -> None:
    """A prompt that is not to disturb a turn, one in its middle, one in its place; and one in place of a turn alone."""
    async with tmux.client() as link:
        await link.ask(StartSession(n=0, session=ME), limit_s=40)
        await finished(tmux, f"{ME}-r1")
        await sent(tmux, link, LONG)
        await auntil(lambda: tmux.session(ME).state is SessionState.WORKING, LIMIT_S)
        with pytest.raises(SessionBusyError):
            await prompted(link, ME, "go %% say never", when="refuse")
        await sent(tmux, link, "go %% say steered")
        receipt = await sent(tmux, link, "go %% say instead", when="interrupt")
        assert (receipt.state in TAKEN, receipt.reason) == (True, "")
        await finished(tmux, receipt.id, or_unsure=agent.name not in NAMING)
        await sent(tmux, link, ALONE)
        await auntil(lambda: tmux.session(ME).state is SessionState.WORKING, LIMIT_S)
        receipt = await sent(tmux, link, "go %% say at last", when="interrupt")
        await finished(tmux, receipt.id)
        await auntil(lambda: not tmux.session(ME).awaits_turn, LIMIT_S, "the end of all")
    print(agent.name, [turn["user"] for turn in stub.turns])
    for text in ("go %% say instead", "go %% say at last"):
        assert 1 == [turn["user"] for turn in stub.turns].count(text)
    assert not [turn for turn in stub.turns if "say never\n" in f"{turn['user']}\n"]
    receipts = tmux.session(ME).receipts
    ends = [(receipt.state, receipt.carried_by) for receipt in receipts]
    if agent.name in NAMING:
        assert {(ReceiptState.FINISHED, "text")} == {*ends}, receipts
    else:  # two were on their way at once, and nothing names the prompt of the turn that came: no guess is made
        sure = (ReceiptState.FINISHED, "alone")
        assert [sure, sure] == [ends[0], ends[-1]], receipts
        assert {sure, (ReceiptState.UNSURE, "")} >= {*ends}, receipts


@pytest.mark.short
def test_each_prompt_is_delivered_once_and_whole(agent: RealAgent, stub: ModelStub, tmux: TmuxEnv) -> None:
    started(tmux, agent)
    asyncio.run(_delivers(tmux, agent, stub))


def test_a_prompt_during_a_turn_waits_steers_or_interrupts(agent: RealAgent, stub: ModelStub, tmux: TmuxEnv) -> None:
    started(tmux, agent)
    asyncio.run(_takes_in(tmux, agent, stub))


async def _tells_failures(tmux: TmuxEnv, agent: RealAgent, stub: ModelStub) -> None:
    """A turn that the provider refused is failed, with its words, and the next one is done."""
    async with tmux.client() as link:
        await link.ask(StartSession(n=0, session=ME), limit_s=40)
        await finished(tmux, f"{ME}-r1")
        for status in (400, *((529,) if agent.name in NAMING else ()), 401):
            receipt = await sent(tmux, link, f"go %% fail {status}")
            try:
                await auntil(lambda sent=receipt: steps(tmux, sent.id)[-1] == "failed", LIMIT_S)  # type: ignore[misc]
            except TimeoutError:
                told = [moved.receipt for moved in tmux.only(ReceiptChanged, ME)]
                raise AssertionError(
                    "\n".join([*map(str, told), str(tmux.session(ME).signals), screen(tmux)])
                ) from None
            await auntil(lambda: "stub failure" in tmux.session(ME).receipts[-1].reason, LIMIT_S, "its words")
            session = tmux.session(ME)
            print(agent.name, status, session.receipts[-1], session.turn_error)
            assert session.turn_error == session.receipts[-1].reason
            if status == 401 and agent.name == "claude":
                return  # it wants to be logged in again
            if agent.name == "opencode" and session.state is not SessionState.IDLE:
                return
            await auntil(lambda: tmux.session(ME).state is SessionState.IDLE, LIMIT_S, "idle")
        receipt = await sent(tmux, link, "go %% wait 2 %% say well again")
        await finished(tmux, receipt.id)
        now = tmux.session(ME)
        assert ("", "") == (now.turn_ended, now.turn_error)
        assert ("text" if agent.name in NAMING else "alone") == now.receipts[-1].carried_by


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode"], indirect=True)
def test_a_turn_that_the_provider_refuses_fails_with_its_message(
    agent: RealAgent, stub: ModelStub, tmux: TmuxEnv
) -> None:
    started(tmux, agent)
    asyncio.run(_tells_failures(tmux, agent, stub))
