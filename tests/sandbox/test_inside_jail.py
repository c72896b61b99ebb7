"""The agent inside a real jail: under its seccomp filter, its uid and its mounts, what it promises is the same."""

import pytest

from kasmon.sandbox.base import Sandbox
from kasmon.sandbox.jail.bubblewrap import Jail
from tests.sandbox.interpreter_contract import InterpreterContract


class TestInJail(InterpreterContract):
    pytestmark = pytest.mark.sandboxes

    @pytest.fixture
    def tier(self, can_jail: None) -> Sandbox:
        return Jail()
