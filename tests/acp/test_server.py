"""`kasmon acp` as an editor sees it: a real process, a real host, the scripted agent."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError

from kasmon.config import Config
from kasmon.errors import LogMissingError
from kasmon.model.commands import Answer, Mode
from kasmon.model.events import RequestAnswered
from kasmon.model.permission import Decision, SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths, user_paths
from kasmon.store.event_log import EventLog
from kasmon.supervisor.fleet.lookup import OWN_ID
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.fleet.wait import fleets
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.create import NewSession
from tests.support.acp.editor import Editor, editor, editor_process
from tests.support.supervisor.env import Env
from tests.support.wait import auntil

pytestmark = pytest.mark.story

LIMIT_S = 60.0


async def now(where: Paths, session: str) -> Session:
    found = (await asyncio.to_thread(read_fleet, where)).get(SessionId(session))
    assert found is not None
    return found


async def answers(where: Paths, session: str) -> list[RequestAnswered]:
    log = EventLog(where.log(session))
    events = await asyncio.to_thread(lambda: [event for event, _ in log.read()])
    return [event for event in events if isinstance(event, RequestAnswered)]


async def asked(one: Editor, workdir: Path, script: str = "ask git push\nsay after") -> tuple[str, "asyncio.Task[str]"]:
    """A new session whose agent asks, and the prompt that waits for its end."""
    await one.initialize()
    session = await one.new(str(workdir))
    return session, asyncio.create_task(one.prompt(session, script))


where = pytest.fixture(user_paths)


@pytest.fixture
def env() -> Iterator[Env]:
    made = Env()
    yield made
    made.close()


@pytest.fixture(autouse=True)
async def _stops(where: Paths) -> AsyncIterator[None]:
    """Ends the agents of a test, which outlive their editors."""
    yield
    with contextlib.suppress(LogMissingError):
        for session in (await asyncio.to_thread(read_fleet, where)).sessions:
            if session.exists:
                await session_operations.stop(where, session, grace_s=0)


async def test_a_turn_arrives_as_text_thoughts_tools_diffs_a_plan_and_usage(where: Paths, tmp_path: Path) -> None:
    script = "think hm\nsay one two\nchange a.py\n  -x\n  +y\nplan\n  [x] first\nusage 1 2 3 10 0.5\nsay bye"
    async with editor(where, "scripted") as one:
        await one.initialize()
        session = await one.new(str(tmp_path))
        assert "end_turn" == await one.prompt(session, script)

        assert "one twobye" == one.text()
        assert "hm" == one.text("agent_thought_chunk")
        assert {"tool_call", "tool_call_update", "plan", "usage_update"} <= set(one.kinds())
        diffs = [
            each
            for update in one.updates
            for each in update.get("content") or ()
            if isinstance(each, dict) and each.get("type") == "diff"
        ]
        assert [{"type": "diff", "path": str(tmp_path / "a.py"), "oldText": "x\n", "newText": "y\n"}] == diffs
    assert (SessionState.IDLE, Mode.SDK) == ((await now(where, session)).state, (await now(where, session)).mode), (
        "its agent outlives the editor"
    )


async def test_the_answer_of_the_editors_user_is_logged_as_given_there(where: Paths, tmp_path: Path) -> None:
    async with editor(where, "scripted") as one:
        session, turn = await asked(one, tmp_path)
        question = await one.until_asked()
        [waiting] = (await now(where, session)).requests
        assert "git push" in json.dumps(question)
        one.choices.put_nowait("allow")
        assert "end_turn" == await turn

    [answer] = await answers(where, session)
    assert (waiting.id, Decision.ALLOW, "user") == (answer.request, answer.decision, answer.by)
    assert answer.who.startswith("editor Zed, ")


async def test_a_request_that_is_answered_in_kasmon_is_void_in_the_editor(where: Paths, tmp_path: Path) -> None:
    async with editor(where, "scripted") as one:
        session, turn = await asked(one, tmp_path)
        await one.until_asked()
        [waiting] = (await now(where, session)).requests
        deny = Answer(request=waiting.id, digest=waiting.digest, decision=Decision.DENY)
        await session_operations.execute(where, await now(where, session), deny)
        await turn
        await auntil(lambda: one.cancelled, LIMIT_S, "the cancellation")
        one.choices.put_nowait("allow")  # too late
        await one.prompt(session, "say still here")

    assert [Decision.DENY] == [answer.decision for answer in await answers(where, session)]


@pytest.mark.parametrize("choice", ["cancelled", "edit"], ids=["dismissed", "not offered"])
async def test_what_is_dismissed_or_not_offered_approves_nothing(where: Paths, tmp_path: Path, choice: str) -> None:
    async with editor(where, "scripted") as one:
        session, turn = await asked(one, tmp_path)
        await one.until_asked()
        one.choices.put_nowait(choice)
        await one.until_text("It waits in kasmon")
        assert SessionState.ASKING is (await now(where, session)).state
        assert not turn.done()
        await one.cancel(session)
        assert "cancelled" == await turn

    assert [] == await answers(where, session)


async def test_a_queued_prompt_that_is_cancelled_interrupts_no_turn(where: Paths, tmp_path: Path) -> None:
    async with editor(where, "scripted") as one, editor(where) as two:
        session, turn = await asked(one, tmp_path)
        await one.until_asked()
        await two.initialize()
        await two.call("session/resume", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        queued = asyncio.create_task(two.prompt(session, "say later"))
        async with fleets(where) as changes:
            async for fleet in changes:
                if 2 == len(fleet.require(SessionId(session)).receipts):
                    break
        await two.cancel(session)
        assert "cancelled" == await queued
        assert SessionState.ASKING is (await now(where, session)).state
        one.choices.put_nowait("deny")
        assert "end_turn" == await turn


@pytest.mark.parametrize("variable", OWN_ID)
async def test_an_agent_that_runs_it_can_answer_nothing(where: Paths, tmp_path: Path, variable: str) -> None:
    """Also not by the protocol: the host sees that the process is an agent's."""
    scripted = NewSession(name="lab", agent="scripted", mode=Mode.SDK, workdir=str(tmp_path), speed=0.0)
    lab = await session_operations.create(where, Config(), scripted)
    async with editor_process(lab, variables={variable: "someagent"}) as one:
        session, turn = await asked(one, tmp_path)
        assert lab == session
        await one.until_text("An agent cannot answer requests")
        assert [] == one.asked
        assert SessionState.ASKING is (await now(where, session)).state
        await one.cancel(session)
        assert "cancelled" == await turn

    assert [] == await answers(where, session)
    assert ["peer"] == [receipt.by for receipt in (await now(where, session)).receipts]


