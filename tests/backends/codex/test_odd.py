"""A codex that misbehaves: a clear state with its last words, nothing hangs, and nothing of it is left."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from kasmon.backends.base import Chunk
from kasmon.backends.codex import backend
from kasmon.backends.codex.agent import CodexAgent
from kasmon.backends.common.structured_agent import FULL
from kasmon.errors import AgentNotFoundError, LaunchError, RefusedError, SessionEndedError
from kasmon.model.commands import Configure, Interrupt, Launch, Prompt
from kasmon.model.events import (
    LimitLifted,
    MessageWritten,
    NoticeRaised,
    RequestOpened,
    SessionEnded,
    SessionStarted,
    TurnEnded,
    TurnStarted,
    UnknownMessageSeen,
)
from kasmon.model.permission import Decision
from kasmon.model.session_state import SessionState
from tests.support.agents.backend_contract import LIMIT_S, Listener
from tests.support.codex.odd_codex import ODD, program
from tests.support.codex.replay import launch
from tests.support.wait import auntil

SECRET = "sk-of-nobody-0123456789abcdef"

Open = Callable[..., Launch]


@pytest.fixture
def odd(tmp_path: Path) -> Open:
    """How a codex is started that does what *code* says."""

    def wanted(code: str, **more: Any) -> Launch:
        return launch(argv=(program(tmp_path, ODD + code),), workdir=str(tmp_path), **more)

    return wanted


@asynccontextmanager
async def opened(wanted: Launch) -> AsyncIterator[Listener]:
    async with Listener(await backend.open(wanted), wanted).listening() as heard:
        await heard.until_said(SessionStarted)
        yield heard


async def not_opened(wanted: Launch) -> str:
    """Why it is not; and it does not run."""
    with pytest.raises(LaunchError) as caught:
        await backend.open(wanted)
    await auntil(lambda: not _left(wanted), what="its end")
    return str(caught.value)


def of(heard: Listener, kind: type[Any]) -> list[Any]:
    return [fact for fact in heard.facts if isinstance(fact, kind)]


def _left(wanted: Launch) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if wanted.argv[0] in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


class TestOpening:
    async def test_an_agent_that_never_answers_is_given_up(self, odd: Open) -> None:
        why = await not_opened(odd("os.write(2, b'loading\\n'); time.sleep(600)", handshake_s=0.5))

        assert why.startswith("codex did not open a conversation within 0.5 s: loading. Check the profile's flags")

    async def test_an_agent_that_stops_answering_halfway_is_given_up(self, odd: Open) -> None:
        why = await not_opened(
            odd("serve(until='thread/start', thread__start=lambda _: time.sleep(600))", handshake_s=0.5)
        )

        assert "did not open a conversation within 0.5 s" in why

    async def test_an_agent_that_dies_while_starting_reports_its_last_output(self, odd: Open) -> None:
        trace = "Error: no home\nin `x`\n\nStack backtrace:\n  0: <unknown>\n"
        why = await not_opened(odd(f"serve(until='initialize'); os.write(2, {trace.encode()!r}); os._exit(3)"))

        said = "codex ended before it had opened a conversation (exit code 3): Error: no home; in `x`. Check"
        assert why.startswith(said)
        assert "unknown" not in why

    async def test_a_missing_app_server_is_distinguished_from_a_wrong_setting(self, odd: Open) -> None:
        code = "os.write(2, b\"error: unrecognized subcommand 'app-server'\"); os._exit(2)"

        assert "kasmon requires a codex with `codex app-server`. The program was '/" in await not_opened(odd(code))

    async def test_an_unknown_setting_is_not_reported_as_a_version_problem(self, odd: Open) -> None:
        why = await not_opened(odd("serve(thread__start=refuse('Invalid request: unknown variant `x`'))"))

        assert "unknown variant `x`. Check the profile's flags" in why
        assert "npm install" not in why

    async def test_one_that_is_killed_in_it_says_so_and_one_that_closes_its_output_is_ended(self, odd: Open) -> None:
        assert "(SIGKILL)" in await not_opened(odd("os.kill(os.getpid(), 9)"))
        assert "ended before it had opened" in await not_opened(odd("os.close(1); time.sleep(600)"))

    @pytest.mark.parametrize(
        ("code", "why"),
        [
            ("serve(initialize=refuse('not that way'))", "does not speak kasmon's protocol: not that way"),
            ("serve(thread__start=refuse('unknown variant'))", "cannot start a conversation: unknown variant"),
            ("serve(thread__start=lambda _: {})", "did not report which conversation"),
            ("serve(account__read=lambda _: {'account': None, 'requiresOpenaiAuth': True})", "codex is not logged in"),
        ],
    )
    async def test_a_refused_start_is_quoted_with_what_to_do(self, odd: Open, code: str, why: str) -> None:
        said = await not_opened(odd(code))

        assert why in said
        assert [fix for fix in ("npm install", "codex login", "the profile's flags") if fix in said]

    async def test_an_older_agent_that_cannot_report_its_login_is_accepted(self, odd: Open) -> None:
        async with opened(odd("serve(account__read=refuse('unknown variant'))")) as heard:
            assert heard.session.exists

    async def test_a_conversation_other_than_the_earlier_one_is_refused(self, odd: Open) -> None:
        said = await not_opened(odd("serve(thread__resume=lambda _: OPENED)", resume="mine", remembers="x"))

        assert "opened the conversation '01a20000" in said
        assert "instead of 'mine'" in said

    async def test_a_conversation_without_a_readable_history_is_identified_by_its_id_alone(self, odd: Open) -> None:
        code = "serve(thread__turns__list=refuse('no'))"
        async with opened(odd(code, resume="mine", remembers="x", generation=2)) as heard:
            assert ("mine", "codex reported the same id") == (heard.session.resume_id, heard.session.proof)
            assert "does not contain our last prompt" in of(heard, NoticeRaised)[0].text

    async def test_a_prompt_that_the_log_cut_is_recognized(self, odd: Open) -> None:
        """The log keeps the beginning of a long one."""
        code = """
