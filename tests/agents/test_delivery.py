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
from kasmon.model.events import ReceiptMoved
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.paths import write_private
from tests.agents.real import RealAgent
from tests.agents.stack import beside
from tests.host.inn import Inn, prompted
from tests.modelstub import ModelStub
from tests.waiting import auntil

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
def inn(scratch: Path) -> Iterator[Inn]:
    (scratch / "k").mkdir()
    built = Inn(scratch / "k")
    built.open()
    yield built
    built.close()


@pytest.fixture(params=["claude", "codex", "gemini", "opencode"])
def agent(request: pytest.FixtureRequest) -> RealAgent:
    made: RealAgent = request.getfixturevalue(request.param)
    return made


def started(inn: Inn, agent: RealAgent) -> None:
    """Have the agent of *inn* wanted, with its own variables and a first prompt."""
    argv = (str(agent.program), *FLAGS.get(agent.name, ()))
    launch = inn.wants(ME, *argv, agent=agent.name, workdir=str(agent.workdir), prompt=FIRST)
    write_private(inn.places.environment(launch.session), encoded({**agent.own, "GEMINI_CLI_NO_RELAUNCH": "true"}))


def steps(inn: Inn, receipt: str) -> list[str]:
    return [str(moved.receipt.state) for moved in inn.only(ReceiptMoved, ME) if moved.receipt.id == receipt]


def screen(inn: Inn) -> str:
    return inn.server.run("capture-pane", "-p", "-t", f"={ME}:").decode()


async def sent(inn: Inn, link: HostLink, text: str, when: When = "now") -> Receipt:
    try:
        return await prompted(link, ME, text, when=when)
    except KasmonError:
        print(*(str(moved.receipt) for moved in inn.only(ReceiptMoved, ME)), screen(inn), sep="\n")
        raise


async def finished(inn: Inn, receipt: str, *, or_unsure: bool = False) -> None:
    ends = {"finished", "unsure"} if or_unsure else {"finished"}
    try:
        await auntil(lambda: ends & {*steps(inn, receipt)}, LIMIT_S, f"{receipt} finished")
        await auntil(lambda: inn.session(ME).state is SessionState.IDLE, LIMIT_S, "idle")
    except TimeoutError:
        told = [moved.receipt for moved in inn.only(ReceiptMoved, ME)]
        raise AssertionError("\n".join([*map(str, told), str(inn.session(ME).signals), screen(inn)])) from None


async def _delivers(inn: Inn, agent: RealAgent, stub: ModelStub) -> None:
    """Each text is given once and whole; then a person's draft is left alone."""
    async with inn.client() as link:
        await link.ask(StartSession(n=0, session=ME), limit_s=20)
        await finished(inn, f"{ME}-r1")
        for name, text in TEXTS.items():
            receipt = await sent(inn, link, text)
            print(agent.name, name, receipt.state, receipt.reason)
            assert (receipt.state in TAKEN, receipt.reason) == (True, "")
            await finished(inn, receipt.id)
        credited = {known.carried_by for known in inn.session(ME).receipts}
        assert {"text" if agent.name in NAMING else "alone"} == credited
        link.tell(SendKeys(session=ME, data=b"half a thought"))
        await auntil(lambda: "half a thought" in screen(inn), LIMIT_S)
        with pytest.raises(PromptBoxError, match="half a thought"):
            await prompted(link, ME, "go %% say never")
    assert "half a thought" in screen(inn)
    for text in (FIRST, *TEXTS.values()):
        given = [turn["user"] for turn in stub.turns if text in turn["user"]] if len(text) > 1 else [text]
        assert 1 == len(given), [turn["user"] for turn in stub.turns]
    assert "y" == stub.turns[-1]["user"]


