"""Joins whoever started it to the agent at a path in here: what comes on stdin goes there, what it says to stdout.

    python3 -I -S joined.py PATH          bytes as they are
    python3 -I -S joined.py PATH text     lines of base64, for a way that carries text alone
    python3 -I -S joined.py PORT text     likewise to a port in here; an empty line says that it is there

It ends when one of them does.
"""

import os
import select
import socket
import sys

BLOCK_BYTES = 1 << 18


def main(path: str, *how: str) -> None:
    agent = _connected(path)
    is_text, line = bool(how), bytearray()
    if is_text:
        import base64  # it takes time that a way of bytes does not have to take
    while True:
        ready = select.select([0, agent.fileno()], [], [])[0]
        if agent.fileno() in ready:
            said = agent.recv(BLOCK_BYTES)
            if not said:
                return
            _write(base64.b64encode(said) + b"\n" if is_text else said)
        if 0 in ready:
            data = os.read(0, BLOCK_BYTES)
            if not data:
                return
            if is_text:
                line += data
                whole, _, rest = bytes(line).rpartition(b"\n")
                data, line = b"".join(map(base64.b64decode, whole.split(b"\n"))), bytearray(rest)
            agent.sendall(data)


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
        try:
            left = left[os.write(1, left) :]
        except BlockingIOError:  # gVisor lets nobody wait by writing to what stands outside
            select.select([], [1], [])


if __name__ == "__main__":
    main(*sys.argv[1:])
