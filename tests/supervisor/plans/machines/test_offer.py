"""What this machine offers to tasks of other machines' plans."""

from pathlib import Path

import pytest

from kasmon import system
from kasmon.config import Config
from kasmon.config.schema import MachineConfig, Profile
from kasmon.model.events import LogOpened, SessionCreated, TurnStarted
from kasmon.model.permission import SessionId
from kasmon.store.machines import HostPresence, Machine, Presence, write_machine, write_presence
from kasmon.supervisor.plans.machines.offer import count_tasks, has_login, read_offer
from kasmon.system.linux import Linux
from tests.support.supervisor.env import NOW, Env, launch, started


def test_tasks_of_plans_take_slots_while_they_work_and_other_sessions_do_not(env: Env) -> None:
    for session, plan, *turn in (("aaaaaaaa", "tidy", TurnStarted(at=NOW)), ("bbbbbbbb", ""), ("cccccccc", "tidy")):
        env.says(SessionCreated(at=NOW, launch=launch(session, plan=plan), machine="here"))
        env.paths.folder(session).mkdir(mode=0o700)
        env.tells(session, LogOpened(at=NOW, session=SessionId(session)), started(), *turn)
        env.hosts(session)

    offer = read_offer(env.paths, Config(machine=MachineConfig(labels=("gpu",), slots=3)), {"PATH": "/none"})

    assert (("gpu",), 3, ("aaaaaaaa",), 3) == (offer.labels, offer.slots, offer.tasks, offer.sessions)
    assert {"scripted": "", "claude": "cannot start 'claude': 'claude' is not on PATH."} == {
        each.name: each.problem for each in offer.agents if each.name in ("scripted", "claude")
    }
    assert Config().plans.limit == read_offer(env.paths, Config(), {}).slots
    assert {} == count_tasks(env.paths)


def test_free_slots_on_a_machine_are_counted_by_its_copied_sessions(env: Env) -> None:
    write_machine(env.paths, Machine(name="gpu-1", command=("false",)))
    alive = HostPresence(host=4242, agent_runs=True)
    sessions = {SessionId("aaaaaaaa"): 1, SessionId("bbbbbbbb"): None}
    write_presence(env.paths, "gpu-1", Presence(since=NOW, kasmon="1", sessions=dict.fromkeys(sessions, alive)))
    for session, task in sessions.items():
        env.says(SessionCreated(at=NOW, launch=launch(session, task=task), machine="gpu-1", via="gpu-1"))
        env.paths.folder(session).mkdir(mode=0o700)
        env.paths.via(session).write_text("gpu-1\n77\n")
        env.tells(session, LogOpened(at=NOW, session=session), started())

    assert {"gpu-1": 1} == count_tasks(env.paths)
    assert () == read_offer(env.paths, Config(), {}).tasks


@pytest.mark.parametrize(
    ("program", "file", "variable"),
    [
        ("claude", ".claude/.credentials.json", "ANTHROPIC_API_KEY"),
        ("codex", ".codex/auth.json", "OPENAI_API_KEY"),
        ("/usr/bin/gemini", ".gemini/oauth_creds.json", "GEMINI_API_KEY"),
    ],
)
def test_a_file_or_a_variable_is_a_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, file: str, variable: str
) -> None:
    monkeypatch.setattr(system, "HERE", Linux())
    profile = Profile(program=program)

    assert [False, True] == [has_login(profile, known, tmp_path) for known in ({}, {variable: "key"})]
    assert has_login(Profile(program=program, env={variable: "key"}), {}, tmp_path)
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text("{}")
    assert has_login(profile, {}, tmp_path)


@pytest.mark.parametrize(
    ("program", "settings", "text"),
    [
        ("claude", ".claude/settings.json", '{"apiKeyHelper": "get-key"}'),
        ("codex", ".codex/config.toml", 'model_provider = "own"'),
        ("amp", "", ""),
    ],
)
def test_it_is_unknown_if_the_program_may_log_in_otherwise(
    tmp_path: Path, program: str, settings: str, text: str
) -> None:
    if settings:
        (tmp_path / settings).parent.mkdir()
        (tmp_path / settings).write_text(text)

    assert has_login(Profile(program=program), {}, tmp_path) is None


def test_another_folder_of_the_agent_is_searched(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "auth.json").write_text("{}")

    assert has_login(Profile(program="codex"), {"CODEX_HOME": str(tmp_path / "own")}, tmp_path / "home")
