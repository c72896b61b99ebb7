"""What the tests of the dashboard share."""

import pytest

from kasmon.tui.gateway.theme_library import shipped, shipped_names
from tests.support.tui.pilot_pauses import SHORT_S, set_pauses
from tests.support.tui.stylesheet_cache import share_parsed_stylesheets

for _name in shipped_names():  # the app is made on the test's loop, where reading files is an error
    shipped(_name)
share_parsed_stylesheets()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the pilot, after each key."""
    set_pauses(SHORT_S, monkeypatch)
