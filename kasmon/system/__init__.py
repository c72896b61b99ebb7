"""What differs between operating systems: `HERE` answers for this one.

`kasmon/system/base.py` is the interface, `kasmon/system/linux.py` and `kasmon/system/macos.py` implement it. No other
module reads /proc or asks which system it runs on (tests/safety/test_system.py names the exceptions). A caller writes
`system.HERE`, so that a test can replace it in one place.
"""

import sys

from kasmon.system.base import System


def _find() -> System:
    if sys.platform == "linux":
        from kasmon.system.linux import Linux

        return Linux()
    else:  # noqa: RET505 - mypy reads both branches so
        from kasmon.system.macos import MacOS

        return MacOS()


HERE: System = _find()
"""The system that this process runs on. Systems that are neither Linux nor macOS are treated as macOS."""
