"""A new session resumes a conversation that its agent stores; the user finds it in the agent's own list."""

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from kasmon.config import Config
from kasmon.config.schema import Profile
from kasmon.errors import LaunchError, RefusedError, UnableError, UsageError
from kasmon.model.commands import Mode
from kasmon.model.session_state import SessionState
from kasmon.store.session_reader import load_launch
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.recovery.stored_conversations import list_conversations
from kasmon.supervisor.sessions import list_entry, session_operations
from kasmon.supervisor.sessions.create import NewSession, prepare
from tests.support.acp.odd_session import odd_config
from tests.support.supervisor.env import NOW, Env, becomes

pytestmark = pytest.mark.story


def wanted(folder: Path, **more: object) -> NewSession:
    return msgspec.structs.replace(NewSession(name="docs", agent="odd", workdir=str(folder)), **more)


async def test_the_conversations_of_an_agent_are_listed_and_one_is_resumed(env: Env, tmp_path: Path) -> None:
    offers = await list_conversations(env.paths, odd_config("lists"), wanted(tmp_path))
    assert [("talk-1", ""), ("talk-2", "")] == [(each.id, each.session) for each in offers.conversations]
    new = await session_operations.create(env.paths, odd_config("lists"), wanted(tmp_path, resume="talk-1"))
    session = await becomes(env, new, lambda now: now.state is SessionState.IDLE)

    assert ("talk-1", "same id, and its own history has 5 parts") == (session.resume_id, session.proof)
    again = await list_conversations(env.paths, odd_config("lists"), wanted(tmp_path))
    assert ["docs", ""] == [each.session for each in again.conversations]


async def test_a_conversation_that_a_running_session_has_is_not_opened_twice(env: Env, tmp_path: Path) -> None:
    first = await session_operations.create(env.paths, odd_config("lists"), wanted(tmp_path, resume="talk-1"))
    await becomes(env, first, lambda now: now.state is SessionState.IDLE)

    new = wanted(tmp_path, resume="talk-1", name="other")
    with pytest.raises(RefusedError, match="session 'docs' has the conversation 'talk-1'"):
        await asyncio.to_thread(prepare, env.paths, odd_config("lists"), new, NOW)


async def test_an_ended_session_is_not_restarted_in_a_conversation_that_another_session_has(
    env: Env, tmp_path: Path
) -> None:
    first = await session_operations.create(env.paths, odd_config("lists"), wanted(tmp_path, resume="talk-1"))
    await session_operations.stop(env.paths, await becomes(env, first, lambda now: now.state is SessionState.IDLE))
    ended = await becomes(env, first, lambda now: now.state is SessionState.ENDED)
    new = wanted(tmp_path, resume="talk-1", name="other")
    second = await session_operations.create(env.paths, odd_config("lists"), new)
    await becomes(env, second, lambda now: now.state is SessionState.IDLE)

    with pytest.raises(RefusedError, match="session 'other' has the conversation 'talk-1'"):
        await session_operations.restart(env.paths, ended)


def test_a_session_that_has_not_reported_its_conversation_yet_owns_it_already(env: Env, tmp_path: Path) -> None:
    new = wanted(tmp_path, resume="talk-1", name="other")
    prepare(env.paths, odd_config("lists"), wanted(tmp_path, resume="talk-1"), time.time())

    with pytest.raises(RefusedError, match="session 'docs' has the conversation 'talk-1'"):
        prepare(env.paths, odd_config("lists"), new, NOW)


async def test_an_agent_without_a_list_and_with_unknown_files_cannot_be_listed(env: Env, tmp_path: Path) -> None:
    with pytest.raises(UnableError, match="does not list its conversations"):
        await list_conversations(env.paths, odd_config("plain"), wanted(tmp_path))


async def test_the_files_of_an_agent_without_that_ability_are_read(env: Env, tmp_path: Path) -> None:
    """As with claude, which speaks another protocol; its account has them elsewhere."""
    claude = tmp_path / "bin" / "claude"
    claude.parent.mkdir()
    claude.write_text("#!/bin/sh\n")
    claude.chmod(0o700)
    project = tmp_path / "own" / "projects" / "-x"
    project.mkdir(parents=True)
    for id_, text, folder in (("a" * 8, "fix\nthe parser", str(tmp_path)), ("b" * 8, "far away", "/elsewhere")):
        entry = {"type": "user", "cwd": folder, "sessionId": id_, "message": {"role": "user", "content": text}}
        (project / f"{id_}.jsonl").write_bytes(msgspec.json.encode(entry) + b"\n")
    own = Config(agents={"claude": Profile(program=str(claude), env={"CLAUDE_CONFIG_DIR": str(tmp_path / "own")})})
    new = wanted(tmp_path, agent="claude", mode=Mode.TMUX)

    here = await list_conversations(env.paths, own, new)
    everywhere = await list_conversations(env.paths, own, new, everywhere=True)
    assert [("aaaaaaaa", "fix the parser")] == [(each.id, each.title) for each in here.conversations]
    assert {"aaaaaaaa", "bbbbbbbb"} == {each.id for each in everywhere.conversations}


