"""The ancestor's session interface, row by row of its four tables, in both modes.

Each test says which kinds of session it is true of; what is true of one mode only stands at the end of its table.
"""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import pytest

import kasmon
from kasmon import ExecutionSession, InteractiveOnlyError, LaunchSpec, Poll
from kasmon.config import Config, parse
from kasmon.errors import (
    ConfigError,
    KasmonError,
    NameTakenError,
    RequestNotFoundError,
    SessionNotFoundError,
    StaleRequestError,
    UnableError,
    UsageError,
)
from kasmon.host.alive import lock_holder
from kasmon.model.command import Mode
from kasmon.model.permission import Decision
from kasmon.model.state import SessionState
from kasmon.supervisor import verb
from kasmon.tmux.server import Server
from tests.safety.dash import Home
from tests.waiting import auntil

Value = TypeVar("Value")
LIMIT_S: Final = 20.0
ECHO: Final = (
    sys.executable,
    "-I",
    "-S",
    "-c",
    "import os, sys\n"
    "print('env', *(f'{k}={v}' for k, v in sorted(os.environ.items()) if k[:4] == 'KASM'), flush=True)\n"
    "for line in sys.stdin: print('heard', line.strip(), flush=True)",
)
"""A program that knows nothing of kasmon."""
KINDS: Final[dict[str, dict[str, Any]]] = {
    "tmux": {"agent": "scripted", "mode": "tmux"},
    "program": {"argv": ECHO},
    "sdk": {"agent": "scripted", "mode": "sdk"},
}
ALL: Final = pytest.mark.parametrize("kind", KINDS)
AGENTS: Final = pytest.mark.parametrize("kind", ["tmux", "sdk"])
TERMINALS: Final = pytest.mark.parametrize("kind", ["tmux", "program"])


def session(home: Home, kind: str, **more: Any) -> ExecutionSession:
    fields: dict[str, Any] = {"name": "worker", "speed": 0.0}
    return ExecutionSession(LaunchSpec(**(fields | KINDS[kind] | more)), where=home.places, config=Config())


@asynccontextmanager
async def started(home: Home, kind: str, **more: Any) -> AsyncIterator[ExecutionSession]:
    """A session whose agent runs and can be spoken to."""
    one = session(home, kind, **more)
    await one.start(home.path)
    try:
        yield one
    finally:
        await one.close()


async def eventually(look: Callable[[], Awaitable[Value]], what: str) -> Value:
    """What *look* sees, once that is true."""
    deadline = asyncio.get_running_loop().time() + LIMIT_S
    while not (seen := await look()):
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not come true"
        await asyncio.sleep(0.02)
    return seen


async def shows(one: ExecutionSession, text: str) -> str:
    """Wait until *text* is shown; all that is shown then."""

    async def shown() -> str:
        whole = await one.capture_range()
        return whole if text in whole else ""

    return await eventually(shown, repr(text))


async def asks(one: ExecutionSession) -> None:
    async def asking() -> bool:
        return bool(await one.permissions()) or await one.on_screen() is not None

    await eventually(asking, "a permission")


async def until_state(one: ExecutionSession, state: SessionState) -> None:
    async def there() -> bool:
        return (await one.state()).state is state

    await eventually(there, f"the state {state}")


async def until_gone(one: ExecutionSession) -> None:
    async def gone() -> bool:
        return not await one.exists()

    await eventually(gone, "the agent's end")


async def say(one: ExecutionSession, text: str) -> None:
    await one.send_keys(text)
    await one.tap_enter()


# Start, Restore, Close, DoesSessionExist


@ALL
async def test_start_runs_the_agent_in_the_folder(home: Home, kind: str) -> None:
    async with started(home, kind) as one:
        now = await one.state()

        assert await one.exists()
        assert (str(home.path), "worker") == (now.workdir, now.name)
        assert (Mode.SDK if kind == "sdk" else Mode.TMUX) is now.mode


@ALL
async def test_before_the_start_nothing_exists(home: Home, kind: str) -> None:
    one = session(home, kind)

    assert not await one.exists()
    assert ("", None) == (one.sanitized_name, await one.pid())
    with pytest.raises(SessionNotFoundError, match="worker"):
        await one.capture()
    await one.close()


