"""What a worktree changed, on real repositories."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kasmon.errors import GitError
from kasmon.supervisor.worktrees.changes import changed_files, diff, state_digest, touched_since_fork
from tests.support.git_repo import Repo

pytestmark = pytest.mark.usefixtures("no_git_config")


def test_what_changed_is_committed_uncommitted_new_and_gone(repo: Repo, tree: Path) -> None:
    base = repo.head
    repo.commit("sub/committed.txt", at=tree)
    (tree / "file0.txt").unlink()
    (tree / "größe \n.txt").touch()
    (tree / ".gitignore").write_text("*.o\n")
    (tree / "a.o").touch()

    assert (".gitignore", "file0.txt", "größe \n.txt", "sub/committed.txt") == changed_files(tree, base)
    assert changed_files(tree, base) == changed_files(tree / "sub", base)


def test_nothing_changed_is_nothing(repo: Repo, tree: Path) -> None:
    assert () == changed_files(tree, repo.head)
    assert "" == diff(tree, repo.head)


@pytest.mark.parametrize("habit", ["diff.noprefix", "diff.mnemonicPrefix"])
def test_the_diff_names_files_alike_whatever_a_persons_own_git_shows(repo: Repo, tree: Path, habit: str) -> None:
    repo.git("config", habit, "true")
    (tree / "file0.txt").write_text("another\n")
    (tree / "new.txt").write_text("brand new\n")

    shown = diff(tree, repo.head)

    assert ["--- a/file0.txt", "+++ b/file0.txt", "--- /dev/null", "+++ b/new.txt"] == [
        line for line in shown.splitlines() if line.startswith(("--- ", "+++ "))
    ]
    assert {"file0.txt", "new.txt"} == set(touched_since_fork(tree).files)


def test_the_diff_holds_new_files_too_and_runs_nothing(repo: Repo, tree: Path, tmp_path: Path) -> None:
    (tree / "file0.txt").write_text("two\n")
    (tree / "new.txt").write_text("brand new\n")
    (tree / ".gitattributes").write_text("*.txt diff=evil\n")
    for key in ("diff.evil.textconv", "diff.evil.command", "diff.external"):
        repo.git("config", key, f"touch {tmp_path / 'ran'};")

    shown = diff(tree, repo.head)

    assert "-one\n+two\n" in shown
    assert "+++ b/new.txt\n@@ -0,0 +1 @@\n+brand new\n" in shown
    assert not (tmp_path / "ran").exists()


def test_a_folder_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="is gone"):
        changed_files(tmp_path / "gone", "HEAD")


# The state of a worktree


def folder(tree: Path) -> None:
    (tree / "sub").mkdir()
    (tree / "sub" / "a").touch()
    (tree / "sub" / "b").touch()


def changes(repo: Repo, tree: Path) -> dict[str, Callable[[], object]]:
    """What makes it another state."""
    return {
        "edited": lambda: (tree / "file0.txt").write_text("other\n"),
        "edited since": lambda: (tree / "file0.txt").write_text("yet another\n"),
        "new": lambda: (tree / "new.txt").touch(),
        "new below": lambda: folder(tree),
        "of new ones one changed": lambda: (tree / "sub" / "b").write_text("x"),
        "staged": lambda: repo.git("add", "new.txt", at=tree),
        "committed": lambda: repo.git("commit", "--quiet", "-m", "x", at=tree),
        "deleted": lambda: (tree / "new.txt").unlink(),
    }


def test_any_change_makes_another_state_and_a_look_makes_none(repo: Repo, tree: Path) -> None:
    states = [state_digest(tree)]
    for name, change in changes(repo, tree).items():
        change()
        assert state_digest(tree) not in states, name
        states.append(state_digest(tree))
        assert states[-1] == state_digest(tree) == state_digest(tree / "sub" if (tree / "sub").is_dir() else tree), name
