from collections.abc import Iterator

import pytest

from kasmon.tui.gateway.theme_library import shipped, shipped_names
from tests.support.tui.dashboard import Home

for _name in shipped_names():  # the app is made on the test's loop, where reading files is an error
    shipped(_name)


@pytest.fixture
def home() -> Iterator[Home]:
    """A kasmon that nobody else has."""
    with Home() as home:
        yield home
