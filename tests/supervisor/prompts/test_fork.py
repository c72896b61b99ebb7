"""A session is forked at an earlier prompt: the new one has what came before, and the old one is unchanged."""

import asyncio
from pathlib import Path

import pytest

from kasmon.config import Config
from kasmon.errors import NotFoundError, RefusedError
from kasmon.model.commands import Mode
from kasmon.model.events import MessageWritten, TurnStarted
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.store.session_reader import load_launch
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.prompts.fork import copies_conversation, fork
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.create import NewSession
from tests.supervisor.sessions.test_session_operations import facts, runs
from tests.support.acp.odd_session import odd_config
from tests.support.supervisor.env import Env, becomes
from tests.support.wait import auntil

S = SessionId("aaaaaaaa")


async def first_prompt(env: Env, session: SessionId) -> str:
    await becomes(env, session, lambda now: now.turns == 1)
    return next(event.prompt for event in facts(env, session) if isinstance(event, TurnStarted))


async def test_an_agent_that_cannot_fork_gets_the_transcript_and_the_edited_prompt(env: Env) -> None:
    session = await runs(env, prompt="say alpha")
    await session_operations.send(env.paths, session, "say beta")
    session = await becomes(env, session.id, lambda now: now.turns == 2 and now.state is SessionState.IDLE)
    made, name = await fork(env.paths, Config(), session, "say beta", 0, "say gamma")

    launch = await asyncio.to_thread(load_launch, env.paths, made)
    assert (f"{session.name}-2", session.workdir, session.agent) == (name, launch.workdir, launch.agent)
    prompt = await first_prompt(env, made)
    assert "alpha" in prompt
    assert "beta" not in prompt
    assert "not rewound" in prompt
    assert prompt.endswith("say gamma")
    assert 2 == (await asyncio.to_thread(read_fleet, env.paths)).require(session.id).turns


async def test_at_the_first_prompt_the_new_session_starts_with_that_prompt_alone(env: Env) -> None:
    session = await runs(env, prompt="say alpha")
    made, _ = await fork(env.paths, Config(), session, "say alpha", 0, "say gamma")

    assert "say gamma" == await first_prompt(env, made)


async def test_an_unknown_prompt_is_refused(env: Env) -> None:
    session = await runs(env, prompt="say alpha")

    with pytest.raises(NotFoundError, match="has no such prompt"):
        await fork(env.paths, Config(), session, "say alpha", 1, "say gamma")


@pytest.mark.parametrize("session", [Session(id=S), Session(id=S, mode=Mode.SDK, via="gpu-1")])
async def test_only_structured_sessions_of_this_machine_are_forked(env: Env, session: Session) -> None:
    with pytest.raises(RefusedError, match="cannot be forked"):
        await fork(env.paths, Config(), session, "x", 0, "y")


@pytest.mark.parametrize(
    ("session", "copies"),
    [
        (Session(id=S, backend="claude", resume_id="c", abilities=("forks",)), (True, True)),
        (Session(id=S, backend="codex", resume_id="c", abilities=("forks",)), (True, True)),
        (Session(id=S, backend="claude", abilities=("forks",)), (False, False)),
        (Session(id=S, backend="claude", resume_id="c", sandbox="jail", abilities=("forks",)), (False, False)),
        (Session(id=S, backend="acp", resume_id="c", abilities=("forks",)), (False, True)),
        (Session(id=S, backend="acp", resume_id="c"), (False, False)),
        (Session(id=S, backend="claude", resume_id="c", via="gpu-1", abilities=("forks",)), (False, False)),
    ],
)
def test_claude_and_codex_copy_a_conversation_up_to_a_prompt_and_acp_agents_may_copy_all_of_it(
    session: Session, copies: tuple[bool, bool]
) -> None:
    assert copies == (copies_conversation(session, whole=False), copies_conversation(session, whole=True))


async def test_without_a_prompt_an_agent_that_can_copies_the_whole_conversation(env: Env, tmp_path: Path) -> None:
    new = NewSession(name="docs", agent="odd", workdir=str(tmp_path), prompt="hello")
    source = await session_operations.create(env.paths, odd_config("forks"), new)
    session = await becomes(env, source, lambda now: now.turns == 1 and now.state is SessionState.IDLE)
    made, name = await fork(env.paths, odd_config("forks"), session, "", 0, "go on")

    copy = await becomes(env, made, lambda now: now.turns == 1 and now.state is SessionState.IDLE)
    assert ("docs-2", "talk-1", "talk-1-copy") == (name, session.resume_id, copy.resume_id)
    said = [event.text for event in facts(env, made) if isinstance(event, MessageWritten)]
    assert ["go on"] == said
    assert "go on" == await first_prompt(env, made)


async def test_without_a_prompt_any_other_gets_the_whole_transcript(env: Env) -> None:
    session = await runs(env, prompt="say alpha")
    session = await becomes(env, session.id, lambda now: now.turns == 1 and now.state is SessionState.IDLE)
    made, _ = await fork(env.paths, Config(), session, "", 0, "say gamma")

    prompt = await first_prompt(env, made)
    assert "alpha" in prompt
    assert "that I changed" not in prompt
    assert prompt.endswith("say gamma")


async def test_a_long_transcript_is_cut_at_its_beginning(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kasmon.supervisor.prompts.fork.LONGEST", 200)
    session = await runs(env, prompt="say " + "x" * 1000 + " alpha")
    session = await becomes(env, session.id, lambda now: now.turns == 1 and now.state is SessionState.IDLE)
    made, _ = await fork(env.paths, Config(), session, "", 0, "say gamma")

    prompt = await first_prompt(env, made)
    assert "alpha" in prompt
    assert 200 > prompt.count("x")


async def test_a_running_turn_is_not_forked_in_the_middle(env: Env) -> None:
    session = await runs(env, prompt="ask Bash rm x", state=SessionState.ASKING)

    with pytest.raises(RefusedError, match="turn of 'docs' still runs"):
        await fork(env.paths, Config(), session, "", 0, "say gamma")


async def test_two_forks_at_once_have_different_names(env: Env) -> None:
    session = await runs(env, prompt="say alpha")
    await auntil(lambda: any(isinstance(each, TurnStarted) for each in facts(env, session.id)), what="its turn")
    forks = [fork(env.paths, Config(), session, "say alpha", 0, text) for text in ("say beta", "say gamma")]

    assert {f"{session.name}-2", f"{session.name}-3"} == {name for _, name in await asyncio.gather(*forks)}