item = {"type": "userMessage", "content": [{"type": "text", "text": "x" * 50_000}]}
serve(thread__turns__list=lambda _: {"data": [{"items": [item]}]})
"""
        cut = "x" * 16_384 + "\n… 33,616 more characters, blob abc"
        async with opened(odd(code, resume="mine", remembers=cut, generation=2)) as heard:
            assert "its history ends with our last prompt" in heard.session.proof

    async def test_a_prompt_is_looked_for_further_back_after_a_refusal(self, odd: Open) -> None:
        code = """
item = {"type": "userMessage", "content": [{"type": "text", "text": "x"}]}
def turns(params):
    return {"data": [{"items": [item]}]} if params["limit"] > 1 else refuse("no")(params)
serve(thread__turns__list=turns)
"""
        async with opened(odd(code, resume="mine", remembers="x", generation=2)) as heard:
            assert "its history ends with our last prompt" in heard.session.proof

    async def test_a_notice_before_the_introduction_comes_after_it(self, odd: Open) -> None:
        code = "serve(until='initialize'); notify('warning', message='early'); serve()"
        async with opened(odd(code)) as heard:
            await heard.until_said(NoticeRaised)

            assert isinstance(heard.facts[0], SessionStarted)
            assert sorted(fact.at for fact in heard.facts) == [fact.at for fact in heard.facts]

    async def test_a_missing_program_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(AgentNotFoundError, match="'codex' is not on PATH"):
            await backend.open(launch(argv=("codex",), workdir=str(tmp_path)))
        with pytest.raises(LaunchError, match="its profile has no program"):
            await backend.open(launch())

    async def test_a_missing_folder_is_named(self, odd: Open) -> None:
        wanted = odd("serve()")
        with pytest.raises(LaunchError, match="there is no folder '/nowhere'"):
            await backend.open(launch(argv=wanted.argv, workdir="/nowhere"))

    async def test_a_cancelled_start_leaves_no_process(self, odd: Open) -> None:
        wanted = odd("time.sleep(600)")
        opening = asyncio.ensure_future(backend.open(wanted))
        await auntil(lambda: _left(wanted))
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)

        await auntil(lambda: not _left(wanted), what="its end")


class TestEnvironment:
    async def test_the_agent_has_its_own_variables_and_no_others(
        self, odd: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("OPENAI_API_KEY", "CODEX_HOME", "ANTHROPIC_API_KEY", "CODEX_THREAD_ID", "CODEX_SANDBOX"):
            monkeypatch.setenv(name, f"of {name}")
        code = f"open({str(tmp_path / 'seen')!r}, 'w').write(json.dumps(dict(os.environ))); serve()"
        async with opened(odd(code)):
            seen = json.loads((tmp_path / "seen").read_text())

        assert {"OPENAI_API_KEY", "CODEX_HOME", "KASMON_SESSION"} <= seen.keys()
        assert not {"ANTHROPIC_API_KEY", "CODEX_THREAD_ID", "CODEX_SANDBOX"} & seen.keys()

    async def test_a_key_is_in_no_message(self, odd: Open, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        key = "os.environ['OPENAI_API_KEY']"
        for code in (
            f"os.write(2, b'wrong key ' + {key}.encode()); os._exit(1)",
            f"serve(thread__start=refuse('wrong key ' + {key}))",
        ):
            said = await not_opened(odd(code))
            assert "wrong key" in said
            assert SECRET not in said

    async def test_a_key_is_in_no_event_about_unknown_messages(
        self, odd: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        key = "os.environ['OPENAI_API_KEY']"
        code = f"""
