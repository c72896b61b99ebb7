"""Start a jail that outlives kasmon's process: its guest agent answers on a socket that is created here."""

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import SandboxError
from kasmon.sandbox.jail.bwrap_arguments import build_arguments, encode_arguments
from kasmon.sandbox.jail.probe import explain_failure
from kasmon.sandbox.shared.filesystem_view import FilesystemView
from kasmon.sandbox.shared.processes import LOG_BYTES, listen, open_log, open_memory_file

ENVIRONMENT: Final[Mapping[str, str]] = {}
"""Bubblewrap's own environment: one of its processes stays, and programs inside can read its variables."""
READY_S: Final = 10.0


def start(
    program: str,
    view: FilesystemView,
    command: Sequence[str],
    *,
    filter_: bytes,
    owner: tuple[int, int],
    sockets: Mapping[str, Path],
    add_process: Callable[[int], None] = lambda _: None,
) -> int:
    """Start *command* in a jail with the view *view*; return once the guest agent inside reports that it is ready.

    Bubblewrap's outer process only waits, so it is ended then; the jail's first process has no parent here.

    Args:
        program: the path of bubblewrap.
        view: the file system and environment inside.
        command: the command that runs inside.
        owner: user and group of its processes.
        sockets: variable -> path of a listening socket to create; inside, the variable holds its descriptor.
        add_process: called with the jail's first process, before anything runs in it.

    Returns:
        The jail's first process: when it ends, all processes inside end.

    Raises:
        SandboxError: if it was not ready in `READY_S`. Everything begun is removed.
    """
    until = time.monotonic() + READY_S
    init = 0
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs, contextlib.ExitStack() as on_failure:
        log = _close_with(ours, open_log())
        info, tells_info = _open_pipe(ours, theirs)
        gate, opens_gate = _open_pipe(theirs, ours)
        ready, tells_ready = _open_pipe(ours, theirs)
        listening = {name: _listen(path, theirs, on_failure) for name, path in sockets.items()}
        seccomp = _close_with(theirs, open_memory_file(filter_))
        handles = {**listening, "KASMON_READY_FD": tells_ready}
        variables = {**view.variables, **{name: str(handle) for name, handle in handles.items()}}
        whole = msgspec.structs.replace(
            view, variables=variables, seccomp=str(seccomp), info=tells_info, gate=gate, new_session=True
        )
        arguments_fd = _close_with(theirs, open_memory_file(encode_arguments(build_arguments(whole))))
        inherited = (arguments_fd, seccomp, tells_info, gate, *handles.values())
        child = _popen([program, "--args", str(arguments_fd), "--", *command], inherited, log, owner)
        on_failure.callback(_kill_child, child)
        theirs.close()
        try:
            info_text = _read(info, until, whole=True)
            init = int(json.loads(info_text)["child-pid"]) if info_text else 0
            if not init:
                raise TimeoutError
            on_failure.callback(_kill, init)
            add_process(init)
            os.write(opens_gate, b"x")
            if not _read(ready, until):
                raise TimeoutError
        except (OSError, ValueError) as error:
            output = os.pread(log, LOG_BYTES, 0).rstrip(b"\0").decode("utf-8", "replace")
            if isinstance(error, TimeoutError) and time.monotonic() > until:
                raise SandboxError("cannot create a jail", f"it was not ready within {READY_S:g} s") from None
            found = explain_failure(output or ("" if isinstance(error, TimeoutError) else str(error)))
            raise SandboxError("cannot create a jail", found.why, found.hint) from error
        on_failure.pop_all()
        _kill_child(child)
    return init


def _popen(argv: Sequence[str], handles: Sequence[int], log: int, owner: tuple[int, int]) -> subprocess.Popen[bytes]:
    """Start bubblewrap as *owner*; it inherits *handles* and no other descriptors. Raises `SandboxError`."""
    drop = {"user": owner[0], "group": owner[1], "extra_groups": ()} if os.geteuid() == 0 else {}
    try:
        return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
            argv,
            env=ENVIRONMENT,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            close_fds=True,
            pass_fds=handles,
            start_new_session=True,
            umask=0o022,
            **drop,
        )
    except OSError as error:
        raise SandboxError("cannot create a jail", f"{argv[0]} could not be run: {error}") from error


def _close_with(stack: contextlib.ExitStack, handle: int) -> int:
    """Have *stack* close *handle*; return it."""
    stack.callback(os.close, handle)
    return handle


def _open_pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
    reads, writes = os.pipe()
    return _close_with(reader, reads), _close_with(writer, writes)


def _listen(path: Path, stack: contextlib.ExitStack, on_failure: contextlib.ExitStack) -> int:
    handle = _close_with(stack, listen(path).detach())
    on_failure.callback(path.unlink, missing_ok=True)
    return handle


def _read(handle: int, until: float, *, whole: bool = False) -> bytes:
    """Read the first byte of a pipe, or all up to its end; empty if that does not come in time."""
    output = b""
    while select.select([handle], [], [], max(0.0, until - time.monotonic()))[0]:
        piece = os.read(handle, 4096 if whole else 1)
        output += piece
        if not piece or not whole:
            return output
    return b""


def _kill_child(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