@ALL
async def test_a_session_is_started_once(home: Home, kind: str) -> None:
    async with started(home, kind) as one:
        with pytest.raises(UsageError, match="started once"):
            await one.start(home.path)
        with pytest.raises(NameTakenError):
            await session(home, kind).start(home.path)


@ALL
async def test_close_ends_the_agent_and_can_be_called_again(home: Home, kind: str) -> None:
    async with started(home, kind) as one:
        await one.close()
        assert not await one.exists()
        await one.close()

        assert SessionState.ENDED is (await one.state()).state
        assert await one.pid() is None


@ALL
async def test_exists_turns_false_when_the_agent_ends_by_itself(home: Home, kind: str) -> None:
    """In tmux the pane stays, with the last screen: that is no agent."""
    async with started(home, kind) as one:
        if kind == "program":
            await one.send_keys("\x04")
        else:
            await until_state(one, SessionState.IDLE)
            await say(one, "crash 3")
        await until_gone(one)

        await one.capture()


@ALL
async def test_restore_of_what_runs_changes_nothing(home: Home, kind: str) -> None:
    async with started(home, kind):
        again = await ExecutionSession.of("worker", where=home.places)
        before = await again.pid()
        await again.restore()

        assert (before, "") == (await again.pid(), again.why_not)
        assert await again.exists()


@ALL
async def test_restore_starts_what_ended_again_under_the_same_id(home: Home, kind: str) -> None:
    """The seed's sdk mode could not; an agent that can resume goes on with its conversation."""
    async with started(home, kind) as one:
        await one.close()
        await one.restore()

        assert await one.exists(), one.why_not
        now = await one.state()
        assert (one.id, 2) == (now.id, now.generation)


@ALL
async def test_restore_never_raises_and_says_why_not(home: Home, kind: str) -> None:
    async with started(home, kind) as one:
        await one.close()
        home.places.launch(one.id).write_bytes(b"{")
        await one.restore()

        assert not await one.exists()
        assert one.id in one.why_not


async def test_restore_of_nothing_never_raises(home: Home) -> None:
    one = session(home, "sdk")
    await one.restore()

    assert "worker" in one.why_not


# CapturePaneContent, CapturePaneContentWithOptions


@ALL
async def test_capture_shows_what_the_session_shows(home: Home, kind: str) -> None:
    async with started(home, kind) as one:
        await say(one, "say the answer is 42")
        await shows(one, "the answer is 42")

        assert "the answer is 42" in await one.capture()


async def test_a_structured_capture_is_everything_that_happened(home: Home) -> None:
    async with started(home, "sdk", prompt="\n".join(f"say line {n}." for n in range(200))) as one:
        await shows(one, "line 199.")
        whole = await one.capture()

        assert all(f"line {n}." in whole for n in range(200))
        assert whole == await one.capture_range("", "")


async def test_a_terminals_capture_is_its_screen_and_the_range_reaches_its_history(home: Home) -> None:
    argv = (sys.executable, "-c", "for n in range(200): print(f'line {n}.')\ninput()")
    async with started(home, "program", argv=argv) as one:
        await shows(one, "line 199.")

        assert "line 0." not in await one.capture()
        assert "line 0." == await one.capture_range("0", "0")


RANGES: Final = [
    ("", "", slice(None)),
    ("-", "-", slice(None)),
    ("0", "-", slice(None)),
    ("0", "0", slice(0, 1)),
    ("2", "4", slice(2, 5)),
    ("3", "", slice(3, None)),
    ("", "3", slice(0, 4)),
    ("-1", "-1", slice(-1, None)),
    ("-3", "-2", slice(-3, -1)),
    ("-2", "", slice(-2, None)),
    ("", "-2", slice(0, -1)),
    ("1", "-2", slice(1, -1)),
    ("4", "2", slice(0, 0)),
    ("-2", "-3", slice(0, 0)),
    ("-999999", "2", slice(0, 3)),
    ("2", "999999", slice(2, None)),
    ("999999", "", slice(0, 0)),
    ("", "-999999", slice(0, 0)),
]


