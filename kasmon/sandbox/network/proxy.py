"""A sandbox's only way out: a proxy of its own on a unix socket, which passes on what the sandbox's list allows.

A process beside the sandbox (`proxy_control.py` starts it and finds it again). It outlives every other process of
kasmon and ends with the sandbox. The sockets it listens on were made by its starter, so whoever asks before it runs
waits, and nobody gets past it. Names are looked up here and never inside; the address that was judged is the one that
is called.

A tunnel (`CONNECT`) begins with a TLS hello that names the host it was opened for; only where the list names a port
other than 443 may something else be spoken. A plain request is passed on alone: a second one needs a new connection and
is judged again. What hides inside TLS, and what an allowed host does with it, nobody sees here.
"""

import contextlib
import json
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kasmon.errors import UsageError
from kasmon.sandbox.network.allowlist import (
    AllowlistEntry,
    HostVerdict,
    address_fault,
    allowlist,
    entry_for,
    how_to_allow,
    judge,
)
from kasmon.sandbox.network.denials import Denial, DenialLog
from kasmon.sandbox.network.http_request import UnsupportedRequestError
from kasmon.sandbox.network.tunnel import HostUnreachedError, ProxyTunnel, answer, carry, read_request, until_hello

MOST: Final = 64
"""Connections at once; one more is told so and closed."""
LOOK_S: Final = 30.0
"""So often it looks whether its socket is still there."""
DIAL_S: Final = 15.0
"""For one address of a host."""
MOST_ADDRESSES: Final = 4

Resolve = Callable[[str, int], Sequence[tuple[int, str]]]
"""A host's addresses at a port, each with its family."""


