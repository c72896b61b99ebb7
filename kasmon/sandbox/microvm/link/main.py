"""The two ends of the link between a machine and the outside: `guest` in the machine, `host` in front of it.

    python3 -s -P -S main.py guest         the first process of a machine
    python3 -I -S main.py host FOLDER      its host end, configured by a file on its stdin

This folder needs Python 3.11, its standard library, and kasmon's folder `guest`, which is FOLDER, or in a machine the
parent folder. It is loaded without the rest of kasmon, under the name `kasmon.sandbox.microvm.link`.
"""

import os
import sys
import types


def main() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH120, PTH100 - pathlib is a third of the start
    is_host = sys.argv[1:2] == ["host"]
    known = {
        "kasmon.sandbox.microvm.link": folder,
        "kasmon.sandbox.guest": sys.argv[2] if is_host else os.path.dirname(folder),  # noqa: PTH120
    }
    for name in ("kasmon", "kasmon.sandbox", "kasmon.sandbox.microvm", *known):
        package = types.ModuleType(name)
        package.__path__ = [known[name]] if name in known else []
        sys.modules[name] = package
    if is_host:
        from kasmon.sandbox.microvm.link.host_end import serve

        serve()
    else:
        from kasmon.sandbox.microvm.link.guest_init import GuestInit

        GuestInit().run()


main()
