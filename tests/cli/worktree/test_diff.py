"""`kasmon diff`: what a session changed, in a turn or in all of its branch."""

from tests.support.cli.cli_runner import Cli
from tests.support.cli.turns import started, turn, write


def test_the_last_turn_any_turn_and_the_branch_are_distinguished(kasmon: Cli) -> None:
    repo = started(kasmon)
    turn(kasmon, lambda: write(repo.folder / "a.txt", "first\n"))
    write(repo.folder / "mine.txt", "by hand\n")
    turn(kasmon, lambda: write(repo.folder / "file0.txt", "two\n"))

    last = kasmon.json("diff", "one", "--last")
    assert (2, [{"file": "file0.txt", "added": 1, "removed": 1, "kind": "changed"}]) == (last["turn"], last["files"])
    assert "-one\n+two" in last["diff"]
    first = kasmon("diff", "one", "--turn", "1")
    assert "+first" in first.out
    assert "mine" not in first.out
    assert "a.txt  +1  -0  new\n1 file, +1 -0\n" == kasmon("diff", "one", "--turn", "1", "--stat").out
    branch = kasmon.json("diff", "one")
    assert (None, {"a.txt", "mine.txt", "file0.txt"}) == (branch["turn"], {each["file"] for each in branch["files"]})


def test_a_turn_that_is_not_stored_is_refused(kasmon: Cli) -> None:
    repo = started(kasmon)
    turn(kasmon, lambda: write(repo.folder / "a.txt", "first\n"))

    done = kasmon("diff", "one", "--turn", "9")
    assert 3 == done.code
    assert "The files of turn 9 are unknown: the stored turns are 1 to 1." in done.err


def test_file_content_is_printed_without_control_characters(kasmon: Cli) -> None:
    repo = started(kasmon)
    turn(kasmon, lambda: write(repo.folder / "a\x1b[31m.txt", "\x1b]0;title\x07\x1b[2J\n"))

    for words in (["--last"], ["--last", "--stat"], ["--last", "--json"], []):
        assert "\x1b" not in kasmon("diff", "one", *words).out


def test_a_session_without_a_worktree_is_reported(kasmon: Cli) -> None:
    kasmon.new("one", "")

    assert "is not in a git repository" in kasmon("diff", "one").err
    assert "no turn is stored" in kasmon("diff", "one", "--last").err
    assert 2 == kasmon("diff", "one", "--last", "--turn", "1").code
