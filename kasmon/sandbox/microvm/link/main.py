"""The two ends of the line between a machine and what is outside: `steward` in the machine, `door` in front of it.

    python3 -s -P -S main.py steward       the first process of a machine
    python3 -I -S main.py door FOLDER      the process in front of one, told by a file on its stdin

This folder needs Python 3.11 and its standard library, and of kasmon the folder `inside`, which is FOLDER, or in a
machine the one above: it is no package of the house, and is called `kasmon.sandbox.microvm.link` in here so that it
goes by one name.
"""

import os
import sys
import types


def main() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH120, PTH100 - pathlib is a third of the start
    is_door = sys.argv[1:2] == ["door"]
    known = {
        "kasmon.sandbox.microvm.link": folder,
        "kasmon.sandbox.guest": sys.argv[2] if is_door else os.path.dirname(folder),  # noqa: PTH120
    }
    for name in ("kasmon", "kasmon.sandbox", "kasmon.sandbox.microvm", *known):
        package = types.ModuleType(name)
        package.__path__ = [known[name]] if name in known else []
        sys.modules[name] = package
    if is_door:
        from kasmon.sandbox.microvm.link.host_end import serve

        serve()
    else:
        from kasmon.sandbox.microvm.link.guest_init import GuestInit

        GuestInit().run()


main()
