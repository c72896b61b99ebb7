"""Whatever an agent says or leaves out: a clear state, nothing earlier lost, and nothing allowed."""

import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest

from kasmon.backends.base import Chunk
from kasmon.errors import (
    RefusedError,
    RequestClosedError,
    SessionBusyError,
    SessionEndedError,
    StaleRequestError,
    UnableError,
)
from kasmon.model.commands import Configure, Interrupt, Stop
from kasmon.model.events import (
    AgentSwitch,
    LimitReached,
    MessageWritten,
    NoticeRaised,
    PlanUpdated,
    RequestOpened,
    RequestWithdrawn,
    SessionEnded,
    SettingsChanged,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    UnknownMessageSeen,
)
from kasmon.model.permission import Decision, RequestKind
from kasmon.model.session_state import SessionState
from tests.support.acp.odd_session import OddSession, give, messages, only
from tests.support.agents.backend_contract import LIMIT_S
from tests.support.wait import auntil, until


@pytest.fixture
def stage(tmp_path: Path) -> OddSession:
    return OddSession(tmp_path)


# Lines


async def test_malformed_lines_are_logged_once_and_skipped(stage: OddSession) -> None:
    heard = await stage.turn("noisy")

    assert ["still here"] == await messages(heard)
    assert ["warning"] == [notice.level for notice in only(heard, NoticeRaised)]
    assert [("a line that is not a message", "a banner")] == [
        (seen.what, seen.raw) for seen in only(heard, UnknownMessageSeen)
    ]


async def test_a_partial_last_line_affects_no_other(stage: OddSession) -> None:
    async with stage.agent("half_a_line") as heard:
        await heard.prompt("go")
        ended = (await heard.until_over())[-1]

        assert isinstance(ended, SessionEnded)
        assert (0, None) == (ended.exit_code, ended.signal)


async def test_a_message_of_ten_megabytes_and_a_flood_come_whole_and_in_order(stage: OddSession) -> None:
    heard = await stage.turn("wordy")
    assert 10_000_000 == len(only(heard, MessageWritten)[0].text)

    heard = await stage.turn("flood")
    assert [f"{number} " for number in range(3000)] == [said.text for said in heard.all if isinstance(said, Chunk)]


async def test_an_unknown_message_is_logged_once_and_answered(stage: OddSession) -> None:
    heard = await stage.turn("newer")

    assert ["-32601"] == await messages(heard)
    assert [
        "session/update hologram",
        "session/sing",
        "moon/phase",
        "session/update agent_message_chunk",
        "session/update of another session",
        "stopReason",
    ] == [seen.what for seen in only(heard, UnknownMessageSeen)]
    assert '"shape": "cube"' in only(heard, UnknownMessageSeen)[0].raw
    assert "done" == only(heard, TurnEnded)[0].reason


async def test_file_and_terminal_access_is_left_to_the_agent(stage: OddSession) -> None:
    """opencode asks us to write all the same, and writes itself when it is refused."""
    heard = await stage.turn("writes_by_us")

    assert ["[-32601, -32601, -32601]"] == await messages(heard)
    assert [] == only(heard, UnknownMessageSeen)
    assert [] == list(stage.workdir.iterdir())


async def test_a_message_outside_of_a_turn_is_reported(stage: OddSession) -> None:
    async with stage.agent("speaks_unasked") as heard:
        assert ["By the way, hello."] == await messages(heard)
        assert SessionState.IDLE is heard.session.state


# Permissions


async def test_an_unreadable_question_allows_nothing_and_blocks_nothing(stage: OddSession) -> None:
    heard = await stage.turn("odd_question")

    assert ["-32602"] == await messages(heard)
    assert [] == only(heard, RequestOpened)
    assert ["error"] == [notice.level for notice in only(heard, NoticeRaised)]


async def test_a_lasting_permission_is_not_offered_as_a_single_one(stage: OddSession) -> None:
    async with stage.agent("only_always") as heard:
        await heard.prompt("go")
        request = await heard.until_asked()
        assert (Decision.DENY, Decision.CANCEL) == request.choices
        assert "only lasting ones (“Always allow”), which kasmon does not give" in request.why
        with pytest.raises(UnableError):
            await heard.answer(request, Decision.ALLOW)
        await heard.answer(request, Decision.DENY)

        assert ['{"outcome": "cancelled"}'] == await messages(heard)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("takes_it_back", "the agent withdrew it"),
        ("takes_a_form_back", "the agent withdrew it"),
        ("does_not_wait", "the agent continued without an answer"),
        ("ends_its_turn", "the turn ended"),
    ],
)
async def test_a_question_without_a_waiter_is_withdrawn(name: str, why: str, stage: OddSession) -> None:
    async with stage.agent(name) as heard:
        await heard.prompt("go")
        await heard.until_said(TurnEnded)
        opened, withdrawn = only(heard, RequestOpened), only(heard, RequestWithdrawn)

        assert [why] * len(opened) == [fact.why for fact in withdrawn]
        with pytest.raises(RequestClosedError):
            await heard.answer(opened[0].request, Decision.ALLOW)


