"""A machine that is killed, stopped or cut off, as real processes in a network namespace: `make test-faults`."""

import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kasmon.bus.base import LATE_S, LOST_S
from kasmon.model.session_state import SessionState
from kasmon.store.machines import Machine, write_machine
from kasmon.supervisor.machines.registration import start_link
from tests.support.bus.buses import command_of
from tests.support.bus.cluster_server import ClusterServer
from tests.support.bus.joined import NAME, JoinedKasmons
from tests.support.bus.network_namespace import NetworkNamespace
from tests.support.host.sshd import Sshd
from tests.support.wait import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

SLACK_S = 2.0
"""How much later a loss may be noticed; with a load of 10 on 2 cores it was 0.04 s, and the machine may do more."""
HEAL_S = 60.0


class DistantMachine:
    """`far` on a machine of its own, whose network and processes fail."""

    def __init__(self, root: Path, way: str) -> None:
        """*way*: `ssh` into it, or `nats` over a server on this machine."""
        self.network = NetworkNamespace()
        self.joined = JoinedKasmons(self.network.inside)
        self.box: Sshd | None = None
        self.cluster: ClusterServer | None = None
        if way == "nats":
            self.cluster = ClusterServer(
                root,
                members=((NAME, "machine", "main"), ("otto", "operator", "main")),
                host=self.network.outside,
            )
            self.cluster.start()
            self.joined.join_over_nats(self.cluster)
            return
        self.box = Sshd(root, address=self.network.address, inside=self.network.inside)
        self.joined.near.paths.config.mkdir(parents=True, exist_ok=True)
        (self.joined.near.paths.config / "config.toml").write_text(self.box.config)
        command = command_of(self.joined.far.paths)
        write_machine(self.joined.near.paths, Machine(name=NAME, ssh="box", command=command), is_new=True)
        start_link(self.joined.near.paths, NAME)
        self.joined.until_connected()

    def seen_within(self, began: float) -> tuple[float, float]:
        """Wait until it is late, then unreachable; return how long both took, in seconds."""
        until(lambda: self.joined.presence.is_late, what="a late machine")
        late_s = time.monotonic() - began
        until(lambda: self.joined.presence.why, what="an unreachable machine")
        return late_s, time.monotonic() - began

    def start(self) -> None:
        """Start again what leads to it, after all its processes were killed."""
        if self.box is not None:
            self.box.open()
        else:
            self.joined.serve()

    def close(self) -> None:
        self.network.heal()
        self.joined.close()
        if self.cluster is not None:
            self.cluster.stop()
        self.network.signal_all(signal.SIGKILL)
        self.network.close()


@pytest.fixture(autouse=True)
def _no_blocked_loop() -> None:
    """These tests look at files from their loop; the product's loops are in other processes."""


@pytest.fixture(params=["ssh", "nats"])
def distant(request: pytest.FixtureRequest) -> Iterator[DistantMachine]:
    root = Path(tempfile.mkdtemp(prefix="kb-", dir="/tmp"))
    try:
        machine = DistantMachine(root, request.param)
        yield machine
        machine.close()
    finally:
        shutil.rmtree(root)


def cut(machine: DistantMachine) -> Callable[[], None]:
    machine.network.cut()
    return machine.network.heal


def stop(machine: DistantMachine) -> Callable[[], None]:
    machine.network.signal_all(signal.SIGSTOP)
    return lambda: machine.network.signal_all(signal.SIGCONT)


def kill(machine: DistantMachine) -> Callable[[], None]:
    """As without power: its connections end without a word."""
    machine.network.cut()
    machine.network.signal_all(signal.SIGKILL)

    def start() -> None:
        machine.network.heal()
        machine.start()

    return start


@pytest.mark.parametrize("fail", [cut, stop, kill])
async def test_a_machine_that_fails_is_late_then_unreachable_and_reconnects_by_itself(
    distant: DistantMachine, fail: Callable[[DistantMachine], Callable[[], None]]
) -> None:
    joined = distant.joined
    session = await joined.begin()
    joined.shown(session, lambda seen: seen.state is SessionState.IDLE)

    began = time.monotonic()
    mend = fail(distant)
    late_s, lost_s = distant.seen_within(began)
    unsure = joined.shown(session, lambda seen: seen.state is SessionState.UNSURE)
    mend()
    until(lambda: not joined.presence.why, limit_s=HEAL_S, what="the connection")

    assert LATE_S - 1 <= late_s <= LATE_S + SLACK_S
    assert LOST_S - 1 <= lost_s <= LOST_S + SLACK_S
    assert unsure.is_unreachable
    assert SessionState.IDLE is joined.shown(session, lambda seen: not seen.is_unreachable).state
    assert until(lambda: joined.has_whole_log(session))
