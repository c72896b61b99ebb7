"""Connections of sandboxes of every tier, with real programs in them: out by their list, in by a port asked for."""

from collections.abc import Iterator

import pytest

from kasmon.paths import places
from kasmon.sandbox.base import Sandbox
from kasmon.sandbox.gvisor.tier import Gvisor
from kasmon.sandbox.jail.bubblewrap import Jail
from kasmon.sandbox.microvm.machine import MicroVm
from tests.sandbox.machines import IMAGE, ended, need_machine, warmed
from tests.sandbox.required import need_gvisor, need_jail
from tests.sandbox.way_contract import OverTheLine, WayContract, echo, server

__all__ = ["echo", "server"]  # fixtures

pytestmark = [pytest.mark.sandboxes, pytest.mark.timeout(240)]  # the first machine is started


class TestOfAJail(WayContract):
    @pytest.fixture
    def tier(self) -> Sandbox:
        need_jail()
        return Jail()


class TestOfGvisor(OverTheLine):
    @pytest.fixture
    def tier(self) -> Sandbox:
        need_gvisor()
        return Gvisor()


class TestOfAMachine(OverTheLine):
    ways_of_node = ("http",)  # emulated, `fetch` takes some seconds more: its library alone is a third of a megabyte

    @pytest.fixture
    def tier(self) -> Iterator[Sandbox]:
        need_machine()
        vm = MicroVm(places(), image=IMAGE)
        warmed(vm)
        yield vm
        ended(vm)
