"""Every tier keeps the same promises; which there are."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.errors import UnableError
from kasmon.model.sandbox.policy import COPYING, REMEMBERING, Tier
from kasmon.sandbox import tiers
from kasmon.sandbox.base import ForkTier, LocalSnapshotTier, SandboxTier
from kasmon.sandbox.tiers import TIERS
from tests.support.sandbox.sandbox_contract import SandboxContract
from tests.support.sandbox.unconfined_tier import UnconfinedTier


class TestBare(SandboxContract):
    """What the tests of everything above a tier stand on."""

    pytestmark = pytest.mark.sandboxes
    wraps = False

    @pytest.fixture
    def tier(self) -> Iterator[SandboxTier]:
        root = Path(tempfile.mkdtemp(prefix="ks-", dir="/tmp"))
        yield UnconfinedTier(root)
        shutil.rmtree(root)


@pytest.mark.short
class TestJail(SandboxContract):
    pytestmark = pytest.mark.sandboxes

    @pytest.fixture
    def tier(self, can_jail: None) -> SandboxTier:
        return tiers.load("jail")


@pytest.mark.parametrize("name", TIERS)
def test_the_description_of_a_tiers_memory_before_it_is_loaded_is_true(name: Tier) -> None:
    tier = tiers.load(name)

    assert tier.keeps_memory is (name in REMEMBERING)
    assert isinstance(tier, ForkTier) is (name in COPYING)
    assert isinstance(tier, LocalSnapshotTier) or name not in COPYING


def test_a_tier_unknown_to_this_version_is_refused_by_name() -> None:
    with pytest.raises(UnableError, match=r"'cloud'.*Tiers: jail, microvm, e2b"):
        tiers.load("cloud")  # type: ignore[arg-type]  # a word that a file of another version may hold
