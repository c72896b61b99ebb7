"""The agent inside a real jail: under its seccomp filter, its uid and its mounts, what it promises is the same."""

import pytest

from tests.support.sandbox.interpreter_contract import InterpreterContract
from tests.support.sandbox.tier_classes import OfAJail


@pytest.mark.short
class TestInJail(OfAJail, InterpreterContract):
    pytestmark = pytest.mark.sandboxes
