"""The agent inside a real jail: under its seccomp filter, its uid and its mounts, what it promises is the same."""

import pytest

from tests.sandbox.interpreter_contract import InterpreterContract
from tests.sandbox.of_tiers import OfAJail


class TestInJail(OfAJail, InterpreterContract):
    pytestmark = pytest.mark.sandboxes
