"""Prepare a new worktree as the repository's trusted config says: copy and link files, run its setup. Calls block.

Paths stay in the repository: none leads out of the checkout that it comes from, or of the worktree, not even by a link.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path, PurePath
from typing import Final

from kasmon.config import load_or_default
from kasmon.config.schema import WorktreeConfig
from kasmon.errors import KasmonError, LaunchError, RefusedError, UsageError
from kasmon.model.commands import Launch, SessionWorktree
from kasmon.model.events import SessionEnded
from kasmon.model.plan.plan import GIT_LOCAL
from kasmon.paths import Paths
from kasmon.repository.git import repository
from kasmon.sanitize import clean_block
from kasmon.supervisor.sessions.folder_config import in_folder
from kasmon.supervisor.sessions.start import leave_ended, leave_notice

REPORT_S: Final = 1.0
"""How often output is reported, in seconds."""
MOST_BYTES: Final = 1 << 16
"""How much output is read at once."""
REPORTED: Final = 4000
"""At most this many characters are reported at once, the last ones."""


def set_up(paths: Paths, launch: Launch, tree: SessionWorktree) -> None:
    """Set up *tree*, the worktree of *launch*, by the config of its repository as far as the user trusts it now.

    Raises why it failed. The session has ended with that reason, and its worktree stays: a person decides.
    """
    settings = in_folder(paths, load_or_default(paths), tree.source)

    def report(text: str) -> None:
        leave_notice(paths, launch.session, text, "info")

    if settings.config.worktree.setup:
        report(f"setting up the worktree: {settings.config.worktree.setup}")
    try:
        prepare_worktree(settings.config.worktree, repository(Path(tree.source)), Path(tree.path), report)
    except KasmonError as error:
        why = f"{error.message} The agent was not started."
        leave_ended(paths, launch.session, SessionEnded(at=time.time(), why=why, never_began=True))
        error.hint = (
            f"`kasmon restart {launch.session}` tries again, with --skip-setup it starts the agent anyway; "
            f"`kasmon rm {launch.session}` removes the session."
        )
        raise


def prepare_worktree(config: WorktreeConfig, source: Path | None, top: Path, report: Callable[[str], None]) -> None:
    """Copy and link files from the checkout *source*, if there is one, to the worktree at *top*; then run its setup.

    Files that the worktree has already stay as they are. *report* gets the output of the setup, in parts.

    Raises:
        UsageError: if a path of the config leads out of the repository.
        LaunchError: if a file cannot be copied, or the setup fails.
    """
    if source is not None:
        for file in find_files(source, config.copy, "copy"):
            _put(source, top, file, lambda here, there: _copy(here, there))
        for file in find_files(source, config.link, "link"):
            _put(source, top, file, lambda here, there: there.symlink_to(here))
    if config.setup:
        run_command(config.setup, top, config.setup_s, "setup", report)


def find_files(source: Path, patterns: Iterable[str], key: str) -> list[PurePath]:
    """Return the files and folders in *source* that match *patterns*, as paths in it.

    Raises `UsageError` if one leads out of *source*, or into its git folder.
    """
    found: dict[PurePath, None] = {}
    for pattern in patterns:
        path = PurePath(pattern)
        if not path.parts or path.is_absolute() or ".." in path.parts or ".git" in path.parts:
            raise UsageError(f"`worktree.{key}` names {pattern!r}, which is not a path in the repository.")
        for match in sorted(source.glob(pattern)):
            name = PurePath(match.relative_to(source))
            if match.resolve() != source.resolve() / name or ".git" in name.parts:
                raise UsageError(f"`worktree.{key}` names {str(name)!r}, which a link leads elsewhere.")
            found[name] = None
    return list(found)


def _put(source: Path, top: Path, name: PurePath, put: Callable[[Path, Path], object]) -> None:
    target = top / name
    if os.path.lexists(target):
        return
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if target.parent.resolve() != (top.resolve() / name).parent:
            raise RefusedError(f"{str(name)!r} was not written: a link leads out of the worktree {str(top)!r}.")
        put(source / name, target)
    except OSError as error:
        raise LaunchError(f"cannot write {str(target)!r}: {error.strerror or error}.") from error


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    elif source.is_file():
        shutil.copy2(source, target)


def run_command(command: str, folder: Path, limit_s: float, what: str, report: Callable[[str], None]) -> None:
    """Run the shell *command* in *folder*; its output goes to *report*.

    Raises `LaunchError` if it ends with another exit code than 0, or takes longer than *limit_s*; it has ended then.
    """
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                cwd=folder,
                env={name: value for name, value in os.environ.items() if name not in GIT_LOCAL},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise LaunchError(f"the {what} of the worktree cannot run: {error.strerror or error}.") from error
        deadline, last, read_bytes = time.monotonic() + limit_s, "", 0
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(min(REPORT_S, max(deadline - time.monotonic(), 0)))
            piece = os.pread(output.fileno(), MOST_BYTES, read_bytes)
            read_bytes += len(piece)
            if text := clean_block(piece.decode("utf-8", "replace")).strip():
                report(text[-REPORTED:])
                last = text.splitlines()[-1]
            if process.returncode is not None and len(piece) < MOST_BYTES:
                break
            if time.monotonic() >= deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise LaunchError(f"the {what} of the worktree took longer than {limit_s:g} s: {command!r}.")
    if process.returncode:
        why = f": {last}" if last else ""
        raise LaunchError(f"the {what} of the worktree failed with exit code {process.returncode}{why}.")
