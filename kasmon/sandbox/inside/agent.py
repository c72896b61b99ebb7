"""The agent inside a sandbox: it answers on the socket it was given and keeps the interpreters; it runs no code itself.

    python3 -I -S agent.py            the agent: KASMON_LISTEN_FD is a listening socket, KASMON_READY_FD a pipe
    python3 agent.py python           the python interpreter, as the agent starts it
    python3 agent.py ways             what carries connections in and out, where stdin and stdout are the one line

It says `R` on the pipe when it answers. This folder needs Python 3.11 and its standard library, and nothing else of
kasmon: it is no package of the house, and is called `kasmon.sandbox.inside` in here so that it goes by one name.
"""

import os
import sys
import types


def main() -> None:
    _know_ourselves(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH120, PTH100 - pathlib is a third of the start
    if sys.argv[1:] == ["python"]:
        from kasmon.sandbox.inside.pyworker import work

        work()
    elif sys.argv[1:] == ["ways"]:
        from kasmon.sandbox.inside.carried import carry

        carry()
    else:
        from kasmon.sandbox.inside.desk import serve

        serve()


def _know_ourselves(folder: str) -> None:
    """Let the modules of *folder* be imported by the name that they have in the house."""
    name = ""
    for part in ("kasmon", "sandbox", "inside"):
        name = f"{name}.{part}".lstrip(".")
        package = types.ModuleType(name)
        package.__path__ = [folder] if part == "inside" else []
        sys.modules[name] = package


main()
