"""Background sessions of Claude Code are listed, and shown in a terminal; kasmon ends only what it shows."""

import asyncio
import json
import sys
from pathlib import Path

import psutil
import pytest

from kasmon.backends.common.claude_background import list_background
from kasmon.config import Config
from kasmon.config.schema import Profile
from kasmon.errors import NotFoundError, RefusedError, UnavailableError
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.store.session_reader import load_launch
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.adoption.background import adopt_background, list_sessions
from tests.support.claude.background_list import CLAUDE
from tests.support.supervisor.env import Env
from tests.support.wait import until

LISTED = {"id": "86f99758", "kind": "background", "name": "fix the build", "state": "working", "status": "busy"}


@pytest.fixture
def config(env: Env) -> Config:
    """One whose claude has one background session, which works in the folder of the test."""
    program = env.folder / "claude"
    program.write_text(CLAUDE.format(python=sys.executable))
    program.chmod(0o700)
    (env.folder / "list.json").write_text(json.dumps([{**LISTED, "cwd": str(env.folder)}]))
    return Config(agents={"claude": Profile(program=str(program))})


async def seen(env: Env, session: SessionId, *states: SessionState) -> Session:
    def look() -> Session | None:
        found = read_fleet(env.paths).get(session)
        return found if found is not None and found.state in states else None

    return await asyncio.to_thread(until, look, what="a state of the session")


async def test_a_background_session_is_listed_shown_once_and_closed(env: Env, config: Config) -> None:
    assert [("86f99758", "")] == [(one.id, one.adopted) for one in await list_sessions(env.paths, config)]

    session, _ = await adopt_background(env.paths, config, "fix the build")

    now = await seen(env, session, SessionState.UNSURE, SessionState.STARTING, SessionState.IDLE)
    assert ("fix the build", str(env.folder)) == (now.name, now.workdir)
    assert [session] == [one.adopted for one in await list_sessions(env.paths, config)]
    with pytest.raises(RefusedError, match="already adopted"):
        await adopt_background(env.paths, config, "86f99758")

    await session_operations.stop(env.paths, now)
    ended = await seen(env, session, SessionState.ENDED)
    await session_operations.restart(env.paths, ended)

    await session_operations.stop(env.paths, await seen(env, session, SessionState.UNSURE, SessionState.IDLE))
    await seen(env, session, SessionState.ENDED)
    again, name = await adopt_background(env.paths, config, "86f99758")
    assert "fix the build-2" == name == (await asyncio.to_thread(read_fleet, env.paths)).require(again).name

    assert ("attach", "86f99758") == (await asyncio.to_thread(load_launch, env.paths, session)).argv[1:]
    assert not await asyncio.to_thread(psutil.pid_exists, now.pid or 0)


async def test_a_missing_folder_is_listed_unchanged_and_a_wide_name_is_cut_so_that_a_number_fits(
    env: Env, config: Config
) -> None:
    gone, name = str(env.folder / "gone"), "語" * 39
    (env.folder / "list.json").write_text(
        json.dumps([{**LISTED, "id": id_, "name": name, "cwd": gone} for id_ in ("86f99758", "12345678")])
    )
    assert [gone, gone] == [one.workdir for one in await list_sessions(env.paths, config)]

    for id_, cut in (("86f99758", "語" * 20), ("12345678", "語" * 20 + "-2")):
        session, named = await adopt_background(env.paths, config, id_)
        now = (await asyncio.to_thread(read_fleet, env.paths)).require(session)
        assert (cut, cut, "/") == (named, now.name, now.workdir)


async def test_a_missing_background_session_is_not_adopted(env: Env, config: Config) -> None:
    with pytest.raises(NotFoundError, match="no background session 'other'"):
        await adopt_background(env.paths, config, "other")

    assert () == (await asyncio.to_thread(read_fleet, env.paths)).sessions


def test_a_claude_without_a_session_list_is_named(tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.write_text("#!/bin/sh\necho 'unknown option --json' >&2; exit 1\n")
    program.chmod(0o700)

    with pytest.raises(UnavailableError, match="does not list its background sessions"):
        list_background(str(program), {})
    with pytest.raises(UnavailableError, match="cannot start"):
        list_background(str(tmp_path / "none"), {})
