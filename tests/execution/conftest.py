from collections.abc import Iterator

import pytest

from tests.safety.dash import Home


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as home:
        yield home
