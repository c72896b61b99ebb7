"""The demo's sandboxes, where a jail works: they are there, and nothing of them is left after it."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kasmon.demo import sandboxes
from kasmon.demo.scratch import clear, scratch_paths
from kasmon.model.events import ToolFinished
from kasmon.model.session_state import SessionState
from kasmon.sandbox.microvm.machine import MicroVm
from kasmon.sandbox.shared.host_folders import HostFolders
from kasmon.store.event_log import EventLog
from kasmon.supervisor.fleet.snapshot import read_fleet
from tests.support.sandbox.machine_image import CACHE, IMAGE, need_machine, warmed
from tests.support.wait import until

pytestmark = pytest.mark.sandboxes


@pytest.fixture
def folder(can_jail: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="kasmon-demo-", dir="/tmp"))
    for name in ("s", "r", "c"):
        (folder / name).mkdir(mode=0o700)
    for name, value in scratch_paths(folder).environment_variables().items():
        monkeypatch.setenv(name, value)
    yield folder
    clear(folder)
    shutil.rmtree(folder, ignore_errors=True)


def jailed(where: set[str]) -> list[int]:
    """The processes of whose command lines one of *where* is a part."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or ())
        if process.pid != psutil.Process().pid and any(each in words for each in where):
            found.append(process.pid)
    return found


def test_all_run_one_is_paused_and_no_file_is_left(folder: Path) -> None:
    inside = scratch_paths(folder)
    inside.make()

    assert [] == asyncio.run(sandboxes.begin(inside))
    fleet = read_fleet(inside)
    states = {session.name: session.state for session in fleet.sessions}
    assert {"order-stats", "receipt-totals"} == set(states)
    assert states["receipt-totals"] is SessionState.STANDBY
    ground = HostFolders(inside)
    assert all(ground.of(session.id).exists() for session in fleet.sessions)
    ids = {str(session.id) for session in fleet.sessions}
    assert jailed(ids)
    clear(folder)

    assert [] == jailed(ids)
    assert not folder.exists()
    assert not ground.base.exists()


def test_with_memory_one_is_paused_to_disk_and_a_fork_continues_its_generator(folder: Path) -> None:
    need_machine()
    warmed(MicroVm(image=IMAGE))
    inside = scratch_paths(folder)
    inside.make()
    for name in ("image", "machines"):
        (inside.state / name).symlink_to(CACHE / name)

    asyncio.run(sandboxes._perform_kept(inside, "microvm"))
    fleet = {session.name: session for session in read_fleet(inside).sessions}
    assert SessionState.PAUSED is fleet["nightly-totals"].state
    log = EventLog(inside.log(fleet["what-if"].id))

    def outputs() -> list[str]:
        return [event.output for event, _ in log.read() if isinstance(event, ToolFinished)]

    assert ["('feb', 2084)"] == until(outputs)  # what came of a run is told before it is in the log
    ground = MicroVm(inside).host_folders.base
    clear(folder)

    assert [] == jailed({str(session.id) for session in fleet.values()})
    assert not ground.exists()
