"""How long the pilot of Textual waits after each key: most of what a small test took was that wait."""

from typing import Final

import pytest
from textual import _wait

USUAL_S: Final = _wait.SLEEP_GRANULARITY
SHORT_S: Final = 0.005


def set_pauses(seconds: float, patch: pytest.MonkeyPatch) -> None:
    """Have the pilot look every so many *seconds* whether the app rests."""
    patch.setattr(_wait, "SLEEP_GRANULARITY", seconds)
    patch.setattr(_wait, "SLEEP_IDLE", seconds / 20)