async def _takes_in(inn: Inn, agent: RealAgent, stub: ModelStub) -> None:
    """A prompt that is not to disturb a turn, one in its middle, one in its place; and one in place of a turn alone."""
    async with inn.client() as link:
        await link.ask(StartSession(n=0, session=ME), limit_s=20)
        await finished(inn, f"{ME}-r1")
        await sent(inn, link, LONG)
        await auntil(lambda: inn.session(ME).state is SessionState.WORKING, LIMIT_S)
        with pytest.raises(SessionBusyError):
            await prompted(link, ME, "go %% say never", when="refuse")
        await sent(inn, link, "go %% say steered")
        receipt = await sent(inn, link, "go %% say instead", when="interrupt")
        assert (receipt.state in TAKEN, receipt.reason) == (True, "")
        await finished(inn, receipt.id, or_unsure=agent.name not in NAMING)
        await sent(inn, link, ALONE)
        await auntil(lambda: inn.session(ME).state is SessionState.WORKING, LIMIT_S)
        receipt = await sent(inn, link, "go %% say at last", when="interrupt")
        await finished(inn, receipt.id)
        await auntil(lambda: not inn.session(ME).awaits_turn, LIMIT_S, "the end of all")
    print(agent.name, [turn["user"] for turn in stub.turns])
    for text in ("go %% say instead", "go %% say at last"):
        assert 1 == [turn["user"] for turn in stub.turns].count(text)
    assert not [turn for turn in stub.turns if "say never\n" in f"{turn['user']}\n"]
    receipts = inn.session(ME).receipts
    ends = [(receipt.state, receipt.carried_by) for receipt in receipts]
    if agent.name in NAMING:
        assert {(ReceiptState.FINISHED, "text")} == {*ends}, receipts
    else:  # two were on their way at once, and nothing names the prompt of the turn that came: no guess is made
        sure = (ReceiptState.FINISHED, "alone")
        assert [sure, sure] == [ends[0], ends[-1]], receipts
        assert {sure, (ReceiptState.UNSURE, "")} >= {*ends}, receipts


def test_each_prompt_is_given_once_and_whole(agent: RealAgent, stub: ModelStub, inn: Inn) -> None:
    started(inn, agent)
    asyncio.run(_delivers(inn, agent, stub))


def test_in_a_turn_a_prompt_waits_goes_in_or_takes_its_place(agent: RealAgent, stub: ModelStub, inn: Inn) -> None:
    started(inn, agent)
    asyncio.run(_takes_in(inn, agent, stub))


async def _tells_failures(inn: Inn, agent: RealAgent, stub: ModelStub) -> None:
    """A turn that the provider refused is failed, with its words, and the next one is done."""
    async with inn.client() as link:
        await link.ask(StartSession(n=0, session=ME), limit_s=20)
        await finished(inn, f"{ME}-r1")
        for status in (400, *((529,) if agent.name in NAMING else ()), 401):
            receipt = await sent(inn, link, f"go %% fail {status}")
            try:
                await auntil(lambda sent=receipt: steps(inn, sent.id)[-1] == "failed", LIMIT_S)  # type: ignore[misc]
            except TimeoutError:
                told = [moved.receipt for moved in inn.only(ReceiptMoved, ME)]
                raise AssertionError("\n".join([*map(str, told), str(inn.session(ME).signals), screen(inn)])) from None
            await auntil(lambda: "stub failure" in inn.session(ME).receipts[-1].reason, LIMIT_S, "its words")
            session = inn.session(ME)
            print(agent.name, status, session.receipts[-1], session.turn_error)
            assert session.turn_error == session.receipts[-1].reason
            if status == 401 and agent.name == "claude":
                return  # it wants to be logged in again
            if agent.name == "opencode" and session.state is not SessionState.IDLE:
                return
            await auntil(lambda: inn.session(ME).state is SessionState.IDLE, LIMIT_S, "idle")
        receipt = await sent(inn, link, "go %% wait 2 %% say well again")
        await finished(inn, receipt.id)
        now = inn.session(ME)
        assert ("", "") == (now.turn_ended, now.turn_error)
        assert ("text" if agent.name in NAMING else "alone") == now.receipts[-1].carried_by


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode"], indirect=True)
def test_a_turn_that_the_provider_refuses_is_failed_with_its_words(agent: RealAgent, stub: ModelStub, inn: Inn) -> None:
    started(inn, agent)
    asyncio.run(_tells_failures(inn, agent, stub))