serve(until="model/list")
print("key", {key}, flush=True)
say(id=1, method="odd/call", params={{"key": {key}}})
os.write(2, {key}.encode())
hear()
os._exit(1)
"""
        async with opened(odd(code)) as heard:
            facts = await heard.until_over()

        assert 2 == len(of(heard, UnknownMessageSeen))
        assert SECRET not in repr(facts)

    async def test_no_part_of_a_secret_that_shares_a_beginning_with_another_is_left(
        self, odd: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", SECRET[:14])
        monkeypatch.setenv("CODEX_API_KEY", SECRET)
        code = """
serve(until="model/list")
print("key", os.environ["CODEX_API_KEY"], flush=True)
serve()
"""
        async with opened(odd(code)) as heard:
            await heard.until_said(UnknownMessageSeen)
            [seen] = of(heard, UnknownMessageSeen)

        assert SECRET[14:] not in seen.raw


class TestLines:
    async def test_a_malformed_message_is_reported_once_and_skipped(self, odd: Open) -> None:
        code = r"""
serve(until="model/list")
for line in ("Hello!", "{\"method\": ", "[1, 2]", "null", "3", "{}", '{"id": true, "method": "x"}', "\x1b[2J", ""):
    print(line, flush=True)
os.write(1, b"\xff\xfe\n")
notify("item/completed", item={"type": "agentMessage", "id": "m", "text": "still here"})
serve()
"""
        async with opened(odd(code)) as heard:
            await heard.until_said(MessageWritten)

            assert [("Codex printed a line that is not a message.")] == [
                notice.text for notice in of(heard, NoticeRaised)
            ]
            assert [("a line that is not a message", "Hello!")] == [
                (f.what, f.raw) for f in of(heard, UnknownMessageSeen)
            ]

    async def test_a_long_line_is_read_whole_and_an_oversized_one_is_skipped(self, odd: Open) -> None:
        code = """
serve(until="model/list")
notify("item/completed", item={"type": "agentMessage", "id": "m", "text": "x" * 10_000_000})
for _ in range(70):
    os.write(1, b"x" * 1_000_000)
