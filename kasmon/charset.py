"""Which character set the locale asks for; Python's own switch to UTF-8 is not the user's choice."""

import os
import sys

C = ("C", "POSIX")


def needs_ascii() -> bool:
    """Whether the locale is C and Python switched to UTF-8 by itself, as it does since 3.7 (PEP 538, PEP 540).

    Python changes `LC_CTYPE` in this process, so its original value cannot be read. Its UTF-8 mode is on without a
    request by `PYTHONUTF8` or `-X utf8` only where the locale is C. The mode is also on where a locale is not installed
    or none is set; the user did not ask for ASCII then.
    """
    is_asked_for = "PYTHONUTF8" in os.environ or "utf8" in sys._xoptions
    locale = os.environ.get("LC_ALL") or os.environ.get("LANG")
    return bool(sys.flags.utf8_mode) and not is_asked_for and locale in C
