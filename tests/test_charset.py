"""Who is to get ASCII, whatever Python makes of a locale that says C."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ASKED = "from kasmon.charset import needs_ascii; print(needs_ascii())"
HERE = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[1])}


@pytest.mark.parametrize(
    ("locale", "ascii_wanted"),
    [
        ({"LANG": "C"}, True),
        ({"LANG": "POSIX"}, True),
        ({"LC_ALL": "C", "LANG": "C.UTF-8"}, True),
        ({"LANG": "C", "LC_CTYPE": "C"}, True),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, False),
        ({"LANG": "C", "LC_ALL": "C.UTF-8"}, False),
        ({"LANG": "C", "PYTHONUTF8": "1"}, False),
        ({"LANG": "C.UTF-8"}, False),
        ({"LANG": "xx_XX.UTF-8"}, False),
        ({}, False),
    ],
    ids=lambda value: " ".join(f"{name}={said}" for name, said in value.items()) if isinstance(value, dict) else None,
)
def test_ascii_is_used_for_the_locale_c(locale: dict[str, str], ascii_wanted: bool) -> None:
    """A real Python looks: it changes its own `LC_CTYPE` before anything of ours runs."""
    said = subprocess.run(
        [sys.executable, "-P", "-c", ASKED], env=HERE | locale, capture_output=True, text=True, check=True
    )

    assert f"{ascii_wanted}\n" == said.stdout
