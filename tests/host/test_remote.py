"""Agents on another machine, which is an sshd on loopback: started there, lost and found again, ended there."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kasmon.config import Config
from kasmon.errors import HostUnreachableError, RefusedError, RemoteLaunchError, RemoteUnreachableError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.host.rpc.spawn import spawn_runner
from kasmon.host.terminal.reconnect import LONGEST_S, TRIES_S, Backoff, pauses
from kasmon.model.commands import Answer, Mode, ReceiptState
from kasmon.model.events import ConnectionLost, ConnectionRestored, Event, SessionEnded, SessionStarted
from kasmon.model.permission import Decision
from kasmon.model.plan.parser import read
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.store.event_log import EventLog
from kasmon.supervisor.plans.approval import describe_plan as shown_plan
from kasmon.supervisor.plans.start import store_approved_plan
from kasmon.supervisor.sessions import list_entry, session_operations
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.read import read as read_terminal
from tests.support.host.sshd import Sshd, is_gone
from tests.support.supervisor.env import Env, becomes, end
from tests.support.wait import until

S = SessionState
COUNTER = ("sh", "-c", "i=0; while :; do i=$((i+1)); echo count $i; sleep 0.1; done")


@pytest.fixture(scope="module")
def box() -> Iterator[Sshd]:
    root = Path(tempfile.mkdtemp(prefix="kb-", dir="/tmp"))
    try:
        box = Sshd(root)
        yield box
        box.close()
    finally:
        shutil.rmtree(root)


@pytest.fixture
def env(box: Sshd) -> Iterator[Env]:
    env = Env()
    env.paths.config.mkdir(mode=0o700, parents=True, exist_ok=True)
    (env.paths.config / "config.toml").write_text(box.config)
    yield env
    env.close()


async def begun(env: Env, *argv: str, agent: str = "shell@box", **more: object) -> Session:
    wanted = NewSession(**({"name": "far", "agent": agent, "argv": argv} | more))  # type: ignore[arg-type]
    session = await session_operations.create(env.paths, Config(), wanted)
    return await becomes(env, session, lambda now: any(one.value == "ready" for one in now.signals))


def facts(env: Env, session: Session, kind: type[Event]) -> list[Event]:
    return [event for event in EventLog(env.paths.log(session.id)).events() if isinstance(event, kind)]


async def shown(env: Env, session: Session, text: str) -> list[str]:
    """What it shows, once *text* is part of that."""
    while True:
        rows = await read_terminal(env.paths, session)
        if any(text in row for row in rows):
            return rows


def test_a_reconnect_is_tried_soon_then_ever_less_often_and_not_for_ever() -> None:
    tries = list(pauses())

    assert [0.5, 1.0, 2.0, 4.0] == tries[:4]
    assert LONGEST_S == max(tries)
    assert TRIES_S <= sum(tries) < TRIES_S + LONGEST_S


def test_an_unstable_connection_is_retried_less_and_less_and_a_good_one_at_once() -> None:
    backoff = Backoff()
    waits = []
    for at in (0.0, 10.0, 20.0, 500.0):
        waits.append(backoff.record_loss(at))
        backoff.record_success(at + 5)

    assert [0.5, 1.0, 2.0, 0.5] == waits


async def test_a_shell_on_another_machine_gets_prompts_and_variables_and_is_ended_there(env: Env, box: Sshd) -> None:
    session = await begun(env, environment=("WHO=world-of-tests", "TOKEN=it's\nso"), task=3, wave=2, peers=4)
    command = psutil.Process(session.pid or 0).cmdline()
    assert ("box", "box:~", "shell@box", Mode.TMUX) == (session.machine, session.workdir, session.agent, session.mode)
    assert not [word for word in command if "world-of-tests" in word]

    await session_operations.send(env.paths, session, 'echo "$WHO/$KASMON_TASK/$KASMOS_WAVE/$TOKEN/$TMUX."', "now")
    rows = await shown(env, session, "world-of-tests/3/2/it")
    assert any("so/." in row for row in rows)
    left = {path.name for path in (box.folder / session.id).iterdir()}
    assert {"path", "pid"} == left
    agent = int((box.folder / session.id / "pid").read_text())

    await session_operations.stop(env.paths, await becomes(env, session.id, lambda now: now.exists))

    ended = await becomes(env, session.id, lambda now: now.state is S.ENDED)
    assert (True, "stopped") == (ended.stopped, ended.end_why)
    assert is_gone(agent)
    assert not (box.folder / session.id).exists()


async def test_a_shell_elsewhere_is_not_queried_for_the_result_of_a_command(env: Env, box: Sshd) -> None:
    """Whether the command has ended cannot be seen from here."""
    session = await begun(env, "bash", "--norc")
    for command in ("(exit 3)", "echo shown-$((1 + 1))"):
        await session_operations.send(env.paths, session, command, "now")
    await shown(env, session, "shown-2")

    after = await becomes(env, session.id, lambda now: len(now.receipts) == 2)
    assert ReceiptState.FINISHED not in {receipt.state for receipt in after.receipts}


async def test_a_cut_connection_loses_the_session_and_not_its_agent(env: Env, box: Sshd) -> None:
    session = await begun(env, *COUNTER)
    agent = int((box.folder / session.id / "pid").read_text())
    await shown(env, session, "count 5")

    os.kill(session.pid or 0, signal.SIGKILL)  # our ssh
    await becomes(env, session.id, lambda now: bool(facts(env, session, ConnectionRestored)))
    await becomes(env, session.id, lambda now: now.state is S.WORKING)
    await asyncio.to_thread(until, box.lines)
    box.cut()  # its sshd
    lost = await becomes(env, session.id, lambda now: now.state is S.LOST)
    with pytest.raises(RefusedError):  # it is found, then or meanwhile
        await list_entry.forget(env.paths, lost)
    await becomes(env, session.id, lambda now: 2 == len(facts(env, session, ConnectionRestored)))
    found = await becomes(env, session.id, lambda now: now.exists and now.state is S.WORKING)

    why = [lost.why for lost in facts(env, session, ConnectionLost) if isinstance(lost, ConnectionLost)]
    assert "ssh was ended by SIGKILL" == why[0]
    assert why[1].startswith("Connection to 127.0.0.1 closed")
    assert 1 == len(facts(env, session, SessionStarted))
    assert found.generation == 1
    assert found.pid != session.pid
    latest = box.tmux("capture-pane", "-p", "-t", f"={session.id}:").splitlines()[-1]
    await shown(env, found, latest)
    assert not is_gone(agent)


async def test_while_the_machine_does_not_answer_the_session_is_lost_and_a_restart_starts_no_other(
    env: Env, box: Sshd
) -> None:
    session = await begun(env, "sh", "-c", "echo to-be-found; read x; exit 7")
    await shown(env, session, "to-be-found")
    box.shut()
    box.cut()
    lost = await becomes(env, session.id, lambda now: now.state is S.LOST)

    with pytest.raises(RemoteUnreachableError, match="Connection refused"):
        await session_operations.restart(env.paths, lost)
    with pytest.raises(HostUnreachableError, match=r"`kasmon restart \w+` reconnects"):
        await session_operations.stop(env.paths, lost)
    assert S.LOST is (await becomes(env, session.id, lambda now: True)).state

    box.tmux("send-keys", "-t", f"={session.id}:", "Enter")
    await asyncio.to_thread(until, lambda: (box.folder / session.id / "status").exists())
    box.open()
    ended = await becomes(env, session.id, lambda now: now.state is S.ENDED)
    assert (7, 1) == (ended.exit_code, ended.generation)
    assert "to-be-found" in await read_terminal(env.paths, ended)


async def test_after_the_host_and_all_terminals_were_killed_the_session_is_found_again(env: Env, box: Sshd) -> None:
    session = await begun(env, *COUNTER)
    agent = int((box.folder / session.id / "pid").read_text())
    for pid in (env.tmux("display-message", "-p", "#{pid}"), lock_holder(env.paths.tmux_host_lock)):
        await asyncio.to_thread(end, int(pid or 0))
    lost = await becomes(env, session.id, lambda now: now.state is S.LOST)

    await session_operations.restart(env.paths, lost)

    found = await becomes(env, session.id, lambda now: now.exists)
    await shown(env, found, "count")
    assert not is_gone(agent)
    assert 1 == len(facts(env, session, SessionStarted))
    assert not facts(env, session, SessionEnded)
    await session_operations.stop(env.paths, found)


async def test_a_start_that_fails_on_the_machine_gives_the_reason(env: Env, box: Sshd) -> None:
    with pytest.raises(RemoteLaunchError, match=r"no program 'not-there'"):
        await begun(env, "not-there")
    with pytest.raises(RemoteLaunchError, match=r"no folder 'not-there'"):
        await begun(env, "true", workdir="not-there", name="b")


PLAN = """
name = "far"
advance = "auto"
without_check = "advance"
[[task]]
id = "there"
host = "box"
run = "echo $KASMON_TASK >there; exit 0"
[[task]]
id = "fails"
host = "box"
needs = ["there"]
run = "test -e there && exit 3"
[[task]]
id = "nowhere"
agent = "shell@box"
mode = "sdk"
run = "true"
"""


def test_a_plans_task_runs_on_the_machine_and_its_exit_code_counts(env: Env, box: Sshd) -> None:
    (env.folder / "plan.toml").write_text(PLAN)
    roots = {"STATE_HOME": "s", "RUNTIME_DIR": "r", "CONFIG_HOME": "c"}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kasmon", "plan", "run", "plan.toml", "--ci", "--yes"],
        cwd=env.folder,
        env={**os.environ, **{f"XDG_{name}": str(env.folder / folder) for name, folder in roots.items()}},
        capture_output=True,
        text=True,
        check=False,
    )

    told = shown_plan(read(PLAN, "plan.toml"), Config(), env.folder)
    assert any("'shell@box' (a login shell on box) for tasks there, fails, nowhere" in line for line in told)
    assert "task there  done" in done.stdout
    assert "its agent ended with exit code 3" in done.stdout
    assert "task nowhere  failed" in done.stdout
    assert 1 == done.returncode
    assert "1\n" == (box.home / "there").read_text()


CHECKED = """
name = "far"
agent = "scripted"
advance = "auto"
[[task]]
id = "there"
host = "box"
run = "echo it is in the box >.kasmon/task-1/result.md; touch made"
check = "echo $KASMON_PLAN $KASMON_TASK; test -e made && touch begun; while [ ! -e go ]; do sleep 0.1; done; exit 0"
[[task]]
id = "uses"
prompt = "say It is known."
needs = ["there"]
"""


async def test_a_check_runs_where_its_task_ran_and_continues_without_its_runner_and_the_connection(
    env: Env, box: Sshd
) -> None:
    file = env.folder / "far.toml"
    plan = read(CHECKED, file.name)
    book = await asyncio.to_thread(store_approved_plan, env.paths, plan, CHECKED, file, env.folder, headless=True)
    first = await asyncio.to_thread(spawn_runner, env.paths, book.plan)
    await asyncio.to_thread(until, (box.home / "begun").exists)
    first.kill()
    await asyncio.to_thread(first.wait)
    box.shut()
    (box.home / "go").touch()
    second = await asyncio.to_thread(spawn_runner, env.paths, book.plan)
    box.open()
    await asyncio.to_thread(second.wait, 30)

    await asyncio.to_thread(book.more)
    there = book.run.of("there")
    assert there.check is not None
    assert (True, 0, "far 1\n") == (there.check.ok, there.check.exit_code, there.check.output)
    assert "it is in the box\n" == await asyncio.to_thread(book.result(plan.task("there")).read_text)
    assert ("ended", "claimed", "box:~") == (book.run.state, book.run.outcome, there.workdir)
    assert not [path for path in box.folder.iterdir() if path.name.endswith("-check")]


async def test_a_check_on_the_machine_that_nothing_waits_for_is_ended_there(env: Env, box: Sshd) -> None:
    text = CHECKED.replace("touch begun", "echo $$ >pid").replace(" ! -e go ", " 1 ")
    file = env.folder / "far.toml"
    book = await asyncio.to_thread(
        store_approved_plan, env.paths, read(text, file.name), text, file, env.folder, headless=True
    )
    runner = await asyncio.to_thread(spawn_runner, env.paths, book.plan)
    await asyncio.to_thread(until, lambda: (box.home / "pid").exists() and (box.home / "pid").read_text())
    pid = int((box.home / "pid").read_text())

    await asyncio.to_thread(book.record_decision, "abort")
    await asyncio.to_thread(runner.wait, 30)

    assert is_gone(pid)


async def test_an_agent_on_the_machine_is_shown_prompted_and_answered_by_its_screen(env: Env, box: Sshd) -> None:
    scripted = (sys.executable, "-P", "-m", "kasmon.scripted")
    session = await begun(env, *scripted, agent="claude@box")
    session = await becomes(env, session.id, lambda now: now.state is S.IDLE)

    await session_operations.send(env.paths, session, "say one\nask rm -rf build\nsay two")
    asking = await becomes(env, session.id, lambda now: now.state is S.ASKING and bool(now.requests))
    (request,) = asking.requests
    await session_operations.execute(
        env.paths, asking, Answer(request=request.id, digest=request.digest, decision=Decision.ALLOW)
    )
    await becomes(env, session.id, lambda now: now.state is S.IDLE and now.receipts[-1].state is ReceiptState.FINISHED)

    assert ("screen", "Bash rm -rf build") == (asking.source, request.title)
    await shown(env, asking, "two")
