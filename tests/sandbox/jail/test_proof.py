"""Whether a sandbox with a kernel of its own is one, by what the agent inside finds there."""

from pathlib import Path

import msgspec
import pytest

from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.sandbox.guest_client.protocol import ConfinementReport
from kasmon.sandbox.remote_guest.proof import compare, ours, seen
from tests.support.sandbox.unconfined_tier import UnconfinedTier

HERE = ConfinementReport(kernel="6.1.0 #1", boot="here", devices=("lo", "eth0"), user=1000)
THERE = ConfinementReport(kernel="4.4.0 #1", boot="there", devices=("lo",), user=1000, capabilities="0000000000000000")
FAULTS = {
    "this boot": ({"boot": "here"}, "it runs on this machine's own kernel"),
    "this kernel, no boot": ({"kernel": HERE.kernel, "boot": ""}, "it runs on this machine's own kernel"),
    "root": ({"user": 0}, "it runs as root in the sandbox"),
    "capabilities": ({"capabilities": "00000000a80425fb"}, "it has capabilities (00000000a80425fb)"),
    "a way out": ({"devices": ("lo", "eth1", "eth0")}, "it has network devices: eth0, eth1"),
}


def test_a_correct_jail_has_no_fault() -> None:
    assert () == compare(THERE, HERE)
    assert () == compare(msgspec.structs.replace(THERE, kernel=HERE.kernel), HERE)  # another boot


@pytest.mark.parametrize(("found", "fault"), FAULTS.values(), ids=FAULTS)
def test_each_fault_is_reported(found: dict[str, object], fault: str) -> None:
    assert (fault,) == compare(msgspec.structs.replace(THERE, **found), HERE)


def test_an_unconfined_agent_is_detected(tmp_path: Path) -> None:
    """The real one, in no sandbox at all."""
    bare = UnconfinedTier(tmp_path)
    policy = SandboxPolicy(session="a")  # type: ignore[arg-type]
    runtime = bare.create(policy)
    try:
        found = seen(runtime)
    finally:
        bare.destroy(policy, runtime)

    assert found is not None
    assert not found[0]
    assert "it runs on this machine's own kernel" in found[1]
    assert ours().kernel


def test_a_silent_agent_is_not_proven(tmp_path: Path) -> None:
    bare = UnconfinedTier(tmp_path)
    policy = SandboxPolicy(session="a")  # type: ignore[arg-type]
    runtime = bare.create(policy)
    bare.destroy(policy, runtime)

    found = seen(runtime)
    assert found is not None
    assert not found[0]
    assert "it cannot be inspected" in found[1][0]
