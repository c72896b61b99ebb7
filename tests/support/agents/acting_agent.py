"""An agent in a terminal that runs the commands a test sends it, as children of its own process.

As a program (`python acting_agent.py FOLDER`) it listens on `FOLDER/<its session's id>`. Each connection gets one
command, whose stdin and stdout are the connection. `run_relay` is the client's end of such a connection.
"""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

PROFILE = "lead"


def main(folder: str) -> None:
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
        merged = subprocess.STDOUT if given["all"] else None
        end, variables = connection.fileno(), os.environ | given["env"]
        process = subprocess.Popen(given["argv"], stdin=end, stdout=end, stderr=merged, env=variables)
        connection.close()
        threading.Thread(target=process.wait, daemon=True).start()


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
