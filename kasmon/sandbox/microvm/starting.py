"""A machine started beside us, which goes on when we end: its door, and the QEMU behind that."""

import contextlib
import fcntl
import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kasmon.errors import SandboxError
from kasmon.sandbox.jail.ground import PYTHON

READY_S: Final = 10.0
LOG_BYTES: Final = 64 * 1024


def started(
    code: Path,
    inside: Path,
    argv: Sequence[str],
    files: Sequence[int],
    *,
    log: int,
    listen: int,
    control: int,
    ports: int,
    lock: int,
    gate: Path,
    trees: Mapping[str, int],
    read_only: Sequence[str],
    most_bytes: int,
    owner: tuple[int, int],
) -> None:
    """Start the door, and by it QEMU with *argv*; returns once both are there, and nothing runs in the machine yet.

    They belong to nobody here, and go on when we end.

    Args:
        code: the folder of the line's code, as *owner* may read it.
        inside: that of what runs in every sandbox, likewise.
        argv: QEMU's words.
        files: what QEMU inherits.
        log: a file for what they say.
        listen: a listening socket, where the agent is to be reached.
        control: another one, for its keeper.
        ports: another one, for those who want to reach a port inside.
        lock: the session's lock file; the door holds it for life.
        gate: where its way out listens, if there is one.
        trees: name -> folder, open, of the mirrored folders.
        read_only: the names of those that nobody inside changes.
        most_bytes: so much is taken of one file.
        owner: user and group of both.

    Raises:
        SandboxError: if it is not there in `READY_S`, or another machine of the session lives.
    """
    reads, tells = os.pipe()
    told = os.memfd_create("kasmon", os.MFD_CLOEXEC)
    words = {
        "argv": list(argv),
        "files": list(files),
        "listen": listen,
        "control": control,
        "ports": ports,
        "gate": os.fspath(gate),
        "lock": lock,
        "ready": tells,
        "trees": dict(trees),
        "read_only": list(read_only),
        "most_bytes": most_bytes,
    }
    drop = {"user": owner[0], "group": owner[1], "extra_groups": ()} if os.geteuid() == 0 else {}
    try:
        os.write(told, msgspec.json.encode(words))
        os.lseek(told, 0, os.SEEK_SET)
        door = subprocess.Popen(  # type: ignore[call-overload]
            [PYTHON, "-I", "-S", os.fspath(code / "main.py"), "door", os.fspath(inside)],
            env={"LC_ALL": "C.UTF-8"},
            cwd="/",
            stdin=told,
            stdout=log,
            stderr=log,
            pass_fds=[*files, listen, control, ports, lock, tells, *trees.values()],
            start_new_session=True,
            umask=0o077,
            **drop,
        )
        os.close(tells)
        tells = -1
        door.wait()
        said = _line(reads)
        if "qemu" not in said:
            why = said.get("why") or end_of(log) or "its door said nothing"
            raise SandboxError("no machine was made", str(why))
    except OSError as error:
        raise SandboxError("no machine was made", str(error)) from error
    finally:
        os.close(told)
        os.close(reads)
        if tells >= 0:
            os.close(tells)


def new_log() -> int:
    """A file in memory that takes `LOG_BYTES` and no more."""
    handle = os.memfd_create("kasmon", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(handle, LOG_BYTES)
    fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return handle


def end_of(log: int) -> str:
    """The last line that was said there."""
    return last_line(os.pread(log, LOG_BYTES, 0))


def last_line(said: bytes) -> str:
    lines = said.rstrip(b"\0").decode("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("qemu-system-x86_64: ") if lines else ""


def _line(handle: int) -> dict[str, Any]:
    held, until = b"", time.monotonic() + READY_S
    while b"\n" not in held and select.select([handle], [], [], max(0.0, until - time.monotonic()))[0]:
        piece = os.read(handle, 4096)
        if not piece:
            return {}
        held += piece
    said = json.loads(held) if b"\n" in held else {}
    return said if isinstance(said, dict) else {}


def asked(path: Path, limit_s: float, do: str, **words: Any) -> dict[str, Any]:
    """What the door at *path* answers to *do*.

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
    said: dict[str, Any] = json.loads(line)
    if why := said.get("why"):
        raise SandboxError(f"the machine did not {do}", str(why))
    return said
