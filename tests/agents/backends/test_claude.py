"""The real Claude Code, driven by its backend against the model stub."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from kasmon.backends.claude import backend
from kasmon.backends.claude.request_builder import ACCEPT_EDITS, ASK_EACH, KEEP_PLANNING
from kasmon.backends.common import child_process
from kasmon.errors import LaunchError
from kasmon.model import events
from kasmon.model.commands import Configure, ConversationFork, Interrupt, Launch, Prompt, Stop
from kasmon.model.permission import Decision, Request, RequestKind, SessionId
from kasmon.model.prompts.image import build_image
from kasmon.model.session_state import SessionState
from tests.model.prompts.test_image import png
from tests.support.agents import mcp_server
from tests.support.agents.backend_contract import LIMIT_S, Listener
from tests.support.agents.real_agent import RealAgent, family
from tests.support.model_stub import ModelStub
from tests.support.wait import auntil

pytestmark = pytest.mark.agents
Fact = TypeVar("Fact", bound=events.Event)
SLEEP = "python3 -c 'import time;time.sleep(60)'"
"""A command that lasts; the agent refuses `sleep` alone."""


class Conversation(Listener):
    """What the agent says, and shorter ways to answer it."""

    async def turn(self, prompt: str, *decisions: Decision, **more: Any) -> events.TurnEnded:
        """Give *prompt*, answer what is asked in turn, and wait for the end of the turn."""
        ended = len(self.of(events.TurnEnded))
        await self.prompt(prompt)
        for decision in decisions:
            request = await self.asked()
            await self.answer(request, decision, **more)
        return await self.ended(ended)

    async def ended(self, before: int) -> events.TurnEnded:
        """The last end of a turn, once there are more than *before*."""
        await auntil(lambda: len(self.of(events.TurnEnded)) > before, LIMIT_S, "the end of the turn")
        return self.of(events.TurnEnded)[-1]

    async def asked(self) -> Request:
        """The oldest request that nobody answered yet."""
        await auntil(lambda: self.session.requests, LIMIT_S, "a request")
        return self.session.requests[0]

    def of(self, kind: type[Fact]) -> list[Fact]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    async def until_true(self, condition: Callable[[events.Event], bool], what: str) -> None:
        await auntil(lambda: any(condition(fact) for fact in self.facts), LIMIT_S, what)


@contextlib.asynccontextmanager
async def talking(claude: RealAgent, *flags: str, **more: Any) -> AsyncIterator[Conversation]:
    """A talk with the agent, idle at first; *flags* are the user's, *more* goes into the launch."""
    launch = await launched(claude, *flags, **more)
    async with Conversation(await backend.open(launch), launch).listening() as talk:
        await talk.until(SessionState.IDLE)
        yield talk


async def launched(claude: RealAgent, *flags: str, **more: Any) -> Launch:
    return await asyncio.to_thread(lambda: claude.launch(argv=(str(claude.program), *flags), **more))


async def test_a_turn_with_text_thinking_and_figures(claude: RealAgent) -> None:
    async with talking(claude) as talk:
        ended = await talk.turn("go %% think hm so %% say hello there")

        assert "done" == ended.reason
        assert ["hello there"] == [fact.text for fact in talk.of(events.MessageWritten)]
        assert ["hm so"] == [fact.text for fact in talk.of(events.ThoughtWritten)]
        assert ["go %% think hm so %% say hello there"] == [fact.prompt for fact in talk.of(events.TurnStarted)]
        usage = talk.of(events.UsageReported)[-1]
        assert min(usage.input, usage.output, usage.context, usage.limit, usage.cost_usd or 0) > 0
        assert talk.session.model.startswith("claude-")
        assert [] == talk.of(events.UnknownMessageSeen)


async def test_it_announces_its_slash_commands_with_what_they_do(claude: RealAgent, stub: ModelStub) -> None:
    stub.must_be_called = False
    folder = claude.workdir / ".claude" / "commands"
    folder.mkdir(parents=True)
    (folder / "ship.md").write_text("---\ndescription: Ship it\n---\nShip $ARGUMENTS.\n")
    async with talking(claude) as talk:
        (announced, *_) = talk.of(events.CommandsAnnounced)
        texts = {each.command: each.text for each in announced.slash_commands}
        assert "Ship it" in texts["ship"]
        assert texts["compact"]


