"""Start a machine that outlives this process: its host end, and the QEMU behind it."""

import contextlib
import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from kasmon.errors import SandboxError
from kasmon.sandbox.shared.host_folders import PYTHON
from kasmon.sandbox.shared.processes import LOG_BYTES, open_memory_file

READY_S: Final = 10.0


class HostEndCode(NamedTuple):
    """The code of a host end, readable for the machines' user."""

    line: Path
    """The folder of the link's code."""
    inside: Path


class HostEndConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a host end, with its open files by their descriptors."""

    listen: int
    """A listening socket for connections to the guest agent."""
    control: int
    """A listening socket for requests from kasmon."""
    ports: int
    """A listening socket for connections to ports inside."""
    gate: str
    """The socket of its egress proxy, which may not exist."""
    lock: int
    """The session's lock file; the host end holds its lock for life."""
    trees: dict[str, int]
    """Name -> open folder, for the mirrored folders."""
    read_only: list[str]
    """The names of those that are read-only inside."""
    most_bytes: int
    """The maximum size of one file."""

    @property
    def every(self) -> tuple[int, ...]:
        return (self.listen, self.control, self.ports, self.lock, *self.trees.values())


def start_host_end(
    code: HostEndCode,
    argv: Sequence[str],
    files: Sequence[int],
    config: HostEndConfig,
    log: int,
    owner: tuple[int, int],
) -> None:
    """Start the host end and, by it, QEMU with *argv*; return once both run, with the machine still stopped.

    They have no parent here, and outlive this process.

    Args:
        code: the code of the host end, readable for *owner*.
        argv: QEMU's command line.
        files: descriptors that QEMU inherits.
        log: a file for their output.
        owner: user and group of both.

    Raises:
        SandboxError: if it does not run within `READY_S`, or another machine of the session runs.
    """
    reads, tells = os.pipe()
    words = {**msgspec.to_builtins(config), "argv": list(argv), "files": list(files), "ready": tells}
    given = open_memory_file(msgspec.json.encode(words))
    drop = {"user": owner[0], "group": owner[1], "extra_groups": ()} if os.geteuid() == 0 else {}
    try:
        host_end = subprocess.Popen(  # type: ignore[call-overload]
            [PYTHON, "-I", "-S", os.fspath(code.line / "main.py"), "host", os.fspath(code.inside)],
            env={"LC_ALL": "C.UTF-8"},
            cwd="/",
            stdin=given,
            stdout=log,
            stderr=log,
            pass_fds=[*files, *config.every, tells],
            start_new_session=True,
            umask=0o077,
            **drop,
        )
        os.close(tells)
        tells = -1
        host_end.wait()
        reply = _read_json_line(reads)
        if "qemu" not in reply:
            why = reply.get("why") or read_last_log_line(log) or "its host end did not respond"
            raise SandboxError("cannot create a machine", str(why))
    except OSError as error:
        raise SandboxError("cannot create a machine", str(error)) from error
    finally:
        os.close(given)
        os.close(reads)
        if tells >= 0:
            os.close(tells)


def read_last_log_line(log: int) -> str:
    return last_line(os.pread(log, LOG_BYTES, 0))


def last_line(reply: bytes) -> str:
    """Return the last line of *reply*, without QEMU's name in front."""
    lines = reply.rstrip(b"\0").decode("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("qemu-system-x86_64: ") if lines else ""


def _read_json_line(handle: int) -> dict[str, Any]:
    held, until = b"", time.monotonic() + READY_S
    while b"\n" not in held and select.select([handle], [], [], max(0.0, until - time.monotonic()))[0]:
        piece = os.read(handle, 4096)
        if not piece:
            return {}
        held += piece
    reply = json.loads(held) if b"\n" in held else {}
    return reply if isinstance(reply, dict) else {}


def send_request(path: Path, limit_s: float, do: str, **words: Any) -> dict[str, Any]:
    """Send *do* to the host end at *path* and return its answer.

    Raises:
        SandboxError: if it, or the machine behind it, does not do that within *limit_s*.
    """
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as stream:
        stream.settimeout(limit_s)
        try:
            stream.connect(os.fspath(path))
            stream.sendall(json.dumps({"do": do, **words}).encode() + b"\n")
            with stream.makefile("rb") as file:
                line = file.readline()
        except TimeoutError as error:
            raise SandboxError(f"the machine did not {do}", f"it took longer than {limit_s:g} s") from error
        except OSError as error:
            raise SandboxError(f"the machine did not {do}", error.strerror or str(error)) from error
    if not line:
        raise SandboxError(f"the machine did not {do}", "it ended")
    reply: dict[str, Any] = json.loads(line)
    if why := reply.get("why"):
        raise SandboxError(f"the machine did not {do}", str(why))
    return reply