@pytest.mark.parametrize("kind", ["program", "sdk"])
async def test_a_range_is_counted_in_the_buffer_with_both_ends_included(home: Home, kind: str) -> None:
    argv = (sys.executable, "-c", "for n in range(9): print(f'line {n}.')\ninput()")
    more: dict[str, Any] = {"argv": argv} if kind == "program" else {"prompt": "say Ready.\nsay line 8."}
    async with started(home, kind, **more) as one:
        await shows(one, "line 8.")
        if kind == "sdk":
            await until_state(one, SessionState.IDLE)
        lines = (await one.capture_range()).split("\n")
        assert 5 < len(lines)

        for start, end, wanted in RANGES:
            assert "\n".join(lines[wanted]) == await one.capture_range(start, end), (start, end)


@ALL
async def test_what_is_no_range_is_a_usage_error(home: Home, kind: str) -> None:
    async with started(home, kind) as one:
        for bad in ("x", "1.5", " 1", "--1", "1-", "0x1", "٣", "1" * 12):
            for start, end in ((bad, ""), ("", bad)):
                with pytest.raises(UsageError, match=re.escape(repr(bad))):
                    await one.capture_range(start, end)


# HasUpdated, HasUpdatedWithContent


@ALL
async def test_poll_tells_by_the_content_whether_something_is_new(home: Home, kind: str) -> None:
    async with started(home, kind) as one:
        await say(one, "say first")
        await shows(one, "first")
        if kind != "program":
            await until_state(one, SessionState.IDLE)

        async def still() -> bool:
            polled = await one.poll()
            return not polled.updated and polled.captured

        await eventually(still, "a poll without news")

        await say(one, "say second")

        async def news() -> Poll | None:  # what was typed may be shown and taken away again before it is said
            polled = await one.poll()
            return polled if "second" in polled.content else None

        fresh = await eventually(news, "a poll with the second message")
        assert fresh is not None
        assert (True, True) == (fresh.updated, fresh.captured)


@ALL
async def test_the_first_poll_is_an_update(home: Home, kind: str) -> None:
    async with started(home, kind, prompt="" if kind == "program" else "say hello") as one:
        await shows(one, "env" if kind == "program" else "hello")

        assert (await one.has_updated())[0]


@AGENTS
async def test_waiting_is_set_by_a_permission_and_cleared_by_its_answer(home: Home, kind: str) -> None:
    async with started(home, kind, prompt="ask git push\nhang") as one:
        await asks(one)
        assert (await one.poll()).waiting

        await one.respond(Decision.ALLOW)
        await until_state(one, SessionState.WORKING)
        assert not (await one.poll()).waiting


@AGENTS
async def test_waiting_is_set_when_a_turn_is_over_and_cleared_when_the_next_begins(home: Home, kind: str) -> None:
    async with started(home, kind, prompt="say done") as one:
        await until_state(one, SessionState.IDLE)
        assert (await one.has_updated())[1]

        await say(one, "hang")
        await until_state(one, SessionState.WORKING)
        assert not (await one.has_updated())[1]


async def test_a_content_that_cannot_be_had_is_said_to_be_none_and_the_last_one_stays(home: Home) -> None:
    async with started(home, "program") as one:
        await say(one, "hello")
        await shows(one, "heard hello")
        before = await one.poll()
        server = await asyncio.to_thread(Server(home.places.tmux_socket).process)
        assert server is not None
        os.kill(server.pid, signal.SIGKILL)
        await until_gone(one)
        after = await one.poll()

        assert (False, False, before.content) == (after.updated, after.captured, after.content)


# GetPanePID, GetSanitizedName


@TERMINALS
async def test_the_pid_of_a_terminal_is_its_agents(home: Home, kind: str) -> None:
    async with started(home, kind) as one:
        pid = await one.pid()
        await auntil(lambda: "python" in _command(pid))  # for a moment, while it becomes its program, it has none


async def test_the_pid_of_a_structured_session_is_its_agents(home: Home) -> None:
    """The scripted agent lives in its host."""
    async with started(home, "sdk") as one:
        assert lock_holder(home.places.host_lock(one.id)) == await one.pid()


@ALL
async def test_the_sanitized_name_is_the_sessions_own_whatever_it_is_called(home: Home, kind: str) -> None:
    async with started(home, kind, name="a b:c.d;kill-server #{pane_id}") as one:
        assert re.fullmatch(r"[a-z][a-z2-7]{7}", one.sanitized_name)
        assert home.places.folder(one.sanitized_name).is_dir()


# SetAgentType, SetInitialPrompt, SetTaskEnv, SetSessionTitle, SetTitleFunc


