"""A sandbox's egress proxy, on a unix socket of its own: passes on what the sandbox's allowlist permits.

It is a process beside the sandbox, which `proxy_control.py` starts and finds again. It outlives kasmon's other
processes and ends with the sandbox. Its starter made its sockets, so clients that connect early wait and cannot bypass
it. Names are resolved here, never inside; the address that was checked is the one that is connected to.

A tunnel (`CONNECT`) must begin with a TLS hello that names its host; another protocol is only allowed if the list names
a port other than 443. A plain request is passed on alone: a second one needs a new connection and is checked again.
The content of TLS, and what an allowed host does with it, is not visible here.
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

from kasmon import system
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
from kasmon.sandbox.network.tunnel import (
    HostUnreachedError,
    ProxyTunnel,
    UnsupportedRequestError,
    forward,
    read_request,
    read_until_hello,
    send_response,
)

MOST: Final = 64
"""Maximum simultaneous connections; a further one gets an error and is closed."""
LOOK_S: Final = 30.0
"""How often it checks whether its socket still exists."""
DIAL_S: Final = 15.0
"""Timeout for one address of a host."""
MOST_ADDRESSES: Final = 4

Resolve = Callable[[str, int], Sequence[tuple[int, str]]]
"""Returns a host's addresses at a port, each with its family."""


