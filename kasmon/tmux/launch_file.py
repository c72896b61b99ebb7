"""The launch file, which the creator of a pane writes and `kasmon/launch.py` reads in the pane."""

import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kasmon import launch
from kasmon.paths import write_private


class PaneLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent starts in its pane."""

    argv: Sequence[str]
    workdir: Path
    base: Mapping[str, str] | None = None
    """The launcher's environment, of which only base variables are passed on. None: that of the tmux server, which is
    as old as the server."""
    env_file: Path | None = None
    """The agent's own variables, NUL-terminated `NAME=value`, 0600; see `write_environment`."""
    umask: int = 0o022
    nonce: str = ""
    """Hex that the pane announces before it executes the agent; see `fresh_nonce`. Empty: no announcement."""
    program: str = ""
    socket: Path | None = None
    """The socket of the tmux server that receives the announcement."""


def fresh_nonce() -> str:
    return secrets.token_hex(8)


def write_spec(path: Path, spec: PaneLaunch) -> None:
    """Write *spec* to *path*, 0600, for `launch_argv(path)`. Raises `ValueError` if a word holds a NUL."""
    pairs = [("workdir", str(spec.workdir)), ("umask", f"{spec.umask:03o}")]
    pairs += [("base", f"{name}={value}") for name, value in launch.base_environment(dict(spec.base or {})).items()]
    if spec.env_file is not None:
        pairs.append(("env_file", str(spec.env_file)))
    if spec.nonce and spec.program and spec.socket is not None:
        pairs += [("nonce", spec.nonce), ("tmux", spec.program), ("socket", str(spec.socket))]
    _write(path, [*pairs, *(("arg", text) for text in spec.argv)])


def write_environment(path: Path, variables: dict[str, str]) -> None:
    """Write *variables* to *path*, 0600, for `PaneLaunch.env_file`.

    Raises:
        ValueError: if a name is empty or holds `=`, or a name or value holds a NUL.
    """
    _write(path, list(variables.items()))


def launch_argv(path: Path) -> list[str]:
    """Return the command that a pane runs to execute the launch file at *path*."""
    return [sys.executable, "-I", "-S", launch.__file__, str(path)]


def _write(path: Path, pairs: Sequence[tuple[str, str]]) -> None:
    for name, value in pairs:
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"{name!r} cannot be written to {path.name}")
    write_private(path, b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in pairs))
