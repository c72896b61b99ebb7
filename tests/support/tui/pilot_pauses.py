"""How long the pilot of Textual waits after each key: most of what a small test took was that wait."""

from textual import _wait


def shorten_pauses() -> None:
    """Have the pilot look every 5 ms whether the app rests, where Textual 8 looks every 20 ms."""
    _wait.SLEEP_GRANULARITY = 0.005
    _wait.SLEEP_IDLE = _wait.SLEEP_GRANULARITY / 20
