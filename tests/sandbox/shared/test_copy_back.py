"""What was made in a sandbox's copy of a folder comes into that folder, and nothing else changes there."""

import os
from pathlib import Path

import pytest

from kasmon.sandbox.shared.copy_back import fetched, store_folder_state
from kasmon.sandbox.shared.safe_tree import copy, remove_tree


class Both:
    """A folder, and a sandbox's copy of it."""

    def __init__(self, root: Path) -> None:
        self.folder, self.copy, self.note = root / "folder", root / "copy", root / "note.json"
        self.folder.mkdir()
        for name in ("same", "edited", "gone", "run.sh"):
            (self.folder / name).write_text(name)
        (self.folder / "run.sh").chmod(0o755)
        (self.folder / "part").mkdir()
        (self.folder / "part" / "x").write_text("x")
        (self.folder / ".git").write_text("gitdir: /elsewhere")
        (self.folder / "link").symlink_to("same")

    def begin(self) -> None:
        store_folder_state(self.folder, self.note)
        copy(self.folder, self.copy, (os.geteuid(), os.getegid()), limit_bytes=1 << 20, limit_entries=100)

    def fetch(self) -> tuple[str, ...]:
        return fetched(self.copy, self.folder, self.note)

    def facts(self) -> dict[str, tuple[int, int]]:
        found = sorted(self.folder.rglob("*"))
        return {str(path): (path.lstat().st_mode, path.lstat().st_ino) for path in found}


@pytest.fixture
def both(tmp_path: Path) -> Both:
    both = Both(tmp_path)
    both.begin()
    return both


def test_files_made_changed_and_removed_in_the_guest_are_copied_and_the_rest_is_unchanged(both: Both) -> None:
    before = both.facts()
    (both.copy / "edited").write_text("inside")
    (both.copy / "gone").unlink()
    (both.copy / "part" / "made").write_text("made")
    (both.copy / "run.sh").write_text("#!/bin/sh")
    (both.copy / "run.sh").chmod(0o6755)
    (both.copy / "part" / "made").chmod(0o6644)

    assert () == both.fetch()
    assert ["inside", "made", "#!/bin/sh"] == [
        (both.folder / name).read_text() for name in ("edited", "part/made", "run.sh")
    ]
    assert not (both.folder / "gone").exists()
    assert 0o755 == (both.folder / "run.sh").stat().st_mode & 0o7777
    assert 0o644 == (both.folder / "part" / "made").stat().st_mode & 0o7777
    after = both.facts()
    unchanged = [str(both.folder / name) for name in ("same", "part", "part/x", ".git", "link")]
    assert [before[path] for path in unchanged] == [after[path] for path in unchanged]


def test_without_a_change_in_the_guest_nothing_is_done_outside(both: Both) -> None:
    before = both.facts()

    assert () == both.fetch()
    assert before == both.facts()


def test_an_outside_change_stays_and_a_change_on_both_sides_is_kept_beside_it(both: Both) -> None:
    (both.folder / "same").write_text("outside")
    (both.folder / "edited").write_text("outside")
    (both.copy / "edited").write_text("inside")
    (both.folder / "gone").write_text("outside")
    (both.copy / "gone").unlink()

    missed = both.fetch()

    assert [
        "'edited' was changed here and in the sandbox",
        "'gone' was changed here and removed in the sandbox",
    ] == sorted(each.partition(":")[0] for each in missed)
    assert ["outside", "outside", "inside", "outside"] == [
        (both.folder / name).read_text() for name in ("same", "edited", "edited.inside", "gone")
    ]


def test_it_can_be_fetched_again_after_more_was_done(both: Both) -> None:
    for text in ("one", "two"):
        (both.copy / "edited").write_text(text)
        assert () == both.fetch()
        assert text == (both.folder / "edited").read_text()


def test_no_file_of_git_is_copied_and_no_link_is_followed(both: Both, tmp_path: Path) -> None:
    (tmp_path / "away").mkdir()
    (both.copy / ".git").write_text(f"gitdir: {both.copy}/evil")
    (both.copy / "part" / ".GIT").mkdir()
    (both.copy / "part" / ".GIT" / "config").write_text("[core]")
    (both.copy / "away").symlink_to(tmp_path / "away")
    (both.folder / "into").symlink_to(tmp_path / "away")
    (both.copy / "into").mkdir()
    (both.copy / "into" / "x").write_text("x")

    both.fetch()

    assert "gitdir: /elsewhere" == (both.folder / ".git").read_text()
    assert not (both.folder / "part" / ".GIT").exists()
    assert [] == list((tmp_path / "away").iterdir())
    assert (both.folder / "away").is_symlink()


def test_a_folder_that_a_sandbox_used_itself_has_nothing_to_copy_back(tmp_path: Path) -> None:
    assert () == fetched(tmp_path / "none", tmp_path, tmp_path / "note")


@pytest.mark.parametrize("is_file", [False, True])
def test_a_folder_removed_in_the_guest_stays_with_files_that_others_added(both: Both, *, is_file: bool) -> None:
    (both.folder / "part" / "of-others").write_text("theirs")
    remove_tree(both.copy / "part")
    if is_file:
        (both.copy / "part").write_text("a file now")

    assert both.fetch()
    assert "theirs" == (both.folder / "part" / "of-others").read_text()
    assert not (both.folder / "part" / "x").exists()
