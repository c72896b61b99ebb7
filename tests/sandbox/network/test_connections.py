"""Connections of sandboxes of every tier, with real programs in them: out by their list, in by a port asked for."""

import pytest

from tests.support.sandbox.connection_contract import ConnectionContract, OverTheLine, echo, server
from tests.support.sandbox.tier_classes import OfAJail, OfAMachine

__all__ = ["echo", "server"]  # fixtures

pytestmark = [pytest.mark.sandboxes, pytest.mark.timeout(240)]  # the first machine is started


class TestOfAJail(OfAJail, ConnectionContract):
    pass


class TestOfAMachine(OfAMachine, OverTheLine):
    ways_of_node = ("http",)  # emulated, `fetch` takes some seconds more: its library alone is a third of a megabyte
