"""Codex itself, driven by its backend: it is heard, told, asked and ended, and nothing is left of it."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import psutil
import pytest

from kasmon.backends.base import Chunk
from kasmon.backends.codex import backend
from kasmon.backends.codex.items import is_supported
from kasmon.backends.codex.request_registry import ELICITATION, READERS
from kasmon.backends.codex.translator import CodexTranslator
from kasmon.backends.codex.transport import CodexTransport
from kasmon.errors import LaunchError, RefusedError
from kasmon.model import events
from kasmon.model.commands import Configure, ConversationFork, Interrupt, Launch, Prompt, Stop
from kasmon.model.permission import Decision, RequestKind
from kasmon.model.prompts.image import build_image
from kasmon.model.session_state import SessionState
from tests.model.prompts.test_image import png
from tests.support.agents.backend_contract import LIMIT_S, Listener
from tests.support.agents.real_agent import RealAgent, family, native_codex
from tests.support.codex.record import SERVER, with_greet
from tests.support.codex.replay import launch
from tests.support.model_stub import ModelStub, responses
from tests.support.wait import auntil

pytestmark = pytest.mark.agents

UNTRUSTED = ("-a", "untrusted", "--sandbox", "workspace-write")
"""Every command and every change is asked for."""
BYPASS = "--dangerously-bypass-approvals-and-sandbox"
ASKS_ANYWHERE = ("-c", "features.default_mode_request_user_input=true")
"""Codex asks questions outside of plan mode, too."""
SIX = "gpt-6.1-sol"
"""A model that codex gives other tools: sub-agents, and a program in place of single calls."""


Wanted: TypeAlias = Callable[[], Launch]
"""How codex is to be started; it writes a file, so it is asked in a thread."""


def plain(codex: RealAgent, *flags: str, **more: Any) -> Wanted:
    return lambda: codex.launch(argv=(str(codex.program), *flags), **more)


def asking(codex: RealAgent, *flags: str) -> Wanted:
    return plain(codex, *UNTRUSTED, *flags)


@asynccontextmanager
async def opened(wanted: Wanted) -> AsyncIterator[Listener]:
    how = await asyncio.to_thread(wanted)
    heard = Listener(await backend.open(how), how)
    try:
        async with heard.listening():
            await heard.until(SessionState.IDLE)
            yield heard
    finally:
        assert not [fact for fact in heard.facts if isinstance(fact, events.UnknownMessageSeen)]


async def not_opened(wanted: Wanted) -> str:
    how = await asyncio.to_thread(wanted)
    with pytest.raises(LaunchError) as caught:
        await backend.open(how)
    return str(caught.value)


def of(heard: Listener, *kinds: type[Any]) -> list[Any]:
    return [fact for fact in heard.facts if isinstance(fact, kinds)]


async def ended(heard: Listener, count: int = 1) -> events.TurnEnded:
    turns: list[events.TurnEnded] = await auntil(
        lambda: of(heard, events.TurnEnded)[count - 1 :], LIMIT_S, "the end of a turn"
    )
    return turns[0]


def said(heard: Listener) -> list[str]:
    return [fact.text for fact in of(heard, events.MessageWritten)]


async def test_a_turn_from_prompt_to_end(codex: RealAgent) -> None:
    async with opened(plain(codex)) as heard:
        await heard.prompt("go %% think hmm %% say hello there")
        await ended(heard)

        started = heard.facts[0]
        assert isinstance(started, events.SessionStarted)
        assert started.resume_id
        assert ("gpt-5.5", "") == (started.model, started.proof)
        assert [("go %% think hmm %% say hello there", "user")] == [
            (t.prompt, t.by) for t in of(heard, events.TurnStarted)
        ]
        assert (["hmm"], ["hello there"]) == ([fact.text for fact in of(heard, events.ThoughtWritten)], said(heard))
        chunks = [chunk for chunk in heard.all if isinstance(chunk, Chunk)]
        assert "hello there" == "".join(chunk.text for chunk in chunks if not chunk.thinking)
        assert "hmm" == "".join(chunk.text for chunk in chunks if chunk.thinking)
        usage: events.UsageReported = of(heard, events.UsageReported)[-1]
        assert usage.input > 0
        assert usage.limit > usage.context > 0


async def test_its_commands_and_skills_are_slash_commands(codex: RealAgent) -> None:
    skill = codex.home / ".codex" / "skills" / "greet"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: greet\ndescription: Greet people\n---\nSay ahoy.\n")
    async with opened(plain(codex)) as heard:
        await auntil(lambda: of(heard, events.CommandsAnnounced), LIMIT_S, "the commands")
        commands = {each.command: each.text for each in of(heard, events.CommandsAnnounced)[-1].slash_commands}
        assert {"compact", "review", "greet"} <= commands.keys()
        assert "Greet people" == commands["greet"]
        await heard.prompt("go %% say one")
        await ended(heard)
        await heard.prompt("/compact")
        await ended(heard, 2)

        assert ["go %% say one", "/compact"] == [each.prompt for each in of(heard, events.TurnStarted)]


@pytest.mark.parametrize("whole", [False, True])
async def test_a_conversation_is_forked_before_an_earlier_prompt_or_at_its_end(
    codex: RealAgent, stub: ModelStub, whole: bool
) -> None:
    first, second = "go %% say one", "go %% say two"
    async with opened(plain(codex)) as heard:
        for number, prompt in enumerate((first, second), 1):
            await heard.prompt(prompt)
            await ended(heard, number)
        name = heard.session.resume_id or ""
    fork = ConversationFork(conversation=name, prompt="" if whole else second)
    async with opened(lambda: msgspec.structs.replace(plain(codex)(), fork=fork)) as copy:
        assert copy.session.resume_id not in ("", None, name)
        await copy.prompt("go %% say three")
        await ended(copy)

    said = str(stub.turns[-1]["users"])
    assert first in said
    assert "go %% say three" in said
    assert whole is (second in said)


async def test_a_picture_reaches_the_model(codex: RealAgent, stub: ModelStub) -> None:
    path = codex.workdir / "cat.png"
    path.write_bytes(png(40, 20))
    image = msgspec.structs.replace(build_image("cat.png", path.read_bytes()), path=str(path))
    async with opened(plain(codex)) as heard:
        await heard.agent.send(Prompt(text="go %% say seen", images=(image,)))
        await ended(heard)

    assert 1 == stub.turns[-1]["images"]


async def test_the_pid_is_the_agents_own(codex: RealAgent) -> None:
    async with opened(plain(codex)) as heard:
        await heard.prompt("go %% say hello")
        await ended(heard)

        assert heard.session.pid is not None
        assert "codex" == psutil.Process(heard.session.pid).name()


async def test_the_npm_script_is_skipped(codex: RealAgent) -> None:
    """The agent is beside it; a node process in between would cost memory, and not die with the agent."""
    script = codex.program.parents[4] / "codex" / "bin" / "codex.js"
    if native_codex(script) != codex.program:
        pytest.skip("codex was not installed by npm")
    async with opened(lambda: codex.launch(argv=(str(script),))) as heard:
        await heard.prompt("go %% say hello")
        await ended(heard)

        assert heard.session.pid is not None
        assert str(codex.program) == psutil.Process(heard.session.pid).exe()


class TestPermissions:
    async def test_a_command_runs_once_it_is_allowed(self, codex: RealAgent) -> None:
        async with opened(asking(codex)) as heard:
            await heard.prompt("go %% bash touch yes.txt && echo made %% say done")
            request = await heard.until_asked()

            assert ("shell", "touch yes.txt && echo made") == (request.tool, request.shown)
            assert {"command": "touch yes.txt && echo made"} == request.input
            assert not of(heard, events.ToolStarted)
            assert not (codex.workdir / "yes.txt").exists()

            await heard.answer(request, Decision.ALLOW)
            await ended(heard)
            (tool,) = of(heard, events.ToolFinished)
            assert (True, "made\n") == (tool.ok, tool.output)
            assert (codex.workdir / "yes.txt").exists()
            assert not of(heard, events.RequestWithdrawn)

    async def test_a_denied_command_does_not_run_and_the_turn_continues(self, codex: RealAgent) -> None:
        async with opened(asking(codex)) as heard:
            await heard.prompt("go %% bash touch no.txt %% say after")
            await heard.answer(await heard.until_asked(), Decision.DENY)

            assert "done" == (await ended(heard)).reason
            assert ["after"] == said(heard)
            assert not of(heard, events.ToolStarted, events.ToolFinished)
            assert not (codex.workdir / "no.txt").exists()

    async def test_the_model_receives_the_reason_of_a_denial(self, codex: RealAgent, stub: ModelStub) -> None:
        async with opened(asking(codex)) as heard:
            await heard.prompt("go %% bash npm install %% say after")
            await heard.answer(await heard.until_asked(), Decision.DENY, reason="use pnpm")
            await ended(heard)

            last = stub.turns[-1]
            assert "rejected by user" in last["results"][-1]
            assert "I declined that: use pnpm" == last["user"]
            assert ["after"] == said(heard)

    async def test_a_cancelled_command_ends_the_turn(self, codex: RealAgent) -> None:
        async with opened(asking(codex)) as heard:
            await heard.prompt("go %% bash touch no.txt %% say after")
            await heard.answer(await heard.until_asked(), Decision.CANCEL)

            assert "interrupted" == (await ended(heard)).reason
            assert not (codex.workdir / "no.txt").exists()

    async def test_a_change_of_files_is_shown_as_its_diff(self, codex: RealAgent) -> None:
        (codex.workdir / "old.txt").write_text("one\ntwo\n")
        async with opened(asking(codex)) as heard:
            await heard.prompt("go %% write new.txt|hello %% edit old.txt|two|three %% say done")
            first = await heard.until_asked()
            assert (True, "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,1 @@\n+hello\n") == (first.is_diff, first.shown)
            await heard.answer(first, Decision.ALLOW)

            second = await heard.until_asked()
            assert "old.txt" == second.title
            assert "--- a/old.txt\n+++ b/old.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n" == second.shown
            await heard.answer(second, Decision.DENY)
            await ended(heard)

            assert [first.shown] == [tool.diff for tool in of(heard, events.ToolFinished)]
            assert "hello\n" == (codex.workdir / "new.txt").read_text()
            assert "one\ntwo\n" == (codex.workdir / "old.txt").read_text()

    async def test_more_permissions_are_listed(self, codex: RealAgent, stub: ModelStub) -> None:
        flags = ("-c", "features.request_permissions_tool=true", "-c", "features.exec_permission_approvals=true")
        wanted = {"network": {"enabled": True}, "file_system": {"write": ["/opt/x"]}}
        tool = json.dumps({"reason": "to fetch it", "permissions": wanted})
        async with opened(plain(codex, "-a", "on-request", *flags)) as heard:
            await heard.prompt(f"go %% tool request_permissions {tool} %% say a")
            request = await heard.until_asked()
            assert ("network access\nwrite access to /opt/x", "to fetch it") == (request.shown, request.why)
            await heard.answer(request, Decision.ALLOW)
            await ended(heard)
            assert '"enabled":true' in stub.turns[-1]["results"][-1]

            await heard.prompt(f"go %% tool request_permissions {tool} %% say b")
            await heard.answer(await heard.until_asked(), Decision.DENY)
            await ended(heard, 2)
            assert '"network":null' in stub.turns[-1]["results"][-1]

    async def test_a_request_without_an_answer_stays_open(self, codex: RealAgent) -> None:
        async with opened(asking(codex)) as heard:
            await heard.prompt("go %% bash touch no.txt %% say after")
            await heard.until_asked()
            await heard.prompt("hurry up %% say hurried")
            await asyncio.sleep(0.5)  # an absence has no event to wait for

            assert SessionState.ASKING is heard.session.state
            assert not (codex.workdir / "no.txt").exists()


class TestQuestions:
    TWO = json.dumps(
        {
            "questions": [
                {"id": "c", "header": "Colour", "question": "Which one?", "options": [
                    {"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}]},
                {"id": "s", "header": "Size", "question": "How big?", "options": [
                    {"label": "S", "description": "small"}, {"label": "L", "description": "large"}]},
            ]
        }
    )  # fmt: skip

    async def test_several_questions_are_answered_together(self, codex: RealAgent, stub: ModelStub) -> None:
        async with opened(asking(codex, *ASKS_ANYWHERE)) as heard:
            await heard.prompt(f"go %% tool request_user_input {self.TWO} %% say done")
            colour, size = await auntil(lambda: heard.session.requests[1:] and heard.session.requests, LIMIT_S)
            assert (RequestKind.QUESTION, ("red", "blue"), ("warm", "cold")) == (
                colour.kind,
                colour.options,
                colour.option_notes,
            )
            await heard.answer(size, Decision.CHOOSE, labels=("in between",))
            await heard.answer(colour, Decision.CHOOSE, labels=("blue",))
            await ended(heard)

            answers = json.loads(stub.turns[-1]["results"][-1])["answers"]
            assert {"c": {"answers": ["blue"]}, "s": {"answers": ["in between"]}} == answers

    async def test_denying_one_question_denies_all_of_them(self, codex: RealAgent, stub: ModelStub) -> None:
        async with opened(asking(codex, *ASKS_ANYWHERE)) as heard:
            await heard.prompt(f"go %% tool request_user_input {self.TWO} %% say done")
            colour, size = await auntil(lambda: heard.session.requests[1:] and heard.session.requests, LIMIT_S)
            await heard.answer(colour, Decision.DENY)
            await ended(heard)

            assert [size.id] == [fact.request for fact in of(heard, events.RequestWithdrawn)]
            assert '{"answers":{}}' == stub.turns[-1]["results"][-1]

    async def test_an_interrupt_withdraws_the_questions(self, codex: RealAgent) -> None:
        async with opened(asking(codex, *ASKS_ANYWHERE)) as heard:
            await heard.prompt(f"go %% tool request_user_input {self.TWO} %% say done")
            await auntil(lambda: len(heard.session.requests) == 2, LIMIT_S)
            await heard.agent.send(Interrupt())

            assert "interrupted" == (await ended(heard)).reason
            assert 2 == len(of(heard, events.RequestWithdrawn))


class TestPlans:
    async def test_a_plan_is_approved_and_carried_out(self, codex: RealAgent, stub: ModelStub) -> None:
        async with opened(asking(codex)) as heard:
            await heard.agent.send(Configure(permission_mode="plan"))
            await auntil(lambda: heard.session.permission_mode == "plan", LIMIT_S)
            await heard.prompt("go %% plan # Plan\\n- first")
            await ended(heard)
            request = await heard.until_asked()
            assert (RequestKind.PLAN, "# Plan\n- first\n") == (request.kind, request.shown)
            await heard.answer(request, Decision.ALLOW)
            await ended(heard, 2)

            assert "Implement the plan." == of(heard, events.TurnStarted)[-1].prompt
            assert "untrusted" == heard.session.permission_mode

    async def test_feedback_instead_of_approval_continues_in_plan_mode(self, codex: RealAgent) -> None:
        async with opened(asking(codex)) as heard:
            await heard.agent.send(Configure(permission_mode="plan"))
            await auntil(lambda: heard.session.permission_mode == "plan", LIMIT_S)
            await heard.prompt("go %% plan # Plan\\n- first")
            await heard.answer(await heard.until_asked(), Decision.DENY, reason="shorter %% plan # Short")
            await ended(heard, 2)

            assert "# Short\n" == (await heard.until_asked()).shown

    async def test_another_prompt_withdraws_it(self, codex: RealAgent) -> None:
        async with opened(asking(codex)) as heard:
            await heard.agent.send(Configure(permission_mode="plan"))
            await heard.prompt("go %% plan # Plan")
            request = await heard.until_asked()
            await heard.prompt("something else %% say yes")
            await ended(heard, 2)

            assert [request.id] == [fact.request for fact in of(heard, events.RequestWithdrawn)]


class TestInterrupt:
    async def test_text_stops_and_the_received_part_is_kept(self, codex: RealAgent) -> None:
        async with opened(plain(codex)) as heard:
            await heard.prompt("go %% slow 30 w")
            await auntil(lambda: [chunk for chunk in heard.all if isinstance(chunk, Chunk)], LIMIT_S)
            await heard.agent.send(Interrupt())

            assert "interrupted" == (await ended(heard)).reason
            assert said(heard)[0].startswith("w0 ")

    async def test_a_command_stops(self, codex: RealAgent) -> None:
        """Left to itself it would go on: codex ends the turn alone."""
        async with opened(asking(codex)) as heard:
            await heard.prompt("go %% bash echo $$ > pid; exec sleep 301 %% say after")
            await heard.answer(await heard.until_asked(), Decision.ALLOW)
            sleeps = await auntil(lambda: _sleeping(codex.home, "301"), LIMIT_S)
            await heard.until_said(events.ToolStarted)
            await heard.agent.send(Interrupt())

            assert "interrupted" == (await ended(heard)).reason
            await auntil(lambda: not any(process.is_running() for process in sleeps), LIMIT_S, "the end of the command")
            await heard.until_said(events.ToolFinished)
            assert [False] == [tool.ok for tool in of(heard, events.ToolFinished)]

    async def test_an_interrupt_at_a_permission_request_withdraws_it(self, codex: RealAgent) -> None:
        async with opened(asking(codex)) as heard:
            await heard.prompt("go %% bash touch no.txt %% say after")
            request = await heard.until_asked()
            await heard.agent.send(Interrupt())

            assert "interrupted" == (await ended(heard)).reason
            assert [request.id] == [fact.request for fact in of(heard, events.RequestWithdrawn)]
            assert not (codex.workdir / "no.txt").exists()

    async def test_an_interrupt_without_a_turn_does_nothing(self, codex: RealAgent) -> None:
        async with opened(plain(codex)) as heard:
            await heard.agent.send(Interrupt())
            await heard.prompt("go %% say hello")
            await ended(heard)

            assert ["hello"] == said(heard)


class TestSteering:
    async def test_a_prompt_joins_the_running_turn(self, codex: RealAgent) -> None:
        async with opened(plain(codex)) as heard:
            await heard.prompt("go %% slow 30 w")
            await auntil(lambda: [chunk for chunk in heard.all if isinstance(chunk, Chunk)], LIMIT_S)
            await heard.prompt("no, this %% say this")

            assert "done" == (await ended(heard)).reason
            assert "this" == said(heard)[-1]
            assert 1 == len(of(heard, events.TurnEnded))
            assert ["go %% slow 30 w", "no, this %% say this"] == [
                turn.prompt for turn in of(heard, events.TurnStarted)
            ]

    async def test_prompts_that_an_interrupted_turn_had_not_accepted_are_dropped_and_reported(
        self, codex: RealAgent, stub: ModelStub
    ) -> None:
        """It is in no history, so nobody may call it said."""
        async with opened(asking(codex)) as heard:
            await heard.prompt("go %% bash touch no.txt %% say after")
            await heard.until_asked()
            await heard.prompt("hurry up %% say hurried")
            await heard.agent.send(Interrupt())
            assert ("interrupted", ("hurry up %% say hurried",)) == ((end := await ended(heard)).reason, end.dropped)
            await heard.prompt("and now %% say now")
            await ended(heard, 2)

            assert ["and now %% say now"] == [turn.prompt for turn in of(heard, events.TurnStarted)[1:]]
            assert [] == [said for turn in stub.turns for said in turn["users"] if "hurry" in said]

    async def test_two_prompts_at_once_are_one_turn_that_shows_both(self, codex: RealAgent) -> None:
        async with opened(plain(codex)) as heard:
            await asyncio.gather(heard.prompt("one %% slow 20 w"), heard.prompt("two %% say two"))
            await auntil(lambda: "two" in said(heard), LIMIT_S)

            assert ["one %% slow 20 w", "two %% say two"] == [turn.prompt for turn in of(heard, events.TurnStarted)]

    async def test_a_refused_prompt_is_reported_in_the_agents_words(self, codex: RealAgent, stub: ModelStub) -> None:
        stub.must_be_called = False
        async with opened(plain(codex)) as heard:
            with pytest.raises(RefusedError, match=r"^codex did not accept the prompt: Input exceeds .*[^.]\.$"):
                await heard.prompt("x" * 1_100_000)

            assert [] == of(heard, events.TurnStarted)


class TestResume:
    async def test_the_conversation_continues(self, codex: RealAgent, stub: ModelStub) -> None:
        async with opened(plain(codex)) as heard:
            await heard.prompt("remember %% say noted")
            await ended(heard)
            first = heard.session.resume_id
        async with opened(plain(codex, generation=2, resume=first, remembers="remember %% say noted")) as heard:
            started = heard.facts[0]
            assert isinstance(started, events.SessionStarted)
            assert (first, "codex reported the same id, and its history ends with our last prompt") == (
                started.resume_id,
                started.proof,
            )
            await heard.prompt("again %% say still here")
            await ended(heard)

            assert ["remember %% say noted", "again %% say still here"] == list(stub.turns[-1]["users"])[-2:]

    async def test_the_conversation_continues_after_the_agent_was_killed(self, codex: RealAgent) -> None:
        async with opened(plain(codex)) as heard:
            await heard.prompt("long %% slow 30 w")
            await auntil(lambda: [chunk for chunk in heard.all if isinstance(chunk, Chunk)], LIMIT_S)
            first = heard.session.resume_id
            assert heard.session.pid is not None
            os.kill(heard.session.pid, signal.SIGKILL)
            facts = await heard.until_over()
            assert isinstance(facts[-1], events.SessionEnded)
            assert "SIGKILL" == facts[-1].signal
        async with opened(plain(codex, generation=2, resume=first, remembers="long %% slow 30 w")) as heard:
            assert heard.session.proof.endswith("its history ends with our last prompt")
            await heard.prompt("again %% say back")
            await ended(heard)

            assert ["back"] == said(heard)

    async def test_a_steered_prompt_also_identifies_the_conversation(self, codex: RealAgent) -> None:
        async with opened(plain(codex)) as heard:
            await heard.prompt("go %% slow 30 w")
            await auntil(lambda: [chunk for chunk in heard.all if isinstance(chunk, Chunk)], LIMIT_S)
            await heard.prompt("no, this %% say this")
            await ended(heard)
            first = heard.session.resume_id
        async with opened(plain(codex, generation=2, resume=first, remembers="no, this %% say this")) as heard:
            assert heard.session.proof.endswith("its history ends with our last prompt")

    async def test_a_conversation_without_the_last_prompt_is_reported(self, codex: RealAgent) -> None:
        async with opened(plain(codex)) as heard:
            await heard.prompt("go %% say one")
            await ended(heard)
            first = heard.session.resume_id
        async with opened(plain(codex, generation=2, resume=first, remembers="something else")) as heard:
            assert "codex reported the same id" == heard.session.proof
            assert [
                notice for notice in of(heard, events.NoticeRaised) if "does not contain our last prompt" in notice.text
            ]

    async def test_a_missing_conversation_is_not_replaced_by_a_new_one(self, codex: RealAgent, stub: ModelStub) -> None:
        stub.must_be_called = False
        gone = "01a200fd-f3c8-7a50-97e8-000000000000"
        why = await not_opened(plain(codex, generation=2, resume=gone, remembers="something"))

        assert f"cannot resume the conversation '{gone}'" in why

    async def test_a_conversation_without_a_prompt_restarts_and_is_reported(
        self, codex: RealAgent, stub: ModelStub
    ) -> None:
        """Codex keeps a thread from its first prompt on."""
        stub.must_be_called = False
        async with opened(plain(codex)) as heard:
            first = heard.session.resume_id
        async with opened(plain(codex, generation=2, resume=first)) as heard:
            assert first != heard.session.resume_id
            assert not heard.session.proof
            assert [notice for notice in of(heard, events.NoticeRaised) if "this is a new one" in notice.text]


class TestFailures:
    @pytest.mark.parametrize(("status", "reason"), [(400, "error"), (429, "limit"), (500, "error")])
    async def test_an_error_of_the_provider_ends_the_turn(self, codex: RealAgent, status: int, reason: str) -> None:
        async with opened(plain(codex)) as heard:
            await heard.prompt(f"go %% fail {status}")
            turn = await ended(heard)

            assert (reason, True) == (turn.reason, bool(turn.error))
            assert (status == 429) is bool(of(heard, events.LimitReached))
            await heard.prompt("go %% say fine again")
            await ended(heard, 2)
            assert ["fine again"] == said(heard)

    async def test_a_wrong_key_shows_what_to_do(self, codex: RealAgent) -> None:
        async with opened(plain(codex)) as heard:
            await heard.prompt("go %% fail 401")

            assert "codex login" in (await ended(heard)).error

    async def test_a_missing_variable_of_the_provider_is_named_with_how_to_set_it(
        self, codex: RealAgent, stub: ModelStub
    ) -> None:
        stub.must_be_called = False
        own = {name: value for name, value in codex.own.items() if name != "STUB_KEY"}
        async with opened(plain(replace(codex, own=own))) as heard:
            await heard.prompt("go %% say hello")

            why = (await ended(heard)).error
            assert "Missing environment variable: `STUB_KEY`" in why
            assert "--env STUB_KEY" in why

    async def test_a_retry_is_a_notice_and_the_turn_continues(self, codex: RealAgent) -> None:
        async with opened(plain(codex)) as heard:
            await heard.prompt("go %% drop")
            await heard.until_said(events.NoticeRaised)
            turn = await ended(heard)

            notices = [notice.text for notice in of(heard, events.NoticeRaised)]
            assert [text for text in notices if text.startswith("Reconnecting... 1/1")]
            assert "stream disconnected" in turn.error

    async def test_a_missing_login_is_reported_at_once(self, codex: RealAgent, stub: ModelStub) -> None:
        stub.must_be_called = False
        config = codex.home / ".codex" / "config.toml"
        config.write_text("check_for_update_on_startup = false\n")
        assert "codex is not logged in. Run `codex login`" in await not_opened(plain(codex))

    async def test_a_setting_that_codex_does_not_take_is_named(self, codex: RealAgent, stub: ModelStub) -> None:
        stub.must_be_called = False
        why = await not_opened(plain(codex, "-c", 'approval_policy="bogus"'))
        assert "codex ended before it had opened a conversation (exit code 1): Error: unknown variant `bogus`" in why
        assert "<unknown>" not in why  # the backtrace

        assert "unknown variant `bogus`" in await not_opened(plain(codex, "--sandbox", "bogus"))

    async def test_a_mode_that_codex_does_not_have_is_refused(self, codex: RealAgent, stub: ModelStub) -> None:
        stub.must_be_called = False
        async with opened(plain(codex)) as heard:
            with pytest.raises(RefusedError, match="no permission mode 'acceptEdits'"):
                await heard.agent.send(Configure(permission_mode="acceptEdits"))


class TestEnd:
    async def test_a_stop_during_a_command_ends_the_agent(self, codex: RealAgent) -> None:
        async with opened(plain(codex, BYPASS)) as heard:
            await heard.prompt("go %% bash exec sleep 302 %% say after")
            sleeps = await auntil(lambda: _sleeping(codex.home, "302"), LIMIT_S)
            await heard.agent.send(Stop(grace_s=5.0))
            facts = await heard.until_over()

            assert isinstance(facts[-1], events.SessionEnded)
            assert (0, "stopped") == (facts[-1].exit_code, facts[-1].why)
            assert not any(process.is_running() for process in sleeps)

    @pytest.mark.parametrize("flags", [UNTRUSTED, (BYPASS,)], ids=["jail", "free"])
    async def test_killing_the_agent_ends_its_command(self, codex: RealAgent, flags: tuple[str, ...]) -> None:
        async with opened(plain(codex, *flags)) as heard:
            await heard.prompt("go %% bash exec sleep 303 %% say after")
            if flags == UNTRUSTED:
                await heard.answer(await heard.until_asked(), Decision.ALLOW)
            await auntil(lambda: _sleeping(codex.home, "303"), LIMIT_S)
            assert heard.session.pid is not None
            os.kill(heard.session.pid, signal.SIGKILL)
            await heard.until_over()

            await auntil(lambda: not family(codex.home), LIMIT_S, "the end of the family")


class TestSettings:
    async def test_the_model_and_how_much_it_asks_change_while_it_runs(self, codex: RealAgent, stub: ModelStub) -> None:
        async with opened(asking(codex)) as heard:
            await auntil(lambda: heard.session.models, LIMIT_S)
            assert ("gpt-5.5", "untrusted") == (heard.session.model, heard.session.permission_mode)
            await heard.agent.send(Configure(model="gpt-6-sol", permission_mode="never"))
            await auntil(lambda: heard.session.model == "gpt-6-sol", LIMIT_S)
            await heard.prompt("go %% say hello")
            await ended(heard)

            assert "never" == heard.session.permission_mode
            assert "gpt-6-sol" == stub.turns[-1]["model"]
            assert [] == [fact for fact in of(heard, events.SettingsChanged) if not (fact.model or fact.models)]

    async def test_flags_are_passed_on(self, codex: RealAgent, stub: ModelStub) -> None:
        async with opened(plain(codex, "--model", "gpt-6-sol", "--full-auto")) as heard:
            assert ("gpt-6-sol", "on-request") == (heard.session.model, heard.session.permission_mode)
            await heard.prompt("go %% bash touch made.txt %% say hello")
            await ended(heard)

            assert (codex.workdir / "made.txt").exists()
            assert not heard.session.requests


class TestSubAgents:
    async def test_work_of_a_sub_agent_is_nested_in_its_call(self, codex: RealAgent) -> None:
        """It is a fork: both go on with the same script."""
        task = {"task_name": "helper", "message": "help", "fork_turns": "all"}
        async with opened(asking(codex, "--model", SIX)) as heard:
            await heard.prompt(f"go %% tool spawn_agent {json.dumps(task)} %% bash echo x >> both %% say done")
            for _ in range(2):
                await heard.answer(await heard.until_asked(), Decision.ALLOW)
            await auntil(lambda: len(of(heard, events.MessageWritten)) == 2, LIMIT_S)
            await ended(heard)

            (call,) = [tool.call for tool in of(heard, events.ToolStarted) if tool.tool == "agent"]
            assert {("done", ""), ("done", call)} == {
                (fact.text, fact.within) for fact in of(heard, events.MessageWritten)
            }
            assert {"", call} == {tool.within for tool in of(heard, events.ToolStarted) if tool.tool == "shell"}
            assert "x\nx\n" == (codex.workdir / "both").read_text()
            assert (1, 1) == (len(of(heard, events.TurnStarted)), len(of(heard, events.TurnEnded)))


class TestServers:
    async def test_a_servers_tool_and_its_form_are_requested(
        self, codex: RealAgent, stub: ModelStub, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(responses, "read", with_greet)
        async with opened(asking(codex, *SERVER)) as heard:
            await heard.prompt('go %% tool greet {"who": "me"} %% say greeted')
            request = await heard.until_asked()
            assert ("demo.greet", {"who": "me"}) == (request.tool, request.input)
            await heard.answer(request, Decision.ALLOW)

            colour, count, sure = await auntil(lambda: heard.session.requests[2:] and heard.session.requests, LIMIT_S)
            await heard.answer(colour, Decision.CHOOSE, labels=("blue",))
            await heard.answer(count, Decision.CHOOSE, labels=("3",))
            await heard.answer(sure, Decision.CHOOSE, labels=("(leave out)",))
            await ended(heard)

            assert '{\\"colour\\": \\"blue\\", \\"count\\": 3}' in stub.turns[-1]["results"][-1]


class TestProtocol:
    """What the installed codex says of its own protocol."""

    @pytest.fixture
    def schema(self, codex: RealAgent, stub: ModelStub, scratch: Path) -> Path:
        stub.must_be_called = False
        folder = scratch / "schema"
        command = [str(codex.program), "app-server", "generate-json-schema", "--experimental", "--out", str(folder)]
        subprocess.run(command, env=codex.environment, check=True, capture_output=True)
        return folder

    def test_every_message_of_the_protocol_is_known(self, schema: Path) -> None:
        talk = CodexTranslator(launch())
        notifications = _methods(schema / "ServerNotification.json")
        items = json.loads((schema / "ServerNotification.json").read_text())["definitions"]["ThreadItem"]["oneOf"]
        kinds = {one["properties"]["type"]["enum"][0] for one in items if "enum" in one["properties"]["type"]}
        unknown = [
            said.what
            for method in notifications
            for said in talk.handle_notification(method, {}, 0.0)
            if isinstance(said, events.UnknownMessageSeen) and said.what == method
        ]

        assert len(notifications) > 80
        assert [] == unknown
        assert set() == {kind for kind in kinds if not is_supported(kind)}

    def test_every_request_of_the_protocol_is_asked_or_refused_deliberately(self, schema: Path) -> None:
        asked = set(READERS) | {ELICITATION}
        refused = {
            "account/chatgptAuthTokens/refresh",
            "applyPatchApproval",
            "attestation/generate",
            "execCommandApproval",
            "item/tool/call",
        }

        assert asked | refused == set(_methods(schema / "ServerRequest.json"))

    async def test_every_message_that_kasmon_sends_matches_the_schema(
        self, codex: RealAgent, stub: ModelStub, schema: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said: list[dict[str, Any]] = []
        write = CodexTransport._write

        async def kept(wire: CodexTransport, message: dict[str, Any]) -> None:
            said.append(message)
            await write(wire, message)

        monkeypatch.setattr(CodexTransport, "_write", kept)
        async with opened(asking(codex, "--model", "gpt-5.5")) as heard:
            await heard.prompt("go %% bash exec sleep 304")
            await heard.answer(await heard.until_asked(), Decision.ALLOW)
            await heard.prompt("hurry")
            await auntil(lambda: _sleeping(codex.home, "304"), LIMIT_S)
            await heard.agent.send(Interrupt())
            await ended(heard)
            await heard.agent.send(Configure(model="gpt-6-sol", permission_mode="plan"))
            first = heard.session.resume_id
        async with opened(plain(codex, resume=first, remembers="go", generation=2)):
            pass

        definitions = json.loads((schema / "ClientRequest.json").read_text())["definitions"]
        shapes = _methods(schema / "ClientRequest.json")
        for message in [message for message in said if "method" in message and "id" in message]:
            shape = definitions[shapes[message["method"]]]
            assert message["params"].keys() <= shape.get("properties", {}).keys(), message
            assert set(shape.get("required", [])) <= message["params"].keys(), message
        assert len({message["method"] for message in said if "method" in message}) > 10


def _methods(file: Path) -> dict[str, str]:
    """Each method in a schema, with the name of its parameters' definition."""
    found = {}
    for one in json.loads(file.read_text())["oneOf"]:
        reference = one["properties"].get("params", {}).get("$ref", "")
        found[one["properties"]["method"]["enum"][0]] = reference.rpartition("/")[2]
    return found


def _sleeping(home: Path, seconds: str) -> list[psutil.Process]:
    found = []
    for process in family(home):
        try:
            if process.cmdline()[-2:] == ["sleep", seconds]:
                found.append(process)
        except psutil.Error:
            continue
    return found
