"""Starts the agent where nobody can hand it a socket: it listens at a path in here, and goes on when we have ended.

python3 -I -S standalone.py PATH           ends once the agent answers at PATH
"""

import os
import socket
import sys


def main(path: str) -> None:
    if _begun():
        return
    if os.path.exists(path):  # noqa: PTH110 - as all of what runs in here: pathlib is a third of a start
        os.unlink(path)  # noqa: PTH108
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    listening.set_inheritable(True)
    os.environ["KASMON_LISTEN_FD"] = str(listening.fileno())
    agent = os.path.join(os.path.dirname(os.path.abspath(__file__)), "main.py")  # noqa: PTH118, PTH120, PTH100
    os.execv(sys.executable, [sys.executable, "-I", "-S", agent])


def _begun() -> bool:
    """Whether this is the one that waited for the agent, whose beginning is the other one that comes back."""
    heard, told = os.pipe()
    if os.fork():
        os.close(told)
        if os.read(heard, 1) != b"R":
            sys.exit("the guest program exited immediately")
        return True
    os.close(heard)
    os.setsid()
    os.set_inheritable(told, True)
    os.environ["KASMON_READY_FD"] = str(told)
    nowhere = os.open("/dev/null", os.O_RDWR)
    for usual in (0, 1, 2):
        os.dup2(nowhere, usual)
    return False


if __name__ == "__main__":
    main(*sys.argv[1:])