async def window(home: Home, one: ExecutionSession) -> str:
    argv = await verb.attach_argv(home.places, await one.state())
    tmux = argv[: argv.index("attach-session")]
    asked = [*tmux, "display-message", "-p", "-t", f"={one.sanitized_name}:", "#{window_name}"]
    process = await asyncio.create_subprocess_exec(*asked, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    return said.decode().strip()


async def test_agent_type_and_title_become_the_tmux_windows_name(home: Home) -> None:
    async with started(home, "tmux", title="fix the login") as one:
        assert "scripted: fix the login" == await window(home, one)


@pytest.mark.parametrize(("kind", "calls"), [("tmux", 1), ("sdk", 0)])
async def test_a_title_that_is_a_function_is_called_once_on_tmux_and_never_on_sdk(
    home: Home, kind: str, calls: int
) -> None:
    called: list[str] = []

    def title() -> str:
        called.append("now")
        return "by function"

    async with started(home, kind, title=title) as one:
        assert calls == len(called)
        await one.poll()
        await one.close()
        await one.restore()
        assert calls == len(called)


@AGENTS
async def test_the_initial_prompt_is_given_once_the_agent_is_ready(home: Home, kind: str) -> None:
    async with started(home, kind, prompt="say begun") as one:
        await shows(one, "begun")


async def test_the_tasks_variables_reach_the_agent(home: Home) -> None:
    async with started(home, "program", task=3, wave=2, peers=4, plan="p1", environment={"KEPT": "x"}) as one:
        shown = await shows(one, "env")

        said = set(shown.replace("\n", " ").split())
        wanted = {"TASK": "3", "WAVE": "2", "PEERS": "4", "PLAN": "p1", "SESSION": one.id}
        assert {f"{prefix}_{name}={value}" for prefix in ("KASMON", "KASMOS") for name, value in wanted.items()} <= said


@ALL
async def test_the_task_is_shown_with_the_session(home: Home, kind: str) -> None:
    async with started(home, kind, task=3, wave=2, peers=4) as one:
        now = await one.state()

        assert (3, 2, 4) == (now.task, now.wave, now.peers)


# Attach, DetachSafely, SetDetachedSize, the embedded terminal


INTERACTIVE: Final[dict[str, Callable[[ExecutionSession], Any]]] = {
    "attach": lambda one: one.attach(),
    "detach": lambda one: one.detach(),
    "resize": lambda one: one.resize(100, 30),
    "embed": lambda one: one.embedded_terminal(100, 30),
}


@pytest.mark.parametrize("operation", INTERACTIVE)
async def test_what_needs_a_terminal_is_refused_by_a_structured_session(home: Home, operation: str) -> None:
    async with started(home, "sdk") as one:
        with pytest.raises(InteractiveOnlyError, match="structured session") as refusal:
            await INTERACTIVE[operation](one)

        assert operation in refusal.value.operation
        assert await one.exists()
    assert InteractiveOnlyError is kasmon.InteractiveOnlyError


@TERMINALS
async def test_a_terminal_takes_a_size(home: Home, kind: str) -> None:
    async with started(home, kind) as one:
        await one.resize(91, 17)
        pane = await verb.pane(home.places, await one.state())

        assert (91, 17) == (pane.width, pane.height)
        for size in ((0, 10), (10, 0), (10**6, 10)):
            with pytest.raises(UsageError, match="no terminal's size"):
                await one.resize(*size)


@TERMINALS
async def test_an_embedded_terminal_shows_rows_and_takes_bytes(home: Home, kind: str) -> None:
    async with started(home, kind) as one:
        terminal = await one.embedded_terminal(70, 15)
        assert 15 == len(terminal.rows)
        terminal.write(b"say through\r")
        while not any("through" in row for row in terminal.rows):
            await terminal.changed()
        terminal.resize(60, 12)
        while 12 != len(terminal.rows):
            await terminal.changed()
        await terminal.aclose()
        await terminal.aclose()

        assert await one.exists()


# SendKeys, TapEnter, SendPermissionResponse


@AGENTS
async def test_keys_are_kept_until_enter_makes_one_prompt_of_them(home: Home, kind: str) -> None:
    async with started(home, kind) as one:
        await until_state(one, SessionState.IDLE)
        await one.send_keys("say one ")
        await one.send_keys("and two")
        assert 0 == (await one.state()).turns
        await one.tap_enter()
        await shows(one, "one and two")
        await until_state(one, SessionState.IDLE)

        assert kind == "tmux" or 1 == (await one.state()).turns


async def test_enter_without_keys_prompts_nothing(home: Home) -> None:
    async with started(home, "sdk") as one:
        await one.tap_enter()

        assert 0 == (await one.state()).turns


async def test_keys_that_the_agent_did_not_take_are_kept(home: Home) -> None:
    async with started(home, "sdk") as one:
        await one.send_keys("say kept")
        await one.close()
        with pytest.raises(KasmonError):
            await one.tap_enter()
        await one.restore()
        await one.tap_enter()

        await shows(one, "kept")


@AGENTS
async def test_ctrl_c_interrupts_the_turn(home: Home, kind: str) -> None:
    async with started(home, kind, prompt="hang") as one:
        await until_state(one, SessionState.WORKING)
        if kind == "sdk":
            await one.send_keys("never sent")
        await one.send_keys("\x03")
        await until_state(one, SessionState.IDLE)

        assert await one.exists()


@AGENTS
@pytest.mark.parametrize(
    ("choice", "effect"), [("allow", "● Bash git push"), ("deny", "I did not use Bash"), ("always", "● Bash git push")]
)
async def test_a_permission_is_answered(home: Home, kind: str, choice: str, effect: str) -> None:
    async with started(home, kind, prompt="ask git push\nsay after") as one:
        await asks(one)
        await one.respond(Decision(choice))

        await shows(one, effect)


@AGENTS
async def test_where_nothing_is_asked_nothing_is_answered(home: Home, kind: str) -> None:
    async with started(home, kind) as one:
        await until_state(one, SessionState.IDLE)
        with pytest.raises(RequestNotFoundError):
            await one.respond(Decision.ALLOW)


@AGENTS
async def test_an_answer_to_something_else_is_refused(home: Home, kind: str) -> None:
    async with started(home, kind, prompt="ask git push\nhang") as one:
        await asks(one)
        with pytest.raises((RequestNotFoundError, StaleRequestError)):
            await one.respond(Decision.ALLOW, "0" * 64)
        assert SessionState.ASKING is (await one.state()).state

        shown = await one.on_screen()
        await one.respond(Decision.ALLOW, shown.digest if shown else (await one.permissions())[0].id)
        await until_state(one, SessionState.WORKING)


async def test_nobody_presses_keys_at_a_program_whose_menu_nobody_knows(home: Home) -> None:
    async with started(home, "program") as one:
        with pytest.raises(UnableError, match="nobody knows the menu"):
            await one.respond(Decision.ALLOW)


# Choosing the mode

SEED = """
[agents.coder]
enabled = true
program = "claude"
flags = ["--permission-mode bypassPermissions"]
execution_mode = "sdk"
[agents.reviewer]
enabled = true
program = "claude"
execution_mode = "tmux"
"""


def test_the_seeds_own_block_is_read(home: Home) -> None:
    config = parse(SEED)

    assert ("sdk", "tmux") == (config.agents["coder"].execution_mode, config.agents["reviewer"].execution_mode)
    assert ("--permission-mode bypassPermissions",) == config.agents["coder"].flags


async def test_a_program_without_a_protocol_runs_in_tmux_and_says_why(home: Home) -> None:
    config = parse('[agents.mine]\nprogram = "cat"\nexecution_mode = "sdk"')
    one = ExecutionSession(LaunchSpec(name="worker", agent="mine"), where=home.places, config=config)
    await one.start(home.path)
    now = await one.state()
    await one.close()

    assert (Mode.TMUX, "cat has no structured protocol") == (now.mode, now.fallback)


@pytest.mark.parametrize("mode", ["SDK", "headless", "sdkk", " tmux"])
async def test_a_misspelt_mode_is_an_error(home: Home, mode: str) -> None:
    with pytest.raises(UsageError, match=re.escape(repr(mode))):
        await session(home, "sdk", mode=mode).start(home.path)
    with pytest.raises(ConfigError, match="execution_mode"):
        parse(f'[agents.claude]\nexecution_mode = "{mode}"')


def _command(pid: int | None) -> str:
    import psutil

    assert pid
    return " ".join(psutil.Process(pid).cmdline())
