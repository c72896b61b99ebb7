"""Sessions are hibernated and resumed: real hosts, a real tmux, scripted agents and a stand-in for claude."""

import asyncio
import json
import os
import sys

import msgspec
import pytest

from kasmon.backends.codex.shared_server import screen_argv
from kasmon.config import Config
from kasmon.errors import NotHibernatedError, SessionEndedError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Mode
from kasmon.model.events import HibernationBegun
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.hibernation.hibernate import hibernate
from kasmon.supervisor.recovery.sessions import find_lost_sessions
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.create import NewSession
from tests.support.supervisor.env import Env, becomes
from tests.support.wait import until

TALK = "77b5ba32-6465-44a1-9d8d-363508bac732"
IDLE, HIBERNATED = SessionState.IDLE, SessionState.HIBERNATED


async def runs(env: Env, prompt: str = "say one") -> Session:
    new = NewSession(name="docs", agent="scripted", mode=Mode.SDK, workdir="/", prompt=prompt, speed=0.0)
    session = await session_operations.create(env.paths, Config(), new)
    return await becomes(env, session, lambda now: now.state is IDLE and not now.awaits_turn and now.turns == 1)


async def test_a_prompt_resumes_a_hibernated_session_with_its_conversation(env: Env) -> None:
    session, took_s = await runs(env), list[float]()

    done = await hibernate(env.paths, session)

    now = await becomes(env, session.id, lambda now: now.state is HIBERNATED)
    assert now.freed_bytes
    assert f"hibernated, {now.freed_bytes / 1e6:.0f} MB of memory freed" == done
    await asyncio.to_thread(until, lambda: lock_holder(env.paths.host_lock(session.id)) is None)
    with pytest.raises(SessionEndedError, match="'docs' is hibernated"):
        await session_operations.interrupt(env.paths, now)

    await session_operations.send(env.paths, now, "say two", on_resumed=took_s.append)

    again = await becomes(env, session.id, lambda now: now.turns == 2 and now.state is IDLE)
    assert (2, "two", session.resume_id) == (again.generation, again.last_line, again.resume_id)
    assert 1 == len(took_s)


async def test_a_prompt_during_the_hibernation_is_not_lost(env: Env) -> None:
    session = await runs(env)

    await asyncio.gather(
        hibernate(env.paths, session),
        session_operations.send(env.paths, session, "say two", "idle"),
        return_exceptions=True,
    )

    now = await becomes(env, session.id, lambda now: now.turns == 2 and now.state in (IDLE, HIBERNATED))
    assert "two" == now.last_line


async def test_simultaneous_calls_hibernate_or_resume_one_session_once_and_lose_no_prompt(env: Env) -> None:
    session = await runs(env)

    done = await asyncio.gather(*(hibernate(env.paths, session) for _ in range(2)), return_exceptions=True)

    (refusal,) = (each for each in done if isinstance(each, BaseException))
    assert isinstance(refusal, NotHibernatedError)
    assert "it is being hibernated already" in refusal.message
    now = await becomes(env, session.id, lambda now: now.state is HIBERNATED)
    await asyncio.gather(*(session_operations.send(env.paths, now, text) for text in ("say two", "say three")))
    again = await becomes(env, session.id, lambda now: now.turns == 3 and now.state is IDLE)
    assert (2, {"say one", "say two", "say three"}) == (again.generation, {each.text for each in again.receipts})


async def test_a_second_caller_is_told_that_the_session_is_hibernated_already(env: Env) -> None:
    seen = await runs(env)
    await hibernate(env.paths, seen)
    await becomes(env, seen.id, lambda now: now.state is HIBERNATED)

    with pytest.raises(NotHibernatedError, match="it is being hibernated already"):
        await hibernate(env.paths, seen)


async def test_a_session_whose_host_is_killed_while_it_hibernates_is_hibernated_and_not_lost(env: Env) -> None:
    session = await runs(env)
    env.kill_host(session.id)
    assert SessionState.LOST is (await becomes(env, session.id, lambda now: now.state is not IDLE)).state
    env.tells(session.id, HibernationBegun(at=session.since + 1, freed_bytes=7))

    now = await becomes(env, session.id, lambda now: now.state is HIBERNATED)
    assert [] == await asyncio.to_thread(lambda: find_lost_sessions(env.paths, read_fleet(env.paths)))
    await session_operations.restart(env.paths, now)

    assert 2 == (await becomes(env, session.id, lambda now: now.state is IDLE)).generation


async def test_a_session_with_its_agents_own_screen_open_is_in_use_and_not_hibernated(env: Env) -> None:
    session = await runs(env)
    for joined, is_used in ((session.id, True), ("bbbbbbbb", False)):
        words = screen_argv("codex", TALK, env.paths.shared_server(joined))
        screen = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", "read -r _", *words, stdin=asyncio.subprocess.PIPE
        )
        try:
            if is_used:
                with pytest.raises(
                    NotHibernatedError, match=rf"its agent's own screen is open \(process {screen.pid}\)"
                ):
                    await hibernate(env.paths, session)
            else:
                await hibernate(env.paths, session)
        finally:
            screen.kill()
            await screen.wait()

    await becomes(env, session.id, lambda now: now.state is HIBERNATED)


