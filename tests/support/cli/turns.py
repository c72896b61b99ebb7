"""A structured scripted session in a git repository, and a turn of it that changes files."""

from collections.abc import Callable
from pathlib import Path

from kasmon.repository.turn_trees import TurnTrees
from tests.support.cli.cli_runner import Cli
from tests.support.git_repo import Repo
from tests.support.wait import until


def started(kasmon: Cli) -> Repo:
    """A repository in which the session `one` has started, without a turn."""
    repo = Repo(kasmon.home / "repo")
    kasmon.new("one", "", "--dir", str(repo.folder))
    return repo


def turn(kasmon: Cli, change: Callable[[], object], session: str = "one") -> None:
    """Let *session* do a turn, and *change* happen in it."""
    trees = TurnTrees(kasmon.paths.turns(kasmon.json("show", session)["session"]["id"]))
    count = len(trees.turns())
    assert 0 == kasmon("send", session, "ask true").code
    request = kasmon.request()["id"]
    until(lambda: len(trees.turns()) > count, 30)
    change()
    assert 0 == kasmon("answer", request, "allow", "--digest", digest(kasmon, request)).code
    until(lambda: trees.turns()[-1].after, 30)


def digest(kasmon: Cli, request: str) -> str:
    [found] = [each for each in kasmon.json("inbox")["requests"] if each["id"] == request]
    return str(found["digest"])


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