@pytest.mark.parametrize("whole", [False, True])
async def test_a_conversation_is_forked_before_an_earlier_prompt_or_at_its_end(
    claude: RealAgent, stub: ModelStub, whole: bool
) -> None:
    first, second = "go %% say one", "go %% say two"
    async with talking(claude) as talk:
        await talk.turn(first)
        await talk.turn(second)
        name = talk.session.resume_id or ""
    fork = ConversationFork(conversation=name, prompt="" if whole else second)
    async with talking(claude, session=SessionId("bbbbbbbb"), fork=fork) as copy:
        assert copy.session.resume_id not in ("", None, name)
        await copy.turn("go %% say three")

    said = stub.turns[-1]["users"]
    assert first in str(said)
    assert "go %% say three" in str(said)
    assert whole is (second in str(said))


async def test_a_picture_reaches_the_model(claude: RealAgent, stub: ModelStub) -> None:
    async with talking(claude) as talk:
        await talk.agent.send(Prompt(text="go %% say seen", images=(build_image("cat.png", png(40, 20)),)))
        await talk.ended(0)
        assert ["go %% say seen"] == [each.prompt for each in talk.of(events.TurnStarted)]

    assert 1 == stub.turns[-1]["images"]


async def test_it_offers_models_and_permission_modes(claude: RealAgent, stub: ModelStub) -> None:
    stub.must_be_called = False
    async with talking(claude) as talk:
        assert {"sonnet", "opus"} <= set(talk.session.models)
        assert {"default", "plan", "acceptEdits"} <= set(talk.session.permission_modes)
        assert "bypassPermissions" not in talk.session.permission_modes
        assert "default" == talk.session.permission_mode


async def test_allowed_a_command_runs(claude: RealAgent) -> None:
    async with talking(claude) as talk:
        await talk.turn("go %% bash touch yes.txt %% say done", Decision.ALLOW)

        assert (claude.workdir / "yes.txt").exists()
        assert ["done"] == [fact.text for fact in talk.of(events.MessageWritten)]


async def test_denied_it_does_not_run_and_the_agent_knows_why(claude: RealAgent) -> None:
    async with talking(claude) as talk:
        ended = await talk.turn("go %% bash touch no.txt %% say after", Decision.DENY, reason="not on a Sunday")

        assert not (claude.workdir / "no.txt").exists()
        assert [(False, "not on a Sunday")] == [(fact.ok, fact.output) for fact in talk.of(events.ToolFinished)]
        assert "done" == ended.reason


async def test_edited_a_command_runs_as_the_user_wrote_it(claude: RealAgent) -> None:
    async with talking(claude) as talk:
        edited = {"command": "touch mine.txt"}
        await talk.turn("go %% bash touch its.txt %% say done", Decision.EDIT, input=edited)

        assert ["mine.txt"] == [file.name for file in claude.workdir.iterdir()]


async def test_cancelled_its_turn_ends(claude: RealAgent) -> None:
    async with talking(claude) as talk:
        ended = await talk.turn("go %% bash touch no.txt %% say after", Decision.CANCEL)

        assert "interrupted" == ended.reason
        assert [] == talk.of(events.MessageWritten)
        assert not (claude.workdir / "no.txt").exists()


async def test_a_file_change_is_requested_and_shown_as_a_diff(claude: RealAgent) -> None:
    (claude.workdir / "f.txt").write_text("one\ntwo\nthree\n")
    async with talking(claude) as talk:
        await talk.prompt("go %% read f.txt %% edit f.txt|two|TWO %% say done")
        request = await talk.asked()
        await talk.answer(request, Decision.ALLOW)
        await talk.ended(0)

        assert request.is_diff
        assert "@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three" in request.shown
        assert "-two\n+TWO" in talk.of(events.ToolFinished)[-1].diff


