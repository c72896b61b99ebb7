"""Makes connections inside the network of a sandbox, for whoever holds its other end; on Linux, with no code inside.

A process of its own on the standard library alone (`python3 -I -S reach.py PID`, a unix socket as its stdin), because
only a process with one thread may join a user namespace. Of the sandbox it joins the network and nothing else: it sees
this machine's files, and nobody inside sees it. It says how joining went; then, asked for a port, it answers with a
connection to it, or with why not.
"""

import ctypes
import fcntl
import os
import socket
import sys

NS_GET_USERNS = 0xB701
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
CONNECT_S = 5.0
JOINED = "joined"


def join(pid: int) -> None:
    """Join the network of process *pid*: as root directly, else by the user namespace that the network belongs to.

    Raises:
        OSError: if the system does not let us, or there is no such process.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def setns(handle: int, kind: int) -> None:
        if libc.setns(handle, kind):
            fault = ctypes.get_errno()
            raise OSError(fault, os.strerror(fault))

    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if os.geteuid() != 0:
        setns(fcntl.ioctl(network, NS_GET_USERNS), CLONE_NEWUSER)
    setns(network, CLONE_NEWNET)
    os.close(network)


def connected(port: int) -> socket.socket:
    """A connection to 127.0.0.1:*port* of the network that we are in."""
    link = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    link.settimeout(CONNECT_S)
    link.connect(("127.0.0.1", port))
    link.settimeout(None)
    return link


def main(pid: int) -> None:
    """Serve the asker on stdin until it is gone: 4 bytes of a port each, answered by `ok` with it, or by a reason."""
    with socket.socket(fileno=0) as asker:
        try:
            join(pid)
        except OSError as error:
            asker.sendall((error.strerror or "it cannot be joined").encode())
            return
        asker.sendall(JOINED.encode())
        while asked := asker.recv(4):
            try:
                with connected(int.from_bytes(asked, "big")) as link:
                    socket.send_fds(asker, [b"ok"], [link.fileno()])
            except (OSError, OverflowError) as error:
                asker.sendall((getattr(error, "strerror", "") or str(error)).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]))
