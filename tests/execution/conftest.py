from collections.abc import Iterator

import pytest

from tests.support.tui.dashboard import Home


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as home:
        yield home
