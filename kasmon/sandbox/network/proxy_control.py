"""Control of a sandbox's egress proxy from outside: start it before the sandbox, find it, change it, and close it.

The proxy's folder contains `inside/` (all that the sandbox sees of it, read-only, at `MOUNTED`; a restarted proxy
appears there again), the control socket, the record of its process, and the log of refusals.
"""

import contextlib
import json
import logging
import os
import select
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kasmon.boot_id import boot
from kasmon.errors import KasmonError, SandboxError
from kasmon.paths import read_json, write_private
from kasmon.process_identity import started_at
from kasmon.sandbox.network.allowlist import allowlist
from kasmon.sandbox.network.denials import Denial, read_denials
from kasmon.sandbox.shared.processes import listen, lives, start_helper

MOUNTED: Final = "/run/kasmon"
"""Where the sandbox sees the `inside` folder."""
PORT: Final = 3128
"""The port on the sandbox's loopback where `guest/proxy_forwarder.py` accepts proxy connections."""
INSIDE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), f"http://127.0.0.1:{PORT}")
}
"""The variables that lead programs inside to their proxy."""
NODE: Final = "NODE_OPTIONS"
NODE_ALSO: Final = "--require /opt/kasmon/nodeproxy.js"
"""Node programs ignore those variables."""
GIVEN: Final = ("PATH", "LC_ALL", "LANG", "PYTHONPATH")
"""Variables that a proxy inherits."""
READY_S: Final = 10.0
ANSWER_S: Final = 5.0
END_S: Final = 3.0
LOOK_S: Final = 60.0
"""How often a process that waits for a sandbox's first connection checks whether the sandbox still exists."""

log = logging.getLogger(__name__)
_unstarted: dict[Path, socket.socket] = {}
"""The folders whose proxy this process starts at the first connection -> the socket that the sandbox connects to."""
_binding = threading.Lock()
"""Held while a folder's sockets are made: both belong to one proxy."""


def socket_in(folder: Path) -> Path:
    """Return the socket of the proxy in *folder* that the sandbox connects to."""
    return folder / "inside" / "proxy.sock"


def not_proxied(hosts: Sequence[str]) -> dict[str, str]:
    """Return the variables that name the hosts reached without the proxy: the sandbox's own loopback.

    The name `localhost` is left out if *hosts*, as in a policy, allow this machine's `localhost`.
    """
    allowed = any(entry.names("localhost") for entry in allowlist(hosts))
    return dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,::1" if allowed else "localhost,127.0.0.1,::1")


def add_proxy_variables(variables: Mapping[str, str], hosts: Sequence[str]) -> dict[str, str]:
    """Return *variables* with those that lead programs inside to their proxy for *hosts*."""
    return {**variables, **INSIDE, **not_proxied(hosts), NODE: f"{variables.get(NODE, '')} {NODE_ALSO}".strip()}


class EgressProxyHandle(msgspec.Struct, frozen=True, kw_only=True):
    folder: str
    pid: int
    started: float
    """Seconds since boot, if the system reports it; else 0."""
    boot: str = ""


def open_proxy(
    folder: Path, session: str, hosts: Sequence[str], *, owner: tuple[int, int] | None = None
) -> EgressProxyHandle:
    """Return the proxy in *folder*, existing or started, with *hosts* in force.

    Args:
        folder: the proxy's own folder; created if missing. Its path is short, since it contains sockets.
        session: the session named in the command that allows more hosts.
        hosts: as in a policy.
        owner: user and group of the sandbox's processes on this machine. Root gives them the sockets and runs the proxy
            as them; for other users it has no effect.

    Raises:
        UsageError: if *hosts* is not a valid list.
        SandboxError: if no proxy could be started.
    """
    allowlist(hosts)
    if is_running(folder):
        pid = int(send_command(folder, {"do": "allow", "hosts": list(hosts)})["pid"])
        known = read_json(folder / "gate.json", EgressProxyHandle, None)
        if known is not None and known.pid == pid and lives(pid, known.started, known.boot):
            return known
        try:
            return _write_record(folder, pid)
        except OSError as error:
            raise SandboxError(f"the egress proxy of {session!r} could not be recorded", str(error)) from error
    _end_proxy(folder)
    is_new = not folder.exists()
    try:
        with contextlib.ExitStack() as kept:
            with _binding:
                client_listener = kept.enter_context(_listen_for_sandbox(folder, owner))
                control = kept.enter_context(listen(folder / "control.sock"))
                _stop_waiting(folder)
            pid = _start_proxy(folder, session, hosts, owner, client_listener, control)
        return _write_record(folder, pid)
    except OSError as error:
        if is_new:  # otherwise a sandbox may have it mounted
            close_proxy(folder)
        raise SandboxError(f"the egress proxy of {session!r} could not be started", str(error)) from error


def open_on_demand(
    folder: Path, session: str, *, owner: tuple[int, int] | None = None, find_sandbox: Callable[[], int | None]
) -> None:
    """Start a proxy that permits no host in *folder*, at the sandbox's first connection; that connection waits.

    A running proxy gets the empty list. The waiting ends with this process; call it again in the next one.

    Args:
        folder, session, owner: as for `open_proxy`.
        find_sandbox: returns the sandbox's outermost process, with which the proxy ends.

    Raises:
        SandboxError: if the socket cannot be made.
    """
    if is_running(folder):
        allow(folder, ())
        return
    with _binding:
        if folder in _unstarted:
            return
        try:
            client_listener = _unstarted[folder] = _listen_for_sandbox(folder, owner)
        except OSError as error:
            raise SandboxError(f"the egress proxy of {session!r} could not be set up", str(error)) from error
    threading.Thread(
        target=_start_on_connection,
        args=(folder, session, owner, client_listener, os.lstat(socket_in(folder)).st_ino, find_sandbox),
        name=f"starts the proxy of {session}",
        daemon=True,
    ).start()