async def test_questions_are_answered_together(claude: RealAgent) -> None:
    options = [{"label": "red", "description": "like blood"}, {"label": "blue", "description": "like the sky"}]
    one = {"question": "Colour?", "header": "C", "options": options, "multiSelect": False}
    asked = {"questions": [one, {**one, "question": "Which?", "multiSelect": True}]}
    async with talking(claude) as talk:
        await talk.prompt(f"go %% tool AskUserQuestion {json.dumps(asked)} %% say done")
        await auntil(lambda: len(talk.session.requests) == 2, LIMIT_S)
        colour, which = talk.session.requests
        await talk.answer(which, Decision.CHOOSE, labels=("red", "blue"))
        await talk.answer(colour, Decision.CHOOSE, labels=("neither of them",))
        await talk.ended(0)

        assert (("red", "blue"), ("like blood", "like the sky"), True) == (
            which.options,
            which.option_notes,
            which.many,
        )
        assert RequestKind.QUESTION is colour.kind
        told = talk.of(events.ToolFinished)[-1].output
        assert '"Colour?"="neither of them"' in told
        assert '"Which?"="red, blue"' in told


def with_server() -> tuple[str, str]:
    server = {"command": sys.executable, "args": [str(Path(mcp_server.__file__))]}
    return "--mcp-config", json.dumps({"mcpServers": {"demo": server}})


async def test_the_form_of_an_mcp_server_is_filled_in(claude: RealAgent) -> None:
    async with talking(claude, *with_server()) as talk:
        await talk.prompt("go %% tool mcp__demo__greet {} %% say greeted")
        await talk.answer(await talk.asked(), Decision.ALLOW)
        colour, count, sure = await auntil(
            lambda: talk.session.requests[2:] and talk.session.requests, LIMIT_S, "the form"
        )
        await talk.answer(sure, Decision.CHOOSE, labels=("(leave out)",))
        await talk.answer(colour, Decision.CHOOSE, labels=("blue",))
        await talk.answer(count, Decision.CHOOSE, labels=("3",))
        await talk.ended(0)

        assert (RequestKind.QUESTION, "demo: Colour", ("red", "blue")) == (colour.kind, colour.title, colour.options)
        assert (
            '{"action": "accept", "content": {"colour": "blue", "count": 3}}' == talk.of(events.ToolFinished)[-1].output
        )
        assert [] == talk.of(events.UnknownMessageSeen)


@pytest.mark.parametrize(
    ("how", "kind", "decision", "told"),
    [
        ("", RequestKind.QUESTION, Decision.DENY, '{"action": "decline"}'),
        ("plain", RequestKind.PERMISSION, Decision.ALLOW, '{"action": "accept", "content": {}}'),
        ("url", RequestKind.AUTH, Decision.ALLOW, '{"action": "accept"'),
        ("url", RequestKind.AUTH, Decision.DENY, '{"action": "decline"}'),
    ],
)
async def test_a_request_of_an_mcp_server_is_allowed_or_declined(
    claude: RealAgent, how: str, kind: RequestKind, decision: Decision, told: str
) -> None:
    async with talking(claude, *with_server()) as talk:
        await talk.prompt(f"go %% tool mcp__demo__greet {json.dumps({'how': how})} %% say greeted")
        await talk.answer(await talk.asked(), Decision.ALLOW)
        await auntil(lambda: talk.session.requests, LIMIT_S, "its request")
        request = await talk.asked()
        await talk.answer(request, decision)
        await talk.ended(0)

        assert kind is request.kind
        assert () == talk.session.requests
        assert talk.of(events.ToolFinished)[-1].output.startswith(told)


async def test_an_interrupt_while_an_mcp_server_waits_withdraws_its_questions(claude: RealAgent) -> None:
    async with talking(claude, *with_server()) as talk:
        await talk.prompt("go %% tool mcp__demo__greet {} %% say greeted")
        await talk.answer(await talk.asked(), Decision.ALLOW)
        await auntil(lambda: talk.session.requests[2:], LIMIT_S, "the form")
        await talk.agent.send(Interrupt())
        await talk.ended(0)

        await auntil(lambda: not talk.session.requests, LIMIT_S, "nothing is asked")
        assert 3 == len(talk.of(events.RequestWithdrawn))


async def test_a_denied_question_is_answered_with_the_reason(claude: RealAgent) -> None:
    async with talking(claude) as talk:
        await talk.turn("go %% ask What?|a|b %% say done", Decision.DENY, reason="find out by yourself")

        assert "find out by yourself" == talk.of(events.ToolFinished)[-1].output