async def test_an_update_of_a_call_with_an_open_request_voids_it_and_makes_a_new_request(
    stage: OddSession,
) -> None:
    async with stage.agent("changes_its_mind") as heard:
        await heard.prompt("go")
        await auntil(lambda: len(only(heard, RequestOpened)) == 2, LIMIT_S, "the second request")
        before, after = (fact.request for fact in only(heard, RequestOpened))

        assert ("make", "rm -rf /") == (before.input["command"], after.input["command"])
        assert after.shown.startswith("rm -rf /")
        with pytest.raises(StaleRequestError):
            await heard.answer(before, Decision.ALLOW)
        await heard.answer(after, Decision.ALLOW)
        assert ['{"outcome": "selected", "optionId": "once"}'] == await messages(heard)
        assert ["rm -rf /"] == [started.title for started in only(heard, ToolStarted)]


async def test_a_command_that_gains_only_a_description_keeps_its_request(stage: OddSession) -> None:
    async with stage.agent("explains_itself") as heard:
        await heard.prompt("go")
        await heard.until_said(PlanUpdated)
        [opened] = only(heard, RequestOpened)
        await heard.answer(opened.request, Decision.ALLOW)

        assert ['{"outcome": "selected", "optionId": "once"}'] == await messages(heard)


async def test_an_interrupt_has_priority_and_cancels_later_requests(stage: OddSession) -> None:
    """Denied before it, an agent might go on; without an answer, gemini would wait for ever."""
    async with stage.agent("stubborn") as heard:
        await heard.prompt("go")
        await heard.until_asked()
        await heard.agent.send(Interrupt())
        await heard.until_said(TurnEnded)

        assert ["session/cancel cancelled cancelled"] == await messages(heard)
        assert 1 == len(only(heard, RequestOpened))
        assert "interrupted" == only(heard, TurnEnded)[0].reason


async def test_a_reason_that_cannot_be_sent_is_reported_as_lost(stage: OddSession) -> None:
    async with stage.agent("only_always") as heard:
        await heard.prompt("go")
        await heard.answer(await heard.until_asked(), Decision.DENY, reason="not on a Friday")
        notice = await heard.until_said(NoticeRaised)

        assert isinstance(notice, NoticeRaised)
        assert "The reason was not sent" in notice.text


# What it wants to know


async def test_a_form_is_filled_in_question_by_question(stage: OddSession) -> None:
    async with stage.agent("curious") as heard:
        await heard.prompt("go")
        await auntil(lambda: len(heard.session.requests) == 2, LIMIT_S)
        colour, number = heard.session.requests
        await heard.answer(number, Decision.CHOOSE, labels=("3",))
        await heard.answer(colour, Decision.CHOOSE, labels=("blue",))

        assert ['{"action": "accept", "content": {"colour": "blue", "n": 3}}'] == await messages(heard)
        assert (RequestKind.QUESTION, "Which colour?", ("red", "blue", "(leave out)")) == (
            colour.kind,
            colour.shown,
            colour.options,
        )


async def test_denying_one_field_declines_the_whole_form(stage: OddSession) -> None:
    async with stage.agent("curious") as heard:
        await heard.prompt("go")
        await auntil(lambda: len(heard.session.requests) == 2, LIMIT_S)
        await heard.answer(heard.session.requests[0], Decision.DENY)

        assert ['{"action": "decline"}'] == await messages(heard)
        assert () == heard.session.requests


async def test_an_address_is_opened_by_the_user(stage: OddSession) -> None:
    async with stage.agent("has_an_address") as heard:
        await heard.prompt("go")
        request = await heard.until_asked()
        await heard.answer(request, Decision.ALLOW)

        assert ['{"action": "accept", "content": {}}'] == await messages(heard)
        assert (RequestKind.AUTH, {"url": "https://example.org/sign-in"}) == (request.kind, request.input)
        assert [] == only(heard, UnknownMessageSeen)


async def test_a_form_that_cannot_be_shown_is_refused_and_logged_once(stage: OddSession) -> None:
    heard = await stage.turn("mumbles")

    assert ["-32602"] == await messages(heard)
    assert ["elicitation/create"] == [seen.what for seen in only(heard, UnknownMessageSeen)]


async def test_without_a_listener_no_request_is_opened(stage: OddSession) -> None:
    """It would keep the conversation from being opened."""
    assert ["cancel"] == await messages(await stage.turn("curious_too_early"))