async def test_an_agent_that_runs_it_starts_nothing_unless_its_session_is_certain(tmp_path: Path) -> None:
    async with editor_process("--agent", "scripted", variables={"KASMON_SESSION": "someagent"}) as one:
        await one.initialize()
        with pytest.raises(RequestError, match=r"cannot start a session: .* it is not certain to which"):
            await one.new(str(tmp_path))


async def test_a_question_offers_its_labels(where: Paths, tmp_path: Path) -> None:
    async with editor(where, "scripted") as one:
        session, turn = await asked(one, tmp_path, "question Which colour?|red|blue")
        question = await one.until_asked()
        assert ["red", "blue"] == [each["name"] for each in question["options"] if "choose" in each["optionId"]]
        one.choices.put_nowait("choose-1")
        await turn

    assert [("blue",)] == [answer.labels for answer in await answers(where, session)]


async def test_hidden_characters_can_only_be_denied_in_the_editor(where: Paths, tmp_path: Path) -> None:
    async with editor(where, "scripted") as one:
        session, turn = await asked(one, tmp_path, "ask rm x\u202etxt")
        question = await one.until_asked()
        assert {"reject_once", "reject_always"} >= {each["kind"] for each in question["options"]}
        assert "⟨U+202E⟩" in json.dumps(question, ensure_ascii=False)
        one.choices.put_nowait("deny")
        await turn

    assert [Decision.DENY] == [answer.decision for answer in await answers(where, session)]


async def test_a_loaded_session_replays_its_history_and_a_second_editor_sees_the_first_ones_turn(
    where: Paths, tmp_path: Path
) -> None:
    async with editor(where, "scripted") as one, editor(where) as two:
        await one.initialize()
        await two.initialize("Neovim")
        session = await one.new(str(tmp_path))
        await one.prompt(session, "say first")
        listed = (await two.call("session/list", cwd=str(tmp_path)))["sessions"]
        assert [(session, str(tmp_path))] == [(each["sessionId"], each["cwd"]) for each in listed]

        await two.call("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        assert ("say first", "first") == (two.text("user_message_chunk"), two.text())
        await one.prompt(session, "say second")
        await two.until_text("second")
        assert "say firstsay second" == two.text("user_message_chunk")


async def test_it_serves_one_session_alone_if_one_is_named(where: Paths, tmp_path: Path) -> None:
    async with editor(where, "scripted") as one:
        await one.initialize()
        session, other = await one.new(str(tmp_path)), await one.new(str(tmp_path))
        await one.prompt(session, "say before")
    async with editor(where, only=session) as two:
        await two.initialize()
        assert session == await two.new("/elsewhere")
        await two.until_text("before")
        assert [session] == [each["sessionId"] for each in (await two.call("session/list"))["sessions"]]
        with pytest.raises(RequestError, match=f"has no session '{other}'.*alone"):
            await two.call("session/load", sessionId=other, cwd="/", mcpServers=[])


async def test_a_failed_turn_is_an_error_with_its_reason(where: Paths, tmp_path: Path) -> None:
    async with editor(where, "scripted") as one:
        await one.initialize()
        session = await one.new(str(tmp_path))
        with pytest.raises(RequestError, match="the prompt is failed: out of paper"):
            await one.prompt(session, "fail out of paper")
        assert "end_turn" == await one.prompt(session, "say on")


async def test_unsupported_content_is_refused_or_reported(where: Paths, tmp_path: Path) -> None:
    async with editor(where, "scripted") as one:
        await one.initialize()
        server = {"name": "files", "command": "/bin/files", "args": [], "env": []}
        answer = await one.call("session/new", cwd=str(tmp_path), mcpServers=[server])
        await one.until_text("MCP servers of the editor are not passed on")
        picture = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
        with pytest.raises(RequestError, match="no pictures"):
            await one.call("session/prompt", sessionId=answer["sessionId"], prompt=[picture])


async def test_malformed_lines_do_not_end_the_server(tmp_path: Path) -> None:
    async with editor_process("--agent", "scripted") as one:
        transport: Any = one.connection._transport
        for line in (b"hello\n", b"[1]\n", b'{"id": 1, "method": 7}\n', b"\xff{\n"):
            transport._sender._writer.write(line)
        await one.initialize()
        assert await one.new(str(tmp_path))


async def test_a_terminals_text_is_its_screen_once_the_turn_has_ended(env: Env, tmp_path: Path) -> None:
    shell = NewSession(name="lab", argv=("/bin/sh",), workdir=str(tmp_path))
    session = await session_operations.create(env.paths, Config(), shell)
    async with editor(env.paths, only=session) as one:
        await one.initialize()
        assert session == await one.new()
        await one.until_text("```")
        assert "end_turn" == await one.prompt(session, "echo n$((40 + 2))")
        assert "n42" in one.text()
