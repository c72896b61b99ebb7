"""The model server as its clients see it: the same script comes out in each of the four APIs."""

import asyncio
import http.client
import json
import sys
from collections.abc import AsyncIterator

import pytest

from tests.support.model_stub import ModelStub
from tests.support.model_stub.clients import Claude, Client, Codex, Gemini, Opencode, post
from tests.support.wait import auntil

TOOLS: dict[type[Client], tuple[str, ...]] = {
    Claude: ("Bash", "Write", "Edit", "Read", "AskUserQuestion", "ExitPlanMode", "TodoWrite", "Agent"),
    Codex: ("exec_command", "apply_patch", "request_user_input", "update_plan"),
    Opencode: ("bash", "write", "edit", "read", "question", "todowrite", "task"),
    Gemini: ("run_shell_command", "write_file", "replace", "read_file", "ask_user", "write_todos"),
}
SHELLS = {Claude: "command", Codex: "cmd", Opencode: "command", Gemini: "command"}
SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}, "score": {"type": "integer"}}}


@pytest.fixture
async def stub() -> AsyncIterator[ModelStub]:
    async with ModelStub(delay=0) as stub:
        yield stub


@pytest.fixture(params=TOOLS, ids=lambda kind: kind.__name__.lower())
def client(request: pytest.FixtureRequest, stub: ModelStub) -> Client:
    kind: type[Client] = request.param
    return kind(stub.url, tools=TOOLS[kind])


@pytest.fixture(params=[True, False], ids=["streamed", "whole"])
def either(request: pytest.FixtureRequest, client: Client) -> Client:
    return client.but(streams=request.param)


async def test_the_text_and_the_thoughts_of_the_script_are_streamed(either: Client) -> None:
    answer = await either.says("go %% think hm hm %% say one two").ask()

    assert "one two" == either.text(answer)
    assert "hm hm" == either.thought(answer).removeprefix("**Thinking** ")
    assert [] == either.calls(answer)


async def test_a_stream_comes_word_by_word(client: Client) -> None:
    one, three = [await client.says(f"go %% say {words}").ask() for words in ("one", "one two three")]

    assert len(one.events) + 2 == len(three.events)


async def test_the_clients_tool_is_called_and_the_script_continues_after_its_result(either: Client) -> None:
    asked = either.says("go %% say first %% bash ls | wc %% say second")
    answer = await asked.ask()
    [call] = either.calls(answer)

    assert "first" == either.text(answer)
    assert call[0] in either.tools
    assert "ls | wc" == call[1][SHELLS[type(either)]]
    assert "second" == either.text(await asked.ran(call, "7").ask())


async def test_text_that_opencode_adds_to_a_prompt_in_plan_mode_is_not_the_users(stub: ModelStub) -> None:
    asked = (
        Opencode(stub.url)
        .but(tools=("bash",))
        .says("go %% say two\n\n<system-reminder>\nplan %% say no\n</system-reminder>")
    )

    assert "two" == asked.text(await asked.ask())
    assert "go %% say two" == stub.turns[-1]["user"]


async def test_two_tools_are_called_in_one_turn(either: Client) -> None:
    calls = either.calls(await either.says("go %% bash one %% +bash two").ask())

    assert ["one", "two"] == [arguments[SHELLS[type(either)]] for _, arguments in calls]
    assert [either.tools[0]] * 2 == [name for name, _ in calls]


async def test_any_tool_can_be_called(either: Client) -> None:
    answer = await either.says('go %% tool mine {"a": [1]}').ask()

    assert [("mine", {"a": [1]})] == either.calls(answer)


@pytest.mark.parametrize(
    "step", ["write f|a\\nb", "edit f|a|b", "read f", "ask Which?|red|blue", "plan A", "todo A|B", "task x :: say y"]
)
async def test_each_tool_is_called_as_the_client_names_it(stub: ModelStub, client: Client, step: str) -> None:
    answer = await client.says(f"go %% {step}").ask()

    if answer.status == 200:
        assert [True] == [name in client.tools for name, _ in client.calls(answer)]
    else:
        assert 400 == answer.status
        assert f"offers no tool for '{step.split()[0]}'" in json.dumps(answer.events)
        assert stub.requests[-1]["reply"].startswith("wrong script")


