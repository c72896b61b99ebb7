"""What characters this process's surroundings want: Python's own choice of UTF-8 is not the person's."""

import os
import sys
from collections.abc import Mapping

C = ("C", "POSIX")


def wants_ascii(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the locale says C, and Python alone made UTF-8 of that, as it does since 3.7 (PEP 538, PEP 540).

    It changes `LC_CTYPE` here, so what was there cannot be read; but its UTF-8 mode is on without being asked for, by
    `PYTHONUTF8` or `-X utf8`, only where the locale is C. It also is where a locale is not installed or none is named:
    then nobody wants ASCII.
    """
    is_asked_for = "PYTHONUTF8" in environment or "utf8" in sys._xoptions
    locale = environment.get("LC_ALL") or environment.get("LANG")
    return bool(sys.flags.utf8_mode) and not is_asked_for and locale in C
