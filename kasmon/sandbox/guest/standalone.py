"""Starts the guest program without an inherited socket: it listens at a path, as a daemon.

python3 -I -S standalone.py PATH           exits once the guest program answers at PATH
"""

import os
import socket
import sys


def main(path: str) -> None:
    if _fork():
        return
    if os.path.exists(path):  # noqa: PTH110 - as in all guest modules: importing pathlib takes a third of the start
        os.unlink(path)  # noqa: PTH108
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    listening.set_inheritable(True)
    os.environ["KASMON_LISTEN_FD"] = str(listening.fileno())
    agent = os.path.join(os.path.dirname(os.path.abspath(__file__)), "main.py")  # noqa: PTH118, PTH120, PTH100
    os.execv(sys.executable, [sys.executable, "-I", "-S", agent])


def _fork() -> bool:
    """Fork; return whether this is the parent, which returns only once the guest program is ready."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        if os.read(reader, 1) != b"R":
            sys.exit("the guest program exited immediately")
        return True
    os.close(reader)
    os.setsid()
    os.set_inheritable(writer, True)
    os.environ["KASMON_READY_FD"] = str(writer)
    nowhere = os.open("/dev/null", os.O_RDWR)
    for usual in (0, 1, 2):
        os.dup2(nowhere, usual)
    return False


if __name__ == "__main__":
    main(*sys.argv[1:])
