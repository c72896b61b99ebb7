"""What the review of `LiveGateway` shows and opens; imported by the first one."""

import asyncio
import os
import shlex
import stat
from pathlib import Path
from typing import Final

from kasmon.errors import UnableError
from kasmon.model.commands import Mode
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.sanitize import clean_lines
from kasmon.supervisor.machines.dispatch import dispatch
from kasmon.supervisor.worktrees import changes, turn_changes
from kasmon.tui.gateway.protocol import SessionChanges

EDITOR: Final = "vi"
"""The editor if neither VISUAL nor EDITOR is set, as for git."""
GOTO: Final = {
    "code": "--goto",
    "code-insiders": "--goto",
    "codium": "--goto",
    "cursor": "--goto",
    "windsurf": "--goto",
}
"""Editors that take FILE:LINE behind this option; they return at once, unless told to wait."""
COLON: Final = frozenset({"hx", "helix", "subl", "zed"})
"""Editors that take FILE:LINE."""


@dispatch
async def read_changes(paths: Paths, session: Session, turn: int | None) -> SessionChanges:
    """Return what *session* changed; *turn* as in `Gateway.changes_of`.

    Raises:
        KasmonError: as `diff_of`, `turn_diff` and `sandbox_operations.diff` raise.
    """
    if session.mode is Mode.INTERPRETER or (session.sandbox is not None and turn is not None):
        from kasmon.supervisor.sandboxes import sandbox_operations  # heavy, and only for sandboxes

        diff = await asyncio.to_thread(sandbox_operations.diff, paths, session, turn or None)
        return SessionChanges(diff=clean_lines(diff), turn=turn or None)
    if turn is None:
        return SessionChanges(diff=await asyncio.to_thread(changes.diff_of, session))
    found, diff = await asyncio.to_thread(turn_changes.turn_diff, paths, session, turn or None)
    turns = await asyncio.to_thread(turn_changes.list_turns, paths, session)
    return SessionChanges(diff=diff, turn=found.number, turns=turns)


@read_changes.elsewhere
async def _read_changes_there(paths: Paths, session: Session, turn: int | None) -> SessionChanges:
    number, text = await asyncio.to_thread(turn_changes.read_diff_there, paths, session, turn)
    return SessionChanges(diff=text, turn=number)


def find_editor(session: Session, name: str, line: int) -> tuple[str, ...]:
    """Return the command line of the user's editor for the file *name* in the worktree of *session*, at *line*.

    Raises:
        UnableError: if it is no regular file in that worktree, or is behind a link.
    """
    top = changes.top_of(session)
    path = top / name
    try:
        path = changes.find_shown_file(top, name)
        is_file = stat.S_ISREG(path.lstat().st_mode) and path.resolve().is_relative_to(top.resolve())
    except (OSError, ValueError):
        is_file = False
    if not is_file:
        raise UnableError(f"cannot open {name!r}: it is no file in {session.workdir!r}.")
    argv = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or EDITOR) or [EDITOR]
    program = Path(argv[0]).name
    if program in GOTO:
        return (*argv, GOTO[program], f"{path}:{line}")
    return (*argv, f"{path}:{line}") if program in COLON else (*argv, f"+{line}", str(path))