async def test_an_agent_in_its_turn_is_not_hibernated_and_the_reason_is_given(env: Env) -> None:
    new = NewSession(name="docs", agent="scripted", mode=Mode.SDK, workdir="/", prompt="ask Bash rm x", speed=0.0)
    session = await session_operations.create(env.paths, Config(), new)
    now = await becomes(env, session, lambda now: bool(now.requests))

    with pytest.raises(NotHibernatedError, match="cannot hibernate session 'docs': it has an open request"):
        await hibernate(env.paths, now)
    idle = msgspec.structs.replace(now, state=IDLE, requests=(), in_turn=False, receipts=())
    with pytest.raises(NotHibernatedError, match="it has an open request"):  # by the host, whatever the caller saw
        await hibernate(env.paths, idle)

    assert SessionState.ASKING is (await becomes(env, session, lambda now: True)).state


CLAUDE = f"""#!{sys.executable}
import json, os, pathlib, sys, termios, time
home = pathlib.Path(os.environ["HOME"])
attributes = termios.tcgetattr(0)
attributes[3] &= ~termios.ECHO
termios.tcsetattr(0, termios.TCSANOW, attributes)
with (home / "started").open("a") as started:
    started.write(" ".join(sys.argv[1:]) + "\\n")
registry = home / ".claude/sessions" / f"{{os.getpid()}}.json"
registry.parent.mkdir(exist_ok=True)
began = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
def show(status, draft="", footer=""):
    entry = {{"pid": os.getpid(), "sessionId": "{TALK}", "status": status, "procStart": began, "version": "2.1.330"}}
    registry.write_text(json.dumps(entry))
    box = "──────────\\n❯ " + draft + "\\n──────────\\n" + footer + "\\033[2A\\033[" + str(3 + len(draft)) + "G"
    print("\\033[H\\033[2J● done\\n\\n" + box, end="", flush=True)
show("busy")
time.sleep(1)
seen = None
while True:
    draft, footer = (file.read_text() if file.exists() else "" for file in (home / "draft", home / "footer"))
    if (draft, footer) != seen:
        show("idle", draft, footer or "  ? for shortcuts")
        seen = draft, footer
    time.sleep(0.05)
"""


async def test_a_terminal_agent_is_hibernated_without_a_draft_and_resumed_by_the_id_of_its_conversation(
    env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = env.folder / "h"
    program, transcript = home / "bin/claude", home / f".claude/projects/-work/{TALK}.jsonl"
    for file in (program, transcript):
        file.parent.mkdir(parents=True)
    program.write_text(CLAUDE)
    program.chmod(0o755)
    line = {"type": "user", "cwd": str(home), "message": {"role": "user", "content": "hello"}}
    transcript.write_text(json.dumps(line, separators=(",", ":")))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    new = NewSession(name="worker", agent="claude", mode=Mode.TMUX, workdir=str(home))
    session = await session_operations.create(env.paths, Config(), new)
    idle = await becomes(env, session, lambda now: now.state is IDLE and now.resume_id == TALK)

    (home / "draft").write_text("half a thought")
    await asyncio.to_thread(until, lambda: "half a thought" in env.tmux("capture-pane", "-p"))
    with pytest.raises(NotHibernatedError, match="its input box holds a draft"):
        await hibernate(env.paths, idle)
    (home / "draft").write_text("")
    (home / "footer").write_text("  ⏵⏵ accept edits on · 1 shell")
    await becomes(env, session, lambda now: now.last_line == "1 shell")
    with pytest.raises(NotHibernatedError, match="its screen shows '1 shell'"):
        await hibernate(env.paths, idle)
    (home / "footer").unlink()
    await asyncio.to_thread(until, lambda: "1 shell" not in env.tmux("capture-pane", "-p"))
    transcript.rename(transcript.with_suffix(".away"))
    with pytest.raises(NotHibernatedError, match=f"no longer has the conversation {TALK}"):
        await hibernate(env.paths, idle)
    transcript.with_suffix(".away").rename(transcript)
    await hibernate(env.paths, idle)

    now = await becomes(env, session, lambda now: now.state is HIBERNATED)
    assert now.freed_bytes is not None
    assert not await asyncio.to_thread(os.path.exists, f"/proc/{idle.pid}")
    transcript.rename(transcript.with_suffix(".away"))
    with pytest.raises(NotHibernatedError, match="no longer has the conversation"):
        await session_operations.restart(env.paths, now)
    transcript.with_suffix(".away").rename(transcript)
    await session_operations.restart(env.paths, now)

    await becomes(env, session, lambda now: now.generation == 2 and now.state is IDLE)
    first, second = (home / "started").read_text().splitlines()
    assert (False, True) == tuple(line.endswith(f"--resume {TALK}") for line in (first, second))


async def test_its_host_hibernates_an_agent_that_is_idle_for_long(env: Env) -> None:
    env.paths.config.mkdir(exist_ok=True)
    (env.paths.config / "config.toml").write_text("[session]\nhibernate_after = 0.01\n")
    new = NewSession(name="docs", agent="scripted", mode=Mode.SDK, workdir="/", prompt="say one", speed=0.0)
    session = await session_operations.create(env.paths, Config(), new)

    assert "one" == (await becomes(env, session, lambda now: now.state is HIBERNATED)).last_line
