"""Forwards connections of programs in a sandbox from the proxy's port to the socket that leads outside.

Runs inside, on the standard library alone: `python3 -I -S proxy_forwarder.py [-- PROGRAM ARGUMENT... | LISTENER]`. With
a program it listens, forks into the background, and executes that program. LISTENER is a descriptor of a listening
socket; without one it makes its own. Connections to 127.0.0.1:3128 go to the socket at
`KASMON_PROXY`. Where that is absent, the sandbox has no network, and a connection ends at once. It is one process with
one thread, so it uses little of the sandbox's limits.
"""

import contextlib
import os
import selectors
import socket
import sys

PROXY_PORT = 3128
FULL = 256 * 1024
"""With so many bytes pending for one end, the other one is not read."""
PIECE = 64 * 1024
MOST = 128
"""Connections at once; a further one is closed."""


class ForwardEnd:
    """One end of a connection, and the bytes to be written to it."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.other: ForwardEnd | None = None
        self.waiting = bytearray()
        self.says_more = True
        self.sent_end = False


class ProxyForwarder:
    """All forwarded connections of one sandbox."""

    def __init__(self, proxy_socket: str) -> None:
        self.proxy_socket = proxy_socket
        self.events = selectors.EpollSelector()
        self.ends: set[ForwardEnd] = set()

    def listen(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self.events.register(listener, selectors.EVENT_READ, listener)

    def serve(self) -> None:
        while True:
            for key, ready in self.events.select():
                if isinstance(key.data, ForwardEnd):
                    self.handle_ready(key.data, ready)
                    continue
                with contextlib.suppress(OSError):
                    came, _ = key.data.accept()
                    if len(self.ends) < 2 * MOST:
                        self.join(came)
                    else:
                        came.close()

    def join(self, came: socket.socket) -> None:
        """Connect *came* to the proxy."""
        guest_end, proxy_end = ForwardEnd(came), ForwardEnd(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        guest_end.other, proxy_end.other = proxy_end, guest_end
        self.ends |= {guest_end, proxy_end}
        try:
            proxy_end.sock.connect(self.proxy_socket)
        except OSError:
            self.drop(guest_end)
        else:
            self.watch(guest_end)
            self.watch(proxy_end)

    def watch(self, end: ForwardEnd) -> None:
        """Register the events that *end* can handle now."""
        wanted = 0
        if end.says_more and end.other is not None and len(end.other.waiting) < FULL:
            wanted |= selectors.EVENT_READ
        if end.waiting:
            wanted |= selectors.EVENT_WRITE
        known = end.sock in self.events.get_map()
        if wanted and known:
            self.events.modify(end.sock, wanted, end)
        elif wanted:
            self.events.register(end.sock, wanted, end)
        elif known:
            self.events.unregister(end.sock)

    def handle_ready(self, end: ForwardEnd, ready: int) -> None:
        if end not in self.ends:
            return  # dropped in this round
        try:
            if ready & selectors.EVENT_WRITE and end.waiting:
                del end.waiting[: end.sock.send(end.waiting)]
            if ready & selectors.EVENT_READ and end.says_more:
                self.handle_data(end, end.sock.recv(PIECE))
        except BlockingIOError:
            pass
        except OSError:
            self.drop(end)
        self.settle(end)

    def handle_data(self, end: ForwardEnd, piece: bytes) -> None:
        if not piece:
            end.says_more = False
        elif end.other is not None:
            end.other.waiting += piece

    def settle(self, end: ForwardEnd) -> None:
        """Forward EOF between the two ends, and register their events; close both once both ended."""
        ends = [each for each in (end, end.other) if each is not None and each in self.ends]
        for each in ends:
            other = each.other
            if other is not None and not other.says_more and not each.waiting and not each.sent_end:
                each.sent_end = True
                with contextlib.suppress(OSError):
                    each.sock.shutdown(socket.SHUT_WR)
        if len(ends) == 2 and all(each.sent_end for each in ends):
            self.drop(end)
            return
        for each in ends:
            self.watch(each)

    def drop(self, end: ForwardEnd) -> None:
        for each in (end, end.other):
            if each is not None and each in self.ends:
                self.ends.discard(each)
                if each.sock in self.events.get_map():
                    self.events.unregister(each.sock)
                each.sock.close()


def relay(environment: "os._Environ[str]", listener: socket.socket | None = None) -> ProxyForwarder:
    """Return a listening forwarder; clients wait in the backlog until it serves."""
    made = ProxyForwarder(environment.get("KASMON_PROXY", "/run/kasmon/proxy.sock"))
    port = int(environment.get("KASMON_PROXY_PORT", PROXY_PORT))
    made.listen(listener or socket.create_server(("127.0.0.1", port), backlog=64))
    return made


def leave(ours: set[int]) -> None:
    """Close all inherited files but *ours*, so that a reader of the program's output gets EOF when the program ends."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for handle in (0, 1, 2):
        os.dup2(nothing, handle)
    for handle in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 (a small process: no pathlib)
        if handle > 2 and handle not in ours:
            with contextlib.suppress(OSError):
                os.close(handle)


def main(arguments: list[str]) -> None:
    if arguments and arguments[0].isdigit():
        relay(os.environ, socket.socket(fileno=int(arguments[0]))).serve()
    made = relay(os.environ)
    if arguments[:1] == ["--"] and arguments[1:]:
        left, leaves = os.pipe()
        if os.fork():
            os.close(leaves)
            os.read(left, 1)  # EOF: the child has closed the program's files
            os.close(left)
            os.execvp(arguments[1], arguments[1:])
        os.setsid()  # Ctrl-C goes to the program alone
        leave({made.events.fileno(), *(key.fd for key in made.events.get_map().values())})
    made.serve()


if __name__ == "__main__":
    main(sys.argv[1:])
