"""Control of a sandbox's egress proxy from outside: start it before the sandbox, find it, change it, and close it.

The proxy's folder contains `inside/` (all that the sandbox sees of it, read-only, at `MOUNTED`; a restarted proxy
appears there again), the control socket, the record of its process, and the log of refusals.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kasmon.boot_id import boot
from kasmon.errors import KasmonError, SandboxError
from kasmon.paths import SOCKET_PATH_BYTES, write_private
from kasmon.process_identity import started_at
from kasmon.sandbox.network.allowlist import allowlist
from kasmon.sandbox.network.denials import Denial, read_denials
from kasmon.sandbox.shared.processes import lives

MOUNTED: Final = "/run/kasmon"
"""Where the sandbox sees the `inside` folder."""
PORT: Final = 3128
"""The port on the sandbox's loopback where `guest/proxy_forwarder.py` accepts proxy connections."""
INSIDE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), f"http://127.0.0.1:{PORT}"),
}
"""The variables that lead programs inside to their proxy."""
NODE: Final = "NODE_OPTIONS"
NODE_ALSO: Final = "--require /opt/kasmon/nodeproxy.js"
"""Node programs ignore those variables."""
READY_S: Final = 10.0
ANSWER_S: Final = 5.0
END_S: Final = 3.0


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
    """A running proxy."""

    folder: str
    pid: int
    started: float
    """Seconds since boot, if the system reports it; else 0."""
    boot: str = ""

    @property
    def inside(self) -> Path:
        """The folder that the sandbox sees at `MOUNTED`."""
        return Path(self.folder, "inside")


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
        known = _read_record(folder)
        if known is not None and known.pid == pid and lives(pid, known.started, known.boot):
            return known
        try:
            return _write_record(folder, pid)
        except OSError as error:
            raise SandboxError(f"the egress proxy of {session!r} could not be recorded", str(error)) from error
    _end_proxy(folder)
    is_new = not folder.exists()
    owner = owner if os.geteuid() == 0 else None
    try:
        for path in (folder, folder / "inside"):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = folder / "denied.jsonl"
        if not log.exists():
            write_private(log, b"")
        with contextlib.ExitStack() as kept:
            door = kept.enter_context(_listen(socket_in(folder)))
            control = kept.enter_context(_listen(folder / "control.sock"))
            if owner:
                for path in (folder, folder / "inside", socket_in(folder)):
                    os.chown(path, *owner, follow_symlinks=False)
            handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
            kept.callback(os.close, handle)
            pid = _start_proxy(session, hosts, owner, door.fileno(), control.fileno(), handle)
        return _write_record(folder, pid)
    except OSError as error:
        if is_new:  # otherwise a sandbox may have it mounted
            close_proxy(folder)
        raise SandboxError(f"the egress proxy of {session!r} could not be started", str(error)) from error


def is_running(folder: Path) -> bool:
    """Whether a proxy answers in *folder*."""
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
                told: dict[str, Any] = json.loads(lines.readline(1 << 20))
    except (OSError, ValueError) as error:
        raise SandboxError("the sandbox's egress proxy does not respond", str(error) or "it ended") from error
    if why := told.get("error"):
        raise SandboxError("the sandbox's egress proxy was not changed", str(why))
    return told


def allow(folder: Path, hosts: Sequence[str]) -> None:
    """Replace the allowlist of the proxy in *folder*; other connections are cut. Only the user may extend it.

    Raises:
        UsageError: if *hosts* is not a valid list.
        SandboxError: if no proxy answers.
    """
    allowlist(hosts)
    send_command(folder, {"do": "allow", "hosts": list(hosts)})


def bind_to_process(folder: Path, pid: int) -> None:
    """Make the proxy in *folder* end with process *pid*, the sandbox's outermost one.

    Raises:
        SandboxError: if no proxy answers, or the process does not exist.
    """
    send_command(folder, {"do": "belong", "pid": pid})


def denials(folder: Path, since: float = 0.0) -> tuple[Denial, ...]:
    """Return the refusals after *since*, oldest first; each `sentence` tells the user how to allow it."""
    return read_denials(folder / "denied.jsonl", since)


def hint(folder: Path, since: float) -> str:
    """Return the network part of a run's `hint`: the refusals after *since*; empty if none."""
    return " ".join(f"Network: {denial.sentence}" for denial in denials(folder, since)[-3:])


def close_proxy(folder: Path) -> None:
    """End the proxy in *folder* and remove the folder, with the log of refusals. Idempotent."""
    _end_proxy(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _end_proxy(folder: Path) -> None:
    """End the proxy in *folder*, if any. The folder stays: a running sandbox has it mounted."""
    record = _read_record(folder)
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


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        raise OSError(f"the socket's path {str(path)!r} has more than {SOCKET_PATH_BYTES} bytes")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(old)
    listener.listen(128)
    return listener


def _start_proxy(session: str, hosts: Sequence[str], owner: tuple[int, int] | None, *handles: int) -> int:
    """Start the proxy on its sockets and its log; return its pid once it serves.

    Raises:
        OSError: if it does not start.
    """
    ready, tells = os.pipe()
    door, control, log = handles
    given: dict[str, object] = {"session": session, "hosts": list(hosts), "user": owner}
    given |= {"door": door, "control": control, "log": log, "ready": tells}
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "kasmon.sandbox.network.proxy"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={name: os.environ[name] for name in ("PATH", "LC_ALL", "LANG", "PYTHONPATH") if name in os.environ},
            pass_fds=[*handles, tells],
            start_new_session=True,
        )
        os.close(tells)
        tells = -1
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError), child.stdin:
            child.stdin.write(json.dumps(given).encode() + b"\n")
        threading.Thread(target=child.wait, name=f"reaps proxy {child.pid}", daemon=True).start()
        with open(ready, "rb", closefd=False) as pipe:
            said = pipe.read(1) if _wait_readable(ready) else None
        if said != b"1":
            child.kill()
            raise OSError(
                "its proxy exited immediately" if said is not None else f"its proxy took longer than {READY_S:g} s"
            )
        return child.pid
    finally:
        os.close(ready)
        if tells >= 0:
            os.close(tells)


def _wait_readable(handle: int) -> bool:
    import select  # only needed to start a proxy

    return bool(select.select([handle], [], [], READY_S)[0])


def _write_record(folder: Path, pid: int) -> EgressProxyHandle:
    gate = EgressProxyHandle(folder=str(folder), pid=pid, started=started_at(pid) or 0.0, boot=boot())
    write_private(folder / "gate.json", msgspec.json.encode(gate))
    return gate


def _read_record(folder: Path) -> EgressProxyHandle | None:
    try:
        return msgspec.json.decode((folder / "gate.json").read_bytes(), type=EgressProxyHandle)
    except (OSError, msgspec.MsgspecError):
        return None
