"""What the command line, MCP and the dashboard share of sandboxes: got or made, for once, with what was lost."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

from kasmon.config import Config
from kasmon.errors import NameTakenError, SessionEndedError, UsageError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.sandbox.policy import Credential
from kasmon.model.session import Session
from kasmon.paths import Paths, user_paths
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sandboxes import sandbox_operations, use
from kasmon.supervisor.sandboxes.create import NewSandbox, policy_of
from kasmon.supervisor.sessions import session_operations as verb
from tests.support.wait import auntil

pytestmark = pytest.mark.sandboxes
LAB = NewSandbox(name="lab")


@pytest.fixture(autouse=True)
def _no_blocked_loop() -> Iterator[BlockBuster]:
    """In place of the one for all tests: these look at the fleet themselves."""
    with blockbuster_ctx("kasmon.supervisor.sandboxes.sandbox_operations") as blockbuster:
        yield blockbuster


@pytest.fixture
async def here(can_jail: None, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Paths]:
    root = Path(tempfile.mkdtemp(prefix="kq-", dir="/tmp"))
    for variable, name in (("STATE_HOME", "s"), ("RUNTIME_DIR", "r"), ("CONFIG_HOME", "c")):
        (root / name).mkdir(mode=0o700)
        monkeypatch.setenv(f"XDG_{variable}", str(root / name))
    where = user_paths()
    yield where
    for session in read_fleet(where).sessions:
        await sandbox_operations.remove(where, session)
    shutil.rmtree(root, ignore_errors=True)


def seen(here: Paths, name: str = "lab") -> Session:
    return next(session for session in read_fleet(here).sessions if session.name == name)


async def said(here: Paths, code: str, name: str = "lab") -> str:
    return (await use.run(here, seen(here, name), "bash", code)).stdout


async def test_a_sandbox_is_created_once_and_then_found_with_its_whole_state(here: Paths) -> None:
    session, lost = await sandbox_operations.get_or_create(here, Config(), LAB)
    assert "" == lost
    await said(here, "x=42; echo kept > file")

    assert (session, "") == await sandbox_operations.get_or_create(here, Config(), LAB)
    assert "42\n" == await said(here, "echo $x")

    await verb.stop(here, seen(here))
    again, lost = await sandbox_operations.get_or_create(here, Config(), LAB)

    assert session == again
    assert "it had ended (stopped): interpreter state lost; files kept" == lost
    assert "kept none\n" == await said(here, "echo $(cat file) ${x:-none}")


async def test_a_run_whose_host_is_killed_is_reported_by_the_next_host_and_ran_once(here: Paths) -> None:
    session, _ = await sandbox_operations.get_or_create(here, Config(), LAB)
    folder = Path(seen(here).workdir)
    await said(here, "n=0")

    for number in range(3):
        code = f"n=$((n+1)); echo {number} >> log; while [ ! -e go{number} ]; do sleep 0.01; done; echo $n"
        running = asyncio.create_task(use.run(here, seen(here), "bash", code, run=f"run-{number}"))
        await auntil(lambda: _lines(folder / "log") == number + 1)  # noqa: B023 - it is awaited in its round
        host = lock_holder(here.host_lock(session))
        assert host
        os.kill(host, signal.SIGKILL)
        (folder / f"go{number}").touch()

        first = await running
        again = await use.run(here, seen(here), "bash", code, run=f"run-{number}")

        assert [(f"{number + 1}\n", True)] * 2 == [(ran.stdout, ran.session_preserved) for ran in (first, again)]
    assert "0 1 2 3\n" == await said(here, "echo $(cat log) $n")


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


async def test_two_of_one_name_cannot_be_created(here: Paths) -> None:
    await sandbox_operations.create(here, Config(), LAB)

    with pytest.raises(NameTakenError):
        await sandbox_operations.create(here, Config(), LAB)


async def test_an_ended_sandbox_runs_nothing(here: Paths) -> None:
    await sandbox_operations.create(here, Config(), LAB)
    await verb.stop(here, seen(here))

    with pytest.raises(SessionEndedError):
        await said(here, "true")


def test_an_invalid_credential_is_refused_before_anything_is_created() -> None:
    config = Config()
    bad = config.sandbox.__class__(credentials=(Credential(name="A", variable="X", file="y"),))

    with pytest.raises(UsageError, match="exactly one"):
        policy_of(bad, "abcdefgh")  # type: ignore[arg-type]