async def test_a_plan_is_denied_with_a_reason_and_then_approved(claude: RealAgent) -> None:
    async with talking(claude, "--permission-mode", "plan") as talk:
        await talk.turn("go %% plan # My plan %% say after", Decision.DENY, reason="shorter")
        assert "shorter" == talk.of(events.ToolFinished)[-1].output
        assert "plan" == talk.session.permission_mode

        await talk.prompt("go %% plan # My plan %% say after")
        request = await talk.asked()
        await talk.answer(request, Decision.ALLOW)
        await talk.ended(1)

        assert (RequestKind.PLAN, "# My plan") == (request.kind, request.shown)
        assert "plan" != talk.session.permission_mode


@pytest.mark.parametrize(
    ("label", "mode"),
    [(ACCEPT_EDITS, "acceptEdits"), (ASK_EACH, "default"), (KEEP_PLANNING, "plan"), ("use less", "plan")],
)
async def test_a_plan_has_the_agents_own_choices(claude: RealAgent, label: str, mode: str) -> None:
    async with talking(claude, "--permission-mode", "plan") as talk:
        await talk.turn("go %% plan # My plan %% say after", Decision.CHOOSE, labels=(label,))

        assert mode == talk.session.permission_mode
        assert (label == "use less") == ("use less" in talk.of(events.ToolFinished)[-1].output)


async def test_the_usage_of_the_context_is_reported(claude: RealAgent) -> None:
    async with talking(claude) as talk:
        await talk.turn("go %% say hello")
        await talk.until_true(
            lambda event: isinstance(event, events.UsageReported) and bool(event.filled_by), "what fills the context"
        )

        filled_by = talk.session.tokens.filled_by if talk.session.tokens is not None else ()
        assert "System prompt" in [part.name for part in filled_by]


async def test_the_flags_of_the_user_are_applied(claude: RealAgent) -> None:
    flags = ("--permission-mode", "bypassPermissions", "--model", "haiku", "--add-dir", str(claude.home))
    async with talking(claude, *flags, bypassing=True, variables={"IS_SANDBOX": "1"}) as talk:
        await talk.turn("go %% bash touch unasked.txt %% say done")

        assert (claude.workdir / "unasked.txt").exists()
        assert [] == talk.of(events.RequestOpened)
        assert "haiku" in talk.session.model
        assert "bypassPermissions" == talk.session.permission_mode


async def test_the_to_do_list_is_reported(claude: RealAgent) -> None:
    update = 'tool TaskUpdate {"taskId": "1", "status": "in_progress"}'
    script = f'go %% tool TaskCreate {{"subject": "first", "description": "d"}} %% {update} %% say done'
    async with talking(claude, variables={"CLAUDE_CODE_ENABLE_TODO_TOOLS": "1"}) as talk:
        await talk.turn(script)

        (item,) = talk.of(events.PlanUpdated)[-1].items
        assert ("first", "doing") == (item.text, item.state)


async def test_a_prompt_during_the_answer_starts_the_next_turn(claude: RealAgent) -> None:
    async with talking(claude) as talk:
        await talk.prompt("go %% slow 1 word")
        await auntil(lambda: talk.all[-1] not in talk.facts, LIMIT_S, "text")
        await talk.prompt("next %% say second")
        await talk.until_true(
            lambda fact: isinstance(fact, events.MessageWritten) and fact.text == "second", "the second text"
        )
        await talk.until(SessionState.IDLE)

        assert ["go %% slow 1 word", "next %% say second"] == [fact.prompt for fact in talk.of(events.TurnStarted)]
        assert 2 == len(talk.of(events.TurnEnded))


async def test_a_prompt_during_a_tool_call_joins_the_running_turn(claude: RealAgent) -> None:
    async with talking(claude) as talk:
        await talk.prompt("go %% bash touch x.txt %% say done")
        request = await talk.asked()
        await talk.prompt("mind this too")
        await talk.answer(request, Decision.ALLOW)
        await talk.ended(0)
        await talk.until(SessionState.IDLE)

        assert "mind this too" == talk.of(events.TurnStarted)[-1].prompt
        assert 1 == len(talk.of(events.TurnEnded))


