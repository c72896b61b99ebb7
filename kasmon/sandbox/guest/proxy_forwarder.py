"""Carries what programs in a sandbox send to their proxy, from a port in here to the socket that leads outside.

Runs inside, on the standard library alone: `python3 -I -S proxy_forwarder.py [-- PROGRAM ARGUMENT...]`. With a program
it listens, goes into the background, and becomes that program. What comes to 127.0.0.1:3128 goes to the socket at
`KASMON_PROXY`; where that is not there, the sandbox has no network, and a connection ends at once. One process and one
thread: it counts little against what a sandbox may have.
"""

import contextlib
import os
import selectors
import socket
import sys

PROXY_PORT = 3128
FULL = 256 * 1024
"""So many bytes wait for an end that does not read; then the other one is not read."""
PIECE = 64 * 1024
MOST = 128
"""Connections at once; one more is closed."""


class ForwardEnd:
    """One end of a connection, and the bytes that wait to be written to it."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.other: ForwardEnd | None = None
        self.waiting = bytearray()
        self.says_more = True
        self.told_end = False


class ProxyForwarder:
    """All that is carried in one sandbox."""

    def __init__(self, door: str) -> None:
        self.door = door
        self.events = selectors.EpollSelector()
        self.ends: set[ForwardEnd] = set()

    def listen(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self.events.register(listener, selectors.EVENT_READ, listener)

    def serve(self) -> None:
        while True:
            for key, ready in self.events.select():
                if isinstance(key.data, ForwardEnd):
                    self.look(key.data, ready)
                    continue
                with contextlib.suppress(OSError):
                    came, _ = key.data.accept()
                    if len(self.ends) < 2 * MOST:
                        self.join(came)
                    else:
                        came.close()

    def join(self, came: socket.socket) -> None:
        """Let *came* speak with the proxy."""
        near, far = ForwardEnd(came), ForwardEnd(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        near.other, far.other = far, near
        self.ends |= {near, far}
        try:
            far.sock.connect(self.door)
        except OSError:
            self.drop(near)
        else:
            self.watch(near)
            self.watch(far)

    def watch(self, end: ForwardEnd) -> None:
        """Wait for what *end* can go on with."""
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

    def look(self, end: ForwardEnd, ready: int) -> None:
        if end not in self.ends:
            return  # dropped in this round
        try:
            if ready & selectors.EVENT_WRITE and end.waiting:
                del end.waiting[: end.sock.send(end.waiting)]
            if ready & selectors.EVENT_READ and end.says_more:
                self.hear(end, end.sock.recv(PIECE))
        except BlockingIOError:
            pass
        except OSError:
            self.drop(end)
        self.settle(end)

    def hear(self, end: ForwardEnd, piece: bytes) -> None:
        if not piece:
            end.says_more = False
        elif end.other is not None:
            end.other.waiting += piece

    def settle(self, end: ForwardEnd) -> None:
        """Tell each of the two what the other one's end means to it, and wait for what comes."""
        ends = [each for each in (end, end.other) if each is not None and each in self.ends]
        for each in ends:
            other = each.other
            if other is not None and not other.says_more and not each.waiting and not each.told_end:
                each.told_end = True
                with contextlib.suppress(OSError):
                    each.sock.shutdown(socket.SHUT_WR)
        if len(ends) == 2 and all(each.told_end for each in ends):
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


def relay(environment: "os._Environ[str]") -> ProxyForwarder:
    """A relay that listens; what comes before it serves waits."""
    made = ProxyForwarder(environment.get("KASMON_PROXY", "/run/kasmon/proxy.sock"))
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(environment.get("KASMON_PROXY_PORT", PROXY_PORT))))
    listener.listen(64)
    made.listen(listener)
    return made


def leave(ours: set[int]) -> None:
    """Hold nothing open of what the program was given, but *ours*: whoever waits for its end waits for no other's."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for handle in (0, 1, 2):
        os.dup2(nothing, handle)
    for handle in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 (a small process: no pathlib)
        if handle > 2 and handle not in ours:
            with contextlib.suppress(OSError):
                os.close(handle)


def main(arguments: list[str]) -> None:
    made = relay(os.environ)
    if arguments[:1] == ["--"] and arguments[1:]:
        left, leaves = os.pipe()
        if os.fork():
            os.close(leaves)
            os.read(left, 1)  # its end: the program begins when nothing of its is held any more
            os.close(left)
            os.execvp(arguments[1], arguments[1:])
        os.setsid()  # a Ctrl-C is the program's
        leave({made.events.fileno(), *(key.fd for key in made.events.get_map().values())})
    made.serve()


if __name__ == "__main__":
    main(sys.argv[1:])
