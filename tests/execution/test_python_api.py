"""The Python API as `docs/python-api.md` documents it, and what only it has: waiting, events, whole answers."""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import kasmon
from kasmon import ExecutionSession, LaunchSpec
from kasmon.config import Config
from kasmon.errors import KasmonError, SessionNotFoundError, TimedOutError, UsageError
from kasmon.model.events import MessageWritten, RequestAnswered, SessionEnded
from kasmon.model.permission import Decision
from kasmon.store.rules import RuleBook
from tests.support.execution.actor_session import eventually
from tests.support.tui.dashboard import Home

PAGE = Path(__file__).parents[2] / "docs" / "python-api.md"


@asynccontextmanager
async def started(home: Home, mode: str, prompt: str) -> AsyncIterator[ExecutionSession]:
    """A session of the scripted agent that was started just now."""
    spec = LaunchSpec(name="one", agent="scripted", mode=mode, prompt=prompt, speed=0.0)
    one = ExecutionSession(spec, where=home.paths, config=Config())
    await one.start(home.path)
    try:
        yield one
    finally:
        await one.close()


def test_the_documented_program_works_as_described(home: Home) -> None:
    [program] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)

    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        capture_output=True,
        text=True,
        env=home.variables,
        cwd=home.path,
        timeout=60,
    )

    assert ("", 0) == (done.stderr, done.returncode)
    assert [
        "Bash rm -rf build",
        "edit {'command': 'rm -rf build/tmp'}",
        "choose ('blue',)",
        "deny Not before review.",
        "InteractiveOnlyError",
    ] == done.stdout.splitlines()


@pytest.mark.parametrize("name", kasmon.__all__)
def test_every_public_name_can_be_imported_and_is_documented(name: str) -> None:
    assert getattr(kasmon, name) is not None
    assert name.startswith("__") or name in PAGE.read_text("utf-8")


async def test_an_answer_carries_its_reason_its_input_its_labels_and_its_text(home: Home) -> None:
    async with started(home, "sdk", "ask rm -rf /\nquestion Which?|red|blue\nask git push\nsay over") as one:
        await one.wait("asking", timeout_s=20)
        await one.respond("edit", input={"command": "true"})
        await one.wait("asking", timeout_s=20)
        with pytest.raises(UsageError, match="no choice 'green'"):
            await one.respond("choose", labels=["green"])
        with pytest.raises(UsageError, match="accepts no reason"):
            await one.respond("choose", labels=["red"], reason="why not")
        await one.respond("choose", labels=["red"])
        await one.wait("asking", timeout_s=20)
        await one.respond(Decision.DENY, reason="not yet")
        await one.wait("idle", timeout_s=20)
        await one.close()

        answers = [event async for event, _ in one.events() if isinstance(event, RequestAnswered)]
        assert [{"command": "true"}, None, None] == [answer.input for answer in answers]
        assert [(), ("red",), ()] == [answer.labels for answer in answers]
        assert ["", "", "not yet"] == [answer.reason for answer in answers]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda one: one.attach(), "cannot attach to 'one': a structured session has no terminal."),
        (lambda one: one.detach(), "cannot detach from 'one': a structured session has no terminal."),
        (lambda one: one.resize(80, 24), "cannot resize 'one': a structured session has no terminal."),
        (
            lambda one: one.embedded_terminal(80, 24),
            "cannot embed the terminal of 'one': a structured session has no terminal.",
        ),
        (lambda one: one.respond("allow"), "session 'one' has no open request."),
        (lambda one: one.respond("allow", "x-1"), "there is no request 'x-1'."),
        (lambda one: one.respond("always", scope="galaxy"), "unknown scope 'galaxy'. Scopes: session, plan, project."),
        (lambda one: one.respond("maybe"), "unknown answer 'maybe'."),
    ],
)
async def test_an_impossible_call_raises_a_whole_sentence(
    home: Home, act: Callable[[ExecutionSession], Awaitable[object]], message: str
) -> None:
    async with started(home, "sdk", "say one") as one:
        with pytest.raises(KasmonError) as refusal:
            await act(one)

    error = refusal.value
    assert f"{error.message} {error.hint}".startswith(message)


async def test_an_answer_can_be_free_text_and_a_rule_can_reach_the_project(home: Home) -> None:
    async with started(home, "sdk", "question Which?|red|blue|...\nask git push\nsay over") as one:
        await one.wait("asking", timeout_s=20)
        await one.respond("choose", text="green")
        await one.wait("asking", timeout_s=20)
        await one.respond("always", scope="project")
        await one.wait("idle", timeout_s=20)
        await one.close()

        answers = [event async for event, _ in one.events() if isinstance(event, RequestAnswered)]
    assert [("green",), ()] == [answer.labels for answer in answers]
    [rule] = await asyncio.to_thread(RuleBook(home.paths.rules).read)
    assert ("project", str(home.path)) == (rule.scope, rule.of)


async def test_events_come_in_order_from_any_offset_and_end_with_the_agent(home: Home) -> None:
    async with started(home, "sdk", "say one\nsay two") as one:
        await one.wait("idle", timeout_s=20)
        await one.close()

        everything = [(event, offset) async for event, offset in one.events()]
        assert ["one", "two"] == [event.text for event, _ in everything if isinstance(event, MessageWritten)]
        assert isinstance(everything[-1][0], SessionEnded)
        middle = everything[len(everything) // 2][1]
        assert [pair for pair in everything if pair[1] > middle] == [pair async for pair in one.events(middle)]


async def test_a_wait_has_a_time_limit_and_names_an_impossible_condition(home: Home) -> None:
    with pytest.raises(SessionNotFoundError):
        await kasmon.ExecutionSession(kasmon.LaunchSpec(name="none"), where=home.paths).wait("idle")
    async with started(home, "sdk", "say one") as one:
        with pytest.raises(UsageError, match="unknown state 'busy'"):
            await one.wait("busy")
        with pytest.raises(UsageError, match="requires a state"):
            await one.wait()
        with pytest.raises(TimedOutError):
            await one.wait("limited", timeout_s=0.1)


async def test_two_prompts_typed_in_a_row_are_two_prompts(home: Home) -> None:
    """`tap_enter` returns once the box of the agent has given up the first."""
    async with started(home, "tmux", "say ready") as one:
        await one.wait("idle", timeout_s=30)
        for text in ("say first one", "say second one"):
            await one.send_keys(text)
            await one.tap_enter()
        await one.wait("idle", timeout_s=30)

        async def both_said() -> bool:
            rows = (await one.capture_range()).splitlines()
            return all(any(row.strip(" ●") == text for row in rows) for text in ("first one", "second one"))

        await eventually(both_said, "two answers to two prompts")
