"""The rows of the ancestor's four tables as one specification: each is true of every actor that it names.

`tests/execution/test_interface.py` walks through them with the scripted agent, structured and in a terminal, and with
a program that knows nothing of kasmon; `tests/agents/test_execution_tables.py` with the real agents. A row gets a
session that runs and waits, and leaves it so; it was started as `LAUNCH` says, so that one start is enough for all.
"""

import asyncio
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import psutil
import pytest

from kasmon import ExecutionSession, InteractiveOnlyError, errors
from kasmon.model.commands import Mode
from kasmon.model.permission import Decision
from kasmon.model.session_state import SessionState
from kasmon.supervisor.sessions import session_operations
from tests.support.execution.actor_session import (
    KEPT,
    LIMIT_S,
    NAME,
    TITLE,
    WAITS,
    Actor,
    ActorSession,
    asked,
    asks,
    eventually,
    noted,
    say,
    shows,
    staged,
    until_gone,
    until_state,
)
from tests.support.tui.pty_program import OnTerminal
from tests.support.wait import auntil

Row = Callable[[ActorSession], Awaitable[None]]
ROWS: dict[str, Row] = {}
"""Each row by its name, in an order in which one session can go through all."""
OF: dict[str, frozenset[str]] = {}
"""Of which kinds of actors each row is true."""


def row(*kinds: str) -> Callable[[Row], Row]:
    """A row of the tables; true of all kinds where none is said."""

    def known(act: Row) -> Row:
        name = getattr(act, "__name__", "")
        ROWS[name], OF[name] = act, frozenset(kinds or ("sdk", "tmux", "program"))
        return act

    return known


AGENTS: Final = ("sdk", "tmux")
TERMINALS: Final = ("tmux", "program")


async def walk(actor: Actor) -> None:
    """All rows that are true of *actor*, one after the other."""
    async with staged(actor) as it:
        for name, act in ROWS.items():
            if actor.kind in OF[name]:
                try:
                    await act(it)
                except BaseException as error:
                    error.add_note(f"in the row {name}")
                    raise


# Start, the setters, GetPanePID, GetSanitizedName


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != "zombie"
    except psutil.NoSuchProcess:  # between the two questions
        return False


@row(*AGENTS)
async def the_initial_prompt_is_given_once_the_agent_is_ready(it: ActorSession) -> None:
    await it.said("begun")
    await it.waits()


@row()
async def start_runs_the_agent_in_the_folder(it: ActorSession) -> None:
    now = await it.one.state()

    assert await it.one.exists()
    assert str(it.actor.workdir) == now.workdir
    assert (Mode.SDK if it.is_sdk else Mode.TMUX) is now.mode


@row()
async def a_session_is_started_once(it: ActorSession) -> None:
    with pytest.raises(errors.UsageError, match="started only once"):
        await it.one.start(it.actor.workdir)
    with pytest.raises(errors.NameTakenError):
        await it.actor.session().start(it.actor.workdir)


@row()
async def before_the_start_nothing_exists(it: ActorSession) -> None:
    one = it.actor.session(name="another")

    assert not await one.exists()
    assert ("", None) == (one.sanitized_name, await one.pid())
    with pytest.raises(errors.SessionNotFoundError, match="another"):
        await one.capture()
    await one.restore()
    assert "another" in one.why_not
    await one.close()


@row()
async def the_sanitized_name_is_the_sessions_own_whatever_it_is_called(it: ActorSession) -> None:
    assert re.fullmatch(r"[a-z][a-z2-7]{7}", it.one.sanitized_name)
    assert it.actor.paths.folder(it.one.sanitized_name).is_dir()
    assert NAME == (await it.one.state()).name


@row()
async def the_pid_is_the_agents(it: ActorSession) -> None:
    async def own() -> bool:
        pid = await it.one.pid()
        return pid is not None and it.actor.runs(psutil.Process(pid))

    await eventually(own, "its pid")  # for a moment, while its pane becomes its program, it has none


