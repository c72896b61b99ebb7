"""Runs git on a repository of kasmon's own, without any config, hooks or attributes of the user or the system."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from kasmon.errors import GitError, TimedOutError

GIT_S: Final = 120.0
"""Time limit of one git call."""
VARIABLES: Final = {
    "LC_ALL": "C.UTF-8",
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
}
"""git's environment besides PATH: it disables every config file."""
SETTINGS: Final = {
    "core.bare": "true",
    "core.hooksPath": os.devnull,
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    "core.fsmonitor": "false",
    "core.compression": "1",
    "core.bigFileThreshold": "16m",
    "core.quotePath": "false",
    "user.name": "kasmon",
    "user.email": "kasmon",
    "commit.gpgSign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "pack.window": "0",
    "protocol.allow": "never",
    "fastimport.unpackLimit": "100",
}


@contextmanager
def run_git(
    folder: Path, *arguments: str, may_be_cut: bool = False, work_tree: Path | None = None, of: str = "checkpoints"
) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Run git with *arguments* on the repository at *folder*; yield its stdin and stdout.

    Args:
        folder: the repository's git folder.
        may_be_cut: it may be killed before it ends.
        work_tree: the top of the files that the command concerns; None for a command without files.
        of: what the repository stores, for an error.

    Raises:
        GitError: if it fails, or is not installed.
        TimedOutError: if it takes longer than `GIT_S`.
    """
    what = f"store {of} ({arguments[0]})"
    settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
    if work_tree is not None:
        settings += [f"--work-tree={work_tree}", "-c", "core.bare=false"]
    try:
        git = subprocess.Popen(
            ["git", f"--git-dir={folder}", *settings, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=work_tree or "/",
            env={"PATH": os.environ.get("PATH", os.defpath), **VARIABLES},
            umask=0o077,
        )
    except FileNotFoundError as error:
        raise GitError(what, "it is not installed", hint="Install git.") from error
    assert git.stdin is not None
    assert git.stdout is not None
    assert git.stderr is not None
    timed_out = threading.Event()

    def kill_git() -> None:
        timed_out.set()
        git.kill()

    limit = threading.Timer(GIT_S, kill_git)
    limit.start()
    broken_pipe: BaseException | None = None
    try:
        yield git.stdin, git.stdout
        git.stdin.close()
        if may_be_cut and git.poll() is None:
            git.kill()
    except BrokenPipeError as error:  # git ended early; its stderr says why
        broken_pipe = error
    except BaseException:
        git.kill()
        raise
    finally:
        with contextlib.suppress(BrokenPipeError):
            git.stdin.close()
        git.stdout.close()
        lines = git.stderr.read().decode("utf-8", "replace").strip().splitlines()
        git.stderr.close()
        git.wait()
        limit.cancel()
    if timed_out.is_set():
        raise TimedOutError(f"git {arguments[0]} took longer than {GIT_S:g} s.") from broken_pipe
    if broken_pipe or git.returncode not in ((0, -signal.SIGKILL) if may_be_cut else (0,)):
        raise GitError(what, lines[-1].rstrip(".") if lines else "it gave no reason") from broken_pipe


def call_git(
    folder: Path, *arguments: str, given: bytes = b"", work_tree: Path | None = None, of: str = "checkpoints"
) -> bytes:
    """Return the output of git, as `run_git`, for *given*: git reads that before it prints more than a pipe holds."""
    with run_git(folder, *arguments, work_tree=work_tree, of=of) as (stdin, stdout):
        stdin.write(given)
        stdin.close()
        return stdout.read()
