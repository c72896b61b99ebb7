"""Which worktrees of a plan that is over may be removed, and their removal: no work is lost, and nobody is in them."""

from pathlib import Path
from typing import NamedTuple

from kasmon.errors import KasmonError, RefusedError
from kasmon.model.fleet import Fleet
from kasmon.store.plan import PlanBook
from kasmon.supervisor.git import repository
from kasmon.supervisor.worktree import remove


class Cleaned(NamedTuple):
    """What became of a plan's worktrees."""

    removed: tuple[str, ...]
    """Their folders."""
    kept: tuple[str, ...]
    """Why each of the others stays, as a sentence."""


def clean(book: PlanBook, fleet: Fleet) -> Cleaned:
    """Remove the worktrees of the plan of *book* in which nothing could be lost; the others stay. Blocks.

    Args:
        fleet: the sessions as they are now: who lives in a worktree keeps it.

    Raises:
        RefusedError: if the plan is not over.
    """
    if book.run.state != "ended":
        raise RefusedError(f"plan {book.plan!r} is not over.", hint=f"`kasmon plan abort {book.plan}` gives it up.")
    repo = repository(Path(book.run.folder))
    removed, kept = [], []
    living = [session for session in fleet.sessions if session.plan == book.plan and session.exists]
    for path in sorted((book.folder / "trees").glob("*")):
        try:
            if repo is None:
                raise RefusedError(f"the repository of {str(path)!r} is gone.")
            if there := next((session.name for session in living if Path(session.workdir).is_relative_to(path)), ""):
                raise RefusedError(f"session {there!r} is still in {str(path)!r}.", hint=f"`kasmon stop {there}`")
            remove(repo, path)
            removed.append(str(path))
        except KasmonError as error:
            kept.append(error.message)
    return Cleaned(tuple(removed), tuple(kept))
