"""An agent in a terminal that runs the commands a test sends it, as children of its own process.

As a program (`python acting_agent.py FOLDER`) it listens on `FOLDER/<its session's id>`. Each connection gets one
command, whose stdin and stdout are the connection. `run_relay` is the client's end of such a connection.

Its own Python's commands are forks of it: what they import, it imports once.
"""

import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

PROFILE = "lead"
SHARED = ("kasmon.cli.commands", "kasmon.cli.app", "kasmon.supervisor.fleet.snapshot", "kasmon.host.rpc.client")
"""What most commands import."""


def main(folder: str) -> None:
    sys.path.remove(str(Path(__file__).parent))
    path = Path(folder, os.environ["KASMON_SESSION"])
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path.with_suffix(".new")))
    server.listen()
    path.with_suffix(".new").replace(path)
    while True:
        connection, _ = server.accept()
        line = b""
        while not line.endswith(b"\n"):
            line += connection.recv(1)
        given = json.loads(line)
        end, argv = connection.fileno(), given["argv"]
        wait: Callable[[], object]
        if argv[:2] == [sys.executable, "-P"] and not given["env"]:
            pid = fork(argv[2:], [end, end, end if given["all"] else 2])
            wait = partial(os.waitpid, pid, 0)
        else:
            merged = subprocess.STDOUT if given["all"] else None
            wait = subprocess.Popen(argv, stdin=end, stdout=end, stderr=merged, env=os.environ | given["env"]).wait
        connection.close()
        threading.Thread(target=wait, daemon=True).start()


def fork(arguments: Sequence[str], streams: Sequence[int]) -> int:
    """Run `python -P WORDS` in a fork, with these stdin, stdout and stderr; return its pid."""
    for module in SHARED:
        import_module(module)
    if pid := os.fork():
        return pid
    code = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, 1024)
        if arguments[0] == "-c":
            sys.argv = ["-c", *arguments[2:]]
            exec(arguments[1], {"__name__": "__main__"})
        else:
            sys.argv = list(arguments[1:])
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  # as Python does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run_relay(path: str, command: str) -> None:
    """Have the agent at *path* run *command*, as JSON, with this process's stdin and stdout."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    connection.sendall(command.encode() + b"\n")

    def pump() -> None:
        while data := os.read(0, 65536):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)

    threading.Thread(target=pump, daemon=True).start()
    while data := connection.recv(65536):
        sys.stdout.buffer.write(data)
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "--relay":
        run_relay(sys.argv[2], sys.argv[3])
    else:
        main(sys.argv[1])