os.write(1, b"\\n")
notify("item/completed", item={"type": "agentMessage", "id": "m", "text": "after"})
serve()
"""
        async with opened(odd(code)) as heard:
            await auntil(lambda: len(of(heard, MessageWritten)) == 2, LIMIT_S)

            assert [10_000_000, 5] == [len(said.text) for said in of(heard, MessageWritten)]
            assert 1 == len(of(heard, NoticeRaised))

    async def test_a_partial_last_line_does_no_harm(self, odd: Open) -> None:
        async with opened(odd("serve(until='model/list'); os.write(1, b'{\"meth'); os._exit(0)")) as heard:
            facts = await heard.until_over()

            assert isinstance(facts[-1], SessionEnded)
            assert 0 == facts[-1].exit_code

    async def test_an_answer_without_a_waiting_call_is_skipped(self, odd: Open) -> None:
        code = """
serve(until="model/list")
for call in (99, "x", None, 1.5):
    say(id=call, result={})
say(id=98, error={"message": "no"})
notify("item/completed", item={"type": "agentMessage", "id": "m", "text": "after"})
serve()
"""
        async with opened(odd(code)) as heard:
            assert "after" == await heard.until_text()

    async def test_a_flood_waits_for_a_reader(self, odd: Open) -> None:
        code = """
serve(until="model/list")
for n in range(20_000):
    notify("item/agentMessage/delta", itemId="m", delta=f"{n} ")
os.write(2, b"all said\\n")
serve()
"""
        agent = await backend.open(odd(code))
        assert isinstance(agent, CodexAgent)
        await auntil(lambda: len(agent._event_queue._waiting) >= FULL)
        with pytest.raises(TimeoutError):
            await auntil(lambda: agent._child.last_words, 0.5)

        words = []
        async for said in agent.events():
            words += [said.text] if isinstance(said, Chunk) else []
            if len(words) == 20_000:
                break
        assert words == [f"{n} " for n in range(20_000)]
        assert len(agent._event_queue._waiting) < FULL + 10
        await agent.aclose()

    async def test_an_agent_without_a_reader_can_be_closed(self, odd: Open) -> None:
        code = "serve(until='model/list')\nwhile True: notify('item/agentMessage/delta', itemId='m', delta='x')"
        wanted = odd(code)
        agent = await backend.open(wanted)
        assert isinstance(agent, CodexAgent)
        await auntil(lambda: len(agent._event_queue._waiting) >= FULL)
        await agent.aclose()

        await auntil(lambda: not _left(wanted), what="its end")
        assert isinstance([said async for said in agent.events()][-1], SessionEnded)


class TestCalls:
    @pytest.mark.parametrize(
        "method",
        ["item/tool/call", "applyPatchApproval", "execCommandApproval", "attestation/generate", "something/new"],
    )
    async def test_an_unsupported_call_is_answered_with_an_error(self, odd: Open, tmp_path: Path, method: str) -> None:
        """Never left hanging, and never accepted."""
        code = f"""
serve(until="model/list")
say(id="c1", method={method!r}, params={{"threadId": THREAD, "command": ["rm"]}})
open({str(tmp_path / "answer")!r}, "w").write(json.dumps(hear()))
notify("item/completed", item={{"type": "agentMessage", "id": "m", "text": "after"}})
serve()
"""
        async with opened(odd(code)) as heard:
            await heard.until_said(MessageWritten)
            answer = json.loads((tmp_path / "answer").read_text())

            assert ("c1", -32601) == (answer["id"], answer["error"]["code"])
            assert [method] == [foreign.what for foreign in of(heard, UnknownMessageSeen)]
            assert [] == of(heard, RequestOpened)

    async def test_a_call_for_the_time_is_answered(self, odd: Open, tmp_path: Path) -> None:
        code = f"""
