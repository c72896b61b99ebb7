"""Entry point of the guest program: it serves requests on a socket, and runs code only in interpreters.

    python3 -I -S main.py            the guest program: KASMON_LISTEN_FD is a listening socket, KASMON_READY_FD a pipe
    python3 -I -S main.py forward    the same; it also starts the forwarder to the egress proxy, on demand
    python3 main.py python           the python interpreter, as the guest program starts it
    python3 -I -S main.py join PATH  joins stdin and stdout to a socket or port (`stdio_join`)

It writes `R` to the pipe once it serves. This folder requires Python 3.11 and its standard library, and nothing else of
kasmon. kasmon is not installed here, so the folder is registered as `kasmon.sandbox.guest`, its name on the host.
"""

import os
import sys
import types


def main() -> None:
    _know_ourselves(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH120, PTH100 - pathlib is a third of the start
    if sys.argv[1:] == ["python"]:
        from kasmon.sandbox.guest.python_worker import work

        work()
    elif sys.argv[1:2] == ["join"]:
        from kasmon.sandbox.guest.stdio_join import join

        join(sys.argv[2])
    else:
        from kasmon.sandbox.guest.request_dispatcher import serve

        serve(forwards=sys.argv[1:] == ["forward"])


def _know_ourselves(folder: str) -> None:
    """Make the modules of *folder* importable by the name that they have on the host."""
    name = ""
    for part in ("kasmon", "sandbox", "guest"):
        name = f"{name}.{part}".lstrip(".")
        package = types.ModuleType(name)
        package.__path__ = [folder] if part == "guest" else []
        sys.modules[name] = package


main()
