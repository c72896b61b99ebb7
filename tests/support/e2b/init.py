"""The first process of a sandbox of the service on loopback: it starts what it is told to, and says how that ended.

    python3 -I -S init.py SOCKET

Whoever connects sends one JSON line (argv, environment) with three handles, and hears the process's id and, once it has
ended, its exit code, a line each.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import sys


def main(path: str) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{path}~")
    listening.listen(64)
    os.rename(f"{path}~", path)  # noqa: PTH104 (who sees it can connect)
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    waiting: dict[int, socket.socket] = {}
    ready = selectors.DefaultSelector()
    ready.register(listening, selectors.EVENT_READ)
    ready.register(woken, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is listening:
                caller = listening.accept()[0]
                waiting[begun(caller)] = caller
            else:
                os.read(woken, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            if pid in waiting:
                with waiting.pop(pid) as caller, contextlib.suppress(OSError):
                    caller.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def begun(caller: socket.socket) -> int:
    data, handles, _, _ = socket.recv_fds(caller, 1 << 20, 3)
    asked = json.loads(data)
    pid = os.fork()
    if not pid:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number, handle in enumerate(handles):
            os.dup2(handle, number)
        os.closerange(3, 100)
        try:
            os.chdir("/home/user")
            os.execve(asked["argv"][0], asked["argv"], asked["environment"])
        finally:
            os._exit(127)
    for handle in handles:
        os.close(handle)
    caller.sendall(b"%d\n" % pid)
    return pid


if __name__ == "__main__":
    main(sys.argv[1])