def resolve_host(host: str, port: int) -> list[tuple[int, str]]:
    """Resolve *host* with this machine's resolver. Raises `OSError` if it has no address."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, str(address[0])) for family, _, _, _, address in found]


class EgressProxy:
    """One sandbox's proxy. `serve` returns when the sandbox is gone or the `end` command arrives."""

    def __init__(
        self,
        session: str,
        hosts: Sequence[str],
        client_listener: socket.socket,
        control: socket.socket,
        log: DenialLog,
        resolve: Resolve = resolve_host,
    ) -> None:
        """*client_listener* and *control* are listening unix sockets; the sandbox sees only the first.

        Raises:
            UsageError: if *hosts* is not a valid list.
        """
        self.session, self.hosts, self.denied = session, tuple(hosts), 0
        self._entries: tuple[AllowlistEntry, ...] = allowlist(hosts)
        self._clients, self._control, self._log, self._resolve = client_listener, control, log, resolve
        self._lock = threading.Lock()
        self._tunnels: set[ProxyTunnel] = set()
        self._events = selectors.DefaultSelector()
        self._over = False
        self._path = client_listener.getsockname()
        self._inode = os.lstat(self._path).st_ino

    def serve(self) -> None:
        """Accept connections from the sandbox and commands from kasmon, until the end."""
        for listener, act in ((self._clients, self._accept_client), (self._control, self._accept_command)):
            listener.setblocking(False)
            self._events.register(listener, selectors.EVENT_READ, act)
        while not self._over:
            ready = self._events.select(LOOK_S)
            if not ready and self._is_gone():
                break
            for key, _ in ready:
                with contextlib.suppress(OSError, RuntimeError):  # the client is gone, or no thread can be started
                    key.data()
        for tunnel in self._tunnels.copy():
            tunnel.cut()
        self._events.close()
        self._clients.close()
        self._control.close()

    def allow(self, hosts: Sequence[str]) -> None:
        """Replace the allowlist, and cut what it no longer permits. After a `UsageError`, the old one is in force."""
        entries = allowlist(hosts)
        with self._lock:
            self._entries, self.hosts = entries, tuple(hosts)
            for tunnel in self._tunnels:
                if (old := tunnel.verdict) is not None:
                    now = judge(entries, old.host, old.port)
                    if not now.allowed or (old.private and not now.private):
                        tunnel.cut()

    def _is_gone(self) -> bool:
        """Whether the sandbox's folder was removed, or another proxy replaced this one."""
        try:
            return os.lstat(self._path).st_ino != self._inode
        except FileNotFoundError:
            return True
        except OSError:
            return False  # the folder is not accessible

    def _accept_client(self) -> None:
        client, _ = self._clients.accept()
        tunnel = ProxyTunnel(client)
        with self._lock:
            if full := len(self._tunnels) >= MOST:
                client.setblocking(False)
                send_response(client, 503, f"this sandbox already has {MOST} connections")
            else:
                self._tunnels.add(tunnel)
        if full:
            client.close()
            return
        try:
            threading.Thread(target=self._serve_client, args=(tunnel,), daemon=True).start()
        except RuntimeError:
            self._finish(tunnel)
            raise

    def _serve_client(self, tunnel: ProxyTunnel) -> None:
        try:
            self._handle_request(tunnel)
        except UnsupportedRequestError as error:
            send_response(tunnel.client, error.status, error.why)
        except HostUnreachedError as error:
            send_response(tunnel.client, 502, str(error))
        except (OSError, ValueError):
            pass  # one side disconnected or sent invalid data
        finally:
            self._finish(tunnel)

    def _finish(self, tunnel: ProxyTunnel) -> None:
        with self._lock:
            self._tunnels.discard(tunnel)
        tunnel.close()

    def _handle_request(self, tunnel: ProxyTunnel) -> None:
        head, behind = read_request(tunnel.client)
        with self._lock:
            verdict = judge(self._entries, head.host, head.port)
            tunnel.verdict = verdict if verdict.allowed else None
        if not verdict.allowed:
            raise UnsupportedRequestError(403, self._log_refusal(verdict, verdict.why))
        tunnel.host = self._dial(verdict)
        if tunnel.was_cut:
            return
        if not head.tunnel:
            tunnel.host.sendall(head.onward + behind[: head.length])
            forward(tunnel, head.length - len(behind[: head.length]))
            return
        if behind:
            raise UnsupportedRequestError(400, "no data is allowed in a tunnel before it is open")
        tunnel.client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        first_bytes, fault = read_until_hello(tunnel, verdict)
        if fault:
            self._log_refusal(verdict, fault, fixable=False)
            return
        tunnel.host.sendall(first_bytes)
        forward(tunnel)

    def _dial(self, verdict: HostVerdict) -> socket.socket:
        try:
            addresses = self._resolve(verdict.host, verdict.port)
        except OSError as error:
            raise HostUnreachedError(f"{verdict.host} is unknown here: {error.strerror or error}") from error
        faults = [address_fault(address, private=verdict.private) for _, address in addresses]
        good = [each for each, fault in zip(addresses, faults, strict=True) if not fault]
        if faults and not good:
            may_be_allowed = any(not address_fault(address, private=True) for _, address in addresses)
            reason = self._log_refusal(
                verdict._replace(private=True), f"{verdict.host}: {faults[0]}", fixable=may_be_allowed
            )
            raise UnsupportedRequestError(403, reason)
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

    def _log_refusal(self, verdict: HostVerdict, why: str, *, fixable: bool = True) -> str:
        """Log the refusal; return the sentence for the program."""
        entry = entry_for(verdict.host, verdict.port, private=verdict.private) if verdict.host and fixable else ""
        fix = how_to_allow(self.session, entry) if entry else ""
        denial = Denial(time.time(), verdict.host, verdict.port, why, fix, entry)
        with self._lock, contextlib.suppress(OSError):  # a full disk must not turn a refusal into access
            self.denied += 1
            self._log.note(denial)
        return denial.sentence

    def _accept_command(self) -> None:
        """Handle one command from kasmon: one line of JSON each way."""
        with contextlib.closing(self._control.accept()[0]) as caller:
            caller.settimeout(2.0)
            with caller.makefile("rb") as lines:
                answer = self._handle_command(lines.readline(1 << 20))
            caller.sendall(json.dumps(answer).encode() + b"\n")

    def _handle_command(self, line: bytes) -> dict[str, Any]:
        try:
            command = json.loads(line)
            match command["do"]:
                case "allow":
                    self.allow([str(host) for host in command["hosts"]])
                case "belong":
                    self._end_with_process(int(command["pid"]))
                case "end":
                    self._over = True
                case "state":
                    pass
                case _:
                    return {"error": "an unknown command"}
        except (UsageError, OSError, ValueError, KeyError, TypeError) as error:
            return {"error": str(error)}
        return {"pid": os.getpid(), "hosts": self.hosts, "open": len(self._tunnels), "denied": self.denied}

    def _end_with_process(self, pid: int) -> None:
        self._events.register(system.HERE.open_exit_handle(pid), selectors.EVENT_READ, self._end)

    def _end(self) -> None:
        self._over = True


def main() -> None:
    """Serve as one JSON object on stdin describes, with the file descriptors of the sockets and the log."""
    wanted = json.loads(sys.stdin.buffer.readline())
    client_listener, control = (socket.socket(fileno=wanted[name]) for name in ("client_listener", "control"))
    egress = EgressProxy(wanted["session"], wanted["hosts"], client_listener, control, DenialLog(wanted["log"]))
    "example.org".encode("idna")  # loads the codec while its files can be read
    if wanted["user"] is not None:
        user, group = wanted["user"]
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)
    os.write(wanted["ready"], b"R")
    os.close(wanted["ready"])
    egress.serve()
    os._exit(0)  # hanging connections must not delay the exit


if __name__ == "__main__":
    main()
