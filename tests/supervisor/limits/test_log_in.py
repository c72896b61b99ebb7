"""A session whose agent requires a log-in goes on once that was done in a terminal."""

import asyncio
import shlex
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from kasmon.config import Config
from kasmon.errors import KasmonError, LaunchError, RefusedError, UnableError
from kasmon.model.commands import Mode, TerminalLogIn
from kasmon.model.events import NoticeRaised, SessionEnded
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import write_private
from kasmon.store.event_log import EventLog
from kasmon.store.session_reader import load_launch
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.fleet.wait import fleets
from kasmon.supervisor.limits import log_in as log_in_module
from kasmon.supervisor.limits.log_in import begin_log_in, find_end, finish_log_in
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.create import NewSession
from tests.support.acp.odd_session import odd_config
from tests.support.cli.fork_server import KASMON
from tests.support.execution.actor_session import eventually
from tests.support.supervisor.env import NOW, Env, becomes, ended, started
from tests.support.wait import auntil

LOG_IN = TerminalLogIn(title="In a terminal", argv=("odd", "login"))

pytestmark = [pytest.mark.story, pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux")]


async def notices(env: Env, session: SessionId) -> list[str]:
    read = await asyncio.to_thread(lambda: [*EventLog(env.paths.log(session)).read()])
    return [event.text for event, _ in read if isinstance(event, NoticeRaised)]


async def session_of(env: Env, name: str) -> Session:
    fleet = await asyncio.to_thread(read_fleet, env.paths)
    return next(each for each in fleet.sessions if each.name == name)


async def logged_out(env: Env, folder: Path) -> Session:
    """A session that did not start, because its agent has no account."""
    new = NewSession(name="docs", agent="odd", workdir=str(folder), prompt="hello")
    with pytest.raises(LaunchError, match="requires a login"):
        await session_operations.create(env.paths, odd_config("logs_in"), new)
    return await session_of(env, "docs")


async def test_after_the_login_the_session_starts_and_gets_its_first_prompt(env: Env, tmp_path: Path) -> None:
    session = await logged_out(env, tmp_path)
    assert session.log_in is not None
    assert ("In a terminal", {"ODD": "1"}) == (session.log_in.title, session.log_in.variables)
    name = await begin_log_in(env.paths, Config(), session, session.log_in)
    log_in = await session_of(env, name)
    assert ("login-docs", Mode.TMUX, session.id) == (name, log_in.mode, log_in.log_in_of)

    now = await becomes(env, session.id, lambda now: now.turns == 1 and now.state is SessionState.IDLE)
    assert "1" == (tmp_path / "account").read_text()
    assert now.log_in is None
    async with fleets(env.paths) as changes:
        async for fleet in changes:
            if ["docs"] == [each.name for each in fleet.sessions]:
                break


async def test_a_failed_login_restarts_nothing_and_stays_readable(env: Env, tmp_path: Path) -> None:
    (tmp_path / "no-account").touch()
    session = await logged_out(env, tmp_path)
    assert session.log_in is not None
    name = await begin_log_in(env.paths, Config(), session, session.log_in)

    async def told() -> list[str]:  # by the process that waits for the end of the log-in
        return await notices(env, session.id)

    (said,) = await eventually(told, "the notice")
    assert (await session_of(env, "docs")).log_in is not None
    assert (await session_of(env, name)).exit_code == 1
    assert said.startswith(
        "The agent was not restarted after its log-in: the log-in 'login-docs' ended with exit code 1."
    )


async def test_a_login_without_an_exit_code_restarts_nothing(env: Env, tmp_path: Path) -> None:
    session = await logged_out(env, tmp_path)
    facts = (await asyncio.to_thread(started, mode=Mode.TMUX), SessionEnded(at=NOW))
    log_in = await asyncio.to_thread(env.has, "bbbbbbbb", *facts, name="login-docs", mode=Mode.TMUX)

    with pytest.raises(KasmonError, match="the log-in 'login-docs' ended without an exit code"):
        await finish_log_in(env.paths, session.id, log_in)


async def test_a_session_that_works_again_is_not_restarted_by_its_log_in(env: Env, tmp_path: Path) -> None:
    new = NewSession(name="docs", agent="scripted", mode=Mode.SDK, workdir=str(tmp_path), speed=0.0)
    session = await session_operations.create(env.paths, Config(), new)
    facts = (await asyncio.to_thread(started, mode=Mode.TMUX), ended())
    log_in = await asyncio.to_thread(env.has, "bbbbbbbb", *facts, name="login-docs", mode=Mode.TMUX)
    await finish_log_in(env.paths, session, log_in)

    assert 1 == (await session_of(env, "docs")).generation


async def test_a_failed_restart_is_reported_and_keeps_the_login(env: Env, tmp_path: Path) -> None:
    session = await logged_out(env, tmp_path)
    launch = await asyncio.to_thread(load_launch, env.paths, session.id)
    gone = msgspec.structs.replace(launch, workdir=str(tmp_path / "gone"))
    await asyncio.to_thread(write_private, env.paths.launch(session.id), msgspec.json.encode(gone))
    facts = (await asyncio.to_thread(started, mode=Mode.TMUX), ended())
    log_in = await asyncio.to_thread(env.has, "bbbbbbbb", *facts, name="login-docs", mode=Mode.TMUX)

    with pytest.raises(KasmonError, match="gone"):
        await finish_log_in(env.paths, session.id, log_in)

    assert any("The agent was not restarted after its log-in" in text for text in await notices(env, session.id))
    assert (await session_of(env, "login-docs")).state is SessionState.ENDED


async def test_a_login_that_is_lost_for_a_moment_has_not_ended() -> None:
    now = Session(id=SessionId("bbbbbbbb"), name="login-docs", mode=Mode.TMUX)

    async def changes() -> AsyncIterator[Fleet]:
        for state in (SessionState.WORKING, SessionState.LOST, SessionState.IDLE, SessionState.LOST):
            yield Fleet(sessions=(msgspec.structs.replace(now, state=state),))
        yield Fleet(sessions=(msgspec.structs.replace(now, state=SessionState.ENDED, exit_code=0),))

    assert 0 == (await find_end(changes(), now.id)).exit_code


async def test_a_login_that_stays_lost_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_in_module, "LOST_S", 0.0)
    lost = Session(id=SessionId("bbbbbbbb"), name="login-docs", mode=Mode.TMUX, state=SessionState.LOST)

    async def changes() -> AsyncIterator[Fleet]:
        yield Fleet(sessions=(lost,))
        await asyncio.Event().wait()

    assert lost == await find_end(changes(), lost.id)


