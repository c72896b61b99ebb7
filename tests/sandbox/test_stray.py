"""What jails left that no session knows: told of, and removed where nothing lives in it and nobody worked there."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.commands import check_strays
from kasmon.commands.check import Check
from kasmon.model.permission import SessionId
from kasmon.paths import Places, places
from kasmon.sandbox.jail import ground, stray
from kasmon.sandbox.jail.ground import Ground
from kasmon.sandbox.jail.process import holder
from kasmon.sandbox.jail.stray import remove, strays
from kasmon.supervisor.housing import swept
from tests.waiting import until

LOCKS = "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX); sys.stdin.read()"
"""Holds a lock as a jail's first process does."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    """A kasmon whose jails stand in a folder of the test's, however root's would."""
    monkeypatch.setattr(ground, "OF_ROOT", tmp_path / "of-root")
    monkeypatch.setattr(stray, "OF_ROOT", tmp_path / "of-root")
    return places()


def left(of: Places, name: str, *, work: bool = False) -> Path:
    """What a jail of the session *name* left, long ago."""
    made = Ground(of)
    folder = made.make(SessionId(name))
    (folder / "home" / "note").touch()
    if work:
        (made.own_workspace(SessionId(name)) / "file").touch()
    os.utime(folder, (0, 0))
    return folder


def checks(of: Places) -> dict[str, Check]:
    return {check.id: check for check in check_strays.strays(of)}


@pytest.fixture
def lives(here: Places) -> Iterator[Path]:
    """A ground in which a jail seems to live."""
    folder = left(here, "c" * 8)
    with subprocess.Popen([sys.executable, "-c", LOCKS, str(folder / "lock")], stdin=subprocess.PIPE) as child:
        until(lambda: holder(folder / "lock"))
        yield folder
        child.kill()


def test_what_a_session_has_and_what_was_just_made_are_no_strays(here: Places) -> None:
    left(here, "a" * 8)
    Ground(here).make(SessionId("b" * 8))

    assert () == strays(here, {"a" * 8})
    assert [True] == [each.can_go for each in strays(here, ())]


def test_what_nobody_worked_in_is_removed_by_doctor_and_the_rest_is_named(here: Places, lives: Path) -> None:
    gone, work = left(here, "a" * 8), left(here, "b" * 8, work=True)
    seen = checks(here)
    assert {"sandbox-left", "sandbox-work", "sandbox-alive"} == seen.keys()
    assert str(work / "workspace") in seen["sandbox-work"].text
    assert f"{lives} (process " in seen["sandbox-alive"].text
    mend = seen["sandbox-left"].mend
    assert mend is not None
    mend()

    assert (False, True, True) == (gone.exists(), work.exists(), lives.exists())
    assert "sandbox-left" not in checks(here)


def test_rm_of_all_sweeps_them_and_says_where_work_stays(here: Places, lives: Path) -> None:
    gone, work = left(here, "a" * 8), left(here, "b" * 8, work=True)

    assert (str(work / "workspace"),) == swept(here)
    assert (False, True, False) == (gone.exists(), work.exists(), lives.exists())
    assert holder(lives / "lock") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's jails stand outside of the state folder")
def test_what_a_kasmon_left_whose_state_folder_is_gone_is_found_by_any_other(here: Places, tmp_path: Path) -> None:
    """As tests leave it that were killed; one whose folder is there is left alone."""
    others = [Places(state=tmp_path / name, config=here.config, given_runtime=here.runtime) for name in ("one", "two")]
    for each in others:
        left(each, "d" * 8)
    others[0].state.rename(tmp_path / "elsewhere")
    [found] = strays(here, ())
    remove(found)

    assert Ground(others[0]).base == found.folder.parent
    assert (False, True) == (found.folder.parent.exists(), Ground(others[1]).base.exists())
    assert () == strays(here, ())