@pytest.mark.parametrize("step", ["sya hello", "say hello %% fail 500", "tool Bash {broken"])
async def test_a_wrong_script_is_an_error_for_the_client(either: Client, step: str) -> None:
    assert 400 == (await either.says(f"go %% {step}").ask()).status


async def test_without_tools_a_request_is_for_a_title_and_gets_one(stub: ModelStub, either: Client) -> None:
    answer = await either.but(tools=()).says("go %% say hello").ask()

    assert "Stub title" == either.text(answer)
    assert [] == stub.turns


async def test_a_reminder_after_the_end_of_a_turn_asks_for_a_line_about_it_and_gets_one(stub: ModelStub) -> None:
    asked = Opencode(stub.url, tools=TOOLS[Opencode]).says("go %% wait 9 %% say done")
    talk = asked.adds({"role": "assistant", "content": "done"}).says("<system-reminder>Sum it up.</system-reminder>")

    assert "Stub title" == talk.text(await talk.ask())
    assert [] == stub.turns


async def test_a_request_for_json_gets_what_its_schema_allows(stub: ModelStub, either: Client) -> None:
    answer = await either.but(schema=SCHEMA).says("go %% say hello").ask()

    assert {"title": "Stub title", "score": 1} == json.loads(either.text(answer))
    assert [] == stub.turns


async def test_a_failure_lasts_as_often_as_the_script_says(either: Client) -> None:
    asked = either.says("go %% fail 529 2 %% say recovered")

    assert [529, 529, 200] == [(await asked.ask()).status for _ in range(3)]
    assert "recovered" == either.text(await asked.ask())


async def test_a_failure_without_a_number_lasts_forever(either: Client) -> None:
    asked = either.says("go %% fail 401")

    assert [401, 401, 401] == [(await asked.ask()).status for _ in range(3)]


async def test_a_malformed_stream_holds_half_a_message(client: Client) -> None:
    with pytest.raises(json.JSONDecodeError):
        await client.says("go %% say hello %% malformed").ask()


async def test_a_dropped_stream_ends_in_its_middle(client: Client) -> None:
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        await client.says("go %% say hello %% drop").ask()


async def test_an_answer_in_one_piece_does_not_break(client: Client) -> None:
    answer = await client.but(streams=False).says("go %% say hello %% drop").ask()

    assert "hello" == client.text(answer)


