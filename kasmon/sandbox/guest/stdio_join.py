"""Joins stdin and stdout, as lines of base64, to a socket in the sandbox.

python3 -I -S main.py join PATH      the unix socket at PATH
python3 -I -S main.py join PORT      a TCP port of this loopback; an empty line reports the connection
"""

import os
import select
import socket
import sys

from kasmon.sandbox.guest.frames import LineReader, encode_line

BLOCK_BYTES = 1 << 18


def join(destination: str) -> None:
    """Carry bytes in both directions until either ends."""
    stream, lines = _connect(destination), LineReader()
    while True:
        ready = select.select([0, stream.fileno()], [], [])[0]
        if stream.fileno() in ready:
            data = stream.recv(BLOCK_BYTES)
            if not data:
                return
            _write(encode_line(data))
        if 0 in ready:
            text = os.read(0, BLOCK_BYTES)
            if not text:
                return
            stream.sendall(b"".join(lines.feed(text)))


def _connect(destination: str) -> socket.socket:
    if not destination.isdigit():
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(destination)
        return stream
    try:
        stream = socket.create_connection(("127.0.0.1", int(destination)))
    except OSError as error:
        sys.exit(error.strerror or str(error))
    _write(encode_line(b""))
    return stream


def _write(data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(1, left) :]
