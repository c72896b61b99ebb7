"""On a sandbox's way to disk and back its host is killed, or what plays it, before each step and after the last.

The last memory that was kept is whole, there are never two of one sandbox, and what is lost is said to be.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kasmon.model.sandbox.policy import SandboxPhase
from kasmon.paths import user_paths
from kasmon.sandbox.microvm.machine import MicroVm
from kasmon.sandbox.microvm.warm_pool import MEMORY
from kasmon.sandbox.shared.safe_tree import remove_tree
from tests.support.sandbox.crash_sandbox import CrashSandbox, Step, judged, killed, tried
from tests.support.sandbox.machine_image import IMAGE, need_machine, warmed

pytestmark = [pytest.mark.sandboxes, pytest.mark.timeout(240)]
VM_SLEEP: Final[tuple[Step, ...]] = (
    ("send_request", "call"),
    ("write_memory", "call"),
    ("remove_credentials", "call"),
    ("SnapshotStore._place", "call"),
    ("SnapshotStore._write", "call"),
    ("VmFiles.end", "call"),
    ("VmFiles.end", "return"),
)
VM_WAKE: Final[tuple[Step, ...]] = (
    ("start_host_end", "call"),
    ("QmpClient.wait_for_migration", "call"),
    ("SnapshotStore.mark_used", "call"),
    ("SnapshotStore.advance_generation", "call"),
    ("greet", "call"),
    ("greet", "return"),
)


@pytest.fixture
def root() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ks-", dir="/tmp"))
    yield folder
    remove_tree(folder)


@pytest.fixture
def vm(root: Path) -> Iterator[CrashSandbox]:
    need_machine()
    warmed(MicroVm(user_paths(), image=IMAGE))
    sandbox = CrashSandbox(lambda: MicroVm(user_paths(), image=IMAGE), root)
    yield sandbox
    sandbox.forget()


def test_a_microvm_whose_host_dies_while_pausing_to_disk_loses_nothing(vm: CrashSandbox) -> None:
    tried(vm, "sleep", VM_SLEEP, os.getpid, ())


def test_a_microvm_whose_host_dies_while_restoring_loses_nothing(vm: CrashSandbox) -> None:
    tried(vm, "wake", VM_WAKE, os.getpid, ())


def test_a_microvm_killed_while_pausing_to_disk_continues_from_its_memory_or_is_reported_as_lost(
    vm: CrashSandbox,
) -> None:
    """Once its memory counts, its end takes nothing."""
    tried(vm, "sleep", VM_SLEEP[1:6:2], vm.player, VM_SLEEP[:5])


def test_a_microvm_with_a_damaged_memory_on_disk_continues_and_is_not_reported_as_paused(
    vm: CrashSandbox,
) -> None:
    """It is read back before the machine ends."""
    told = vm.before("sleep")

    def truncate() -> int:
        [part] = vm.tier.host_folders.of(vm.policy.session).glob(f"memory/*/{MEMORY}")
        os.truncate(part, 10)
        return 0

    assert killed(vm, "sleep", ("SnapshotStore.confirm", "return"), truncate)
    sandbox_state = vm.sandbox_state()
    assert sandbox_state is not None
    assert SandboxPhase.RUNNING is sandbox_state.phase
    assert vm.told() > told
    judged(vm, told, may_be_lost=False)


def test_a_microvm_killed_while_restoring_is_reported_as_lost(vm: CrashSandbox) -> None:
    tried(vm, "wake", VM_WAKE[1:5:2], vm.player, None)