serve(until="model/list")
say(id=7, method="currentTime/read", params={{"threadId": THREAD}})
open({str(tmp_path / "answer")!r}, "w").write(json.dumps(hear()))
notify("item/completed", item={{"type": "agentMessage", "id": "m", "text": "after"}})
serve()
"""
        async with opened(odd(code)) as heard:
            await heard.until_said(MessageWritten)
            answer = json.loads((tmp_path / "answer").read_text())

            assert abs(answer["result"]["currentTimeAt"] - time.time()) < 60

    async def test_a_denial_is_sent_although_its_reason_fails(self, odd: Open, tmp_path: Path) -> None:
        code = f"""
serve(until="turn/start")
begin_turn(); ask()
message = hear()
while message.get("id") != 0 or "method" in message:
    answer(message, ANSWERS | {{"turn/steer": refuse("not now")}})
    message = hear()
open({str(tmp_path / "answer")!r}, "w").write(json.dumps(message))
end_turn()
serve()
"""
        async with opened(odd(code)) as heard:
            await heard.prompt("go")
            await heard.answer(await heard.until_asked(), Decision.DENY, reason="because")
            await heard.until_said(TurnEnded)

            assert {"id": 0, "result": {"decision": "decline"}} == json.loads((tmp_path / "answer").read_text())
            assert [("The request was denied; codex could not receive the reason.")] == [
                n.text for n in of(heard, NoticeRaised)
            ]


class TestCommands:
    async def test_a_prompt_that_cannot_join_the_turn_is_refused(self, odd: Open) -> None:
        code = "serve(until='turn/start'); begin_turn(); serve(turn__steer=refuse('cannot steer a review turn'))"
        async with opened(odd(code)) as heard:
            await heard.prompt("review")
            await heard.until(SessionState.WORKING)
            with pytest.raises(
                RefusedError, match="did not accept the prompt into its running turn: cannot steer a rev"
            ):
                await heard.prompt("hurry")

    async def test_a_prompt_at_the_end_of_a_turn_starts_the_next_one(self, odd: Open) -> None:
        code = """
def over(_):
    end_turn()
    raise Refused("no active turn to steer")