@pytest.mark.parametrize("moment", ["text", "command", "permission"])
async def test_an_interrupt_ends_the_turn_and_closes_its_requests(claude: RealAgent, moment: str) -> None:
    async with talking(claude) as talk:
        await talk.prompt("go %% slow 60 word" if moment == "text" else f"go %% bash {SLEEP} %% say done")
        if moment == "text":
            await auntil(lambda: talk.all[-1] not in talk.facts, LIMIT_S, "text")
        else:
            request = await talk.asked()
            if moment == "command":
                await talk.answer(request, Decision.ALLOW)
                await auntil(lambda: any("time.sleep" in line for line in commands(claude)), LIMIT_S, "the command")
        await talk.agent.send(Interrupt())
        ended = await talk.ended(0)

        assert "interrupted" == ended.reason
        assert () == talk.session.requests
        assert (moment == "permission") == bool(talk.of(events.RequestWithdrawn))
        assert not [line for line in commands(claude) if "time.sleep" in line]
        await talk.turn("go %% say alive")
        assert "alive" == talk.of(events.MessageWritten)[-1].text


def commands(claude: RealAgent) -> list[str]:
    """The commands that the agent runs at the moment."""
    return lines_of(family(claude.home))


def lines_of(processes: Sequence[psutil.Process]) -> list[str]:
    lines = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            lines.append(" ".join(process.cmdline()))
    return lines


async def test_work_of_a_background_agent_is_nested_in_its_call_and_starts_its_own_turn(claude: RealAgent) -> None:
    async with talking(claude) as talk:
        await talk.prompt("go %% task sub :: say inner :: bash touch inner.txt :: say inner done %% say main done")
        request = await talk.asked()
        await talk.answer(request, Decision.ALLOW)
        await talk.until_true(lambda fact: isinstance(fact, events.TurnStarted) and fact.by == "agent", "its own turn")
        await talk.until(SessionState.IDLE)

        call = next(fact.call for fact in talk.of(events.ToolStarted) if fact.tool in ("Agent", "Task"))
        assert {"inner", "inner done"} <= {fact.text for fact in talk.of(events.MessageWritten) if fact.within == call}
        assert [call] == [fact.within for fact in talk.of(events.ToolStarted) if fact.tool == "Bash"]
        assert len(talk.of(events.TurnStarted)) == len(talk.of(events.TurnEnded))


async def test_model_and_permission_mode_change_while_it_runs(claude: RealAgent) -> None:
    async with talking(claude) as talk:
        await talk.agent.send(Configure(model="haiku", permission_mode="acceptEdits"))
        await auntil(lambda: talk.session.permission_mode == "acceptEdits", LIMIT_S)
        model = talk.session.model
        await talk.turn("go %% write f.txt|text %% say done")

        assert "haiku" in model
        assert model == talk.session.model
        assert (claude.workdir / "f.txt").exists()
        assert [] == talk.of(events.RequestOpened)
        assert 1 == sum(bool(fact.model) for fact in talk.of(events.SettingsChanged))


async def test_an_error_of_the_provider_ends_the_turn_with_its_reason(claude: RealAgent) -> None:
    async with talking(claude) as talk:
        ended = await talk.turn("go %% fail 529")

        assert "error" == ended.reason
        assert "529" in ended.error
        assert "529 (overloaded); trying again" in talk.of(events.NoticeRaised)[0].text


async def test_a_request_that_fails_once_is_retried(claude: RealAgent) -> None:
    async with talking(claude) as talk:
        ended = await talk.turn("go %% fail 500 1 %% say recovered")

        assert "done" == ended.reason
        assert "recovered" == talk.of(events.MessageWritten)[-1].text


async def test_too_many_requests_are_a_limit(claude: RealAgent) -> None:
    async with talking(claude) as talk:
        ended = await talk.turn("go %% fail 429")
        assert "limit" == ended.reason
        await talk.until(SessionState.LIMITED)

        assert "done" == (await talk.turn("go %% say again")).reason
        await talk.until(SessionState.IDLE)


