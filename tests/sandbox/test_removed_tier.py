"""Sessions in a sandbox of the removed tier `gvisor`, as earlier versions wrote them, are read, shown and removed."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kasmon.model.commands import Launch, Mode
from kasmon.model.events import Event, LogOpened, SandboxPhaseChanged, SessionCreated, SessionStarted, encode
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPhase, SandboxPolicy
from kasmon.paths import write_private
from kasmon.sandbox.shared.host_folders import HostFolders
from kasmon.sandbox.shared.safe_tree import remove_tree
from tests.support.cli.cli_runner import Cli

ID = SessionId("gvis0001")


def as_then(value: Event | SandboxPolicy | Launch) -> bytes:
    """*value* as an earlier version wrote it of a gVisor sandbox; this version cannot make one."""
    written = encode(value) if isinstance(value, Event) else msgspec.json.encode(value)
    return written.replace(b'"jail"', b'"gvisor"')


def files(kasmon: Cli) -> Path:
    """Where an earlier version kept the files of its sandbox."""
    base = HostFolders(kasmon.paths).base
    return base.with_name(f"{base.name}-gvisor") / ID


@pytest.fixture(params=[Mode.INTERPRETER, Mode.TMUX])
def session(kasmon: Cli, request: pytest.FixtureRequest) -> Iterator[SessionId]:
    """One whose sandbox is asleep on disk: its interpreters', or an agent's."""
    where, is_agent = kasmon.paths, request.param is Mode.TMUX
    where.make()
    launch = Launch(
        session=ID,
        name="old",
        agent="shell" if is_agent else "interpreter",
        mode=request.param,
        backend="tmux" if is_agent else "interpreter",
        workdir=str(kasmon.home),
        sandbox="jail",
        argv=("/bin/sh",),
        created_at=1.0,
    )
    happened: list[Event] = [
        LogOpened(at=1.0, session=ID),
        SessionStarted(at=1.5, backend=launch.backend, mode=launch.mode),
        SandboxPhaseChanged(at=2.0, phase=SandboxPhase.RUNNING, tier="jail"),
        SandboxPhaseChanged(at=3.0, phase=SandboxPhase.PAUSED, tier="jail", snapshot="abc", turn=1),
    ]
    where.log(ID).parent.mkdir(parents=True)
    write_private(where.sandbox(ID), as_then(SandboxPolicy(session=ID, tier="jail")))
    write_private(where.launch(ID), as_then(launch))
    write_private(where.log(ID), b"".join(as_then(each) + b"\n" for each in happened))
    write_private(where.fleet_log, as_then(SessionCreated(at=1.0, launch=launch)) + b"\n")
    for name in ("home", "memory"):
        (files(kasmon) / name).mkdir(parents=True)
    write_private(files(kasmon) / "memory" / "checkpoint.img", b"what its programs held")
    yield ID
    remove_tree(files(kasmon).parent)


def test_it_is_listed_and_shown_with_its_tier_and_phase(kasmon: Cli, session: SessionId) -> None:
    [row] = kasmon.json("ls")["sessions"]

    assert ("gvisor", "paused") == (row["sandbox"], row["phase"])
    assert "gvisor" == kasmon.json("show", session)["session"]["sandbox"]


def test_it_is_not_resumed_and_the_available_tiers_are_named(kasmon: Cli, session: SessionId) -> None:
    kasmon("stop", session)
    said = kasmon("restart", session)

    assert 0 != said.code
    assert "'gvisor'" in said.err
    assert "jail, microvm, e2b" in said.err


def test_its_files_are_removed_with_it(kasmon: Cli, session: SessionId) -> None:
    kasmon("ls")
    assert files(kasmon).is_dir()
    kasmon("stop", session)

    removed = kasmon("rm", session)

    assert 0 == removed.code, removed.err
    assert [] == kasmon.json("ls")["sessions"]
    assert not files(kasmon).exists()
