"""Jails for tests: each test has its own, and nothing of them is left after it. They never run as root."""

import json
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime
from kasmon.paths import user_paths
from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.shared.host_folders import OF_ROOT
from kasmon.sandbox.shared.processes import holder, tree
from kasmon.sandbox.shared.safe_tree import remove_tree
from tests.support.sandbox.guest_agent import Agent
from tests.support.sandbox.requirements import need_jail, nothing_is_left
from tests.support.sandbox.tier_agents import ALONE, KINDS, TierAgents, of_kind

TINY = Path(__file__).parents[1] / "support" / "sandbox" / "tiny"
OURS = Path(__file__).parents[2] / "kasmon" / "sandbox" / "guest"
"""The programs that run inside."""
NAMES = "abcdefghijkl"


class Did(NamedTuple):
    """What became of a piece of code inside."""

    out: str
    err: str
    code: int


class JailedAgent(NamedTuple):
    """A jail with the tiny agent in it."""

    jail: Jail
    policy: SandboxPolicy
    runtime: SandboxRuntime

    def run(self, code: str, limit_s: float = 20.0) -> Did:
        """Run Python in a process of its own inside."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(limit_s)
            link.connect(self.runtime.socket)
            link.sendall(code.encode())
            link.shutdown(socket.SHUT_WR)
            said = b""
            while piece := link.recv(65536):
                said += piece
        return Did(*json.loads(said)) if said else Did("", "", -1)

    def lives(self) -> bool:
        return self.jail.find(self.policy, self.runtime)

    @property
    def workspace(self) -> Path:
        return Path(self.jail.workspace(self.policy))


def policy(name: str = "a", **more: Any) -> SandboxPolicy:
    """A policy of a session that is called eight times *name*."""
    return SandboxPolicy(session=SessionId(name * 8), **more)


def cpu_s(pid: int) -> float:
    """What *pid* and all below it have computed so far, with those that they waited for, in seconds."""
    return sum(sum(psutil.Process(each).cpu_times()[:4]) for each in tree(pid))


def command_of(pid: int) -> bytes:
    """The words of process *pid*, each with a NUL behind it; nothing of one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def open_to_others(folder: Path) -> Path:
    """*folder*, made; others may do in it what they like."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    return folder


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The tests of interpreters are run by an agent alone, and unchanged in a sandbox of each tier.

    `make test-sandboxes` runs them in jails, and those marked `core` in every tier; `make test-interpreters` runs all.
    """
    if "agents" not in metafunc.fixturenames or metafunc.definition.path.parent.name != "guest":
        return
    is_core, is_patient = (metafunc.definition.get_closest_marker(name) is not None for name in ("core", "patient"))
    often = {ALONE: is_patient, "jail": not is_patient}
    kinds = []
    for kind in KINDS:
        marks = [] if kind == ALONE else [pytest.mark.tiers]
        kinds.append(pytest.param(kind, marks=[*marks, pytest.mark.sandboxes] if often.get(kind, is_core) else marks))
    metafunc.parametrize("agents", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def agents(request: pytest.FixtureRequest) -> Iterator[TierAgents]:
    """Where the agents of the tests are."""
    with of_kind(getattr(request, "param", ALONE)) as agents:
        yield agents


@pytest.fixture(scope="module")
def agent(agents: TierAgents) -> Iterator[Agent]:
    """The agent of a sandbox, for all tests of a module."""
    with agents.agent("first") as agent:
        yield agent


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder with a path short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="ks-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that others may pass, unlike `tmp_path`."""
    folder = Path(tempfile.mkdtemp(prefix="ks-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    remove_tree(folder)


@pytest.fixture(autouse=True)
def _no_jail_outlives_its_test(_own_kasmon: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is left of the jails of the kasmon that the environment names at the test's end."""
    yield
    nothing_is_left(user_paths())


@pytest.fixture
def can_jail() -> None:
    """The test needs jails; it is skipped where none can be made, unless they must be there."""
    need_jail()


@pytest.fixture
def jail(can_jail: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jail]:
    """Jails with the tiny agent inside; all that a test makes under the names of `policy` are gone after it."""
    inside = tmp_path_factory.mktemp("inside")
    for program in (TINY / "main.py", *(OURS / name for name in ("proxy_forwarder.py", "nodeproxy.js"))):
        shutil.copy(program, inside)
    made = Jail(inside=inside)
    assert made.host_folders.owner[0] != 0
    yield made
    for name in reversed(NAMES):
        if name == NAMES[0] or made.host_folders.of(SessionId(name * 8)).exists():
            made.forget(policy(name))
            assert holder(made.host_folders.of(SessionId(name * 8)) / "lock") is None
    assert not any(path.suffix == ".box" for path in made.paths.runtime.glob("*"))
    assert made.host_folders.base.parent != OF_ROOT or not made.host_folders.base.exists()


@pytest.fixture
def jailed_agent(jail: Jail) -> Callable[..., JailedAgent]:
    """Makes a jail: `jailed_agent("b", project="/srv/x")`."""

    def make(name: str = "a", **more: Any) -> JailedAgent:
        wanted = policy(name, **more)
        runtime = jail.create(wanted)
        assert Path(f"/proc/{runtime.pid}").stat().st_uid != 0
        return JailedAgent(jail, wanted, runtime)

    return make
