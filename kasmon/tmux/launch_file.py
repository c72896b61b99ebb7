"""The launch file: what `kasmon/launch.py` reads in a pane, written by whoever makes the pane."""

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
    """The surroundings of whoever launches it, of which only base variables are passed on. None: those of the tmux
    server, which are as old as it is."""
    env_file: Path | None = None
    """Its own variables, NUL-terminated `NAME=value`, 0600; see `write_environment`."""
    umask: int = 0o022
    nonce: str = ""
    """Hex that the pane announces before it becomes the agent; see `fresh_nonce`. Empty: nothing is announced."""
    program: str = ""
    socket: Path | None = None
    """The tmux to announce it to."""


def fresh_nonce() -> str:
    """A nonce that no pane has announced before."""
    return secrets.token_hex(8)


def write_spec(path: Path, spec: PaneLaunch) -> None:
    """Put *spec* at *path*, 0600, for `launch_argv(path)`.

    Raises:
        ValueError: if a word holds a NUL.
    """
    pairs = [("workdir", str(spec.workdir)), ("umask", f"{spec.umask:03o}")]
    pairs += [("base", f"{name}={value}") for name, value in launch.base_environment(dict(spec.base or {})).items()]
    if spec.env_file is not None:
        pairs.append(("env_file", str(spec.env_file)))
    if spec.nonce and spec.program and spec.socket is not None:
        pairs += [("nonce", spec.nonce), ("tmux", spec.program), ("socket", str(spec.socket))]
    _write(path, [*pairs, *(("arg", text) for text in spec.argv)])


def write_environment(path: Path, variables: dict[str, str]) -> None:
    """Put *variables* at *path*, 0600, for `PaneLaunch.env_file`.

    Raises:
        ValueError: if a name is empty or holds `=`, or anything holds a NUL.
    """
    _write(path, list(variables.items()))


def launch_argv(path: Path) -> list[str]:
    """What a pane has to run, so that it does what the launch file at *path* says."""
    return [sys.executable, "-I", "-S", launch.__file__, str(path)]


def _write(path: Path, pairs: Sequence[tuple[str, str]]) -> None:
    for name, value in pairs:
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"{name!r} cannot be written to {path.name}")
    write_private(path, b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in pairs))
