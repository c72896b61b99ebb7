"""Where things are: told by the environment, made only by who writes, and ours alone."""

import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kasmon.errors import UnsafeFolderError
from kasmon.paths import SOCKET_PATH_BYTES, Paths, find_program, no_runtime_dir, user_paths


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home, with a folder for what is temporary in it."""
    folder = Path(tempfile.mkdtemp(prefix="kp-", dir="/tmp"))
    (folder / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "tmp"))
    yield folder
    shutil.rmtree(folder)


def of(home: Path, runtime: str = "") -> Paths:
    return user_paths({"HOME": str(home), "XDG_RUNTIME_DIR": runtime})


def made_in(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if path != home / "tmp")


def test_paths_are_those_of_the_environment(home: Path) -> None:
    roots = {f"XDG_{name}": str(home / name) for name in ("STATE_HOME", "CONFIG_HOME", "RUNTIME_DIR")}
    (home / "RUNTIME_DIR").mkdir()
    here = user_paths(roots)

    assert (home / "STATE_HOME/kasmon", home / "CONFIG_HOME/kasmon") == (here.state, here.config)
    assert home / "RUNTIME_DIR/kasmon" == here.runtime
    assert roots == here.environment_variables()


def test_without_these_variables_they_are_in_the_home_folder(home: Path) -> None:
    here = of(home)

    assert (home / ".local/state/kasmon", home / ".config/kasmon") == (here.state, here.config)


def test_reading_a_path_creates_nothing(home: Path) -> None:
    here = of(home)

    assert not here.has_runtime
    assert not here.tmux_host_socket.exists()
    assert "XDG_RUNTIME_DIR" not in here.environment_variables()
    assert [] == made_in(home)


UNUSABLE: dict[str, tuple[Callable[[Path], str], str]] = {
    "not set": (lambda home: "", "not set"),
    "relative": (lambda home: "run", "not an absolute path"),
    "missing": (lambda home: str(home / "gone"), "not a folder"),
    "a file": (lambda home: str(shutil.copy("/dev/null", home / "file")), "not a folder"),
    "too long": (lambda home: str(home / ("x" * 90)), f"{SOCKET_PATH_BYTES} bytes"),
}


@pytest.mark.parametrize("why", UNUSABLE)
def test_without_a_usable_runtime_folder_a_writer_makes_one_and_all_find_it(home: Path, why: str) -> None:
    make, told = UNUSABLE[why]
    given = make(home)
    before, other = of(home, given), of(home, given)
    before.make()

    assert told in no_runtime_dir({"XDG_RUNTIME_DIR": given})
    assert before.runtime == other.runtime == of(home, given).runtime
    assert home / "tmp" == before.runtime.parents[1]
    assert [0o700] * 2 == [stat.S_IMODE(path.stat().st_mode) for path in (before.runtime, before.runtime.parent)]
    assert before.runtime == user_paths(before.environment_variables()).runtime


def test_an_unreadable_folder_is_no_runtime_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write anywhere, so the system is asked in its place."""
    (home / "run").mkdir(mode=0o500)
    if os.geteuid() == 0:
        monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)

    assert "is not accessible" in no_runtime_dir({"XDG_RUNTIME_DIR": str(home / "run")})
    assert not of(home, str(home / "run")).has_runtime


def test_an_own_runtime_folder_is_created_where_a_socket_fits(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = home / "tmp" / ("x" * 70)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    here = of(home)
    here.make()
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(here.socket("abcdefgh")))
        assert [] == list(deep.iterdir())
    finally:
        shutil.rmtree(here.runtime.parent)


def test_many_simultaneous_creators_get_the_same_one(home: Path) -> None:
    def made(_: int) -> Path:
        here = of(home)
        here.make()
        return here.runtime

    with ThreadPoolExecutor(8) as pool:
        runtimes = set(pool.map(made, range(16)))

    assert 1 == len(runtimes)
    assert 1 == len(list((home / "tmp").iterdir()))


def test_a_deleted_one_is_created_again(home: Path) -> None:
    here = of(home)
    here.make()
    shutil.rmtree(here.runtime.parent)
    assert not of(home).has_runtime
    of(home).make()

    assert here.runtime.is_dir()


@pytest.mark.parametrize("written", [b"", b"\xff\xfe", b"../elsewhere\n", b"/no\0where\n"])
def test_a_record_of_a_missing_folder_is_ignored(home: Path, written: bytes) -> None:
    here = of(home)
    here.state.mkdir(parents=True, mode=0o700)
    here.runtime_record.write_bytes(written)

    assert not of(home).has_runtime
    here.make()
    assert here.runtime.is_dir()


def test_a_recorded_folder_that_others_can_write_to_is_not_used(home: Path) -> None:
    here = of(home)
    here.make()
    here.runtime.parent.chmod(0o777)

    with pytest.raises(UnsafeFolderError, match="others can write to it"):
        of(home)


@pytest.mark.parametrize(
    "name", ["run", "plain", "folder", "none", "", ".", "./run", "bin/run", "bin/none", "bin/folder", "a\0b", "\ud800"]
)
@pytest.mark.parametrize("path", ["{0}/bin", "{0}/none:{0}/bin", ":{0}/other", "", "{0}/bin/run", "bin"])
def test_a_program_is_found_as_the_standard_library_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, path: str
) -> None:
    (tmp_path / "bin" / "folder").mkdir(parents=True)
    for file in ("bin/run", "bin/plain", "run"):
        (tmp_path / file).touch(mode=0o644 if file.endswith("plain") else 0o755)
    monkeypatch.chdir(tmp_path)
    path = path.format(tmp_path)

    assert shutil.which(name, path=path) == find_program(name, path)
