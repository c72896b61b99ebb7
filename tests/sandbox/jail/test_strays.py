"""What jails left that no session knows: told of, and removed where nothing lives in it and nobody worked there."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from kasmon.cli.doctor import strays as check_strays
from kasmon.cli.doctor.result import DoctorCheck
from kasmon.host.rpc.host_lock import HostLock
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths, user_paths
from kasmon.sandbox.jail import strays as stray
from kasmon.sandbox.jail.strays import remove, strays
from kasmon.sandbox.remote_guest.launch_spec import FRONT, RemoteAgentStatus, is_front, store_status
from kasmon.sandbox.shared import host_folders
from kasmon.sandbox.shared.host_folders import HostFolders
from kasmon.sandbox.shared.processes import holder
from kasmon.supervisor.fleet.sandbox_adoption import SandboxAdopter, end_unfinished, find_unfinished
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sandboxes.create import create_session, remove_stray_jails
from tests.support.wait import auntil, until

LOCKS = "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX); sys.stdin.read()"
"""Holds a lock as a jail's first process does."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """A kasmon whose jails stand in a folder of the test's, however root's would."""
    monkeypatch.setattr(host_folders, "OF_ROOT", tmp_path / "of-root")
    monkeypatch.setattr(stray, "OF_ROOT", tmp_path / "of-root")
    return user_paths()


def left(of: Paths, name: str, *, work: bool = False) -> Path:
    """What a jail of the session *name* left, long ago."""
    made = HostFolders(of)
    folder = made.make(SessionId(name))
    (folder / "home" / "note").touch()
    if work:
        (made.own_workspace(SessionId(name)) / "file").touch()
    os.utime(folder, (0, 0))
    return folder


def checks(of: Paths) -> dict[str, DoctorCheck]:
    return {check.id: check for check in check_strays.strays(of)}


@pytest.fixture
def lives(here: Paths) -> Iterator[Path]:
    """A ground in which a jail seems to live."""
    folder = left(here, "c" * 8)
    with subprocess.Popen([sys.executable, "-c", LOCKS, str(folder / "lock")], stdin=subprocess.PIPE) as child:
        until(lambda: holder(folder / "lock"))
        yield folder
        child.kill()


def test_sandboxes_of_sessions_and_new_ones_are_no_strays(here: Paths) -> None:
    left(here, "a" * 8)
    HostFolders(here).make(SessionId("b" * 8))

    assert () == strays(here, {"a" * 8})
    assert [True] == [each.can_go for each in strays(here, ())]


def test_an_unused_stray_is_removed_by_doctor_and_the_rest_is_named(here: Paths, lives: Path) -> None:
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


@pytest.fixture(params=["jail", "microvm"])
def begun(here: Paths, request: pytest.FixtureRequest) -> Iterator[tuple[Session, Path]]:
    """A session whose host was killed while its sandbox was made, and the lock that what was begun holds."""
    user_paths().make()
    launch = create_session(here, "lab", SandboxPolicy(session=SessionId(""), tier=request.param), 0.0)
    lock = HostFolders(here).make(launch.session) / "lock"
    with subprocess.Popen([sys.executable, "-c", LOCKS, str(lock)], stdin=subprocess.PIPE) as child:
        until(lambda: holder(lock))
        [session] = read_fleet(here).sessions
        yield session, lock
        child.kill()


def test_a_sandbox_that_a_killed_host_started_is_named_and_ended_by_doctor(
    here: Paths, begun: tuple[Session, Path]
) -> None:
    mend = checks(here)["sandbox-unfinished"].mend
    assert mend is not None
    mend()

    assert holder(begun[1]) is None
    assert "sandbox-unfinished" not in checks(here)


def test_a_sandbox_that_a_killed_host_started_is_left_alone_while_another_host_has_it(
    here: Paths, begun: tuple[Session, Path]
) -> None:
    session, lock = begun
    host = HostLock(here.host_lock(session.id))
    assert host.acquire()
    try:
        assert [] == find_unfinished(here, [session])
        end_unfinished(here, session)
        assert holder(lock)
    finally:
        host.let_go()


@pytest.mark.parametrize("mode", [Mode.SDK, Mode.TMUX])
@pytest.mark.parametrize("begun", ["microvm"], indirect=True)
@pytest.mark.parametrize("state", [SessionState.LOST, SessionState.ENDED])
def test_the_machine_of_an_agent_is_ended_once_its_host_and_its_front_process_are_gone(
    here: Paths, begun: tuple[Session, Path], mode: Mode, state: SessionState
) -> None:
    session, lock = replace(begun[0], mode=mode, state=state, sandbox="microvm"), begun[1]
    assert [] == find_unfinished(here, [replace(session, state=SessionState.IDLE)])
    with subprocess.Popen([sys.executable, "-c", "input()", FRONT], stdin=subprocess.PIPE) as front:
        store_status(lock.parent, RemoteAgentStatus(run="1", front=front.pid, runtime=SandboxRuntime(pid=front.pid)))
        until(lambda: is_front(front.pid))
        assert [] == find_unfinished(here, [session])
        front.kill()
    assert [session] == find_unfinished(here, [session])

    end_unfinished(here, session)
    assert holder(lock) is None


async def test_a_sandbox_that_a_killed_host_started_is_ended_by_the_next_watcher(
    here: Paths, begun: tuple[Session, Path]
) -> None:
    adopter = SandboxAdopter(here)
    adopter.adopt_orphans([begun[0]])

    await auntil(lambda: holder(begun[1]) is None)


def test_rm_all_sweeps_them_and_names_where_work_stays(here: Paths, lives: Path) -> None:
    gone, work = left(here, "a" * 8), left(here, "b" * 8, work=True)

    assert (str(work / "workspace"),) == remove_stray_jails(here)
    assert (False, True, False) == (gone.exists(), work.exists(), lives.exists())
    assert holder(lives / "lock") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's jails stand outside of the state folder")
def test_strays_of_a_removed_state_folder_are_found_by_any_other_kasmon(here: Paths, tmp_path: Path) -> None:
    """As tests leave it that were killed; one whose folder is there is left alone."""
    others = [Paths(state=tmp_path / name, config=here.config, given_runtime=here.runtime) for name in ("one", "two")]
    for each in others:
        left(each, "d" * 8)
    others[0].state.rename(tmp_path / "elsewhere")
    [found] = strays(here, ())
    remove(found)

    assert HostFolders(others[0]).base == found.folder.parent
    assert (False, True) == (found.folder.parent.exists(), HostFolders(others[1]).base.exists())
    assert () == strays(here, ())
