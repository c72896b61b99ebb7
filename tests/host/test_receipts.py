"""Which prompt a turn is credited to where the agent's hooks, or its transcript, name each prompt that it takes.

The agent is one that shows golden screens of Claude Code and calls the hooks that kasmon gave it, when it is told to.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.frames import StartSession
from kasmon.host.terminal import typed_prompts
from kasmon.model.commands import Receipt, ReceiptState
from kasmon.model.events import ReceiptChanged, SignalSeen
from kasmon.model.session_state import SessionState
from tests.backends.tmux.evidence.test_claude_registry import started
from tests.backends.tmux.evidence.test_transcripts import ID, user_line
from tests.support.agents.golden_agent import GoldenAgent
from tests.support.detection.expected import reading_of
from tests.support.detection.golden import cases
from tests.support.host.tmux_env import TmuxEnv, prompted
from tests.support.wait import auntil, until

CLAUDE = ("claude", "2.1.332")
DRAFT = "idle-draft"
R = ReceiptState

pytestmark = [pytest.mark.story, pytest.mark.usefixtures("in_tmux_env")]


class Played:
    """An agent that is idle, and what is done to it."""

    def __init__(self, tmux: TmuxEnv, agent: GoldenAgent, link: HostLink) -> None:
        self.tmux_env, self.agent, self.link = tmux, agent, link
        box = next(reading_of(case) for case in cases() if (case.agent, case.version, case.name) == (*CLAUDE, DRAFT))
        assert box.composer is not None
        self.text = box.composer.draft
        """The prompt that can be seen to stand in its box."""

    async def do(self, **what: object) -> None:
        await asyncio.to_thread(lambda: self.agent.do(**what))

    async def shows(self, case: str) -> None:
        await asyncio.to_thread(self.agent.shows, case)

    async def hook(self, event: str, **fields: str) -> None:
        await self.do(hook={"hook_event_name": event, **fields})

    async def becomes(self, state: SessionState) -> None:
        await asyncio.to_thread(self.agent.is_judged, state)

    async def submitted(self) -> Receipt:
        """The receipt of `text`, typed, sent, and gone from the box."""
        before = len(self.agent.typed)
        sending = asyncio.create_task(prompted(self.link, self.agent.session, self.text))
        await asyncio.to_thread(until, lambda: self.text.encode() in self.agent.typed[before:])
        await self.shows(DRAFT)
        await asyncio.to_thread(until, lambda: b"\r" in self.agent.typed[before:])
        await self.shows("idle")
        return await sending

    async def until_noted(self, source: str) -> None:
        """Wait until the host has noted a signal of *source*."""
        await auntil(
            lambda: any(seen.source == source for seen in self.tmux_env.only(SignalSeen, self.agent.session)),
            what=f"a signal of the {source}",
        )

    def receipt(self, n: int = 1) -> Receipt:
        return self.tmux_env.session(self.agent.session).receipts[n - 1]

    async def until_receipt(self, state: ReceiptState, n: int = 1) -> Receipt:
        await auntil(lambda: self.receipt(n).state is state, what=f"receipt {n} {state}")
        return self.receipt(n)


class Transcribed(Played):
    """An agent without hooks, which writes its prompts into its transcript."""

    @property
    def config(self) -> Path:
        return self.tmux_env.root / "claude"

    def registers(self, status: str) -> None:
        pid = self.tmux_env.session(self.agent.session).pid
        assert pid is not None
        entry = {"pid": pid, "procStart": started(pid), "status": status, "version": CLAUDE[1], "sessionId": ID}
        (self.config / "sessions").mkdir(parents=True, exist_ok=True)
        (self.config / "sessions" / f"{pid}.json").write_text(json.dumps(entry))

    async def takes(self, prompt: str) -> None:
        """Write as claude does when a turn of *prompt* begins."""
        file = self.config / "projects" / "-x" / f"{ID}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as lines:
            lines.write(user_line(prompt, datetime.now(UTC).isoformat()))
        self.registers("busy")
        await self.until_noted("transcript")
        await self.shows("working-text")
        await self.becomes(SessionState.WORKING)

    async def ends(self) -> None:
        self.registers("idle")
        await self.shows("finished")
        await self.becomes(SessionState.IDLE)


@pytest.fixture
async def transcribed(tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Transcribed]:
    monkeypatch.setattr(typed_prompts, "BEGIN_S", 1.0)
    agent = GoldenAgent(tmux, "abcdefgh", *CLAUDE)
    tmux.wants(agent.session, "env", f"CLAUDE_CONFIG_DIR={tmux.root / 'claude'}", *agent.argv, agent=agent.name)
    async with tmux.serving() as link:
        await link.ask(StartSession(n=0, session=agent.session), limit_s=40)
        it = Transcribed(tmux, agent, link)
        await it.shows("idle")
        await it.becomes(SessionState.IDLE)
        yield it


async def test_without_hooks_a_turn_is_that_of_the_prompt_in_the_transcript(transcribed: Transcribed) -> None:
    await transcribed.submitted()
    await transcribed.takes(transcribed.text)
    assert "text" == (await transcribed.until_receipt(R.STARTED)).carried_by
    await transcribed.ends()

    assert "text" == (await transcribed.until_receipt(R.FINISHED)).carried_by


async def test_without_hooks_a_turn_of_another_prompt_in_the_transcript_moves_no_receipt(
    transcribed: Transcribed,
) -> None:
    receipt = await transcribed.submitted()
    await transcribed.takes("what the person wrote")
    await transcribed.ends()

    unsure = await transcribed.until_receipt(R.UNSURE)
    assert (typed_prompts.UNNAMED, "") == (unsure.reason, unsure.carried_by)
    moved = {fact.receipt.state for fact in transcribed.tmux_env.only(ReceiptChanged, receipt.session)}
    assert not {R.STARTED, R.FINISHED} & moved


@pytest.fixture
async def played(tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Played]:
    monkeypatch.setattr(typed_prompts, "BEGIN_S", 1.0)
    agent = GoldenAgent(tmux, "abcdefgh", *CLAUDE)
    tmux.wants(agent.session, *agent.argv, agent=agent.name)
    async with tmux.serving() as link:
        await link.ask(StartSession(n=0, session=agent.session), limit_s=40)
        it = Played(tmux, agent, link)
        await it.shows("idle")
        await it.becomes(SessionState.IDLE)
        await it.hook("Stop")  # its hooks work
        await it.until_noted("hook")  # later it would end the turn of a prompt
        yield it


async def test_a_turn_of_another_prompt_does_not_advance_the_receipt_of_a_rejected_one(played: Played) -> None:
    """The box was empty after Enter, for a person had cleared it; then that person sends a prompt."""
    receipt = await played.submitted()
    assert R.SUBMITTED is receipt.state
    await played.hook("UserPromptSubmit", prompt="what the person wrote")
    await played.shows("working-text")
    await played.becomes(SessionState.WORKING)
    await played.hook("Stop")
    await played.shows("finished")
    await played.becomes(SessionState.IDLE)

    unsure = await played.until_receipt(R.UNSURE)
    assert (typed_prompts.UNNAMED, "") == (unsure.reason, unsure.carried_by)
    moved = {fact.receipt.state for fact in played.tmux_env.only(ReceiptChanged, receipt.session)}
    assert not {R.STARTED, R.FINISHED} & moved


async def test_a_turn_is_that_of_the_prompt_that_the_agent_names(played: Played) -> None:
    await played.submitted()
    await played.hook("UserPromptSubmit", prompt=f"{played.text}\n")
    assert "text" == (await played.until_receipt(R.STARTED)).carried_by
    await played.shows("working-text")
    await played.becomes(SessionState.WORKING)
    await played.hook("Stop")
    await played.shows("finished")

    finished = await played.until_receipt(R.FINISHED)
    assert ("text", "") == (finished.carried_by, finished.reason)


async def test_a_turn_too_short_to_be_read_is_reported_by_the_hooks_alone(played: Played) -> None:
    await played.submitted()
    await played.hook("UserPromptSubmit", prompt=played.text)
    await played.hook("Stop")

    assert "text" == (await played.until_receipt(R.FINISHED)).carried_by


async def test_a_turn_that_ends_in_an_error_is_failed_with_the_agents_message_until_the_next_one(
    played: Played,
) -> None:
    await played.submitted()
    await played.hook("UserPromptSubmit", prompt=played.text)
    await played.shows("working-text")
    await played.becomes(SessionState.WORKING)
    await played.hook("StopFailure", error="unknown", last_assistant_message="API Error: 529 overloaded")
    await played.shows("error")
    failed = await played.until_receipt(R.FAILED)
    await played.becomes(SessionState.IDLE)
    session = played.tmux_env.session(failed.session)
    assert ("error", True) == (session.turn_ended, session.turn_error.startswith("API Error: "))
    assert failed.reason.startswith("API Error: ")

    await played.submitted()
    await played.hook("UserPromptSubmit", prompt=played.text)
    await played.until_receipt(R.STARTED, 2)
    assert "" == played.tmux_env.session(failed.session).turn_error
    await played.hook("Stop")
    await played.until_receipt(R.FINISHED, 2)
    assert R.FAILED is played.receipt().state


async def test_an_error_that_only_the_screen_shows_later_corrects_the_receipt(played: Played) -> None:
    await played.submitted()
    await played.hook("UserPromptSubmit", prompt=played.text)
    await played.shows("working-text")
    await played.becomes(SessionState.WORKING)
    await played.shows("idle")
    await played.until_receipt(R.FINISHED)
    await played.shows("error")

    assert "400" in (await played.until_receipt(R.FAILED)).reason