def looked_up(host: str, port: int) -> list[tuple[int, str]]:
    """The addresses of *host*, by this machine's own means.

    Raises:
        OSError: if it has none.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, str(address[0])) for family, _, _, _, address in found]


class EgressProxy:
    """One sandbox's proxy. `serve` returns when the sandbox is gone or when it is told to end."""

    def __init__(
        self,
        session: str,
        hosts: Sequence[str],
        door: socket.socket,
        control: socket.socket,
        log: DenialLog,
        resolve: Resolve = looked_up,
    ) -> None:
        """*door* and *control* are listening unix sockets; the sandbox sees only the first.

        Raises:
            UsageError: if *hosts* is no list of hosts.
        """
        self.session, self.hosts, self.denied = session, tuple(hosts), 0
        self._entries: tuple[AllowlistEntry, ...] = allowlist(hosts)
        self._door, self._control, self._log, self._resolve = door, control, log, resolve
        self._lock = threading.Lock()
        self._passages: set[ProxyTunnel] = set()
        self._events = selectors.DefaultSelector()
        self._over = False
        self._path = door.getsockname()
        self._inode = os.lstat(self._path).st_ino

    def serve(self) -> None:
        """Let in who comes, and hear what kasmon wishes, until the end."""
        for listener, act in ((self._door, self._let_in), (self._control, self._hear)):
            listener.setblocking(False)
            self._events.register(listener, selectors.EVENT_READ, act)
        while not self._over:
            ready = self._events.select(LOOK_S)
            if not ready and self._is_gone():
                break
            for key, _ in ready:
                with contextlib.suppress(OSError, RuntimeError):  # whoever knocked is gone; or there is no thread left
                    key.data()
        for passage in self._passages.copy():
            passage.cut()
        self._events.close()
        self._door.close()
        self._control.close()

    def allow(self, hosts: Sequence[str]) -> None:
        """From now on *hosts* is the list; what it does not allow any more is cut.

        Raises:
            UsageError: if it is no list of hosts; the old one stays.
        """
        entries = allowlist(hosts)
        with self._lock:
            self._entries, self.hosts = entries, tuple(hosts)
            for passage in self._passages:
                if (old := passage.verdict) is not None:
                    now = judge(entries, old.host, old.port)
                    if not now.allowed or (old.private and not now.private):
                        passage.cut()

    def _is_gone(self) -> bool:
        """Whether the sandbox's folder was removed, or another proxy took this one's place."""
        try:
            return os.lstat(self._path).st_ino != self._inode
        except FileNotFoundError:
            return True
        except OSError:
            return False  # it is not ours to see

    def _let_in(self) -> None:
        client, _ = self._door.accept()
        passage = ProxyTunnel(client)
        with self._lock:
            if full := len(self._passages) >= MOST:
                client.setblocking(False)
                answer(client, 503, f"this sandbox already has {MOST} connections")
            else:
                self._passages.add(passage)
        if full:
            client.close()
            return
        try:
            threading.Thread(target=self._pass, args=(passage,), daemon=True).start()
        except RuntimeError:
            self._over_with(passage)
            raise

    def _pass(self, passage: ProxyTunnel) -> None:
        """Serve one connection to its end."""
        try:
            self._carry(passage)
        except UnsupportedRequestError as error:
            answer(passage.client, error.status, error.why)
        except HostUnreachedError as error:
            answer(passage.client, 502, str(error))
        except (OSError, ValueError):
            pass  # the one side or the other went away, or spoke something else
        finally:
            self._over_with(passage)

    def _over_with(self, passage: ProxyTunnel) -> None:
        with self._lock:
            self._passages.discard(passage)
        passage.close()

    def _carry(self, passage: ProxyTunnel) -> None:
        head, behind = read_request(passage.client)
        with self._lock:
            verdict = judge(self._entries, head.host, head.port)
            passage.verdict = verdict if verdict.allowed else None
        if not verdict.allowed:
            raise UnsupportedRequestError(403, self._refuse(verdict, verdict.why))
        passage.host = self._dial(verdict)
        if passage.was_cut:
            return
        if not head.tunnel:
            passage.host.sendall(head.onward + behind[: head.length])
            carry(passage, head.length - len(behind[: head.length]))
            return
        if behind:
            raise UnsupportedRequestError(400, "no data is allowed in a tunnel before it is open")
        passage.client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        said, fault = until_hello(passage, verdict)
        if fault:
            self._refuse(verdict, fault, fixable=False)
            return
        passage.host.sendall(said)
        carry(passage)

    def _dial(self, verdict: HostVerdict) -> socket.socket:
        try:
            addresses = self._resolve(verdict.host, verdict.port)
        except OSError as error:
            raise HostUnreachedError(f"{verdict.host} is unknown here: {error.strerror or error}") from error
        faults = [address_fault(address, private=verdict.private) for _, address in addresses]
        good = [each for each, fault in zip(addresses, faults, strict=True) if not fault]
        if faults and not good:
            may_be_allowed = any(not address_fault(address, private=True) for _, address in addresses)
            said = self._refuse(verdict._replace(private=True), f"{verdict.host}: {faults[0]}", fixable=may_be_allowed)
            raise UnsupportedRequestError(403, said)
        why = "it has no address"
        for family, address in good[:MOST_ADDRESSES]:
            host = socket.socket(family, socket.SOCK_STREAM)
            host.settimeout(DIAL_S)
            try:
                host.connect((address, verdict.port))
            except OSError as error:
                host.close()
                why = error.strerror or str(error)
            else:
                return host
        raise HostUnreachedError(f"{verdict.host}:{verdict.port} cannot be reached: {why}")

    def _refuse(self, verdict: HostVerdict, why: str, *, fixable: bool = True) -> str:
        """Note the refusal; returns what the program is told."""
        entry = entry_for(verdict.host, verdict.port, private=verdict.private) if verdict.host and fixable else ""
        fix = how_to_allow(self.session, entry) if entry else ""
        denial = Denial(time.time(), verdict.host, verdict.port, why, fix, entry)
        with self._lock, contextlib.suppress(OSError):  # a full disk is no reason to let anybody out
            self.denied += 1
            self._log.note(denial)
        return denial.sentence

    def _hear(self) -> None:
        """Answer one wish of kasmon's own: a line of JSON each way."""
        with contextlib.closing(self._control.accept()[0]) as caller:
            caller.settimeout(2.0)
            with caller.makefile("rb") as lines:
                told = self._do(lines.readline(1 << 20))
            caller.sendall(json.dumps(told).encode() + b"\n")

    def _do(self, line: bytes) -> dict[str, Any]:
        try:
            wish = json.loads(line)
            match wish["do"]:
                case "allow":
                    self.allow([str(host) for host in wish["hosts"]])
                case "belong":
                    self._belong(int(wish["pid"]))
                case "end":
                    self._over = True
                case "state":
                    pass
                case _:
                    return {"error": "an unknown command"}
        except (UsageError, OSError, ValueError, KeyError, TypeError) as error:
            return {"error": str(error)}
        return {"pid": os.getpid(), "hosts": self.hosts, "open": len(self._passages), "denied": self.denied}

    def _belong(self, pid: int) -> None:
        """End when the process *pid* does, where the system tells it; everywhere, once the socket is gone."""
        if sys.platform == "linux":
            self._events.register(os.pidfd_open(pid), selectors.EVENT_READ, self._end)

    def _end(self) -> None:
        self._over = True


def main() -> None:
    """Serve what stdin says: one JSON object, its sockets and its log by their file descriptors."""
    wanted = json.loads(sys.stdin.buffer.readline())
    door, control = (socket.socket(fileno=wanted[name]) for name in ("door", "control"))
    egress = EgressProxy(wanted["session"], wanted["hosts"], door, control, DenialLog(wanted["log"]))
    "example.org".encode("idna")  # loads what it needs while that can be read
    if wanted["user"] is not None:
        user, group = wanted["user"]
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)
    os.write(wanted["ready"], b"1")
    os.close(wanted["ready"])
    egress.serve()
    os._exit(0)  # connections that hang hold nothing up


if __name__ == "__main__":
    main()
