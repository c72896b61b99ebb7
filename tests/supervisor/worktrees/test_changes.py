"""What a worktree changed, on real repositories."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kasmon.errors import GitError
from kasmon.supervisor.worktrees.changes import (
    LARGEST,
    LONGEST,
    changed_files,
    diff,
    new_file_diffs,
    shorten,
    state_digest,
    touched_since_fork,
)
from tests.support.git_repo import Repo

pytestmark = pytest.mark.usefixtures("no_git_config")


def test_committed_uncommitted_new_and_deleted_files_are_listed(repo: Repo, tree: Path) -> None:
    base = repo.head
    repo.commit("sub/committed.txt", at=tree)
    (tree / "file0.txt").unlink()
    (tree / "größe \n.txt").touch()
    (tree / ".gitignore").write_text("*.o\n")
    (tree / "a.o").touch()

    assert (".gitignore", "file0.txt", "größe \n.txt", "sub/committed.txt") == changed_files(tree, base)
    assert changed_files(tree, base) == changed_files(tree / "sub", base)


def test_without_a_change_the_list_is_empty(repo: Repo, tree: Path) -> None:
    assert () == changed_files(tree, repo.head)
    assert "" == diff(tree, repo.head)


@pytest.mark.parametrize("habit", ["diff.noprefix", "diff.mnemonicPrefix"])
def test_the_diff_names_files_equally_under_any_git_config(repo: Repo, tree: Path, habit: str) -> None:
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


def test_the_diff_of_new_files_is_that_of_git(repo: Repo) -> None:
    """But for the line with the hashes; git runs once for each file."""
    contents = {
        "plain.txt": b"one\ntwo\n", "one.txt": b"one\n", "no newline": b"one\ntwo", "empty": b"", "x b/x b": b"",
        "crlf\ttab.txt": b"one\r\ntwo\r\n", 'quote"\\': b"q\n", "a\nb [red]\x1b[31m": b"+\n\n", "-rf": b"-\n",
        "größe\udcff": b"caf\xe9\n", "binary": b"a\0b", "dir \x7f/\a": b"\f\n", "script": b"#!/bin/sh\n",
    }  # fmt: skip
    for name, content in contents.items():
        (repo.folder / name).parent.mkdir(exist_ok=True)
        (repo.folder / name).write_bytes(content)
    (repo.folder / "script").chmod(0o755)
    (repo.folder / "link").symlink_to("/etc/passwd")
    (repo.folder / "folder").mkdir()

    for name in (*contents, "link"):
        words = ("git", "-c", "core.quotePath=false", "diff", "--no-index", "--", os.devnull, name)
        printed = subprocess.run(words, cwd=repo.folder, capture_output=True, check=False).stdout
        expected = [line for line in printed.split(b"\n") if not line.startswith(b"index ")]
        found = "".join(new_file_diffs(repo.folder, [name]))
        assert expected == found.encode("utf-8", "surrogateescape").split(b"\n")
    assert [] == list(new_file_diffs(repo.folder, ["gone", "folder"]))


def test_an_overlong_diff_still_lists_each_file(repo: Repo, tree: Path) -> None:
    """The long one is not the last one. A file that is larger still is binary, so that git does not compare it."""
    repo.commit("huge.txt", "x\n", at=tree)
    base = repo.git("rev-parse", "HEAD", at=tree)
    (tree / "file0.txt").write_text("long line\n" * (LONGEST // 8))
    (tree / "huge.txt").write_text("x" * (LARGEST + 1))
    (tree / "new huge.txt").write_text("x" * (LARGEST + 1))
    (tree / "small.txt").write_text("small\n")

    shown = shorten(diff(tree, base))

    assert len(shown) < LONGEST
    assert "+++ b/file0.txt\nNot shown: these changes are too long.\ndiff --git a/huge.txt" in shown
    assert "Binary files a/huge.txt and b/huge.txt differ\n" in shown
    assert "Binary files /dev/null and b/new huge.txt differ\n" in shown
    assert shown.endswith("+++ b/small.txt\n@@ -0,0 +1 @@\n+small\n")


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
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


def test_any_change_makes_another_state_and_reading_makes_none(repo: Repo, tree: Path) -> None:
    states = [state_digest(tree)]
    for name, change in changes(repo, tree).items():
        change()
        assert state_digest(tree) not in states, name
        states.append(state_digest(tree))
        assert states[-1] == state_digest(tree) == state_digest(tree / "sub" if (tree / "sub").is_dir() else tree), name
