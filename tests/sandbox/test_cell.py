"""The kind of sandbox that CONTRIBUTING makes as an example keeps what every kind promises."""

import pytest

from kasmon.errors import RefusedError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import Policy
from kasmon.sandbox.base import Sandbox
from tests.sandbox.sandbox_contract import SandboxContract
from tests.test_contributing import module

pytestmark = pytest.mark.sandboxes


class TestCell(SandboxContract):
    @pytest.fixture
    def tier(self, can_jail: None) -> Sandbox:
        made: Sandbox = module("sandbox/cell.py").Cell()
        return made

    def test_nobody_leads_out_of_it(self, tier: Sandbox) -> None:
        with pytest.raises(RefusedError):
            tier.create(Policy(session=SessionId(self.names[0]), hosts=("example.org",)))
