from collections.abc import Iterator

import pytest

from tests.cli.line import Line


@pytest.fixture
def kasmon() -> Iterator[Line]:
    line = Line()
    yield line
    line.close()
