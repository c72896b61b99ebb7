from collections.abc import Iterator

import pytest

from tests.cli.forker import Forker
from tests.cli.line import Line


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    forker = Forker()
    yield forker
    forker.close()


@pytest.fixture
def kasmon(forker: Forker) -> Iterator[Line]:
    line = Line(forker)
    yield line
    line.close()
