"""The kind of sandbox that CONTRIBUTING makes as an example keeps what every kind promises."""

import pytest

from kasmon.errors import RefusedError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.sandbox.base import SandboxTier
from tests.support.sandbox.sandbox_contract import SandboxContract
from tests.test_contributing import module

pytestmark = pytest.mark.sandboxes


class TestCell(SandboxContract):
    @pytest.fixture
    def tier(self, can_jail: None) -> SandboxTier:
        made: SandboxTier = module("sandbox/cell.py").Cell()
        return made

    def test_a_sandbox_with_allowed_hosts_is_refused(self, tier: SandboxTier) -> None:
        with pytest.raises(RefusedError):
            tier.create(SandboxPolicy(session=SessionId(self.names[0]), hosts=("example.org",)))
