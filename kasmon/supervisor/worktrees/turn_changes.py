"""What each turn of a session changed in its worktree, and how that is undone. Calls block; use a thread.

They raise `UnableError` if the turns of such a session are never stored; `GitError` and `TimedOutError` if git fails.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from kasmon.errors import NotFoundError, SessionBusyError, UnableError
from kasmon.model.commands import Mode
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.repository.turn_trees import RestorePlan, Turn, TurnTrees
from kasmon.sanitize import clean_line, clean_lines
from kasmon.supervisor.fleet.lookup import check_here
from kasmon.supervisor.worktrees.changes import shorten


class PlannedUndo(msgspec.Struct, frozen=True, kw_only=True):
    """An undo, or the way back from one, before it is carried out."""

    turn: int | None
    """None for the way back from the last undo."""
    plan: RestorePlan
    files: tuple[str, ...]
    """Names of files that it changes, cleaned."""


def turn_diff(paths: Paths, session: Session, number: int | None = None) -> tuple[Turn, str]:
    """Return turn *number* of *session*, the last one for None, with its cleaned diff.

    A turn that still runs, or whose end is not stored, is compared with the current files.

    Raises:
        NotFoundError: if it is not stored.
    """
    turn, diff = raw_turn_diff(paths, session, number)
    return turn, clean_lines(shorten(diff.decode("utf-8", "replace")))


def raw_turn_diff(paths: Paths, session: Session, number: int | None) -> tuple[Turn, bytes]:
    """Return the same with the diff as git prints it, untrusted."""
    trees = _trees(paths, session)
    turn = trees.turn(number)
    return turn, trees.diff(turn.before, _end_of(trees, turn, session))


class _Diff(msgspec.Struct, frozen=True):
    """What `kasmon diff --json` and `kasmon sandbox diff --json` print."""

    diff: str
    turn: int | None = None


def read_diff_there(paths: Paths, session: Session, turn: int | None) -> tuple[int | None, str]:
    """Return the number of the turn of a session of another machine, and its cleaned diff. Raises as `run_for`.

    *turn*: None for the whole branch, 0 for the last turn.
    """
    from kasmon.supervisor.machines.link_client import parse_reply, run_for  # only for sessions of other machines

    if session.mode is Mode.INTERPRETER or (session.sandbox is not None and turn is not None):
        arguments = ["sandbox", "diff", session.id, *([str(turn)] if turn else [])]
    else:
        arguments = ["diff", session.id, *([] if turn is None else [f"--turn={turn}"] if turn else ["--last"])]
    found = parse_reply(session.via, run_for(paths, session, *arguments), _Diff)
    return found.turn, shorten(found.diff)


def list_turns(paths: Paths, session: Session) -> tuple[int, ...]:
    """Return the numbers of the stored turns of *session*, oldest first."""
    return tuple(turn.number for turn in _trees(paths, session).turns())


def plan_undo(paths: Paths, session: Session, number: int | None = None) -> PlannedUndo:
    """Return how the files that turn *number* changed, the last one for None, get back their earlier contents.

    Raises:
        NotFoundError: if the turn, or its end, is not stored; or if it changed nothing.
        SessionBusyError: if a turn is running.
    """
    trees = _trees(paths, session)
    check_resting(session)
    turn = trees.turn(number)
    return _plan_undo(trees, session, turn.number, _end_of(trees, turn, session), turn.before)


def plan_redo(paths: Paths, session: Session) -> PlannedUndo:
    """Return how the last undo of *session* is taken back.

    Raises:
        NotFoundError: if there was none, or it changed nothing.
        SessionBusyError: if a turn is running.
    """
    trees = _trees(paths, session)
    check_resting(session)
    before, after = trees.last_restore()
    return _plan_undo(trees, session, None, after, before)


def undo(paths: Paths, session: Session, planned: PlannedUndo) -> tuple[str, ...]:
    """Carry out *planned*; return why single files were left as they are.

    Raises:
        RefusedError: if files changed since the turn; nothing is changed then.
        SessionBusyError: if a turn is running.
    """
    check_resting(session)
    failed = _trees(paths, session).restore(Path(session.workdir), planned.plan)
    return tuple(clean_line(why) for why in failed)


def _plan_undo(trees: TurnTrees, session: Session, turn: int | None, source: str, target: str) -> PlannedUndo:
    plan = trees.plan(Path(session.workdir), source, target)
    if not plan.changes:
        raise NotFoundError("Nothing can be undone: no file was changed.")
    return PlannedUndo(turn=turn, plan=plan, files=cleaned([change.name for change in plan.changes]))


def cleaned(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(clean_line(name) for name in names)


def _trees(paths: Paths, session: Session) -> TurnTrees:
    check_here(session)
    if session.mode is Mode.INTERPRETER or session.sandbox is not None:
        raise UnableError(
            f"{session.name!r} works in a sandbox, so the files of its turns are not stored here.",
            hint=f"`kasmon sandbox diff {session.id}` shows them where the sandbox has checkpoints.",
        )
    return TurnTrees(paths.turns(session.id))


def _end_of(trees: TurnTrees, turn: Turn, session: Session) -> str:
    """Return the commit with the files as *turn* ended; if that is not stored, as the next began, else as they are now.

    It is not stored while the turn runs, and if its host ended first.
    """
    later = (each.before for each in trees.turns() if each.number > turn.number)
    return turn.after or next(later, "") or trees.now(Path(session.workdir))


def check_resting(session: Session) -> None:
    """Raise `SessionBusyError` while a turn of *session* runs."""
    if session.in_turn or session.worked:
        hint = "Wait until its turn has ended (`kasmon wait`), or interrupt it."
        raise SessionBusyError(session.name, session.state.value, hint=hint)
