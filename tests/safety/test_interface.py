"""What programs, scripts, files and fingers rely on stays as it is."""

import subprocess
import sys

from tests.interface import STORED


def test_the_interface_is_the_stored_one() -> None:
    """In a process of its own: what other tests define is no part of it. `python -m tests.interface` stores it anew."""
    code = "from tests.interface import as_text; print(as_text(), end='')"
    now = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert STORED.read_text(encoding="utf-8") == now
