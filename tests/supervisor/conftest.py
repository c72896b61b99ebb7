from collections.abc import Iterator

import pytest

from tests.supervisor.house import House


@pytest.fixture
def house() -> Iterator[House]:
    house = House()
    yield house
    house.close()