@pytest.mark.parametrize("how", ["an interrupt", "a cancelling answer"])
async def test_the_end_of_the_turn_answers_its_open_requests(how: str, stage: OddSession) -> None:
    async with stage.agent("stays_curious") as heard:
        await heard.prompt("go")
        await auntil(lambda: len(heard.session.requests) == 2, LIMIT_S)
        if how == "an interrupt":
            await heard.agent.send(Interrupt())
        else:
            await heard.answer(heard.session.requests[0], Decision.CANCEL)
        await heard.until_said(TurnEnded)

        assert ["session/cancel cancel"] == await messages(heard)
        assert () == heard.session.requests


async def test_a_killed_agent_withdraws_its_requests(stage: OddSession) -> None:
    async with stage.agent("curious") as heard:
        await heard.prompt("go")
        await auntil(lambda: len(heard.session.requests) == 2, LIMIT_S)
        assert heard.session.pid is not None
        os.kill(heard.session.pid, signal.SIGKILL)
        await heard.until_over()

        assert 2 == len(only(heard, RequestWithdrawn))


# Turns


async def test_a_second_prompt_is_refused_while_a_turn_runs(stage: OddSession) -> None:
    async with stage.agent("stubborn") as heard:
        await heard.prompt("go")
        with pytest.raises(SessionBusyError, match="working"):
            await heard.prompt("and this")
        await heard.until_asked()
        with pytest.raises(SessionBusyError, match="asking"):
            await heard.prompt("and this")


async def test_half_a_character_in_a_prompt_is_replaced(stage: OddSession) -> None:
    """The SDK's models refuse it."""
    async with stage.agent("plain") as heard:
        await heard.prompt("a\ud800b")

        assert ["a\ufffdb"] == await messages(heard)


async def test_an_interrupt_without_a_turn_does_nothing(stage: OddSession) -> None:
    async with stage.agent("plain") as heard:
        await heard.agent.send(Interrupt())
        await heard.prompt("hello")

        assert ["hello"] == await messages(heard)


async def test_a_turn_that_was_cancelled_is_interrupted_whatever_the_agent_calls_it(stage: OddSession) -> None:
    """Opencode answers with `end_turn` now and then."""
    async with stage.agent("done_whatever_happens") as heard:
        await heard.prompt("go")
        await auntil(lambda: [said for said in heard.all if isinstance(said, Chunk)], LIMIT_S)
        await heard.agent.send(Interrupt())
        await heard.until_said(TurnEnded)
        await heard.prompt("and again")
        await auntil(lambda: len(only(heard, TurnEnded)) == 2, LIMIT_S)

        assert ["interrupted", "done"] == [ended.reason for ended in only(heard, TurnEnded)]


async def test_a_turn_that_continues_after_an_interrupt_is_not_reported_as_interrupted(
    stage: OddSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kasmon.backends.acp.agent.CANCEL_S", 0.1)
    async with stage.agent("goes_on") as heard:
        await heard.prompt("go")
        await auntil(lambda: [said for said in heard.all if isinstance(said, Chunk)], LIMIT_S)
        await heard.agent.send(Interrupt())
        await heard.until_said(TurnEnded)

        assert ["done"] == [ended.reason for ended in only(heard, TurnEnded)]


async def test_a_turn_that_was_over_before_it_could_be_cancelled_is_done(stage: OddSession) -> None:
    async with stage.agent("done_before") as heard:
        await heard.prompt("go")
        await auntil(lambda: [said for said in heard.all if isinstance(said, Chunk)], LIMIT_S)
        (stage.workdir / "end").touch()
        until((stage.workdir / "ended").exists)  # the loop stands still, so nobody here has heard of it
        await heard.agent.send(Interrupt())
        await heard.until_said(TurnEnded)

        assert ["done"] == [ended.reason for ended in only(heard, TurnEnded)]


async def test_a_usage_limit_is_reported_as_a_limit(stage: OddSession) -> None:
    heard = await stage.turn("overloaded")

    assert ["too many tokens"] == [limit.text for limit in only(heard, LimitReached)]
    assert ("limit", "too many tokens") == (only(heard, TurnEnded)[0].reason, only(heard, TurnEnded)[0].error)
    assert SessionState.LIMITED is heard.session.state or heard.session.state is SessionState.ENDED


async def test_a_turn_without_context_space_has_failed(stage: OddSession) -> None:
    heard = await stage.turn("out_of_words")

    assert ("error", "The model's context or output limit is reached.") == (
        only(heard, TurnEnded)[0].reason,
        only(heard, TurnEnded)[0].error,
    )


async def test_a_secret_in_an_error_is_hidden(stage: OddSession) -> None:
    await asyncio.to_thread(give, ODD_KEY="very-secret-value")
    heard = await stage.turn("tells_its_key")

    assert "very-secret-value" not in str(heard.facts)
    assert "Internal error: the key ⟨hidden: 17 characters⟩ is wrong" == only(heard, TurnEnded)[0].error


# Settings


async def test_a_model_is_changed_while_it_runs(stage: OddSession) -> None:
    async with stage.agent("choosy") as heard:
        await heard.agent.send(Configure(model="small"))

        await auntil(lambda: heard.session.model == "small", LIMIT_S)
        assert ["big", "small"] == [changed.model for changed in only(heard, SettingsChanged)]


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        (Configure(permission_mode="plan"), "did not accept the mode 'plan': Internal error: not in this folder"),
        (Configure(model="small", permission_mode="yolo"), "has no permission mode 'yolo'. Available: ask, plan."),
    ],
)
async def test_a_refused_setting_changes_nothing(wish: Configure, why: str, stage: OddSession) -> None:
    async with stage.agent("choosy") as heard:
        with pytest.raises(RefusedError, match=why):
            await heard.agent.send(wish)

        assert ("big", "ask") == (heard.session.model, heard.session.permission_mode)