async def test_a_hanging_stream_ends_when_the_client_leaves(stub: ModelStub, client: Client) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", stub.port)
    body = json.dumps(client.says("go %% say hello %% hang").body())
    writer.write(f"POST {client.path()} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    await reader.readuntil(b"hello")
    await client.says("go %% say hello").ask()
    assert "took_s" not in stub.requests[0]
    writer.close()

    await auntil(lambda: "took_s" in stub.requests[0])
    assert "hang" == stub.requests[0]["reply"]


async def test_a_slow_answer_without_a_waiting_client_ends(stub: ModelStub, client: Client) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", stub.port)
    body = json.dumps(client.says("go %% slow 30 word").body())
    writer.write(f"POST {client.path()} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    await reader.readuntil(b"word0")
    writer.close()

    await auntil(lambda: "took_s" in stub.requests[-1])
    assert "client left" == stub.requests[-1]["reply"]


async def test_a_request_is_recorded(stub: ModelStub, client: Client) -> None:
    asked = client.says("hello").says("go %% bash ls %% say done")
    [call] = client.calls(await asked.ask())
    await asked.ran(call, "a.txt").ask()

    [_, record] = stub.turns
    assert ("hello", "go %% bash ls %% say done") == record["users"]
    assert ["a.txt" in result for result in record["results"]] == [True]
    assert [("say", "done")] == list(record["steps"])
    assert ("stream", client.tools) == (record["reply"], record["tools"])


async def test_a_patch_is_a_text_where_the_client_takes_one(stub: ModelStub) -> None:
    codex = Codex(stub.url, tools=TOOLS[Codex])
    [added] = codex.calls(await codex.says("go %% write f|one\\ntwo").ask())
    [changed] = codex.calls(await codex.says("go %% edit f|one|three").ask())

    assert ("apply_patch", "*** Begin Patch\n*** Add File: f\n+one\n+two\n*** End Patch") == added
    assert ("apply_patch", "*** Begin Patch\n*** Update File: f\n@@\n-one\n+three\n*** End Patch") == changed


async def test_a_patch_is_json_where_the_client_takes_json(stub: ModelStub) -> None:
    more = {"type": "additional_tools", "tools": [{"type": "function", "name": "apply_patch"}]}
    codex = Codex(stub.url, talk=(more,))
    [(_, arguments)] = codex.calls(await codex.says("go %% write f|one").ask())

    assert {"input": "*** Begin Patch\n*** Add File: f\n+one\n*** End Patch"} == arguments


async def test_a_client_whose_tools_are_run_by_a_program_gets_one(stub: ModelStub) -> None:
    more = {"type": "additional_tools", "tools": [{"type": "custom", "name": "exec"}]}
    codex = Codex(stub.url, talk=(more,))
    [(name, program)] = codex.calls(await codex.says("go %% bash ls").ask())

    assert "exec" == name
    assert 'tools.exec_command({"cmd": "ls"})' in program


async def test_the_script_of_a_sub_agent_is_written_with_colons(stub: ModelStub) -> None:
    claude = Claude(stub.url, tools=TOOLS[Claude])
    [(_, arguments)] = claude.calls(await claude.says("go %% task sub :: bash ls :: say done").ask())

    assert "sub %% bash ls %% say done" == arguments["prompt"]


async def test_claude_writes_its_plan_where_its_instructions_say_and_then_shows_it(stub: ModelStub) -> None:
    told = {"role": "system", "content": "Plan mode: write your plan to /home/plans/go-quiet-owl.md and"}
    claude = Claude(stub.url, talk=(told,), tools=TOOLS[Claude])

    assert [
        ("Write", {"file_path": "/home/plans/go-quiet-owl.md", "content": "# Plan\n- one | two"}),
        ("ExitPlanMode", {}),
    ] == claude.calls(await claude.says("go %% plan # Plan\\n- one | two").ask())


async def test_codex_writes_its_plan(stub: ModelStub) -> None:
    codex = Codex(stub.url, tools=("exec_command",))
    answer = await codex.says("go %% plan # Plan\\n- one").ask()

    assert "<proposed_plan>\n# Plan\n- one\n</proposed_plan>" == codex.text(answer)


async def test_a_to_do_list_that_is_made_of_calls_gets_one_for_each(stub: ModelStub) -> None:
    claude = Claude(stub.url, tools=("TaskCreate",))
    calls = claude.calls(await claude.says("go %% todo one|two").ask())

    assert [("TaskCreate", "one"), ("TaskCreate", "two")] == [(name, given["subject"]) for name, given in calls]


async def test_no_network_is_reached_through_it(stub: ModelStub) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", stub.port)
    writer.write(b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n")

    assert b"HTTP/1.1 403 Forbidden\r\n" == await reader.readline()
    assert ["example.org:443"] == stub.outside
    writer.close()


async def test_a_request_that_no_model_answers_is_answered_too(stub: ModelStub) -> None:
    for path, status in (("/v1/messages/count_tokens", 200), ("/v1beta/models/x:countTokens", 200), ("/nothing", 404)):
        assert status == (await asyncio.to_thread(post, stub.url, path, {})).status
    assert [] == stub.turns


async def test_it_runs_on_its_own() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.model_stub", "--delay", "0", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout
        url = (await process.stdout.readline()).decode().strip()
        claude = Claude(url, tools=("Bash",))
        assert "hello" == claude.text(await claude.says("go %% say hello").ask())
    finally:
        process.terminate()
        await process.wait()
