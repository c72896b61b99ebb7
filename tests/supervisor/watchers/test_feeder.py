"""Watchers are fed from real sessions: by the steps of a feeder, and by its own process without a dashboard."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from kasmon.config import Config
from kasmon.config.schema import SHIPPED, Profile, WatchRule
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Receipt
from kasmon.model.events import MessageWritten, ReceiptChanged, RequestAnswered
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.model.watched_events import is_ready
from kasmon.paths import write_private
from kasmon.supervisor.finish.pull_requests import INTERVAL_S
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.session_operations import create
from kasmon.supervisor.watchers.feeder import Feeder, is_feeder_needed, read_sent
from tests.support.acp.odd_session import ODD
from tests.support.forge_client import ADDRESSES, GITHUB, ForgeClient
from tests.support.git_repo import Repo
from tests.support.tui.dashboard import Home
from tests.support.wait import until

TASK = "Tell me what matters."


class Watched:
    """A watcher, a session that it is told about, and a feeder that has seen both."""

    def __init__(self, home: Home, **rule: object) -> None:
        self.home = home
        self.config = Config(watch=(WatchRule(session="watch", prompt=TASK, **rule),))  # type: ignore[arg-type]
        self.watch, self.api = home.start("watch"), home.start("api")
        self.feeder = Feeder(home.paths)
        self.step()

    def step(self) -> None:
        asyncio.run(self.feeder.step(self.config, read_fleet(self.home.paths), time.time()))

    def turn(self, session: SessionId, text: str) -> None:
        """One turn of *session*, to its end."""
        turns = self.home.session(session).turns
        self.home.prompt(session, text)
        until(lambda: self.is_idle_after(session, turns), what="the end of the turn")

    def is_idle_after(self, session: SessionId, turns: int) -> bool:
        seen = self.home.session(session)
        return seen.turns > turns and seen.state is SessionState.IDLE and not seen.awaits_turn

    def told(self) -> list[tuple[str, str]]:
        """The prompts of the watcher, and who sent each."""
        return prompts(self.home, self.watch)


def prompts(home: Home, session: SessionId) -> list[tuple[str, str]]:
    return [(fact.prompt, fact.by) for fact in home.facts(ReceiptChanged, session) if fact.prompt]


def receipts(home: Home, session: SessionId) -> tuple[Receipt, ...]:
    return home.session(session).receipts


def test_a_watcher_gets_a_turn_that_ended_with_its_last_line_as_data(home: Home) -> None:
    watched = Watched(home)
    watched.turn(watched.api, "say all green")
    watched.step()
    watched.step()

    [(prompt, by)] = watched.told()
    assert prompt.startswith(TASK)
    assert "its turn ended (done).\n> all green" in prompt
    assert "peer" == by
    assert [1] == [each.events for each in read_sent(home.paths, "watch")]
    assert [] == read_sent(home.paths, "another")
    watched.feeder = Feeder(home.paths)
    watched.step()
    assert 1 == len(watched.told()), "what ended before it began is no news"


def test_no_secret_of_a_session_is_sent(home: Home) -> None:
    watched = Watched(home)
    write_private(home.paths.environment(watched.api), b"API_KEY=hunter2hunter2")
    watched.turn(watched.api, "say key hunter2hunter2")
    watched.step()

    [(prompt, _)] = watched.told()
    assert "> key ⟨hidden" in prompt


def test_a_watcher_that_asks_is_neither_restarted_nor_prompted(home: Home) -> None:
    watched = Watched(home, agent="scripted")
    home.prompt(watched.watch, "ask git push")
    until(lambda: home.session(watched.watch).requests, what="the request")
    watched.turn(watched.api, "say all green")
    watched.step()

    now = home.session(watched.watch)
    assert (1, 1, ["ask git push"]) == (now.generation, len(now.requests), [text for text, _ in watched.told()])


def test_a_watcher_gets_an_open_request_for_the_user(home: Home) -> None:
    watched = Watched(home, on=("request",))
    home.prompt(watched.api, "ask git push")
    until(lambda: home.session(watched.api).requests, what="the request")
    watched.step()

    [(prompt, _)] = watched.told()
    assert "> git push" in prompt
    assert "it waits for an answer" in prompt
    assert 1 == len(home.session(watched.api).requests)


def test_a_watcher_that_answers_the_request_is_refused_and_the_request_waits_on(home: Home) -> None:
    agents = {**SHIPPED, "odd": Profile(program=sys.executable, acp=("-P", str(ODD), "answers"), execution_mode="sdk")}
    new = NewSession(
        name="watch", agent="odd", workdir="/", public_environment=tuple(f"{k}={v}" for k, v in home.variables.items())
    )
    watch = asyncio.run(create(home.paths, Config(agents=agents), new))
    api = home.start("api")
    feeder, config = Feeder(home.paths), Config(watch=(WatchRule(session="watch", on=("request",)),))
    asyncio.run(feeder.step(config, read_fleet(home.paths), time.time()))
    home.prompt(api, "ask git push")
    until(lambda: home.session(api).requests, what="the request")
    asyncio.run(feeder.step(config, read_fleet(home.paths), time.time()))

    [said] = until(lambda: home.facts(MessageWritten, watch), what="the watcher's answer")
    assert "an agent cannot answer requests" in said.text
    assert 1 == len(home.session(api).requests)
    assert [] == home.facts(RequestAnswered, api)


def test_a_watcher_gets_failed_checks_once_with_their_names(
    home: Home, repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.git("remote", "add", "origin", ADDRESSES["gh"])
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    gh = ForgeClient(tmp_path / "bin", "gh", {"pr list": []})
    watch = home.start("watch")
    home.start("fix", workdir=str(repo.folder), worktree=True)
    feeder, config = Feeder(home.paths), Config(watch=(WatchRule(session="watch", on=("checks-failed",)),))

    def step(at: float) -> None:
        asyncio.run(feeder.step(config, read_fleet(home.paths), at))

    at = time.time()
    step(at)
    gh.says("pr list", GITHUB)
    step(at + 1)  # it is not asked so soon
    assert [] == prompts(home, watch)
    step(at + INTERVAL_S)
    until(lambda: home.session(watch).turns == 1 and is_ready(home.session(watch)), what="the watcher's turn")
    step(at + 2 * INTERVAL_S)

    [(prompt, by)] = prompts(home, watch)
    assert "checks of its pull request failed.\n> #7 open, checks failed, changes requested\n> test" in prompt
    assert "peer" == by


def test_a_watcher_gets_nothing_about_itself_and_prompts_over_the_limit_wait(home: Home) -> None:
    watched = Watched(home, per_hour=1)
    watched.turn(watched.watch, "say about me")
    watched.step()
    assert ["say about me"] == [prompt for prompt, _ in watched.told()]

    for text in ("say one", "say two", "say three"):
        watched.turn(watched.api, text)
        watched.step()
    until(lambda: home.session(watched.watch).turns == 2, what="the watcher's turn")
    watched.step()

    assert 2 == len(watched.told())
    assert "> one" in watched.told()[1][0]
    assert 1 == len(read_sent(home.paths, "watch"))


def test_a_missing_watcher_is_started_with_its_profile(home: Home) -> None:
    rule = WatchRule(session="watch", agent="scripted", folder="/", prompt=TASK)
    api, feeder = home.start("api"), Feeder(home.paths)
    config = Config(watch=(rule,))
    asyncio.run(feeder.step(config, read_fleet(home.paths), time.time()))
    home.prompt(api, "say green")
    until(lambda: home.session(api).finished_at > 0, what="the end of the turn")
    asyncio.run(feeder.step(config, read_fleet(home.paths), time.time()))

    [watcher] = [each for each in read_fleet(home.paths).sessions if each.name == "watch"]
    assert "> green" in prompts(home, watcher.id)[0][0]
    assert is_feeder_needed(config, read_fleet(home.paths))


def test_its_process_runs_without_a_dashboard_from_the_start_of_a_session(home: Home) -> None:
    home.paths.config.mkdir(parents=True, exist_ok=True)
    home.paths.config_file.write_text('[[watch]]\nsession = "watch"\nprompt = "Tell me."\n')
    watch, api = home.start("watch"), home.start("api")
    until(lambda: lock_holder(home.paths.feeder_lock) is not None, what="the feeder")

    def has_told() -> bool:
        if not home.session(api).awaits_turn:  # the feeder may begin to look after the first turn
            home.prompt(api, "say green")
        return bool(receipts(home, watch))

    until(has_told, what="a prompt of the watcher")
    assert "> green" in prompts(home, watch)[0][0]
