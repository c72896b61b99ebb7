"""The agent inside a sandbox: it answers on the socket it was given and keeps the interpreters; it runs no code itself.

    python3 -I -S main.py            the agent: KASMON_LISTEN_FD is a listening socket, KASMON_READY_FD a pipe
    python3 main.py python           the python interpreter, as the agent starts it

It says `R` on the pipe when it answers. This folder needs Python 3.11 and its standard library, and nothing else of
kasmon: it is no package of the house, and is called `kasmon.sandbox.guest` in here so that it goes by one name.
"""

import os
import sys
import types


def main() -> None:
    _know_ourselves(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH120, PTH100 - pathlib is a third of the start
    if sys.argv[1:] == ["python"]:
        from kasmon.sandbox.guest.python_worker import work

        work()
    else:
        from kasmon.sandbox.guest.requests import serve

        serve()


def _know_ourselves(folder: str) -> None:
    """Let the modules of *folder* be imported by the name that they have in the house."""
    name = ""
    for part in ("kasmon", "sandbox", "guest"):
        name = f"{name}.{part}".lstrip(".")
        package = types.ModuleType(name)
        package.__path__ = [folder] if part == "guest" else []
        sys.modules[name] = package


main()