def _start_on_connection(
    folder: Path,
    session: str,
    owner: tuple[int, int] | None,
    client_listener: socket.socket,
    inode: int,
    find_sandbox: Callable[[], int | None],
) -> None:
    try:
        with client_listener:
            while not select.select([client_listener], [], [], LOOK_S)[0] and _has_socket(folder, inode):
                pass
            with _binding:
                if not _has_socket(folder, inode):  # the sandbox is gone, or another proxy serves it
                    return
                control = listen(folder / "control.sock")
            with control:
                pid = _start_proxy(folder, session, (), owner, client_listener, control)
        _write_record(folder, pid)
        if (first := find_sandbox()) is not None:
            bind_to_process(folder, first)
    except (OSError, SandboxError):
        log.warning("the egress proxy of %s could not be started", session, exc_info=True)
    finally:
        with _binding:
            if _unstarted.get(folder) is client_listener:
                del _unstarted[folder]


def _has_socket(folder: Path, inode: int) -> bool:
    try:
        return os.lstat(socket_in(folder)).st_ino == inode
    except OSError:
        return False


def _stop_waiting(folder: Path) -> None:
    """End the wait for the first connection in *folder*, if this process waits."""
    if (client_listener := _unstarted.pop(folder, None)) is not None:
        with contextlib.suppress(OSError):
            client_listener.shutdown(socket.SHUT_RDWR)  # its thread wakes, and finds another socket or none


def is_running(folder: Path) -> bool:
    try:
        send_command(folder, {"do": "state"})
    except KasmonError:
        return False
    return True


def send_command(folder: Path, command: Mapping[str, Any]) -> dict[str, Any]:
    """Send a command to the proxy in *folder* and return its answer: `pid`, `hosts`, counts `open` and `denied`.

    Raises:
        SandboxError: if there is none, it does not answer in `ANSWER_S`, or it refuses.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(ANSWER_S)
            link.connect(os.fspath(folder / "control.sock"))
            link.sendall(json.dumps(dict(command)).encode() + b"\n")
            with link.makefile("rb") as lines:
                answer: dict[str, Any] = json.loads(lines.readline(1 << 20))
    except (OSError, ValueError) as error:
        raise SandboxError("the sandbox's egress proxy does not respond", str(error) or "it ended") from error
    if why := answer.get("error"):
        raise SandboxError("the sandbox's egress proxy was not changed", str(why))
    return answer


def allow(folder: Path, hosts: Sequence[str]) -> None:
    """Replace the allowlist of the proxy in *folder*; other connections are cut. Only the user may extend it.

    Raises:
        UsageError: if *hosts* is not a valid list.
        SandboxError: if no proxy answers.
    """
    allowlist(hosts)
    send_command(folder, {"do": "allow", "hosts": list(hosts)})


def bind_to_process(folder: Path, pid: int) -> None:
    """Make the proxy in *folder* end with process *pid*. Raises `SandboxError` if either does not exist."""
    send_command(folder, {"do": "belong", "pid": pid})


def denials(folder: Path, since: float = 0.0) -> tuple[Denial, ...]:
    """Return the refusals after *since*, oldest first; each `sentence` tells the user how to allow it."""
    return read_denials(folder / "denied.jsonl", since)


def close_proxy(folder: Path) -> None:
    """End the proxy in *folder* and remove the folder, with the log of refusals. Idempotent."""
    _end_proxy(folder)
    with _binding:
        shutil.rmtree(folder, ignore_errors=True)
        _stop_waiting(folder)


def _end_proxy(folder: Path) -> None:
    """End the proxy in *folder*, if any. The folder stays: a running sandbox has it mounted."""
    record = read_json(folder / "gate.json", EgressProxyHandle, None)
    with contextlib.suppress(KasmonError):
        send_command(folder, {"do": "end"})
    if record is not None:
        until = time.monotonic() + END_S
        while lives(record.pid, record.started, record.boot):
            if time.monotonic() > until:
                with contextlib.suppress(OSError):
                    os.kill(record.pid, signal.SIGKILL)
                break
            time.sleep(0.005)


def _listen_for_sandbox(folder: Path, owner: tuple[int, int] | None) -> socket.socket:
    """Create *folder* where it is missing, and return the listening socket that the sandbox connects to."""
    for path in (folder, folder / "inside"):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    client_listener = listen(socket_in(folder))
    if owner and os.geteuid() == 0:
        for path in (folder, folder / "inside", socket_in(folder)):
            os.chown(path, *owner, follow_symlinks=False)
    return client_listener


def _start_proxy(
    folder: Path,
    session: str,
    hosts: Sequence[str],
    owner: tuple[int, int] | None,
    client_listener: socket.socket,
    control: socket.socket,
) -> int:
    """Start the proxy on its sockets and the log in *folder*; return its pid once it serves. Raises `OSError`."""
    denied = folder / "denied.jsonl"
    if not denied.exists():
        write_private(denied, b"")
    refusals = os.open(denied, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    files = {"client_listener": client_listener.fileno(), "control": control.fileno(), "log": refusals}
    config = {"session": session, "hosts": list(hosts), "user": owner if os.geteuid() == 0 else None}
    try:
        return start_helper("kasmon.sandbox.network.proxy", config, files, GIVEN, READY_S)
    finally:
        os.close(refusals)


def _write_record(folder: Path, pid: int) -> EgressProxyHandle:
    gate = EgressProxyHandle(folder=str(folder), pid=pid, started=started_at(pid) or 0.0, boot=boot())
    write_private(folder / "gate.json", msgspec.json.encode(gate))
    return gate
