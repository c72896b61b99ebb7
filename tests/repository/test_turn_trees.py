"""The files of turns: stored beside the user's repository, shown as changes, and restored."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from kasmon.errors import NotFoundError, RefusedError
from kasmon.repository.turn_trees import MOST_NEW_BYTES, TIDY_TURNS, TurnTrees
from tests.support.git_repo import Repo

ODD = "odd \t'\"$(touch x);漢\udcff.txt"


@pytest.fixture
def trees(tmp_path: Path) -> TurnTrees:
    return TurnTrees(tmp_path / "turns.git")


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file and link below *folder*, git's own too, with mode and content; but git's cache of file times."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_symlink():
            found[str(path.relative_to(folder))] = (0, os.fsencode(path.readlink()))
        elif path.is_file():
            found[str(path.relative_to(folder))] = (path.stat().st_mode, path.read_bytes())
    return found


def names(trees: TurnTrees, before: str, after: str) -> list[str]:
    return sorted(os.fsdecode(name) for name in trees.diff(before, after, "--name-only", "-z").split(b"\0") if name)


def changed(trees: TurnTrees) -> list[str]:
    turn = trees.turn()
    return names(trees, turn.before, turn.after)


def test_the_changes_of_a_turn_are_known_file_by_file(repo: Repo, trees: TurnTrees) -> None:
    repo.commit("src/kept.py")
    repo.commit("src/gone.py")
    assert 1 == trees.begin(repo.folder / "src")
    (repo.folder / "file0.txt").write_text("two\n")
    (repo.folder / "src" / "gone.py").unlink()
    (repo.folder / ODD).write_text("new\n")
    (repo.folder / "link").symlink_to("/etc/passwd")
    trees.end(repo.folder, 1)

    assert sorted(["file0.txt", "src/gone.py", "link", ODD]) == changed(trees)


def test_changes_of_the_user_between_two_turns_belong_to_neither(repo: Repo, trees: TurnTrees) -> None:
    trees.end(repo.folder, trees.begin(repo.folder) or 0)
    (repo.folder / "mine.txt").write_text("by hand\n")
    second = trees.begin(repo.folder) or 0
    (repo.folder / "theirs.txt").write_text("by the agent\n")
    trees.end(repo.folder, second)

    assert ["theirs.txt"] == changed(trees)
    assert ["mine.txt"] == names(trees, trees.turn(1).after, trees.turn(2).before)


def test_commits_and_staging_do_not_hide_a_turns_changes(repo: Repo, trees: TurnTrees) -> None:
    trees.begin(repo.folder)
    repo.commit("committed.txt")
    (repo.folder / "staged.txt").write_text("x")
    repo.git("add", "staged.txt")
    trees.end(repo.folder, 1)

    assert ["committed.txt", "staged.txt"] == changed(trees)


def test_nothing_is_written_into_the_users_repository(repo: Repo, trees: TurnTrees) -> None:
    (repo.folder / "new.txt").write_text("x")
    before = state(repo.folder)
    trees.begin(repo.folder)
    trees.end(repo.folder, 1)
    trees.now(repo.folder)

    assert before == state(repo.folder)
    assert 0 == trees.store.stat().st_mode & 0o077


def test_ignored_files_repositories_within_and_large_new_files_are_left_out(repo: Repo, trees: TurnTrees) -> None:
    repo.commit(".gitignore", "*.log\n")
    (repo.folder / ".git" / "info" / "exclude").write_text("excluded\n")
    Path.home().joinpath(".gitconfig").write_text(f"[core]\nexcludesFile = {Path.home() / 'mine'}\n")
    Path.home().joinpath("mine").write_text("*.swp\n")
    trees.begin(repo.folder)
    for name in ("a.log", "excluded", "a.swp", "kept"):
        (repo.folder / name).write_text("x")
    with (repo.folder / "large").open("wb") as large:
        large.truncate(MOST_NEW_BYTES + 1)
    Repo(repo.folder / "inner", commits=0)
    os.mkfifo(repo.folder / "pipe")
    trees.end(repo.folder, 1)

    assert ["kept"] == changed(trees)


def test_a_tracked_file_that_is_ignored_is_stored(repo: Repo, trees: TurnTrees) -> None:
    repo.commit("kept.log")
    repo.commit(".gitignore", "*.log\n")
    trees.begin(repo.folder)
    (repo.folder / "kept.log").write_text("two\n")
    trees.end(repo.folder, 1)

    assert ["kept.log"] == changed(trees)


def test_no_filter_line_end_or_attribute_changes_a_byte(repo: Repo, trees: TurnTrees, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    attributes = "* text=auto eol=crlf\n*.f filter=bad\n*.id ident\n*.u working-tree-encoding=UTF-16\n"
    repo.commit(".gitattributes", attributes)
    for setting in ("clean", "smudge", "process"):
        repo.git("config", f"filter.bad.{setting}", f"touch {ran}; cat")
    repo.git("config", "core.fsmonitor", f"touch {ran}")
    contents = {"a.f": b"raw\r\n\n", "b.id": b"$Id$\n", "c.u": b"\xff\xfeno utf-16", "d.txt": b"one\r\ntwo\n"}
    for name, content in contents.items():
        (repo.folder / name).write_bytes(content)
    trees.begin(repo.folder)
    for name in contents:
        (repo.folder / name).write_bytes(b"changed")
    trees.end(repo.folder, 1)
    turn = trees.turn()

    assert () == trees.restore(repo.folder, trees.plan(repo.folder, turn.after, turn.before))
    assert contents == {name: (repo.folder / name).read_bytes() for name in contents}
    assert not ran.exists()


def test_a_folder_that_is_no_repository_has_no_turns(trees: TurnTrees, tmp_path: Path) -> None:
    assert trees.begin(tmp_path) is None
    assert () == trees.turns()
    with pytest.raises(NotFoundError, match="no turn is stored"):
        trees.turn()


def test_a_store_that_git_has_begun_to_create_has_no_turns_and_the_next_one_completes_it(
    repo: Repo, trees: TurnTrees
) -> None:
    trees.store.mkdir()
    (trees.store / "HEAD").write_text("ref: refs/heads/main\n")

    assert () == trees.turns()
    assert 1 == trees.begin(repo.folder)
    assert [1] == [turn.number for turn in trees.turns()]


def test_an_unknown_turn_is_refused_with_the_known_ones(repo: Repo, trees: TurnTrees) -> None:
    trees.begin(repo.folder)

    with pytest.raises(NotFoundError, match=r"The files of turn 7 are unknown: the stored turns are 1 to 1\."):
        trees.turn(7)


def test_a_turn_is_undone_in_the_files_alone(repo: Repo, trees: TurnTrees) -> None:
    repo.commit("run.sh")
    (repo.folder / "run.sh").chmod(0o700)
    (repo.folder / "secret").write_text("s")
    (repo.folder / "secret").chmod(0o600)
    (repo.folder / "link").symlink_to("file0.txt")
    was = state(repo.folder)
    trees.begin(repo.folder)
    (repo.folder / "run.sh").unlink()
    (repo.folder / "run.sh").mkdir()
    (repo.folder / "run.sh" / "deep").write_text("x")
    (repo.folder / "secret").write_text("t")
    (repo.folder / "link").unlink()
    (repo.folder / "link").write_text("no link")
    (repo.folder / "new" / "er").mkdir(parents=True)
    (repo.folder / "new" / "er" / "file").write_text("x")
    trees.end(repo.folder, 1)
    done, turn = state(repo.folder), trees.turn()

    assert () == trees.restore(repo.folder, trees.plan(repo.folder, turn.after, turn.before))
    restored = state(repo.folder)
    assert {**was, "run.sh": (restored["run.sh"][0], b"one\n")} == restored
    assert restored["run.sh"][0] & 0o100
    assert not (repo.folder / "new").exists()

    before, after = trees.last_restore()
    assert () == trees.restore(repo.folder, trees.plan(repo.folder, after, before))
    assert done == state(repo.folder)


def test_what_changed_since_the_turn_is_named_and_since_the_plan_stays(repo: Repo, trees: TurnTrees) -> None:
    trees.begin(repo.folder)
    (repo.folder / "file0.txt").write_text("agent\n")
    (repo.folder / "other").write_text("agent\n")
    trees.end(repo.folder, 1)
    (repo.folder / "file0.txt").write_text("person\n")
    turn, was = trees.turn(), state(repo.folder)
    plan = trees.plan(repo.folder, turn.after, turn.before)

    assert ("file0.txt",) == plan.changed_since
    with pytest.raises(RefusedError, match=r"Nothing was restored: 'file0\.txt' changed since\."):
        trees.restore(repo.folder, plan)
    assert was == state(repo.folder)

    (repo.folder / "file0.txt").write_text("agent\n")
    plan = trees.plan(repo.folder, turn.after, turn.before)
    (repo.folder / "file0.txt").write_text("person\n")

    assert ("'file0.txt': it changed in the meantime",) == trees.restore(repo.folder, plan)
    assert "person\n" == (repo.folder / "file0.txt").read_text()
    assert not (repo.folder / "other").exists()


def test_a_restore_follows_no_link_out_of_the_worktree(repo: Repo, trees: TurnTrees, tmp_path: Path) -> None:
    repo.commit("src/a.txt")
    trees.begin(repo.folder)
    (repo.folder / "src" / "a.txt").write_text("agent\n")
    trees.end(repo.folder, 1)
    turn = trees.turn()
    plan = trees.plan(repo.folder, turn.after, turn.before)
    outside = tmp_path / "outside"
    (repo.folder / "src").rename(outside)
    (repo.folder / "src").symlink_to(outside)

    assert 1 == len(trees.restore(repo.folder, plan))
    assert "agent\n" == (outside / "a.txt").read_text()


def test_a_folder_that_became_a_link_is_stored_as_that(repo: Repo, trees: TurnTrees, tmp_path: Path) -> None:
    repo.commit("src/a.txt")
    trees.begin(repo.folder)
    (repo.folder / "src").rename(tmp_path / "outside")
    (repo.folder / "src").symlink_to(tmp_path / "outside")
    trees.end(repo.folder, 1)

    assert ["src", "src/a.txt"] == changed(trees)


def test_old_turns_are_dropped_with_their_objects(repo: Repo, tmp_path: Path) -> None:
    trees = TurnTrees(tmp_path / "turns.git", most_turns=TIDY_TURNS // 2)
    for number in range(TIDY_TURNS):
        (repo.folder / "new.txt").write_text(f"{number}")
        trees.end(repo.folder, trees.begin(repo.folder) or 0)

    assert list(range(TIDY_TURNS // 2 + 1, TIDY_TURNS + 1)) == [turn.number for turn in trees.turns()]
    for content, is_gone in (("3", True), (f"{TIDY_TURNS - 1}", False)):
        (repo.folder / "new.txt").write_text(content)
        blob = repo.git("hash-object", "new.txt")
        asked = ["git", f"--git-dir={trees.store}", "cat-file", "-e", blob]
        assert is_gone == bool(subprocess.run(asked, capture_output=True, check=False).returncode)


@pytest.mark.parametrize("seed", range(6))
def test_any_turn_is_undone_and_redone_byte_by_byte(repo: Repo, trees: TurnTrees, seed: int) -> None:
    chance = random.Random(seed)
    tops = [repo.folder / name for name in ("a", "b/c", "b/d/e", ODD, "f")]

    def act() -> None:
        path = chance.choice(tops)
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif chance.random() < 0.5 and not any(part.is_file() or part.is_symlink() for part in path.parents):
            path.parent.mkdir(parents=True, exist_ok=True)
            if chance.random() < 0.3:
                path.symlink_to("somewhere")
            else:
                path.write_bytes(chance.randbytes(20))
                path.chmod(chance.choice([0o644, 0o755]))

    for _ in range(8):
        act()
    was = state(repo.folder)
    trees.begin(repo.folder)
    for _ in range(12):
        act()
    trees.end(repo.folder, 1)
    done, turn = state(repo.folder), trees.turn()

    assert () == trees.restore(repo.folder, trees.plan(repo.folder, turn.after, turn.before))
    assert was == state(repo.folder)
    before, after = trees.last_restore()
    assert () == trees.restore(repo.folder, trees.plan(repo.folder, after, before))
    assert done == state(repo.folder)


def test_a_submodule_and_a_file_that_only_head_has_are_left_out(repo: Repo, trees: TurnTrees, tmp_path: Path) -> None:
    other = Repo(tmp_path / "other")
    repo.git("submodule", "--quiet", "add", str(other.folder), "inner")
    repo.git("commit", "--quiet", "-m", "add inner")
    repo.commit("gone.txt")
    (repo.folder / "gone.txt").unlink()

    trees.begin(repo.folder)

    listed = ["git", f"--git-dir={trees.store}", "ls-tree", "-r", "--name-only", trees.turn().before]
    assert b".gitmodules\nfile0.txt\n" == subprocess.run(listed, capture_output=True, check=True).stdout
