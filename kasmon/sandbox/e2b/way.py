"""The relay's way into a sandbox at the service: a command that joins each caller to the agent inside.

What a run is answered with goes out once the workspace here is what it is there. While a run goes on, the sandbox's
time is prolonged: the service does not pause what works.
"""

import base64
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kasmon.errors import SandboxError
from kasmon.sandbox.e2b import service
from kasmon.sandbox.e2b.inhabited import AGENT, OURS, PYTHON, fetched
from kasmon.sandbox.inside.frames import Frames

if TYPE_CHECKING:
    import e2b

BLOCK_BYTES: Final = 1 << 18
CHANGING: Final = frozenset({"execute", "save_state"})
"""Requests after whose answer somebody looks at the workspace."""
DONE: Final = frozenset({"result", "answer", "execute"})
"""With what a request is over; a client that gives no id is answered without a type, which reads as `execute`."""


class _Word(msgspec.Struct):
    type: str = "execute"


class Inside:
    """One sandbox. Its callers come in threads."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._access = msgspec.convert(given["access"], service.Access)
        self._identity, self._workspace = str(given["remote"]), str(given["workspace"])
        self._timeout_s, self._prolong_s = int(given["timeout_s"]), float(given["prolong_s"])
        self._busy = 0
        self._lock, self._fetching = threading.Lock(), threading.Lock()
        self._stirred = threading.Event()
        threading.Thread(target=self._prolong, daemon=True).start()
        threading.Thread(target=service.sdk, daemon=True).start()  # it takes longer to load than all else of the way

    def join(self, caller: socket.socket, /) -> None:
        """Carry what *caller* says to the agent inside, and back; a sandbox that sleeps wakes for it."""
        sandbox = service.connected(self._access, self._identity, self._timeout_s)
        command = f"{PYTHON} {OURS}/joined.py {AGENT} text"
        handle = sandbox.commands.run(command, background=True, stdin=True, timeout=0, retain_output=False)
        line = _Line(caller, self._begun, lambda: self._over(sandbox))

        def write() -> None:
            line.send(lambda data: handle.send_stdin(data, service.REQUEST_S))
            with contextlib.suppress(Exception):  # it may be gone, with its sandbox or before
                handle.kill()

        writes = threading.Thread(target=write, daemon=True)
        writes.start()
        try:
            held = ""
            for out, _, _ in handle:
                whole, end, rest = (held + (out or "")).rpartition("\n")
                held = rest
                if end:
                    line.receive(b"".join(base64.b64decode(each) for each in whole.split("\n")))
        finally:
            line.leave()
            writes.join()
            with self._lock:
                self._busy -= line.asked

    def _begun(self) -> None:
        with self._lock:
            self._busy += 1
        self._stirred.set()

    def _over(self, sandbox: "e2b.Sandbox") -> None:
        with self._fetching:
            fetched(sandbox, self._workspace)
        with self._lock:
            self._busy -= 1

    def _prolong(self) -> None:
        while True:
            self._stirred.wait()
            if not self._busy:
                self._stirred.clear()
                continue
            with contextlib.suppress(SandboxError):
                service.prolonged(self._access, self._identity, self._timeout_s)
            time.sleep(self._prolong_s)


class _Line:
    """One caller: its requests go in as they come; the answers to what changes files wait until those are here."""

    def __init__(self, caller: socket.socket, begun: Callable[[], None], over: Callable[[], None]) -> None:
        self._caller, self._begun, self._over = caller, begun, over
        self._in, self._out = Frames(), Frames()
        self.asked = 0
        """So many requests are not answered yet after which somebody looks at the workspace."""

    def send(self, write: Callable[[str], None]) -> None:
        with contextlib.suppress(Exception):  # the other direction ends too then
            while data := self._caller.recv(BLOCK_BYTES):
                for frame in self._in.feed(data):
                    if _type(frame) in CHANGING:
                        self.asked += 1
                        self._begun()
                write(base64.b64encode(data).decode("ascii") + "\n")
        self.leave()

    def receive(self, data: bytes) -> None:
        for frame in self._out.feed(data):
            if self.asked and _type(frame) in DONE:
                self._over()
                self.asked -= 1
            self._caller.sendall(len(frame).to_bytes(4, "big") + frame)

    def leave(self) -> None:
        with contextlib.suppress(OSError):
            self._caller.shutdown(socket.SHUT_RDWR)


def way(given: Mapping[str, Any]) -> Inside:
    return Inside(given)


def _type(frame: bytes) -> str:
    try:
        return msgspec.json.decode(frame, type=_Word).type
    except msgspec.MsgspecError:
        return ""
