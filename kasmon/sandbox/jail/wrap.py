"""Commands that run in a jail of their own on their caller's terminal or pipes, by a file that `enter.py` reads."""

import base64
import contextlib
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import SandboxError
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.paths import write_private
from kasmon.sandbox.jail import enter, seccomp
from kasmon.sandbox.jail.bwrap_arguments import build_arguments
from kasmon.sandbox.jail.cgroup import Cgroup
from kasmon.sandbox.jail.probe import explain_failure
from kasmon.sandbox.jail.session_files import JailFiles
from kasmon.sandbox.network import proxy_control
from kasmon.sandbox.shared.filesystem_view import FilesystemView, build_view
from kasmon.sandbox.shared.host_folders import HostFolders

ON_TERMINAL: Final = ["/usr/bin/env", "--default-signal=INT,QUIT"]
"""Restores Ctrl-C for programs inside; `enter.py` ignores it in front of them."""


class WrappedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command that runs inside, and notices for the user."""

    command: list[str]
    notices: tuple[str, ...] = ()
    workdir: str
    """The agent's folder on this machine."""


def build_jail_view(
    host_folders: HostFolders,
    policy: SandboxPolicy,
    workdir: str,
    variables: Mapping[str, str] | None = None,
    programs: Sequence[Path] = (),
) -> tuple[FilesystemView, tuple[str, ...]]:
    """Return the view of the jail of *policy*, and notices; opens its egress proxy."""
    host_folders.make(policy.session)
    sockets = {proxy_control.MOUNTED: str(JailFiles(host_folders, policy.session).open_gate(policy))}
    known = proxy_control.add_proxy_variables(dict(variables or {}), policy.hosts)
    return build_view(host_folders, policy, workdir, sockets=sockets, variables=known, programs=programs)


def build_entry(
    host_folders: HostFolders,
    policy: SandboxPolicy,
    view: FilesystemView,
    command: Sequence[str],
    program: str,
    group: Cgroup | None,
) -> list[str]:
    """Return the command that runs *command* in a jail with the view *view* and dies with its starter."""
    view = msgspec.structs.replace(view, dies_with_starter=True, new_session=False)
    spec: dict[str, object] = {
        "program": shutil.which(program) or program,
        "words": build_arguments(view),
        "on_pipes": ["--new-session"],
        "terminal": ON_TERMINAL if _resets_signals() else [],
        "command": list(command),
        "seccomp": base64.b64encode(seccomp.build_filter(platform.machine())).decode(),
    }
    if os.geteuid() == 0:
        spec["user"] = list(host_folders.owner)
    if group is not None:
        spec["group"] = str(group.folder)
    content = msgspec.json.encode(spec)
    path = host_folders.of(policy.session) / f"enter-{hashlib.sha256(content).hexdigest()[:16]}.json"
    write_private(path, content)
    return [sys.executable, "-I", "-S", str(Path(enter.__file__)), str(path)]


def run_entry(command: Sequence[str], limit_s: float) -> str:
    """Return what *command*, of `build_entry`, prints. Raises `SandboxError` if it fails or exceeds *limit_s*."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s, cwd="/"
        )
    except subprocess.TimeoutExpired as error:
        raise SandboxError("cannot create a jail", f"it was not ready within {limit_s:g} s") from error
    if done.returncode:
        found = explain_failure(done.stderr)
        raise SandboxError("cannot create a jail", found.why, found.hint)
    return done.stdout


@functools.cache
def _resets_signals() -> bool:
    """Whether this machine's `env` can reset signals."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return not subprocess.run([*ON_TERMINAL, "true"], capture_output=True, timeout=5).returncode
    return False