@row()
async def the_tasks_variables_are_the_agents(it: ActorSession) -> None:
    now = await it.one.state()
    assert (3, 2, 4, "p1") == (now.task, now.wave, now.peers, now.plan)
    if now.backend == "scripted" and it.is_sdk:
        return  # it lives in its host
    process = psutil.Process(now.pid)
    wanted = {"TASK": "3", "WAVE": "2", "PEERS": "4", "PLAN": "p1", "SESSION": it.one.id}
    own = {f"{prefix}_{name}": value for prefix in ("KASMON", "KASMOS") for name, value in wanted.items()}

    async def has_them() -> bool:  # for a moment its pane only becomes its program
        return (own | KEPT).items() <= process.environ().items()

    await eventually(has_them, "its variables")


@row("tmux", "program")
async def agent_type_and_title_become_the_tmux_windows_name(it: ActorSession) -> None:
    argv = await session_operations.attach_argv(it.actor.paths, await it.one.state())
    tmux = argv[: argv.index("attach-session")]
    wanted = [*tmux, "display-message", "-p", "-t", f"={it.one.sanitized_name}:", "#{window_name}"]
    process = await asyncio.create_subprocess_exec(*wanted, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()

    assert ": ".join(filter(None, (it.actor.label, TITLE))) == output.decode().strip()


@row()
async def a_title_that_is_a_function_is_called_once_on_tmux_and_never_on_sdk(it: ActorSession) -> None:
    await it.one.poll()

    assert ([] if it.is_sdk else ["asked"]) == it.titles


@row()
async def what_makes_no_sense_is_a_usage_error_and_does_nothing(it: ActorSession) -> None:
    with pytest.raises(errors.UsageError, match="not valid Unicode"):
        await it.one.send_keys("say \ud800")
    with pytest.raises(errors.UsageError, match="unknown answer 'perhaps'"):
        await it.one.respond("perhaps")
    for fields in ({"environment": {"A=B": "1"}}, {"environment": {"": "1"}}, {"task": -1}, {"prompt": "a\0b"}):
        one = it.actor.session(**({"name": "another"} | fields))
        with pytest.raises(errors.UsageError):
            await one.start(it.actor.workdir)
        assert not await one.exists()


# CapturePaneContent, CapturePaneContentWithOptions


@row()
async def capture_shows_what_the_session_shows(it: ActorSession) -> None:
    await it.say("answer-42")

    assert "answer-42" in await it.one.capture()


@row("sdk")
async def a_structured_capture_is_everything_that_happened(it: ActorSession) -> None:
    whole = await it.one.capture()

    assert "begun" in whole
    assert whole == await it.one.capture_range("", "") == await it.one.capture_range("-", "-")


RANGES: Final[list[tuple[str | int, str | int, slice]]] = [
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
    (1, -2, slice(1, -1)),
]


@row()
async def a_range_is_counted_in_the_buffer_with_both_ends_included(it: ActorSession) -> None:
    if it.actor.kind == "program":
        for word in ("one", "two", "three"):
            await it.say(word)

    async def all_agree() -> bool:
        lines = (await it.one.capture_range()).split("\n")
        assert 5 < len(lines)
        got = {(start, end): await it.one.capture_range(start, end) for start, end, _ in RANGES}
        if lines != (await it.one.capture_range()).split("\n"):
            return False  # a screen may be drawn anew meanwhile
        assert {(start, end): "\n".join(lines[wanted]) for start, end, wanted in RANGES} == got
        return True

    await eventually(all_agree, "a screen that stays as it is")


@row()
async def what_is_no_range_is_a_usage_error(it: ActorSession) -> None:
    for bad in ("x", "1.5", " 1", "--1", "1-", "0x1", "٣", "1" * 12):
        for start, end in ((bad, ""), ("", bad)):
            with pytest.raises(errors.UsageError, match=re.escape(repr(bad))):
                await it.one.capture_range(start, end)


# HasUpdated, HasUpdatedWithContent


@row()
async def poll_tells_by_the_content_whether_something_is_new(it: ActorSession) -> None:
    again = await ExecutionSession.of(it.one.id, where=it.actor.paths)
    await it.say("first")
    assert (await again.has_updated())[0], "the first poll is an update"
    await _still(it)
    await say(it.one, it.actor.says("second"))

    async def news() -> bool:  # what was typed may be shown and taken away again before it is said
        polled = await it.one.poll()
        seen.append((polled.updated, polled.captured))
        return polled.content.count("second") > 1

    seen: list[tuple[bool, bool]] = []
    await eventually(news, "a poll with the second message")
    assert (True, True) == seen[-1]
    await it.waits()


async def _still(it: ActorSession) -> None:
    """Poll until there is nothing new."""

    async def still() -> bool:
        polled = await it.one.poll()
        return not polled.updated and polled.captured

    await eventually(still, "a poll without news")


@row(*AGENTS)
async def waiting_is_cleared_when_a_turn_begins_and_set_when_it_is_over(it: ActorSession) -> None:
    assert (await it.one.has_updated())[1]
    await it.hang("busy")
    assert not (await it.one.has_updated())[1]

    await it.interrupt()
    assert (await it.one.has_updated())[1]


# SendKeys, TapEnter


@row(*AGENTS)
async def keys_are_kept_until_enter_makes_one_prompt_of_them(it: ActorSession) -> None:
    before = (await it.one.state()).turns
    prompt = it.actor.says("halves and one")
    await it.one.send_keys(prompt[:-8])
    await it.one.send_keys(prompt[-8:])
    assert before == (await it.one.state()).turns
    await it.one.tap_enter()
    await it.said("halves and one")
    await it.waits()

    assert not it.is_sdk or before + 1 == (await it.one.state()).turns


@row("sdk")
async def enter_without_keys_prompts_nothing(it: ActorSession) -> None:
    before = (await it.one.state()).turns
    await it.one.send_keys("  ")
    await it.one.tap_enter()
    await it.one.tap_enter()

    assert (before, WAITS) == ((await it.one.state()).turns, (await it.one.state()).state)


@row(*AGENTS)
async def ctrl_c_interrupts_the_turn(it: ActorSession) -> None:
    await it.hang("endless")
    if it.is_sdk:
        await it.one.send_keys(it.actor.says("kept meanwhile"))
    await it.interrupt()

    assert await it.one.exists()
    if it.is_sdk:
        await it.one.tap_enter()
        await it.said("kept meanwhile")
        await it.waits()


# SendPermissionResponse


@row(*AGENTS)
async def where_nothing_is_asked_nothing_is_answered(it: ActorSession) -> None:
    with pytest.raises(errors.RequestNotFoundError):
        await it.one.respond(Decision.ALLOW)


@row(*AGENTS)
async def waiting_is_set_by_a_permission_and_cleared_by_its_answer(it: ActorSession) -> None:
    await say(it.one, it.actor.asks("good"))
    await asks(it.one)
    assert (await it.one.poll()).waiting
    menu, requests = await it.one.on_screen(), await it.one.permissions()
    assert "good" in (menu.text if menu else requests[0].shown)
    with pytest.raises((errors.RequestNotFoundError, errors.StaleRequestError)):
        await it.one.respond(Decision.ALLOW, "0" * 64)
    assert await asked(it.one) is not None
    assert not it.actor.did("good", await it.one.capture_range())

    shown = await asked(it.one)
    assert shown
    await it.one.respond(Decision.ALLOW, shown[0])
    await until_did(it, "good")
    await until_state(it.one, SessionState.WORKING)
    assert not (await it.one.poll()).waiting
    await it.interrupt()


@row(*AGENTS)
async def what_is_denied_does_not_happen(it: ActorSession) -> None:
    await say(it.one, it.actor.asks("bad", hangs=False))
    await asks(it.one)
    await it.one.respond(Decision.DENY)
    await it.waits()

    assert await asked(it.one) is None
    assert not it.actor.did("bad", await it.one.capture_range())


@row(*AGENTS)
async def what_is_always_allowed_happens_where_that_is_offered(it: ActorSession) -> None:
    await say(it.one, it.actor.asks("often"))
    await asks(it.one)
    shown = await asked(it.one)
    assert shown
    if Decision.ALWAYS not in shown[1]:
        with pytest.raises(errors.UnableError):
            await it.one.respond(Decision.ALWAYS)
        await it.one.respond(Decision.ALLOW)
    else:
        await it.one.respond(Decision.ALWAYS)
    await until_did(it, "often")
    await until_state(it.one, SessionState.WORKING)
    await it.interrupt()


async def until_did(it: ActorSession, word: str) -> None:
    async def done() -> bool:
        return it.actor.did(word, await it.one.capture_range())

    await noted(it.one, eventually(done, f"{word!r}, done"))


@row("program")
async def nobody_presses_keys_at_a_program_whose_menu_nobody_knows(it: ActorSession) -> None:
    with pytest.raises(errors.UnableError, match="does not know the menus"):
        await it.one.respond(Decision.ALLOW)


# Attach, DetachSafely, SetDetachedSize, the embedded terminal


INTERACTIVE: Final[dict[str, Callable[[ExecutionSession], Any]]] = {
    "attach": lambda one: one.attach(),
    "detach": lambda one: one.detach(),
    "resize": lambda one: one.resize(100, 30),
    "embed": lambda one: one.embedded_terminal(100, 30),
}


@row("sdk")
async def what_needs_a_terminal_is_refused_by_a_structured_session(it: ActorSession) -> None:
    for operation, act in INTERACTIVE.items():
        with pytest.raises(InteractiveOnlyError, match="structured session") as refusal:
            await act(it.one)
        assert operation in refusal.value.operation
    assert await it.one.exists()


@row(*TERMINALS)
async def a_terminal_takes_a_size(it: ActorSession) -> None:
    await it.one.resize(117, 37)
    pane = await session_operations.pane(it.actor.paths, await it.one.state())

    assert (117, 37) == (pane.width, pane.height)
    for size in ((0, 10), (10, 0), (10**6, 10)):
        with pytest.raises(errors.UsageError, match="invalid terminal size"):
            await it.one.resize(*size)


SITS: Final = """
import asyncio, signal, sys
from kasmon import ExecutionSession

async def sit():
    one = await ExecutionSession.of(sys.argv[1])
    leave = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, leave.set)
    sitting = asyncio.create_task(one.attach())
    await leave.wait()
    await one.detach()
    await sitting
    await one.detach()
    print("left,", "it goes on" if await one.exists() else "it ended")

asyncio.run(sit())
"""


@row(*TERMINALS)
async def who_attaches_sits_at_its_terminal_until_detached(it: ActorSession) -> None:
    await it.say("look here")
    argv = (sys.executable, "-P", "-c", SITS, it.one.id)
    with OnTerminal(argv, it.actor.workdir, environment=it.actor.variables, columns=120, rows=40) as sitting:
        await auntil(lambda: b"look here" in sitting.seen, LIMIT_S, "its terminal")
        sitting.send(b"typed by hand")
        await shows(it.one, "typed by hand")
        sitting.send(b"\x15")
        psutil.Process(sitting.pid).send_signal(signal.SIGUSR1)
        await auntil(lambda: b"left, it goes on" in sitting.seen, LIMIT_S, "its end")


@row(*TERMINALS)
async def an_embedded_terminal_shows_rows_and_takes_bytes(it: ActorSession) -> None:
    terminal = await it.one.embedded_terminal(90, 25)
    try:
        async with asyncio.timeout(LIMIT_S):
            assert 25 == len(terminal.rows)
            terminal.write(b"through it")
            while not any("through it" in text for text in terminal.rows):
                await terminal.wait_for_change()
            terminal.write(b"\x15")
            terminal.resize(80, 22)
            while 22 != len(terminal.rows):
                await terminal.wait_for_change()
    finally:
        await terminal.aclose()
        await terminal.aclose()

    assert await it.one.exists()
    await it.one.resize(120, 40)


# Restore, Close, DoesSessionExist


@row()
async def restore_of_what_runs_changes_nothing(it: ActorSession) -> None:
    again = await ExecutionSession.of(NAME, where=it.actor.paths)
    before = await again.pid()
    await again.restore()

    assert (before, "") == (await again.pid(), again.why_not)
    assert await again.exists()


@row()
async def an_agent_that_ends_by_itself_is_restored(it: ActorSession) -> None:
    """In tmux the pane stays, with the last screen: that is no agent."""
    before = await it.one.state()
    await it.actor.crash(it.one)
    await until_gone(it.one)
    await it.one.capture()
    assert await it.one.pid() is None

    await it.one.restore()
    await _is_back(it, before.generation + 1, before.resume_id)
    assert ([] if it.is_sdk else ["asked"]) == it.titles


@row()
async def close_ends_the_agent_and_can_be_called_again(it: ActorSession) -> None:
    before = await it.one.state()
    assert before.pid
    agent = psutil.Process(before.pid)
    family = [agent, *agent.children(recursive=True)]
    if it.is_sdk:
        await it.one.send_keys(it.actor.says("unheard"))
    await it.one.close()
    assert not await it.one.exists()
    await it.one.close()

    assert SessionState.ENDED is (await it.one.state()).state
    assert await it.one.pid() is None
    await auntil(lambda: not any(map(_lives, family)), what="their end")
    if it.is_sdk:
        with pytest.raises(errors.KasmonError):
            await it.one.tap_enter()
    await it.one.restore()
    assert await it.one.exists(), it.one.why_not
    if it.is_sdk:  # the keys that nobody took
        await it.one.tap_enter()
        await it.said("unheard")
        await it.waits()
    await _is_back(it, before.generation + 1, before.resume_id)


async def _is_back(it: ActorSession, generation: int, conversation: str | None) -> None:
    assert await it.one.exists(), it.one.why_not
    now = await it.one.state()
    assert (it.one.id, generation) == (now.id, now.generation)
    if it.actor.kind == "program":
        return
    await it.waits()
    await it.say(f"back-{generation}")
    if it.is_sdk:
        assert it.actor.remembers(it.actor.begins, it.actor.says(f"back-{generation}"))
        assert conversation == (await it.one.state()).resume_id


@row()
async def restore_never_raises_and_says_why_not(it: ActorSession) -> None:
    file = it.actor.paths.launch(it.one.id)
    before = await asyncio.to_thread(file.read_bytes)
    await it.one.close()
    await asyncio.to_thread(file.write_bytes, b"{")
    await it.one.restore()

    assert not await it.one.exists()
    assert it.one.id in it.one.why_not
    await asyncio.to_thread(file.write_bytes, before)
    await it.one.restore()
    assert ("", True) == (it.one.why_not, await it.one.exists())
    await it.waits()


@row("sdk")
async def what_cannot_be_resumed_does_not_run_and_says_why(it: ActorSession) -> None:
    """The last row: nothing comes back from here."""
    await it.one.close()
    if not await asyncio.to_thread(it.actor.forgets):
        return
    await it.one.restore()

    assert not await it.one.exists()
    assert NAME in it.one.why_not
    why = (await it.one.state()).end_why
    assert why
    assert why in it.one.why_not
    assert "begun" in await it.one.capture(), "nothing earlier is lost"
