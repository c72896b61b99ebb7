"""Connects its stdin and stdout to the guest program at a path.

    python3 -I -S stdio_join.py PATH
    python3 -I -S stdio_join.py PORT      to a TCP port in here; an empty line reports the connection

Both directions are lines of base64, since the transport carries only text. It exits when either direction ends.
"""

import base64
import os
import select
import socket
import sys

BLOCK_BYTES = 1 << 18


def main(path: str) -> None:
    agent = _connected(path)
    line = bytearray()
    while True:
        ready = select.select([0, agent.fileno()], [], [])[0]
        if agent.fileno() in ready:
            said = agent.recv(BLOCK_BYTES)
            if not said:
                return
            _write(base64.b64encode(said) + b"\n")
        if 0 in ready:
            data = os.read(0, BLOCK_BYTES)
            if not data:
                return
            line += data
            whole, _, rest = bytes(line).rpartition(b"\n")
            line = bytearray(rest)
            agent.sendall(b"".join(map(base64.b64decode, whole.split(b"\n"))))


def _connected(path: str) -> socket.socket:
    if not path.isdigit():
        agent = socket.socket(socket.AF_UNIX)
        agent.connect(path)
        return agent
    try:
        agent = socket.create_connection(("127.0.0.1", int(path)))
    except OSError as error:
        sys.exit(error.strerror or str(error))
    _write(b"\n")
    return agent


def _write(data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(1, left) :]


if __name__ == "__main__":
    main(*sys.argv[1:])
