"""A host is killed while a real microVM is made or put to disk: no machine stays, and no pause is said that is none."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.model.events import SandboxPhaseChanged
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPhase
from kasmon.process_identity import is_running, started_at
from kasmon.sandbox.microvm.machine import MicroVm
from kasmon.sandbox.shared.host_folders import HostFolders
from kasmon.sandbox.shared.processes import children, holder
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import KASMON, ForkServer
from tests.support.sandbox.crash_sandbox import words_of
from tests.support.sandbox.machine_image import IMAGE, need_machine, warmed
from tests.support.sandbox.pausing_agents import LIMIT_S, lodged
from tests.support.sandbox.sandboxed_agents import facts, host_of, session_of
from tests.support.wait import until

pytestmark = [pytest.mark.sandboxes, pytest.mark.timeout(240)]


@pytest.fixture
def kasmon(fork_server: ForkServer) -> Iterator[Cli]:
    need_machine()
    warmed(MicroVm(image=IMAGE))
    yield from lodged(fork_server, "microvm")


def beside(kasmon: Cli, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*KASMON, *words],
        env=kasmon.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def killed(pid: int) -> None:
    born = started_at(pid)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_running(pid, born))


def lock_of(kasmon: Cli, session: SessionId) -> Path:
    """What a machine holds locked as long as it is there."""
    return HostFolders(kasmon.paths).of(session) / "lock"


def qemu_behind(lock: Path) -> int:
    """The QEMU that the holder of *lock* started; 0 while there is none."""
    door = holder(lock)
    return next((pid for pid in children(door) if "qemu" in (words_of(pid) or [""])[0]), 0) if door else 0


@pytest.mark.parametrize("words", [("sandbox", "ls"), ("doctor", "--fix")], ids=["the next look", "doctor --fix"])
def test_qemu_of_a_killed_host_is_ended(kasmon: Cli, words: tuple[str, ...]) -> None:
    with beside(kasmon, "sandbox", "create", "lab", "--tier", "microvm") as making:
        [folder] = until(lambda: list(kasmon.paths.sessions.glob("*")), LIMIT_S)
        session = SessionId(folder.name)
        lock = lock_of(kasmon, session)
        qemu = until(lambda: qemu_behind(lock), LIMIT_S)
        os.kill(qemu, signal.SIGSTOP)  # its host waits for it
        killed(host_of(kasmon, session))
        os.kill(qemu, signal.SIGCONT)
        assert 0 != making.wait(LIMIT_S)
    sandbox_state = session_of(kasmon, session).sandbox_state
    assert sandbox_state is None or SandboxPhase.CREATING is sandbox_state.phase
    born = started_at(qemu)
    assert is_running(qemu, born)

    kasmon(*words)

    until(lambda: holder(lock) is None)
    assert not is_running(qemu, born)


def test_a_pause_in_which_host_and_qemu_were_killed_is_no_success_and_the_next_one_reports_the_loss(
    kasmon: Cli,
) -> None:
    session = SessionId(kasmon("sandbox", "create", "lab", "--tier", "microvm").out.strip())
    kasmon("sandbox", "run", "lab", "x=42")
    qemu, host = qemu_behind(lock_of(kasmon, session)), host_of(kasmon, session)
    assert qemu
    with beside(kasmon, "sandbox", "pause", "lab") as pausing:
        until(lambda: any(SandboxPhase.PAUSING is each.phase for each in facts(kasmon, session, SandboxPhaseChanged)))
        killed(qemu)
        killed(host)
        _, said = pausing.communicate(timeout=LIMIT_S)
        assert 0 != pausing.returncode
        assert said

    again = kasmon("sandbox", "pause", "lab")
    assert 0 != again.code
    assert "interpreter state lost" in again.err
    assert 0 == kasmon("sandbox", "pause", "lab").code  # nothing was lost since