async def test_an_agent_that_runs_is_restarted_in_its_conversation(env: Env, tmp_path: Path) -> None:
    new = NewSession(name="docs", agent="odd", workdir=str(tmp_path), prompt="hello")
    made = await session_operations.create(env.paths, odd_config("is_logged_out_later"), new)
    session = await becomes(env, made, lambda now: now.turn_ended == "error" and now.log_in is not None)
    assert session.log_in is not None
    await begin_log_in(env.paths, Config(), session, session.log_in)

    now = await becomes(env, made, lambda now: now.generation == 2)
    assert ("talk-1", None) == (now.resume_id, now.log_in)


async def test_a_login_may_do_no_more_than_its_agent_and_start_nothing(env: Env, tmp_path: Path) -> None:
    """Its program is the agent's, whatever its name is: it is no shell that a person opened."""
    out, done = tmp_path / "out", tmp_path / "done"
    lines = [shlex.join([*KASMON, *each]) for each in (("config", "fleet.depth", "8"), ("new", "below", "--", "true"))]
    variables = {f"XDG_{each}_HOME": str(env.folder / each[0].lower()) for each in ("STATE", "CONFIG")}
    shown = TerminalLogIn(
        title="In a terminal",
        argv=("sh", "-c", f"exec >{out} 2>&1; {'; '.join(lines)}; touch {done}; exit 1"),
        variables={**variables, "XDG_RUNTIME_DIR": str(env.folder / "r")},
    )
    session = msgspec.structs.replace(await logged_out(env, tmp_path), log_in=shown)
    await begin_log_in(env.paths, Config(), session, shown)
    await auntil(done.exists, what="the end of its commands")

    said = " ".join(out.read_text().split())
    assert "an agent cannot change settings" in said
    assert "this process belongs to the log-in 'login-docs'" in said
    assert ["docs", "login-docs"] == sorted(
        each.name for each in (await asyncio.to_thread(read_fleet, env.paths)).sessions
    )


@pytest.mark.parametrize(
    ("more", "error", "why"),
    [
        ({"log_in": None}, RefusedError, "requires no log-in"),
        ({"log_in": TerminalLogIn(title="In a terminal", argv=("sh",))}, RefusedError, "offers another log-in by now"),
        (
            {"log_in": msgspec.structs.replace(LOG_IN, variables={"A": "1"})},
            RefusedError,
            "offers another log-in by now",
        ),
        ({"via": "gpu-1"}, UnableError, "runs elsewhere"),
        ({"sandbox": "jail"}, UnableError, "runs elsewhere"),
    ],
)
async def test_an_agent_that_needs_no_login_here_gets_none(
    env: Env, more: dict[str, object], error: type[Exception], why: str
) -> None:
    session = Session(**({"id": SessionId("aaaaaaaa"), "log_in": LOG_IN} | more))  # type: ignore[arg-type]
    with pytest.raises(error, match=why):
        await begin_log_in(env.paths, Config(), session, LOG_IN)
