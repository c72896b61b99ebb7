"""Files handed to an agent inside: copies for it alone, taken away again, and no link of its making ever followed."""

import os
import stat
from pathlib import Path

import pytest

from kasmon.errors import RefusedError
from kasmon.model.sandbox.policy import CopiedFile
from kasmon.sandbox.agent import credential_files

ME = (os.getuid(), os.getgid())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "inside").mkdir()
    return tmp_path / "inside"


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "outside"
    (folder / ".agent").mkdir(parents=True)
    (folder / ".agent" / "login").write_text("token")
    monkeypatch.setenv("HOME", str(folder))
    return folder


def test_a_copy_is_below_the_home_at_the_same_path_and_private(home: Path, outside: Path) -> None:
    files = [
        CopiedFile(source="~/.agent/login"),
        CopiedFile(source="~/.agent/none"),
        CopiedFile(source="~/.agent/login", target="x/y"),
    ]

    assert ("~/.agent/login", "~/.agent/login") == credential_files.copy_in(files, home, ME)
    for copy in (home / ".agent" / "login", home / "x" / "y"):
        assert "token" == copy.read_text()
        assert 0o600 == stat.S_IMODE(copy.stat().st_mode)
    (outside / ".agent" / "login").write_text("renewed")
    credential_files.copy_in(files, home, ME)
    assert "renewed" == (home / ".agent" / "login").read_text()
    credential_files.remove_copies(files, home)
    credential_files.remove_copies(files, home)
    assert [] == [path for path in home.rglob("*") if path.is_file()]


def test_a_link_at_the_target_is_replaced_and_one_in_its_path_refused(home: Path, outside: Path) -> None:
    mine = outside / "mine"
    mine.write_text("whole")
    (home / ".agent").mkdir()
    (home / ".agent" / "login").symlink_to(mine)
    credential_files.copy_in([CopiedFile(source="~/.agent/login")], home, ME)
    assert ("whole", "token") == (mine.read_text(), (home / ".agent" / "login").read_text())

    (home / "x").symlink_to(outside)
    there = [CopiedFile(source="~/.agent/login", target="x/mine")]
    with pytest.raises(RefusedError, match="cannot be copied to the sandbox"):
        credential_files.copy_in(there, home, ME)
    credential_files.remove_copies(there, home)
    assert "whole" == mine.read_text()


@pytest.mark.parametrize("target", ["/etc/passwd", "../out", "a/../../out", ".", "a\0b"])
def test_a_place_that_is_not_below_the_home_is_refused(home: Path, outside: Path, target: str) -> None:
    with pytest.raises(RefusedError, match="not a path in the home folder"):
        credential_files.copy_in([CopiedFile(source="~/.agent/login", target=target)], home, ME)


def test_what_is_no_small_plain_file_is_refused(home: Path, outside: Path) -> None:
    large = outside / "large"
    large.write_bytes(b"x" * (credential_files.FILE_BYTES + 1))
    for source in (str(large), str(outside / ".agent"), "/dev/zero"):
        with pytest.raises(RefusedError):
            credential_files.copy_in([CopiedFile(source=source, target="copy")], home, ME)
    with pytest.raises(RefusedError, match="requires a target"):
        credential_files.copy_in([CopiedFile(source="/etc/hostname")], home, ME)
