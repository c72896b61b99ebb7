"""`kasmon undo`: the files of a turn get their earlier contents, after a person agreed."""

from tests.support.cli.cli_runner import Cli
from tests.support.cli.turns import started, turn, write


def test_a_turn_is_undone_once_the_user_confirms_and_the_undo_is_reverted(kasmon: Cli) -> None:
    repo = started(kasmon)
    turn(kasmon, lambda: write(repo.folder / "file0.txt", "two\n"))
    head = repo.head

    refused = kasmon("undo", "one")
    assert (4, "two\n") == (refused.code, (repo.folder / "file0.txt").read_text())
    assert "1 file in" in refused.err
    assert "  file0.txt\n" == kasmon("undo", "one", "--dry-run").out
    code, shown = kasmon.terminal("undo", "one", typed=[("anything else to cancel:", "no\r")])
    assert (4, "two\n") == (code, (repo.folder / "file0.txt").read_text())
    code, shown = kasmon.terminal("undo", "one", typed=[("anything else to cancel:", "yes\r")])
    assert 0 == code, shown
    assert "turn 1 is undone in 1 file" in shown
    assert "one\n" == (repo.folder / "file0.txt").read_text()
    assert 0 == kasmon("undo", "one", "--redo", "--yes").code
    assert ("two\n", head) == ((repo.folder / "file0.txt").read_text(), repo.head)


def test_nothing_is_undone_if_a_file_changed_since_the_turn(kasmon: Cli) -> None:
    repo = started(kasmon)

    def change() -> None:
        for name in ("file0.txt", "b.txt"):
            write(repo.folder / name, "agent\n")

    turn(kasmon, change)
    write(repo.folder / "file0.txt", "person\n")

    done = kasmon("undo", "one", "--yes")
    assert 4 == done.code
    assert "Nothing was restored: 'file0.txt' changed since." in done.err
    assert ("person\n", "agent\n") == tuple((repo.folder / name).read_text() for name in ("file0.txt", "b.txt"))
    assert ["file0.txt"] == kasmon.json("undo", "one", "--dry-run")["changed_since"]


def test_nothing_is_undone_while_a_turn_runs(kasmon: Cli) -> None:
    repo = started(kasmon)
    turn(kasmon, lambda: write(repo.folder / "a.txt", "agent\n"))
    assert 0 == kasmon("send", "one", "ask true").code
    kasmon.request()

    done = kasmon("undo", "one", "--yes")
    assert 4 == done.code
    assert "kasmon wait" in done.err
    assert (repo.folder / "a.txt").exists()