FAST = AgentSwitch(id="fast", title="Fast mode", text="Less thinking")
QUIET = AgentSwitch(id="quiet", title="Quiet", is_on=True)


async def test_boolean_options_are_reported_and_switched(stage: OddSession) -> None:
    async with stage.agent("switches") as heard:
        assert (FAST, QUIET) == heard.session.switches
        await heard.agent.send(Configure(switches={"fast": True}, model="small"))
        await auntil(lambda: heard.session.switches[0].is_on, LIMIT_S, "the option")
        assert ("small", True) == (heard.session.model, heard.session.switches[1].is_on)
        await heard.agent.send(Configure(switches={"fast": False}))
        await auntil(lambda: (FAST, QUIET) == heard.session.switches, LIMIT_S, "the option")

        await heard.prompt("go")
        await auntil(lambda: not heard.session.switches, LIMIT_S, "that it has none any more")


@pytest.mark.parametrize(
    ("switches", "why"),
    [
        ({"quiet": False}, "did not accept to turn 'Quiet' off: Internal error: not now"),
        ({"fast": True, "loud": True}, "has no option 'loud' that is on or off"),
    ],
)
async def test_an_option_that_the_agent_does_not_switch_is_unchanged(
    switches: dict[str, bool], why: str, stage: OddSession
) -> None:
    async with stage.agent("switches") as heard:
        with pytest.raises(RefusedError, match=why):
            await heard.agent.send(Configure(switches=switches))

        assert (FAST, QUIET) == heard.session.switches


# Ends


async def test_an_agent_that_closes_its_output_is_ended(stage: OddSession) -> None:
    async with stage.agent("hangs_up") as heard:
        await heard.prompt("go")
        ended = (await heard.until_over())[-1]

        assert isinstance(ended, SessionEnded)
        assert "it closed its output, and was ended" == ended.why


async def test_a_killed_agent_reports_it_and_accepts_no_more_prompts(stage: OddSession) -> None:
    async with stage.agent("stubborn") as heard:
        await heard.prompt("go")
        await heard.until_asked()
        assert heard.session.pid is not None
        os.kill(heard.session.pid, signal.SIGKILL)
        ended = (await heard.until_over())[-1]

        assert isinstance(ended, SessionEnded)
        assert ("SIGKILL", ()) == (ended.signal, heard.session.requests)
        with pytest.raises(SessionEndedError):
            await heard.prompt("go on")


async def test_the_end_of_the_agent_ends_its_children(stage: OddSession) -> None:
    async with stage.agent("has_a_child") as heard:
        await heard.prompt("go")
        child = psutil.Process(int((await messages(heard))[0]))
        await heard.agent.send(Stop(grace_s=0.0))
        await heard.until_over()

        await auntil(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, LIMIT_S)


async def test_an_unfinished_tool_call_ends_with_its_turn(stage: OddSession) -> None:
    async with stage.agent("ends_its_turn") as heard:
        await heard.prompt("go")
        await heard.until_said(TurnEnded)

        assert [] == only(heard, ToolStarted)
        assert [] == only(heard, ToolFinished)


async def test_a_stop_closes_the_conversation_before_the_process(stage: OddSession) -> None:
    async with stage.agent("closes") as heard:
        await heard.prompt("go")
        await heard.until_said(TurnEnded)
        await heard.agent.send(Stop())
        await heard.until_over()

    heard_file = stage.workdir / "heard"
    assert "session/close talk-1" == await asyncio.to_thread(heard_file.read_text)