serve(until="turn/start"); begin_turn()
serve(until="turn/start", turn__steer=over)
notify("turn/started", turn={"id": "t2"}); serve()
"""
        async with opened(odd(code)) as heard:
            await heard.prompt("one")
            await heard.until(SessionState.WORKING)
            await heard.prompt("two")
            await auntil(lambda: heard.session.turns == 2, LIMIT_S)

            assert ["one", "two"] == [turn.prompt for turn in of(heard, TurnStarted)]

    async def test_a_prompt_that_codex_refuses_starts_no_turn(self, odd: Open) -> None:
        """The next turn is another's."""
        code = "serve(until='turn/start', turn__start=refuse('it is too long.')); begin_turn(); serve()"
        async with opened(odd(code)) as heard:
            with pytest.raises(RefusedError, match=r"^codex did not accept the prompt: it is too long\.$"):
                await heard.prompt("one")
            await heard.until_said(TurnStarted)

            assert [("", "agent")] == [(turn.prompt, turn.by) for turn in of(heard, TurnStarted)]

    async def test_a_prompt_may_contain_bytes_that_no_file_can(self, odd: Open, tmp_path: Path) -> None:
        code = f"open({str(tmp_path / 'said')!r}, 'w').write(json.dumps(serve(until='turn/start'))); serve()"
        async with opened(odd(code)) as heard:
            await heard.prompt("half \ud800 a pair\0")
            await auntil(lambda: (tmp_path / "said").exists() and (tmp_path / "said").read_text(), LIMIT_S)

            assert "half ? a pair\0" == json.loads((tmp_path / "said").read_text())["input"][0]["text"]

    async def test_a_command_that_codex_does_not_read_can_be_cancelled(self, odd: Open) -> None:
        async with opened(odd("serve(until='model/list'); time.sleep(600)")) as heard:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await heard.agent.send(Prompt(text="x" * 1_000_000))

    async def test_a_command_ends_when_codex_ends(self, odd: Open) -> None:
        async with opened(odd("serve(until='turn/start', turn__start=lambda _: os._exit(4))")) as heard:
            with pytest.raises(SessionEndedError):
                await heard.prompt("go")

    async def test_an_interrupt_ends_the_turns_of_sub_agents_too(self, odd: Open, tmp_path: Path) -> None:
        code = f"""
serve(until="turn/start"); begin_turn()
say(method="turn/started", params={{"threadId": "sub", "turn": {{"id": "s1"}}}})
calls = [serve(until="turn/interrupt"), serve(until="turn/interrupt")]
open({str(tmp_path / "calls")!r}, "w").write(json.dumps(calls))
end_turn("interrupted"); serve()
"""
        async with opened(odd(code)) as heard:
            await heard.prompt("go")
            await auntil(lambda: len(heard.agent._translator.turns) == 2, LIMIT_S)  # type: ignore[attr-defined]
            await heard.agent.send(Interrupt())
            await heard.until_said(TurnEnded)

            calls = json.loads((tmp_path / "calls").read_text())
            assert {"t1", "s1"} == {call["turnId"] for call in calls}

    async def test_a_command_that_cannot_be_ended_is_reported(self, odd: Open) -> None:
        code = """
serve(until="turn/start"); begin_turn()
notify("item/started", item={"type": "commandExecution", "id": "c", "command": "make", "processId": "7"})
serve(thread__backgroundTerminals__list=refuse("unknown variant"))
"""
        async with opened(odd(code)) as heard:
            await heard.prompt("go")
            await auntil(lambda: heard.agent._translator.tracker.foreground(), LIMIT_S)  # type: ignore[attr-defined]
            await heard.agent.send(Interrupt())
            notice = await heard.until_said(NoticeRaised)

            assert isinstance(notice, NoticeRaised)
            assert "may still run" in notice.text

    async def test_a_setting_that_codex_refuses_is_refused(self, odd: Open) -> None:
        async with opened(odd("serve(thread__settings__update=refuse('no such model'))")) as heard:
            with pytest.raises(RefusedError, match="no such model"):
                await heard.agent.send(Configure(model="x"))

    async def test_a_limit_is_lifted_when_its_time_has_come(self, odd: Open) -> None:
        code = """
serve(until="turn/start"); begin_turn()
full = {"usedPercent": 100, "resetsAt": int(time.time()) + 2}
notify("account/rateLimits/updated", rateLimits={"primary": full})
end_turn("failed", message="usage limit", codexErrorInfo="usageLimitExceeded")
serve()
"""
        async with opened(odd(code)) as heard:
            await heard.prompt("go")
            await heard.until_been(SessionState.LIMITED)
            await heard.until_said(LimitLifted)

            assert SessionState.IDLE is heard.session.state


class TestEnds:
    async def test_an_agent_that_closes_its_output_is_ended(self, odd: Open) -> None:
        async with opened(odd("serve(until='model/list'); os.close(1); time.sleep(600)")) as heard:
            facts = await heard.until_over()

            assert isinstance(facts[-1], SessionEnded)
            assert "it closed its output, and was ended" == facts[-1].why

    async def test_the_last_output_comes_with_the_end(self, odd: Open) -> None:
        async with opened(odd("serve(until='model/list'); os.write(2, b'panic\\n'); os._exit(101)")) as heard:
            facts = await heard.until_over()

            assert isinstance(facts[-1], SessionEnded)
            assert (101, "panic", "") == (facts[-1].exit_code, facts[-1].last_words, facts[-1].why)

    async def test_output_before_the_end_is_not_lost(self, odd: Open) -> None:
        code = """
serve(until="model/list")
notify("item/completed", item={"type": "agentMessage", "id": "m", "text": "last"})
os.kill(os.getpid(), 9)
"""
        async with opened(odd(code)) as heard:
            facts = await heard.until_over()

            assert ["MessageWritten", "SessionEnded"] == [type(fact).__name__ for fact in facts[-2:]]
