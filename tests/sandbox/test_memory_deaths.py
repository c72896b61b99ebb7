"""On a sandbox's way to disk and back its host is killed, or what plays it, before each step and after the last.

The last memory that was kept is whole, there are never two of one sandbox, and what is lost is said to be.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kasmon.paths import places
from kasmon.sandbox.gvisor.tier import Gvisor
from kasmon.sandbox.jail.tree import raze
from kasmon.sandbox.microvm.machine import MicroVm
from tests.sandbox.machines import IMAGE, need_machine, warmed
from tests.sandbox.nights import Nights, Step, tried
from tests.sandbox.required import need_gvisor

pytestmark = [pytest.mark.sandboxes, pytest.mark.timeout(240)]
VM_SLEEP: Final[tuple[Step, ...]] = (
    ("asked", "call"),
    ("written", "call"),
    ("cleaned", "call"),
    ("Memories._place", "call"),
    ("Memories._write", "call"),
    ("Lot.end", "call"),
    ("Lot.end", "return"),
)
VM_WAKE: Final[tuple[Step, ...]] = (
    ("started", "call"),
    ("Orders.moved", "call"),
    ("Memories.used", "call"),
    ("Memories.moved_on", "call"),
    ("greet", "call"),
    ("greet", "return"),
)
GVISOR_SLEEP: Final[tuple[Step, ...]] = (
    ("ended", "call"),
    ("Runsc.checkpoint", "call"),
    ("Memories._place", "call"),
    ("Memories._write", "call"),
    ("Runsc.strike", "call"),
    ("Runsc.strike", "return"),
)
GVISOR_WAKE: Final[tuple[Step, ...]] = (
    ("Memories.used", "call"),
    ("Memories.moved_on", "call"),
    ("Runsc.begin", "call"),
    ("Gvisor._noted", "call"),
    ("Gvisor._noted", "return"),
)


@pytest.fixture
def root() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ks-", dir="/tmp"))
    yield folder
    raze(folder)


@pytest.fixture
def vm(root: Path) -> Iterator[Nights]:
    need_machine()
    warmed(MicroVm(places(), image=IMAGE))
    nights = Nights("microvm", lambda: MicroVm(places(), image=IMAGE), root)
    yield nights
    nights.forget()


@pytest.fixture
def gvisor(root: Path) -> Iterator[Nights]:
    need_gvisor()
    nights = Nights("gvisor", lambda: Gvisor(places()), root)
    yield nights
    nights.forget()


def test_a_microvm_whose_host_dies_on_the_way_to_disk_loses_nothing(vm: Nights) -> None:
    tried(vm, "sleep", VM_SLEEP, os.getpid, ())


def test_a_microvm_whose_host_dies_on_the_way_back_loses_nothing(vm: Nights) -> None:
    tried(vm, "wake", VM_WAKE, os.getpid, ())


def test_a_microvm_that_is_killed_on_the_way_to_disk_goes_on_from_what_was_kept_or_is_said_to_be_lost(
    vm: Nights,
) -> None:
    """Once its memory counts, its end takes nothing."""
    tried(vm, "sleep", VM_SLEEP[1:6:2], vm.player, VM_SLEEP[:5])


def test_a_microvm_that_is_killed_on_the_way_back_is_said_to_be_lost(vm: Nights) -> None:
    tried(vm, "wake", VM_WAKE[1:5:2], vm.player, None)


def test_a_gvisor_sandbox_whose_host_dies_on_the_way_to_disk_goes_on_from_what_was_kept_or_is_said_to_be_lost(
    gvisor: Nights,
) -> None:
    """Its program ends it as soon as all is written, which counts only then."""
    tried(gvisor, "sleep", GVISOR_SLEEP, os.getpid, GVISOR_SLEEP[2:4])


def test_a_gvisor_sandbox_whose_host_dies_on_the_way_back_is_not_gone_on_from_twice(gvisor: Nights) -> None:
    """From where its memory is marked as used until it runs, it is in no place."""
    tried(gvisor, "wake", GVISOR_WAKE, os.getpid, GVISOR_WAKE[1:3])


def test_a_gvisor_sandbox_that_is_killed_on_the_way_to_disk_goes_on_from_what_was_kept_or_is_said_to_be_lost(
    gvisor: Nights,
) -> None:
    tried(gvisor, "sleep", GVISOR_SLEEP[:2], gvisor.player, None)


def test_a_gvisor_sandbox_that_is_killed_on_the_way_back_is_said_to_be_lost(gvisor: Nights) -> None:
    tried(gvisor, "wake", GVISOR_WAKE[3:], gvisor.player, None)
