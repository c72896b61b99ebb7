"""Opens connections inside the network namespace of a sandbox; Linux only, without code inside.

It is a process on the standard library alone (`python3 -I -S namespace_connect.py PID`, a unix socket as its stdin),
because only a single-threaded process may join a user namespace. It joins the sandbox's network and nothing else: it
sees this machine's files, and the sandbox does not see it. It first reports how joining went. Then it answers each
requested port with a connection to it, or with the reason for failure.
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


def join_network(pid: int) -> None:
    """Join the network of process *pid*: as root directly, else by its user namespace. May raise `OSError`."""
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


def connect(port: int) -> socket.socket:
    """Return a connection to 127.0.0.1:*port* in the current network namespace."""
    link = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    link.settimeout(CONNECT_S)
    link.connect(("127.0.0.1", port))
    link.settimeout(None)
    return link


def main(pid: int) -> None:
    """Serve the peer on stdin until it closes: each 4-byte port is answered by `ok` with a socket, or by a reason."""
    with socket.socket(fileno=0) as asker:
        try:
            join_network(pid)
        except OSError as error:
            asker.sendall((error.strerror or "it cannot be joined").encode())
            return
        asker.sendall(JOINED.encode())
        while asked := asker.recv(4):
            try:
                with connect(int.from_bytes(asked, "big")) as link:
                    socket.send_fds(asker, [b"ok"], [link.fileno()])
            except (OSError, OverflowError) as error:
                asker.sendall((getattr(error, "strerror", "") or str(error)).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]))
