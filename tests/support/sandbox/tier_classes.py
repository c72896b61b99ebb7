"""The tiers of this machine, for tests that ask the same of each: `class TestOfAJail(OfAJail, Contract)`."""

from collections.abc import Iterator

import pytest

from kasmon.sandbox.base import SandboxTier
from kasmon.sandbox.jail.jail import Jail
from tests.support.sandbox.machine_image import machine
from tests.support.sandbox.requirements import need_jail


class OfAJail:
    @pytest.fixture
    def tier(self) -> SandboxTier:
        need_jail()
        return Jail()


class OfAMachine:
    @pytest.fixture
    def tier(self) -> Iterator[SandboxTier]:
        with machine() as vm:
            yield vm
