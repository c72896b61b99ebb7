"""A sandbox in a folder of its own, for the tests of its life."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sandbox.sandbox_process import SandboxProcess


@pytest.fixture
def stage() -> Iterator[SandboxProcess]:
    root = Path(tempfile.mkdtemp(prefix="ks-", dir="/tmp"))
    built = SandboxProcess(root)
    yield built
    built.close()
    shutil.rmtree(root)
