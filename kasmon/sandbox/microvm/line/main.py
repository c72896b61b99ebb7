"""The two ends of the line between a machine and what is outside: `steward` in the machine, `door` in front of it.

    python3 -s -P -S main.py steward       the first process of a machine
    python3 -I -S main.py door             the process in front of one, told by a file on its stdin

This folder needs Python 3.11 and its standard library, and nothing else of kasmon: it is no package of the house, and
is called `kasmon.sandbox.microvm.line` in here so that it goes by one name.
"""

import os
import sys
import types


def main() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH120, PTH100 - pathlib is a third of the start
    name = ""
    for part in ("kasmon", "sandbox", "microvm", "line"):
        name = f"{name}.{part}".lstrip(".")
        package = types.ModuleType(name)
        package.__path__ = [folder] if part == "line" else []
        sys.modules[name] = package
    if sys.argv[1:] == ["door"]:
        from kasmon.sandbox.microvm.line.door import serve

        serve()
    else:
        from kasmon.sandbox.microvm.line.steward import Steward

        Steward().run()


main()
