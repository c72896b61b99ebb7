"""The tiers of this machine, for tests that ask the same of each: `class TestOfAJail(OfAJail, Contract)`."""

from collections.abc import Iterator

import pytest

from kasmon.sandbox.base import Sandbox
from kasmon.sandbox.gvisor.tier import Gvisor
from kasmon.sandbox.jail.bubblewrap import Jail
from tests.sandbox.machines import machine
from tests.sandbox.required import need_gvisor, need_jail


class OfAJail:
    @pytest.fixture
    def tier(self) -> Sandbox:
        need_jail()
        return Jail()


class OfGvisor:
    @pytest.fixture
    def tier(self) -> Sandbox:
        need_gvisor()
        return Gvisor()


class OfAMachine:
    @pytest.fixture
    def tier(self) -> Iterator[Sandbox]:
        with machine() as vm:
            yield vm
