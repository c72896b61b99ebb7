"""Folders of a jail's making, handled from outside: no link is followed, and nothing is too odd to remove."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kasmon.errors import RefusedError
from kasmon.sandbox.shared.safe_tree import DEEPEST, copy, is_same, measure_tree, remove_tree

MINE = (os.geteuid(), os.getegid())
MANY: Any = {"limit_bytes": 1 << 20, "limit_entries": 1000}


def deep(top: Path, levels: int) -> None:
    """Folders in folders, each called `d`, with a file at the bottom; deeper than a path can be long."""
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """What a link leads to."""
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "file").write_bytes(bytes(1 << 16))
    return folder


def test_removing_a_folder_follows_no_link_out_of_it(tmp_path: Path, precious: Path) -> None:
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "link").symlink_to(precious)
    (top / "a" / "b" / "link").symlink_to(precious)
    remove_tree(top)

    assert not top.exists()
    assert (precious / "file").exists()


def test_a_link_in_the_place_of_a_folder_is_not_followed(tmp_path: Path, precious: Path) -> None:
    (tmp_path / "top").symlink_to(precious)
    with pytest.raises(OSError, match="Not a directory"):
        remove_tree(tmp_path / "top")

    assert (precious / "file").exists()


def test_any_depth_permission_or_name_can_be_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    deep(top, 2100)
    for name in (b"new\nline", b"\xff\xfe", b".1", b".2", b"-rf"):
        (tmp_path / "top" / os.fsdecode(name)).mkdir()
        (tmp_path / "top" / os.fsdecode(name) / "x").mkdir()
    os.mkfifo(top / "pipe")
    (top / "closed").mkdir()
    (top / "closed" / "below").mkdir()
    (top / "closed" / "below").chmod(0)
    (top / "closed").chmod(0)
    remove_tree(top)

    assert not top.exists()
    remove_tree(top)


def test_files_in_folders_are_measured_and_links_lead_nowhere(tmp_path: Path, precious: Path) -> None:
    top = tmp_path / "top"
    (top / "a").mkdir(parents=True)
    (top / "a" / "one").write_bytes(b"x" * 10_000)
    (top / "a" / "same").hardlink_to(top / "a" / "one")
    (top / "hole").write_bytes(b"")
    os.truncate(top / "hole", 1 << 30)
    before = measure_tree(top)
    (top / "link").symlink_to(precious)

    assert before.whole
    assert 10_000 <= before.bytes < 40_000
    assert 4 == before.entries
    assert measure_tree(top).bytes - before.bytes < 1 << 16
    assert measure_tree(top, precious).bytes - before.bytes >= 1 << 16
    assert 0 == measure_tree(tmp_path / "none").bytes


def test_followed_links_would_be_measured(tmp_path: Path, precious: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "link").symlink_to(precious / "file")
    scandir = os.scandir

    class Followed:
        def __init__(self, entry: os.DirEntry[str]) -> None:
            self.name, self.stat = entry.name, lambda follow_symlinks: entry.stat()

    @contextlib.contextmanager
    def following(handle: int) -> Iterator[list[Followed]]:
        with scandir(handle) as entries:
            yield [Followed(entry) for entry in entries]

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", following)
        assert measure_tree(top).bytes >= 1 << 16


def test_folders_that_are_too_deep_are_not_measured_and_that_is_reported(tmp_path: Path) -> None:
    deep(tmp_path / "deep", DEEPEST + 5)
    deep(tmp_path / "flat", 3)

    assert not measure_tree(tmp_path / "deep").whole
    assert measure_tree(tmp_path / "flat").whole
    remove_tree(tmp_path / "deep")


def test_a_copy_has_files_folders_and_links_and_nothing_special(tmp_path: Path, precious: Path) -> None:
    source = tmp_path / "source"
    (source / "a" / "empty").mkdir(parents=True)
    (source / "a" / "run").write_text("x")
    (source / "a" / "run").chmod(0o4755)
    (source / "link").symlink_to(precious)
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(source / "door"))
        copy(source, tmp_path / "copy", MINE, **MANY)
    made = sorted(str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*"))

    assert ["a", "a/empty", "a/run", "link"] == made
    assert 0o700 == (tmp_path / "copy" / "a" / "run").stat().st_mode & 0o7777
    assert str(precious) == str((tmp_path / "copy" / "link").readlink())


@pytest.mark.parametrize("limits", [{"limit_bytes": 9, "limit_entries": 9}, {"limit_bytes": 99, "limit_entries": 2}])
def test_nothing_is_copied_from_a_folder_that_is_too_large(tmp_path: Path, limits: Any) -> None:
    source = tmp_path / "source"
    (source / "a").mkdir(parents=True)
    for name in ("one", "two"):
        (source / "a" / name).write_text("12345")

    with pytest.raises(RefusedError, match="too large"):
        copy(source, tmp_path / "copy", MINE, **limits)
    assert not (tmp_path / "copy").exists()


def test_a_copy_is_equal_until_either_side_changes(tmp_path: Path) -> None:
    """Modes, owners and special files are not copied, so they tell nothing."""
    source, copied = tmp_path / "source", tmp_path / "copied"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "file").write_text("one")
    (source / "link").symlink_to("deep/file")
    os.mkfifo(source / "pipe")
    copy(source, copied, MINE, **MANY)
    (copied / "deep" / "file").chmod(0o400)
    assert is_same(copied, source)

    for change in (
        "echo > copied/new",
        "echo -n two > copied/deep/file",
        "echo -n more > copied/deep/file",
        "rm copied/deep/file",
        "ln -sfn deep copied/link",
        "rm copied/link; echo -n one > copied/link",
        "mkfifo copied/pipe",
        "mkdir source/later",
    ):
        remove_tree(copied)
        copy(source, copied, MINE, **MANY)
        subprocess.run(["sh", "-c", change], cwd=tmp_path, check=True)
        assert not is_same(copied, source), change


def test_the_comparison_of_a_copy_follows_no_link_and_works_at_any_depth(tmp_path: Path, precious: Path) -> None:
    source, copied = tmp_path / "source", tmp_path / "copied"
    source.mkdir()
    deep(copied, 3 * DEEPEST)
    assert not is_same(copied, source)
    assert not is_same(tmp_path / "none", source)
    (tmp_path / "link").symlink_to(precious)
    assert not is_same(tmp_path / "link", precious)