def test_a_terminal_resumes_it_by_the_agents_own_arguments(env: Env, tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    own = Config(agents={"claude": Profile(program=str(program), worktree=True)})
    launch = prepare(env.paths, own, wanted(tmp_path, agent="claude", mode=Mode.TMUX, resume="talk-1"), NOW)

    assert (str(program), "--resume", "talk-1") == launch.argv
    assert ("talk-1", None) == (load_launch(env.paths, launch.session).resume, launch.worktree)


@pytest.mark.parametrize(
    ("more", "error", "why"),
    [
        ({"resume": "--yolo"}, UsageError, "is not the id of a conversation"),
        ({"resume": "a\u202eb"}, UsageError, "is not the id of a conversation"),
        ({"resume": "talk-1", "worktree": True}, UsageError, "excludes a worktree"),
        ({"resume": "talk-1", "agent": "shell", "mode": Mode.TMUX}, UnableError, "does not know how 'shell' resumes"),
    ],
)
def test_a_conversation_that_cannot_be_resumed_is_refused(
    env: Env, tmp_path: Path, more: dict[str, object], error: type[Exception], why: str
) -> None:
    shipped = Config(agents={**Config().agents, **odd_config("lists").agents})
    with pytest.raises(error, match=why):
        prepare(env.paths, shipped, wanted(tmp_path, **more), NOW)


async def test_the_agent_deletes_the_conversation_of_a_session_that_is_removed(env: Env, tmp_path: Path) -> None:
    new = wanted(tmp_path, environment=("ODD_KEY=of-this-session",))
    made = await session_operations.create(env.paths, odd_config("deletes"), new)
    session = await becomes(env, made, lambda now: now.state is SessionState.IDLE)
    await session_operations.stop(env.paths, session)
    session = await becomes(env, made, lambda now: now.state is SessionState.ENDED)
    await list_entry.forget(env.paths, session, deletes_conversation=True)

    assert "session/delete talk-1 of-this-session" == await asyncio.to_thread((tmp_path / "deleted").read_text)
    assert (await asyncio.to_thread(read_fleet, env.paths)).get(made) is None


async def test_a_conversation_stays_unless_its_deletion_is_requested(env: Env, tmp_path: Path) -> None:
    made = await session_operations.create(env.paths, odd_config("deletes"), wanted(tmp_path))
    session = await becomes(env, made, lambda now: now.state is SessionState.IDLE)
    await session_operations.stop(env.paths, session)
    await list_entry.forget(env.paths, await becomes(env, made, lambda now: now.state is SessionState.ENDED))

    assert not await asyncio.to_thread((tmp_path / "deleted").exists)


@pytest.mark.parametrize(
    ("agent", "error", "why"),
    [
        ("plain", UnableError, "deletes no conversation for kasmon"),
        ("refuses_to_delete", LaunchError, "did not delete a conversation: Internal error: it is shared"),
    ],
)
async def test_a_failed_deletion_of_a_conversation_keeps_the_session_in_the_list(
    env: Env, tmp_path: Path, agent: str, error: type[Exception], why: str
) -> None:
    made = await session_operations.create(env.paths, odd_config(agent), wanted(tmp_path))
    session = await becomes(env, made, lambda now: now.state is SessionState.IDLE)
    await session_operations.stop(env.paths, session)
    session = await becomes(env, made, lambda now: now.state is SessionState.ENDED)
    with pytest.raises(error, match=why):
        await list_entry.forget(env.paths, session, deletes_conversation=True)

    assert (await asyncio.to_thread(read_fleet, env.paths)).get(made) is not None


async def test_a_conversation_that_another_session_has_is_not_deleted(env: Env, tmp_path: Path) -> None:
    made = [
        await session_operations.create(env.paths, odd_config("deletes"), wanted(tmp_path, name=name))
        for name in ("docs", "other")
    ]
    session = await becomes(env, made[0], lambda now: now.state is SessionState.IDLE)
    await session_operations.stop(env.paths, session)
    session = await becomes(env, made[0], lambda now: now.state is SessionState.ENDED)

    with pytest.raises(RefusedError, match="session 'other' has the same conversation"):
        await list_entry.forget(env.paths, session, deletes_conversation=True)
