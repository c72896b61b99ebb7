"""The acts on sessions, with real hosts and scripted agents."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import msgspec
import pytest

from kasmon import errors, system
from kasmon.config import Config
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.launch import RUN
from kasmon.model.commands import Answer, Mode
from kasmon.model.events import NoticeRaised, RequestAnswered, SessionEnded, SessionStarted, SettingsChanged
from kasmon.model.permission import Decision, SessionId
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import write_private
from kasmon.process_identity import started_at
from kasmon.store.event_log import EventLog
from kasmon.store.session_reader import load_launch as launch_of
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.fleet.wait import wait_for
from kasmon.supervisor.sessions import list_entry, session_operations
from kasmon.supervisor.sessions.create import NewSession, prepare
from kasmon.supervisor.sessions.handover import end_orphan
from kasmon.supervisor.sessions.read import read, within
from kasmon.supervisor.sessions.start import begin
from tests.support.supervisor.env import NOW, Env, becomes, ended, launch, started
from tests.support.wait import until


def wanted(name: str = "docs", prompt: str = "", **more: object) -> NewSession:
    base = NewSession(name=name, agent="scripted", mode=Mode.SDK, workdir="/", prompt=prompt, speed=0.0)
    return msgspec.structs.replace(base, **more)


async def seen(env: Env, session: str) -> Session:
    """The session as a look shows it."""
    found = (await asyncio.to_thread(read_fleet, env.paths)).get(SessionId(session))
    assert found is not None
    return found


async def runs(env: Env, name: str = "docs", prompt: str = "", state: SessionState = SessionState.IDLE) -> Session:
    session = await session_operations.create(env.paths, Config(), wanted(name, prompt))
    return await becomes(env, session, lambda now: now.state is state)


def facts(env: Env, session: str) -> list[object]:
    return [*EventLog(env.paths.log(session)).events()]


# Create.


async def test_a_created_session_runs_and_takes_its_first_prompt(env: Env) -> None:
    session = await runs(env, prompt="say hello there")

    assert ("docs", 1) == (session.name, session.generation)
    assert session.host
    assert (env.host_of(session.id), True) == (session.host.pid, session.host.alive)
    said = await becomes(env, session.id, lambda now: now.turns == 1 and now.state is SessionState.IDLE)
    assert "hello there" == said.last_line
    assert "" == (await asyncio.to_thread(launch_of, env.paths, session.id)).prompt


async def test_a_session_that_ends_at_once_was_still_started(env: Env) -> None:
    session = await session_operations.create(env.paths, Config(), wanted(prompt="crash 7"))

    assert 7 == (await becomes(env, session, lambda now: now.state is SessionState.ENDED)).exit_code


async def test_an_agent_that_does_not_start_leaves_an_ended_session_with_the_reason(env: Env) -> None:
    ready = await asyncio.to_thread(prepare, env.paths, Config(), wanted(prompt="say hello"), NOW)
    broken = msgspec.structs.replace(ready, backend="nobody")
    await asyncio.to_thread(write_private, env.paths.launch(ready.session), msgspec.json.encode(broken))

    with pytest.raises(errors.LaunchError, match="nobody"):
        await begin(env.paths, broken)

    session = await seen(env, ready.session)
    assert SessionState.ENDED is session.state
    assert "nobody" in session.end_why
    with pytest.raises(errors.SessionEndedError):
        await session_operations.send(env.paths, session, "say hello")

    launch = await asyncio.to_thread(launch_of, env.paths, session.id)
    assert "say hello" == launch.prompt  # another try needs it
    await list_entry.forget(env.paths, session)
    kept = [await asyncio.to_thread(path.read_text) for path in (env.paths.launch(session.id), env.paths.fleet_log)]
    assert not [text for text in kept if "hello" in text]


async def test_a_host_that_cannot_listen_leaves_an_ended_session_with_the_reason(env: Env) -> None:
    ready = await asyncio.to_thread(prepare, env.paths, Config(), wanted(), NOW)
    await asyncio.to_thread(env.paths.socket(ready.session).mkdir)

    with pytest.raises(errors.LaunchError, match="cannot listen"):
        await begin(env.paths, ready)

    assert "cannot listen" in (await seen(env, ready.session)).end_why


async def test_a_host_that_dies_silently_leaves_an_ended_session_with_the_reason(
    env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "no number")

    with pytest.raises(errors.HostUnreachableError, match="Python runtime state"):
        await session_operations.create(env.paths, Config(), wanted())

    [session] = (await asyncio.to_thread(read_fleet, env.paths)).sessions
    assert SessionState.ENDED is session.state
    assert "Python runtime state" in session.end_why


async def test_an_unreadable_log_is_an_error_that_names_it(env: Env) -> None:
    ready = await asyncio.to_thread(prepare, env.paths, Config(), wanted(), NOW)
    await asyncio.to_thread(env.paths.log(ready.session).mkdir)

    with pytest.raises(errors.UnavailableError):
        await begin(env.paths, ready)


async def test_two_simultaneous_creations_of_one_name_make_one_session(env: Env) -> None:
    made = await asyncio.gather(
        *(session_operations.create(env.paths, Config(), wanted()) for _ in range(3)), return_exceptions=True
    )

    assert 2 == sum(isinstance(outcome, errors.NameTakenError) for outcome in made)
    assert 1 == len((await asyncio.to_thread(read_fleet, env.paths)).sessions)


# Prompts, answers, interrupts.


async def test_a_prompt_is_accepted_and_its_receipt_returned(env: Env) -> None:
    session = await runs(env)

    receipt = await session_operations.send(env.paths, session, "say one more thing")

    assert (f"{session.id}-r1", session.id) == (receipt.id, receipt.session)
    await becomes(env, session.id, lambda now: now.last_line == "one more thing")


async def test_a_prompt_with_refuse_is_refused_while_the_agent_works(env: Env) -> None:
    session = await runs(env, prompt="hang", state=SessionState.WORKING)

    with pytest.raises(errors.SessionBusyError):
        await session_operations.send(env.paths, session, "say hello", "refuse")
    with pytest.raises(errors.UsageError):
        await session_operations.send(env.paths, session, " \n")


async def test_an_answer_reaches_exactly_the_request_that_was_shown(env: Env) -> None:
    session = await runs(env, prompt="ask ls -l", state=SessionState.ASKING)
    [request] = session.requests
    allow = Answer(request=request.id, digest=request.digest, decision=Decision.ALLOW)

    with pytest.raises(errors.StaleRequestError):
        await session_operations.execute(env.paths, session, msgspec.structs.replace(allow, digest="0" * 64))
    await session_operations.execute(env.paths, session, allow)

    now = await becomes(env, session.id, lambda now: not now.requests)
    assert [Decision.ALLOW] == [closed.decision for closed in now.closed]
    assert [Decision.ALLOW] == [fact.decision for fact in facts(env, session.id) if isinstance(fact, RequestAnswered)]


async def test_an_interrupt_ends_the_turn_and_not_the_agent(env: Env) -> None:
    session = await runs(env, prompt="hang", state=SessionState.WORKING)

    assert "interrupted" == await session_operations.interrupt(env.paths, session)

    await becomes(env, session.id, lambda now: now.state is SessionState.IDLE)


@pytest.mark.parametrize(
    ("prompts", "said"),
    [(1, "the queued prompt is sent now"), (2, "the next of 2 queued prompts is sent now")],
)
async def test_an_interrupt_reports_the_state_of_the_queue(env: Env, prompts: int, said: str) -> None:
    session = await runs(env, prompt="hang", state=SessionState.WORKING)
    for _ in range(prompts):
        await session_operations.send(env.paths, session, "say next", "idle")

    assert f"interrupted; {said}" == await session_operations.interrupt(env.paths, session)
    await becomes(env, session.id, lambda now: not now.queue and now.state is SessionState.IDLE)


# Stop, restart, forget.


async def test_a_stopped_session_has_ended_when_stop_returns_and_is_no_crash(env: Env) -> None:
    session = await runs(env)

    await session_operations.stop(env.paths, session)

    now = await seen(env, session.id)
    assert (SessionState.ENDED, True, False) == (now.state, now.stopped, now.crashed)
    for act in (session_operations.stop, session_operations.interrupt):
        with pytest.raises(errors.SessionEndedError):
            await act(env.paths, now)


async def test_a_restart_keeps_id_and_log_and_is_the_next_generation(env: Env) -> None:
    session = await runs(env, prompt="say hello")
    await session_operations.stop(env.paths, session)

    await session_operations.restart(env.paths, await seen(env, session.id))

    now = await becomes(env, session.id, lambda now: now.state is SessionState.IDLE)
    assert (session.id, 2, 1) == (now.id, now.generation, now.turns)
    await session_operations.send(env.paths, now, "say again")
    await becomes(env, session.id, lambda now: now.last_line == "again")


async def test_a_running_agent_is_not_restarted_unless_forced(env: Env) -> None:
    session = await runs(env, prompt="hang", state=SessionState.WORKING)

    with pytest.raises(errors.RefusedError):
        await session_operations.restart(env.paths, session)
    assert env.host_of(session.id) == (await seen(env, session.id)).pid
    await session_operations.restart(env.paths, session, force=True)

    now = await becomes(env, session.id, lambda now: now.state is SessionState.IDLE)
    assert 2 == now.generation


@pytest.mark.parametrize(
    ("backend", "argv", "mode", "after", "by_protocol", "notice"),
    [
        ("claude", "/none/claude --model m", "plan", "/none/claude --model m --permission-mode plan", "", ""),
        ("claude", "/none/claude --permission-mode plan", "", "/none/claude --permission-mode plan", "", ""),
        ("codex", "/none/codex -a never", "on-request", "/none/codex -a on-request", "", ""),
        ("codex", "/none/codex -a never", "granular", "/none/codex -a never", "", "only from its config"),
        ("acp", "/none/gemini --acp --yolo", "plan", "/none/gemini --acp", "plan", ""),
        ("acp", "/none/other --acp", "strict", "/none/other --acp", "strict", ""),
    ],
)
async def test_a_restart_keeps_the_mode_that_the_agent_last_reported(
    env: Env, backend: str, argv: str, mode: str, after: str, by_protocol: str, notice: str
) -> None:
    """Also one that a person chose since its start; where it cannot be kept, the log says so."""
    facts_before = (SessionStarted(at=NOW), SettingsChanged(at=NOW, permission_mode=mode), ended())
    session = await asyncio.to_thread(env.has, "abcdefgh", *facts_before)
    wanted = launch(session, argv=tuple(argv.split()))
    wanted = msgspec.structs.replace(wanted, agent=backend, backend=backend)
    await asyncio.to_thread(write_private, env.paths.launch(session), msgspec.json.encode(wanted))

    with pytest.raises(errors.LaunchError):
        await session_operations.restart(env.paths, await seen(env, session))

    again = await asyncio.to_thread(launch_of, env.paths, session)
    assert (after, by_protocol, 2) == (" ".join(again.argv), again.permission_mode, again.generation)
    notices = [fact.text for fact in await asyncio.to_thread(facts, env, session) if isinstance(fact, NoticeRaised)]
    assert [notice in text for text in notices] == [True] * bool(notice)


@pytest.mark.parametrize("mode", [Mode.SDK, Mode.TMUX])
async def test_a_key_that_a_confined_agent_inherits_at_a_restart_counts_as_a_credential(
    env: Env, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    """Its memory is then never kept; who restarts it may have other keys than who created it."""
    session = await asyncio.to_thread(env.has, "abcdefgh", SessionStarted(at=NOW, mode=mode), ended(), mode=mode)
    wanted = launch(session, argv=("/none/claude",), mode=mode, sandbox="microvm")
    backend = "claude" if mode is Mode.SDK else "tmux"
    wanted = msgspec.structs.replace(wanted, agent="claude", backend=backend)
    policy = SandboxPolicy(session=session, tier="microvm", secret_variables=("TOKEN",))
    for path, value in ((env.paths.launch(session), wanted), (env.paths.sandbox(session), policy)):
        await asyncio.to_thread(write_private, path, msgspec.json.encode(value))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-s3cret-value")

    with pytest.raises(errors.LaunchError):
        await session_operations.restart(env.paths, await seen(env, session))

    text = await asyncio.to_thread(env.paths.sandbox(session).read_bytes)
    assert ("ANTHROPIC_API_KEY", "TOKEN") == msgspec.json.decode(text, type=SandboxPolicy).secret_variables


async def test_two_restarts_at_once_start_one_agent(env: Env) -> None:
    session = await runs(env)
    await session_operations.stop(env.paths, session)
    gone = await seen(env, session.id)

    await asyncio.gather(session_operations.restart(env.paths, gone), session_operations.restart(env.paths, gone))
    await session_operations.restart(env.paths, gone)

    generations = [fact.generation for fact in facts(env, session.id) if isinstance(fact, SessionStarted)]
    assert [1, 2] == generations


async def test_after_its_host_was_killed_a_session_is_lost_has_no_requests_and_can_be_restarted(env: Env) -> None:
    session = await runs(env, prompt="ask rm -r build", state=SessionState.ASKING)
    await asyncio.to_thread(env.kill_host, session.id)

    lost = await seen(env, session.id)
    assert (SessionState.LOST, ()) == (lost.state, lost.requests)
    assert not any(isinstance(fact, SessionEnded) for fact in facts(env, session.id))
    with pytest.raises(errors.HostUnreachableError, match="restart"):
        await session_operations.send(env.paths, lost, "say hello")
    assert None is await asyncio.to_thread(lock_holder, env.paths.host_lock(session.id))

    await session_operations.restart(env.paths, lost)

    now = await becomes(env, session.id, lambda now: now.state is SessionState.IDLE)
    assert (2, ()) == (now.generation, now.requests)


async def test_a_running_session_is_not_removed(env: Env) -> None:
    session = await runs(env)

    with pytest.raises(errors.RefusedError, match="stop"):
        await list_entry.forget(env.paths, session)

    assert session.id == (await seen(env, session.id)).id


async def test_a_removed_session_leaves_its_log_and_frees_its_name(env: Env) -> None:
    session = await runs(env)
    await session_operations.stop(env.paths, session)

    await list_entry.forget(env.paths, await seen(env, session.id))

    assert () == (await asyncio.to_thread(read_fleet, env.paths)).sessions
    assert not env.paths.environment(session.id).exists()
    assert env.paths.log(session.id).exists()
    await runs(env)


# Names and looks.


async def test_a_rename_is_visible_to_all_and_refused_for_a_taken_name(env: Env) -> None:
    for number in ("aaaaaaaa", "bbbbbbbb"):
        await asyncio.to_thread(env.has, number, ended(), name=f"name {number[0]}")
    session = await seen(env, "aaaaaaaa")

    assert "papers" == await list_entry.rename(env.paths, session, " papers\x07 ")
    with pytest.raises(errors.NameTakenError):
        await list_entry.rename(env.paths, session, "name b")

    assert "papers" == (await seen(env, "aaaaaaaa")).name


async def test_two_simultaneous_tag_changes_are_both_applied(env: Env) -> None:
    await asyncio.to_thread(env.has, "aaaaaaaa", ended())
    session = await seen(env, "aaaaaaaa")

    assert "tags: api" == await list_entry.tag(env.paths, session, ["Api"])
    assert "tags: docs" == await list_entry.tag(env.paths, session, ["docs"])

    assert ("api", "docs") == (await seen(env, "aaaaaaaa")).tags
    await list_entry.tag(env.paths, session, map(str, range(16)))
    crowded = await seen(env, "aaaaaaaa")
    assert 18 == len(crowded.tags)
    with pytest.raises(errors.UsageError, match="too many"):
        await list_entry.tag(env.paths, crowded, ["more"])
    await list_entry.tag(env.paths, crowded, removed=["api"])
    assert 17 == len((await seen(env, "aaaaaaaa")).tags)


async def test_a_restart_keeps_the_new_name(env: Env) -> None:
    session = await runs(env)
    await session_operations.stop(env.paths, session)
    await list_entry.rename(env.paths, session, "papers")

    await session_operations.restart(env.paths, await seen(env, session.id))

    assert "papers" == (await asyncio.to_thread(launch_of, env.paths, session.id)).name
    assert "papers" == (await seen(env, session.id)).name


async def test_a_structured_session_has_no_pane_to_show_or_attach(env: Env) -> None:
    session = Session(id=SessionId("aaaaaaaa"), name="docs", mode=Mode.SDK)

    for act in (session_operations.pane, session_operations.attach_argv):
        with pytest.raises(errors.InteractiveOnlyError):
            await act(env.paths, session)


async def test_a_structured_session_is_read_from_its_log_alone(env: Env) -> None:
    session = await runs(env, prompt="say one\nsay two\nsay three")
    await becomes(env, session.id, lambda now: now.last_line == "three" and now.state is SessionState.IDLE)
    await asyncio.to_thread(env.kill_host, session.id)

    everything = await read(env.paths, session)

    assert ["one", "two", "three"] == [line.strip() for line in everything if line.strip() in ("one", "two", "three")]
    assert everything[-2:] == await read(env.paths, session, lines=2)
    assert everything[1:3] == await read(env.paths, session, 1, 2)
    assert everything[-3:] == await read(env.paths, session, -3)
    assert [] == await read(env.paths, Session(id=SessionId("nolognow"), mode=Mode.SDK))


@pytest.mark.parametrize(
    ("start", "end", "lines"),
    [
        (None, None, "abcde"),
        (0, None, "abcde"),
        (1, 2, "bc"),
        (-2, None, "de"),
        (None, -2, "abcd"),
        (-3, -2, "cd"),
        (None, 0, "a"),
        (-99, 0, "a"),
        (-7, None, "abcde"),
        (3, 99, "de"),
        (4, 2, ""),
        (9, None, ""),
        (None, -99, ""),
    ],
)
def test_a_range_counts_from_the_first_line_or_from_the_last(start: int | None, end: int | None, lines: str) -> None:
    assert lines == within("abcde", start, end)


# Waiting.


async def test_waiting_ends_when_all_match_or_with_any_when_one_does(env: Env) -> None:
    working = await runs(env, "one", "hang", SessionState.WORKING)
    idle = await runs(env, "two")
    goal = [SessionState.IDLE]

    there = await wait_for(env.paths, [working.id, idle.id], goal, any=True, timeout_s=20)
    assert [idle.id] == [session.id for session in there]
    both = asyncio.ensure_future(wait_for(env.paths, [working.id, idle.id], goal, timeout_s=20))
    await session_operations.interrupt(env.paths, working)
    assert [working.id, idle.id] == [session.id for session in await both]


async def test_waiting_for_an_impossible_state_ends(env: Env) -> None:
    await asyncio.to_thread(env.has, "aaaaaaaa", ended())
    gone = SessionId("aaaaaaaa")

    with pytest.raises(errors.SessionEndedError):
        await wait_for(env.paths, [gone], [SessionState.IDLE], timeout_s=20)
    assert await wait_for(env.paths, [gone], [SessionState.ENDED], timeout_s=20)
    with pytest.raises(errors.SessionNotFoundError):
        await wait_for(env.paths, [SessionId("zzzzzzzz")], [SessionState.IDLE], timeout_s=20)


async def test_waiting_for_a_lost_session_reports_it_as_lost(env: Env) -> None:
    await asyncio.to_thread(env.has, "aaaaaaaa", SessionStarted(at=NOW))
    lost = SessionId("aaaaaaaa")

    with pytest.raises(errors.RefusedError, match="'aaaaaaaa' is lost, so it will not be idle") as refusal:
        await wait_for(env.paths, [lost], [SessionState.IDLE], timeout_s=20)
    assert not isinstance(refusal.value, errors.SessionEndedError)
    assert [lost] == [session.id for session in await wait_for(env.paths, [lost], [SessionState.LOST], timeout_s=20)]


async def test_one_of_several_that_became_impossible_ends_the_wait_for_all_but_not_for_any(env: Env) -> None:
    await asyncio.to_thread(env.has, "aaaaaaaa", ended())
    working = await runs(env, "one", "hang", SessionState.WORKING)
    both, goal = [SessionId("aaaaaaaa"), working.id], [SessionState.IDLE]

    with pytest.raises(errors.SessionEndedError):
        await wait_for(env.paths, both, goal, timeout_s=20)
    either = asyncio.ensure_future(wait_for(env.paths, both, goal, any=True, timeout_s=20))
    await session_operations.interrupt(env.paths, working)
    assert [working.id] == [session.id for session in await either]


async def test_a_state_that_already_holds_is_returned_at_once(env: Env) -> None:
    await asyncio.to_thread(env.has, "aaaaaaaa", ended())

    assert await wait_for(env.paths, [SessionId("aaaaaaaa")], [SessionState.ENDED], timeout_s=0)


async def test_a_wait_has_a_time_limit(env: Env) -> None:
    await asyncio.to_thread(env.has, "aaaaaaaa")
    await asyncio.to_thread(env.hosts, "aaaaaaaa")
    with pytest.raises(errors.TimedOutError):
        await wait_for(env.paths, [SessionId("aaaaaaaa")], [SessionState.IDLE], timeout_s=0.01)


# Agents that outlive their host.

STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"


@pytest.mark.parametrize(("program", "by"), [("input()", signal.SIGTERM), (STUBBORN, signal.SIGKILL)])
def test_an_orphan_is_ended_before_its_conversation_continues_elsewhere(
    program: str, by: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kasmon.supervisor.sessions.handover.GRACE_S", 0.2 if by is signal.SIGKILL else 10)
    agent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if by is signal.SIGKILL and agent.stdout:
        agent.stdout.readline()

    assert end_orphan(agent.pid, started_at(agent.pid))

    agent.communicate()
    assert -by == agent.returncode


def test_a_process_that_is_not_the_agent_is_left_alone() -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    born = started_at(other.pid)
    assert born

    assert end_orphan(other.pid, born - 1)
    assert end_orphan(other.pid, born, "another boot")
    assert end_orphan(other.pid, None)
    assert end_orphan(None, None)

    assert other.poll() is None
    other.communicate(b"\n")
    assert 0 == other.returncode


async def test_a_restart_ends_the_agent_that_lost_its_host(env: Env) -> None:
    agent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    session = SessionId("aaaaaaaa")

    def stage() -> None:
        env.has(session, started(pid=agent.pid))
        write_private(env.paths.launch(session), msgspec.json.encode(launch(session)))

    await asyncio.to_thread(stage)

    await session_operations.restart(env.paths, await seen(env, session))

    agent.communicate()
    assert -signal.SIGTERM == agent.returncode
    assert 2 == (await becomes(env, session, lambda now: now.state is SessionState.IDLE)).generation


def remains(mark: str) -> subprocess.Popen[bytes]:
    """A process that an agent left, with its mark."""
    argv, environment = [sys.executable, "-c", "input()"], {**os.environ, RUN: mark}
    return subprocess.Popen(argv, stdin=subprocess.PIPE, env=environment, start_new_session=True)


async def test_a_restart_ends_the_processes_of_an_agent_that_died_with_its_host(env: Env) -> None:
    agent = subprocess.Popen([sys.executable, "-c", ""])
    session = SessionId("aaaaaaaa")

    def stage() -> None:
        env.has(session, started(pid=agent.pid))
        write_private(env.paths.launch(session), msgspec.json.encode(launch(session)))
        agent.wait()

    await asyncio.to_thread(stage)
    assert SessionState.LOST is (await seen(env, session)).state
    left, other = remains("aaaaaaaa.1"), remains("bbbbbbbb.1")

    await session_operations.restart(env.paths, await seen(env, session))

    left.communicate()
    assert -signal.SIGKILL == left.returncode
    assert other.poll() is None
    other.communicate(b"\n")


async def test_a_restart_ends_the_agent_whose_host_was_killed_before_it_logged_its_start(env: Env) -> None:
    session = SessionId("aaaaaaaa")
    daemon = remains("aaaaaaaa.1")

    def stage() -> None:
        env.has(session, started(), ended())
        write_private(env.paths.launch(session), msgspec.json.encode(launch(session, generation=2)))
        born = started_at(daemon.pid)
        assert born is not None
        written = system.HERE.convert_start(born) + 0.1
        os.utime(env.paths.launch(session), (written, written))
        until(lambda: time.time() > written)

    await asyncio.to_thread(stage)
    left = remains("aaaaaaaa.2")
    await session_operations.restart(env.paths, await seen(env, session))

    left.communicate()
    assert -signal.SIGKILL == left.returncode
    assert daemon.poll() is None
    daemon.communicate(b"\n")


CHILD_OF_ITS_OWN = (
    "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE,"
    " start_new_session=True); print(child.pid, flush=True); input()"
)


async def test_a_stop_ends_the_agent_that_lost_its_host_with_its_children(env: Env) -> None:
    agent = subprocess.Popen(
        [sys.executable, "-c", CHILD_OF_ITS_OWN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert agent.stdout
    child = int(await asyncio.to_thread(agent.stdout.readline))
    session = SessionId("aaaaaaaa")
    await asyncio.to_thread(lambda: env.has(session, started(pid=agent.pid)))
    before = await seen(env, session)
    assert (SessionState.UNSURE, True) == (before.state, before.is_orphaned)
    with pytest.raises(
        errors.HostUnreachableError, match=r"its agent still runs \(pid \d+\); `kasmon stop aaaaaaaa` stops it"
    ):
        await session_operations.send(env.paths, before, "hello")

    await session_operations.stop(env.paths, before)

    agent.communicate()
    assert -signal.SIGTERM == agent.returncode
    assert await asyncio.to_thread(started_at, child) is None
    after = await seen(env, session)
    assert (SessionState.ENDED, True, False) == (after.state, after.stopped, after.crashed)
