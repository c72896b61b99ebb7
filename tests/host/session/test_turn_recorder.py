"""The files of each turn are stored, whichever way the host talks to the agent; a failure is told once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.model.events import NoticeRaised
from kasmon.repository.turn_trees import TurnTrees
from kasmon.store.event_log import EventLog
from tests.support.cli.cli_runner import Cli
from tests.support.cli.turns import turn, write
from tests.support.git_repo import Repo
from tests.support.wait import until

pytestmark = pytest.mark.story


@pytest.fixture
def kasmon() -> Iterator[Cli]:
    kasmon = Cli()
    yield kasmon
    kasmon.close()


def started(kasmon: Cli, mode: str = "sdk") -> tuple[Repo, str]:
    repo = Repo(kasmon.home / "repo")
    done = kasmon("new", "one", "--agent", "scripted", "--mode", mode, "--dir", str(repo.folder))
    assert 0 == done.code, done.err
    return repo, done.out.strip()


@pytest.mark.parametrize("mode", ["sdk", "tmux"])
def test_a_turn_is_stored_for_a_structured_and_for_a_terminal_session(kasmon: Cli, mode: str) -> None:
    repo, session = started(kasmon, mode)
    until(lambda: kasmon.json("show", "one")["session"]["state"] == "idle", 30)
    turn(kasmon, lambda: write(repo.folder / "a.txt", "agent\n"))

    trees = TurnTrees(kasmon.paths.turns(session))
    found = trees.turn()
    assert b"a.txt\0" == trees.diff(found.before, found.after, "--name-only", "-z")
    assert found.began_at <= found.ended_at


def test_a_failure_is_reported_once_and_stops_no_turn(kasmon: Cli) -> None:
    _, session = started(kasmon)
    kasmon.paths.turns(session).write_text("in the way")

    for _ in range(2):
        assert 0 == kasmon("send", "one", "say hello").code
        assert 0 == kasmon("wait", "one", "--for", "idle").code
    log = EventLog(kasmon.paths.log(session))
    texts = until(lambda: [event.text for event, _ in log.read() if isinstance(event, NoticeRaised)], 30)
    assert 1 == len(texts)
    assert texts[0].startswith("The files before and after turns are not stored: ")


def test_nothing_is_stored_if_the_setting_is_off_or_there_is_no_repository(kasmon: Cli) -> None:
    write(Path(kasmon.environment["XDG_CONFIG_HOME"]) / "kasmon" / "config.toml", "[review]\nturns = false\n")
    _, session = started(kasmon)
    assert 0 == kasmon("send", "one", "say hello").code
    assert 0 == kasmon("stop", "one").code

    assert not kasmon.paths.turns(session).exists()
    (Path(kasmon.environment["XDG_CONFIG_HOME"]) / "kasmon" / "config.toml").unlink()
    other = kasmon.new("two", "say hello")
    assert 0 == kasmon("stop", "two").code
    assert not kasmon.paths.turns(other).exists()
