"""The claude backend keeps every promise, with a program on the other side that speaks as `claude` does."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from kasmon.backends import load, names
from kasmon.backends.base import Chunk
from kasmon.backends.claude import backend
from kasmon.backends.common.structured_agent import FULL
from kasmon.errors import ExtraMissingError, LaunchError, RefusedError
from kasmon.model.commands import Configure, Interrupt, Launch, Mode, Prompt, Stop
from kasmon.model.events import (
    LimitLifted,
    LimitReached,
    MessageWritten,
    NoticeRaised,
    RequestWithdrawn,
    SessionEnded,
    SessionStarted,
    SettingsChanged,
    ToolStarted,
    TurnEnded,
    UnknownMessageSeen,
)
from kasmon.model.permission import Decision, SessionId
from kasmon.model.session_state import SessionState
from tests.support.agents.backend_contract import (
    LIMIT_S,
    AskingContract,
    BackendContract,
    EditingContract,
    InterruptingContract,
    Listener,
    ResumingContract,
    StreamingContract,
)
from tests.support.wait import auntil

FAKE = Path(__file__).parents[2] / "support" / "claude" / "fake_claude.py"
KEY = "sk-ant-of-a-test-0123456789"
BEFORE = "0b7c1f2e-0000-4000-8000-000000000001"


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "CLAUDE", "AWS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)


def launch(misdeed: str = "none", flags: Sequence[str] = (), **more: Any) -> Launch:
    fields: dict[str, Any] = {
        "session": SessionId("contract"),
        "name": "contract",
        "agent": "claude",
        "mode": Mode.SDK,
        "backend": "claude",
        "argv": (sys.executable, str(FAKE), misdeed, *flags),
    }
    return Launch(**(fields | more))


class Opening:
    """What the tests below share."""

    @contextlib.asynccontextmanager
    async def opened_with(self, misdeed: str = "none", **more: Any) -> AsyncIterator[Listener]:
        agent = await backend.open(wanted := launch(misdeed, **more))
        async with Listener(agent, wanted).listening() as heard:
            await heard.until(SessionState.IDLE)
            yield heard


class TestClaude(
    BackendContract, StreamingContract, AskingContract, EditingContract, InterruptingContract, ResumingContract
):
    backend = backend

    def launch(self, generation: int = 1, resume: str | None = None) -> Launch:
        return launch(generation=generation, resume=resume)


class TestCommands(Opening):
    async def test_cancelling_denies_and_ends_the_turn(self) -> None:
        async with self.opened_with() as heard:
            await heard.prompt("ask git push\nsay after")
            await heard.answer(await heard.until_asked(), Decision.CANCEL)
            ended = await heard.until_said(TurnEnded)

            assert isinstance(ended, TurnEnded)
            assert "interrupted" == ended.reason
            assert not [fact for fact in heard.facts if isinstance(fact, ToolStarted | MessageWritten)]

    async def test_a_denied_question_withdraws_the_others_of_its_call(self) -> None:
        async with self.opened_with() as heard:
            asked = {"questions": [{"question": "One?"}, {"question": "Two?"}]}
            await heard.prompt(f"question {json.dumps(asked)}\nhang")
            await auntil(lambda: len(heard.session.requests) == 2)
            one, two = heard.session.requests
            await heard.answer(one, Decision.DENY)
            withdrawn = await heard.until_said(RequestWithdrawn)

            assert isinstance(withdrawn, RequestWithdrawn)
            assert two.id == withdrawn.request

    async def test_a_prompt_goes_to_the_agent_while_it_works(self) -> None:
        async with self.opened_with() as heard:
            await heard.prompt("ask git push")
            request = await heard.until_asked()
            await heard.prompt("say at once")
            await heard.answer(request, Decision.ALLOW)

            assert "at once" == await heard.until_text()

    async def test_a_changed_model_and_mode_are_reported_once_they_apply(self) -> None:
        async with self.opened_with() as heard:
            await heard.agent.send(Configure(model="opus", permission_mode="acceptEdits"))
            await auntil(lambda: heard.session.permission_mode == "acceptEdits")

            assert "opus" == heard.session.model
            changes = [fact for fact in heard.facts if isinstance(fact, SettingsChanged)]
            assert 3 == len(changes)

    async def test_an_unknown_mode_is_refused_in_the_agents_words(self) -> None:
        async with self.opened_with() as heard:
            with pytest.raises(RefusedError, match="no such mode"):
                await heard.agent.send(Configure(permission_mode="nonsense"))

            assert "default" == heard.session.permission_mode

    async def test_an_idle_agent_accepts_an_interrupt(self) -> None:
        async with self.opened_with() as heard:
            await heard.agent.send(Interrupt())
            await heard.prompt("say I am here")

            assert "I am here" == await heard.until_text()

    async def test_a_stop_ends_a_turn_before_it_ends_the_agent(self) -> None:
        async with self.opened_with() as heard:
            await heard.prompt("hang")
            await heard.until(SessionState.WORKING)
            await heard.agent.send(Stop(grace_s=LIMIT_S))
            *_, turn, ended = await heard.until_over()

            assert isinstance(turn, TurnEnded)
            assert isinstance(ended, SessionEnded)
            assert (0, "stopped") == (ended.exit_code, ended.why)

    async def test_closing_does_not_wait_for_a_patient_stop(self) -> None:
        async with self.opened_with("stays") as heard:
            await heard.agent.send(Stop(grace_s=1000.0))
            await heard.agent.aclose()
            await heard.until_over()

            assert "SIGKILL" == heard.session.signal

    async def test_no_process_is_left_behind(self) -> None:
        async with self.opened_with() as heard:
            assert heard.session.pid is not None
            process = psutil.Process(heard.session.pid)
            await heard.agent.aclose()

            assert not process.is_running()


class TestOpening(Opening):
    async def test_the_agent_reports_its_abilities(self) -> None:
        async with self.opened_with("none", flags=("--model", "sonnet"), bypassing=True) as heard:
            assert ("claude-sonnet-9", ("sonnet", "opus")) == (heard.session.model, heard.session.models)
            assert {"plan", "auto", "bypassPermissions"} <= set(heard.session.permission_modes)

    async def test_its_conversation_has_an_id_before_the_first_prompt(self) -> None:
        async with self.opened_with() as heard:
            assert heard.session.resume_id
            assert "" == heard.session.proof

    async def test_an_empty_conversation_restarts_under_its_id(self) -> None:
        async with self.opened_with(generation=2, resume=BEFORE) as heard:
            assert (BEFORE, "") == (heard.session.resume_id, heard.session.proof)

    async def test_a_conversation_is_identified_by_the_last_prompt_in_its_transcript(self, tmp_path: Path) -> None:
        transcript(tmp_path, "first", "the last prompt")
        async with self.opened_with(generation=2, resume=BEFORE, remembers="the last prompt") as heard:
            assert "its transcript ends with the last prompt" in heard.session.proof
            assert not [fact for fact in heard.facts if isinstance(fact, NoticeRaised)]

    async def test_a_conversation_without_the_last_prompt_is_reported_as_uncertain(self, tmp_path: Path) -> None:
        transcript(tmp_path, "first", "another")
        async with self.opened_with(generation=2, resume=BEFORE, remembers="the last prompt") as heard:
            notice = await heard.until_said(NoticeRaised)

            assert isinstance(notice, NoticeRaised)
            assert "does not contain the last prompt" in notice.text
            assert "transcript" not in heard.session.proof

    async def test_output_before_the_introduction_does_not_prevent_the_start(self) -> None:
        async with self.opened_with("chatters") as heard:
            assert isinstance(heard.facts[0], SessionStarted)
            assert ["no message"] == [fact.what for fact in heard.facts if isinstance(fact, UnknownMessageSeen)]

    @pytest.mark.parametrize(
        ("misdeed", "more", "words"),
        [
            ("silent", {"handshake_s": 0.5}, r"did not initialise within 0.5 s"),
            (
                "dies",
                {},
                r"exit code 1\): error: unknown option '--nonsense'.*the profile's flags.*kasmon was tested with",
            ),
            ("forgot", {"resume": BEFORE, "remembers": "x"}, r"No conversation found.*start a new session"),
            ("elsewhere", {"resume": BEFORE, "remembers": "x"}, r"'another' instead of '0b7c1f2e"),
            ("old", {}, r"claude 1.0.99 is too old.*2.0.0"),
            ("nobody", {}, r"no login and no key.*/login"),
        ],
    )
    async def test_an_agent_that_cannot_start_gives_the_reason(
        self, misdeed: str, more: dict[str, Any], words: str
    ) -> None:
        with pytest.raises(LaunchError, match=f"(?s){words}"):
            await backend.open(launch(misdeed, **more))

        assert not [child for child in psutil.Process().children() if str(FAKE) in child.cmdline()]

    async def test_a_missing_program_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(LaunchError, match="no-such-claude"):
            await backend.open(launch(argv=(str(tmp_path / "no-such-claude"),)))

    async def test_a_missing_sdk_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
        for name in [name for name in sys.modules if name.startswith("kasmon.backends.claude.")]:
            if name.endswith((".agent", ".wire")):
                monkeypatch.delitem(sys.modules, name)

        with pytest.raises(ExtraMissingError, match=r"install --force '\.\[claude\]"):
            await backend.open(launch())

    async def test_a_cancelled_start_leaves_no_process(self) -> None:
        opening = asyncio.create_task(backend.open(launch("silent")))
        await auntil(lambda: [child for child in psutil.Process().children() if str(FAKE) in child.cmdline()])
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)

        assert not [child for child in psutil.Process().children() if str(FAKE) in child.cmdline()]

    async def test_its_last_output_hides_the_key(self) -> None:
        with pytest.raises(LaunchError) as raised:
            await backend.open(launch("leaks"))

        assert "your key is" in str(raised.value)
        assert KEY not in str(raised.value)


FORM = {
    "mcp_server_name": "demo",
    "message": "Which colour?",
    "mode": "form",
    "requested_schema": {"type": "object", "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}}},
}


class TestServers(Opening):
    async def test_the_values_of_the_form_reach_the_server(self) -> None:
        async with self.opened_with() as heard:
            await heard.prompt(f"elicit {json.dumps(FORM)}")
            await heard.answer(await heard.until_asked(), Decision.CHOOSE, labels=("blue",))
            said = await heard.until_said(MessageWritten)

            assert isinstance(said, MessageWritten)
            assert {"action": "accept", "content": {"colour": "blue"}} == json.loads(said.text)

    async def test_cancelled_it_ends_the_turn(self) -> None:
        async with self.opened_with() as heard:
            await heard.prompt(f"elicit {json.dumps(FORM)}\nhang")
            await heard.answer(await heard.until_asked(), Decision.CANCEL)
            ended = await heard.until_said(TurnEnded)

            assert isinstance(ended, TurnEnded)
            assert "interrupted" == ended.reason

    async def test_an_interrupt_withdraws_its_questions(self) -> None:
        async with self.opened_with() as heard:
            await heard.prompt(f"elicit {json.dumps(FORM)}")
            request = await heard.until_asked()
            await heard.agent.send(Interrupt())
            withdrawn = await heard.until_said(RequestWithdrawn)

            assert isinstance(withdrawn, RequestWithdrawn)
            assert request.id == withdrawn.request

    async def test_a_form_that_cannot_be_shown_is_refused_and_the_agent_continues(self) -> None:
        async with self.opened_with() as heard:
            await heard.prompt(f"elicit {json.dumps(FORM | {'mode': 'telepathy'})}")
            said = await heard.until_said(MessageWritten)

            assert isinstance(said, MessageWritten)
            assert {"error": "kasmon cannot show this"} == json.loads(said.text)


class TestBadInput(Opening):
    async def test_malformed_lines_do_not_end_the_agent(self) -> None:
        async with self.opened_with() as heard:
            await heard.prompt('raw hello\nraw {"type": "assist\nraw {"type": "news"}\nsay I go on')
            await heard.until_said(MessageWritten)

            kinds = [fact.what for fact in heard.facts if isinstance(fact, UnknownMessageSeen)]
            assert ["no message", "news"] == kinds
            assert 1 == sum(isinstance(fact, NoticeRaised) for fact in heard.facts)

    async def test_an_incomplete_control_message_does_not_end_the_agent(self) -> None:
        async with self.opened_with() as heard:
            broken = ['{"type": "control_request"}', '{"type": "control_request", "request_id": "x", "request": {}}']
            broken += ['{"type": "control_response"}', '{"type": "control_cancel_request"}']
            broken += ['{"type": "control_request", "request_id": "y", "request": {"subtype": "elicitation"}}']
            await heard.prompt("".join(f"raw {line}\n" for line in broken) + "ask git push")
            await heard.answer(await heard.until_asked(), Decision.ALLOW)

            await heard.until_said(ToolStarted)

    async def test_a_limit_is_lifted_when_its_time_has_passed(self) -> None:
        """An idle agent would not say so, and the prompts that wait would wait for ever."""
        async with self.opened_with() as heard:
            limit = {"status": "rejected", "resetsAt": time.time() + 0.2, "rateLimitType": "five_hour"}
            await heard.prompt(f"raw {json.dumps({'type': 'rate_limit_event', 'rate_limit_info': limit})}")
            await heard.until_said(LimitLifted)

            await heard.until(SessionState.IDLE)
            assert [fact for fact in heard.facts if isinstance(fact, LimitReached)]

    async def test_a_line_of_ten_megabytes_is_read(self) -> None:
        async with self.opened_with() as heard:
            await heard.prompt("huge 10000000\nsay I go on")

            assert "I go on" == await heard.until_text()

    async def test_a_partial_last_line_does_no_harm(self) -> None:
        async with self.opened_with() as heard:
            await heard.prompt("say before\nhalf\ncrash 3")
            *before, ended = await heard.until_over()

            assert isinstance(ended, SessionEnded)
            assert 3 == ended.exit_code
            assert ["before"] == [fact.text for fact in before if isinstance(fact, MessageWritten)]
            assert ["no message"] == [fact.what for fact in before if isinstance(fact, UnknownMessageSeen)]

    async def test_a_flood_waits_for_a_reader(self) -> None:
        agent = await backend.open(launch())
        try:
            await agent.send(Prompt(text="flood 20000"))
            outbox = agent._event_queue  # type: ignore[attr-defined]
            await auntil(lambda: len(outbox._waiting) >= FULL, LIMIT_S, "a full outbox")
            with pytest.raises(TimeoutError):
                await auntil(lambda: agent._child.last_words, 0.5)  # type: ignore[attr-defined]

            words: list[str] = []
            async for said in agent.events():
                words += [said.text] if isinstance(said, Chunk) else []
                if len(words) == 20_000:
                    break
            assert [f"{number} " for number in range(20_000)] == words
            assert len(outbox._waiting) <= FULL
        finally:
            await agent.aclose()

    async def test_a_flooding_agent_can_be_closed_without_a_reader(self) -> None:
        agent = await backend.open(launch())
        await agent.send(Prompt(text="flood 100000000"))
        await auntil(lambda: len(agent._event_queue._waiting) >= FULL, LIMIT_S, "a full outbox")  # type: ignore[attr-defined]
        await agent.aclose()

        assert isinstance([said async for said in agent.events()][-1], SessionEnded)

    async def test_the_end_includes_the_last_output(self) -> None:
        async with self.opened_with() as heard:
            await heard.prompt("crash 3")
            ended = (await heard.until_over())[-1]

            assert isinstance(ended, SessionEnded)
            assert (3, "these are my last words") == (ended.exit_code, ended.last_words)


def transcript(home: Path, *prompts: str) -> None:
    folder = home / ".claude" / "projects" / "-work"
    folder.mkdir(parents=True)
    lines = [{"type": "user", "message": {"role": "user", "content": prompt}} for prompt in prompts]
    encoder = msgspec.json.Encoder()
    (folder / f"{BEFORE}.jsonl").write_bytes(b"".join(encoder.encode(line) + b"\n" for line in lines))


def test_the_backend_is_found_by_its_name() -> None:
    assert "claude" in names()
    assert backend is load("claude")


def test_importing_it_does_not_import_the_sdk() -> None:
    code = "import sys, kasmon.backends.claude; print('claude_agent_sdk' in sys.modules)"
    said = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, cwd=FAKE.parents[3]
    )

    assert "False\n" == said.stdout