@pytest.mark.parametrize("how", ["ended", "killed"])
async def test_a_conversation_continues_in_a_new_process(claude: RealAgent, how: str) -> None:
    async with talking(claude) as talk:
        await talk.turn("remember %% say one")
        name = talk.session.resume_id
        if how == "killed":
            os.kill(pid_of(talk), signal.SIGKILL)
            await talk.until_over()
    async with talking(claude, generation=2, resume=name, remembers="remember %% say one") as talk:
        await talk.turn("go %% say two")

        assert name == talk.session.resume_id
        assert "its transcript ends with the last prompt" in talk.session.proof
        assert [] == [fact for fact in talk.of(events.NoticeRaised) if fact.level != "info"]


def pid_of(talk: Conversation) -> int:
    assert talk.session.pid is not None
    return talk.session.pid


async def test_an_empty_conversation_restarts_under_its_id(claude: RealAgent, stub: ModelStub) -> None:
    stub.must_be_called = False
    async with talking(claude) as talk:
        name = talk.session.resume_id
    async with talking(claude, generation=2, resume=name) as talk:
        assert (name, "") == (talk.session.resume_id, talk.session.proof)


async def test_a_cleared_conversation_is_resumed_by_its_new_id(claude: RealAgent) -> None:
    async with talking(claude) as talk:
        await talk.turn("go %% say one")
        before = talk.session.resume_id
        await talk.turn("/clear")
        await talk.turn("anew %% say two")
        name = talk.session.resume_id
    assert before != name
    async with talking(claude, generation=2, resume=name, remembers="anew %% say two") as talk:
        assert "its transcript ends with" in talk.session.proof


async def test_a_missing_conversation_is_reported(claude: RealAgent, stub: ModelStub) -> None:
    stub.must_be_called = False
    gone = "0b7c1f2e-0000-4000-8000-000000000001"

    with pytest.raises(LaunchError, match=f"No conversation found with session ID: {gone}"):
        await backend.open(await launched(claude, generation=2, resume=gone, remembers="hello"))


async def test_a_missing_login_is_named_with_its_fix(claude: RealAgent, stub: ModelStub) -> None:
    stub.must_be_called = False

    with pytest.raises(LaunchError, match=r"no login and no key.*/login"):
        await backend.open(await launched(claude, variables={"ANTHROPIC_API_KEY": ""}))


async def test_an_unknown_flag_is_reported_in_the_agents_words(claude: RealAgent, stub: ModelStub) -> None:
    stub.must_be_called = False

    with pytest.raises(LaunchError, match="unknown option '--no-such-flag'"):
        await backend.open(await launched(claude, "--no-such-flag"))


async def test_a_killed_agent_reports_its_signal_and_ends_the_children_it_just_started(
    claude: RealAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commands lead sessions of their own, and nobody has seen this one yet."""
    monkeypatch.setattr(child_process, "LOOK_S", 600.0)
    async with talking(claude) as talk:
        await talk.prompt(f"go %% bash {SLEEP} %% say done")
        await talk.answer(await talk.asked(), Decision.ALLOW)
        await auntil(lambda: any("time.sleep" in line for line in commands(claude)), LIMIT_S, "the command")
        os.kill(pid_of(talk), signal.SIGKILL)
        *_, ended = await talk.until_over()

        assert isinstance(ended, events.SessionEnded)
        assert ("SIGKILL", None) == (ended.signal, ended.exit_code)
        await auntil(lambda: not family(claude.home), LIMIT_S, "nobody of its family")


async def test_stopped_during_a_command_the_agent_ends_cleanly_and_leaves_no_process(claude: RealAgent) -> None:
    async with talking(claude) as talk:
        await talk.prompt(f"go %% bash {SLEEP} %% say done")
        await talk.answer(await talk.asked(), Decision.ALLOW)
        await auntil(lambda: any("time.sleep" in line for line in commands(claude)), LIMIT_S, "the command")
        await talk.agent.send(Stop(grace_s=LIMIT_S))
        *_, ended = await talk.until_over()

        assert isinstance(ended, events.SessionEnded)
        assert ("stopped", None) == (ended.why, ended.signal)
        assert "interrupted" == talk.of(events.TurnEnded)[-1].reason
        assert not family(claude.home)
