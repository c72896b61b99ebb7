"""`kasmon hunks`: listed, one reverted or staged after a person agreed, and that undone."""

from tests.support.cli.cli_runner import Cli
from tests.support.cli.turns import started, write

LINES = [f"line {number}" for number in range(1, 31)]


def test_a_hunk_is_reverted_or_staged_once_the_user_confirms_and_can_be_undone(kasmon: Cli) -> None:
    repo = started(kasmon)
    repo.commit("a.txt", "\n".join(LINES) + "\n")
    path = repo.folder / "a.txt"
    changed = "\n".join(["one", *LINES[1:28], "more", *LINES[28:]]) + "\n"
    write(path, changed)
    (repo.folder / "file0.txt").unlink()

    hunks = kasmon.json("hunks", "one")["hunks"]
    assert [("a.txt", 1, 4, 1, 1), ("a.txt", 26, 31, 1, 0), ("file0.txt", 1, 1, 0, 1)] == [
        tuple(each[key] for key in ("file", "line", "last_line", "added", "removed")) for each in hunks
    ]
    assert ["a.txt:1-4", "+1", "-1"] == kasmon("hunks", "one").out.splitlines()[0].split()[:3]

    assert 2 == kasmon("hunks", "one", "revert", "a.txt:2", "--digest", hunks[0]["digest"]).code
    assert 4 == kasmon("hunks", "one", "revert", "--digest", "0" * 16).code
    assert 0 == kasmon("hunks", "one", "revert", "--digest", hunks[0]["digest"]).code
    assert "line 1\n" == path.read_text()[:7]
    assert 0 == kasmon("hunks", "one", "undo", "--yes").code

    refused = kasmon("hunks", "one", "revert", "a.txt:2")
    assert (4, changed) == (refused.code, path.read_text())
    assert "A hunk would be reverted in 'a.txt'. Pass --yes" in refused.err
    code, shown = kasmon.terminal("hunks", "one", "revert", "a.txt:2", typed=[("anything else to cancel:", "yes\r")])
    assert (0, "line 1\n") == (code, path.read_text()[:7]), shown
    assert "-line 1" in shown
    assert 4 == kasmon("hunks", "one", "undo").code
    assert kasmon.json("hunks", "one", "undo", "--yes")["done"]
    assert changed == path.read_text()

    assert 0 == kasmon("hunks", "one", "stage", f"{path}:29", "--yes").code
    assert "+more" in repo.git("diff", "--cached", "-U0")
    assert "-line 1" not in repo.git("diff", "--cached", "-U0")
    assert 0 == kasmon("hunks", "one", "revert", "file0.txt:1", "--yes").code
    assert "one\n" == (repo.folder / "file0.txt").read_text()


def test_an_unknown_hunk_is_refused(kasmon: Cli) -> None:
    repo = started(kasmon)
    write(repo.folder / "new.txt", "hello\n")

    assert 3 == kasmon("hunks", "one", "undo", "--yes").code
    missing = kasmon("hunks", "one", "revert", "new.txt:9", "--yes")
    assert 3 == missing.code
    assert "'new.txt' has no hunk at line 9. Its hunks have the lines 1-1." in missing.err
    assert 3 == kasmon("hunks", "one", "stage", "file0.txt:1", "--yes").code
    for words in (("revert",), ("ls", "new.txt:1"), ("undo", "new.txt:1"), ("stage", "new.txt")):
        assert 2 == kasmon("hunks", "one", *words, "--yes").code
