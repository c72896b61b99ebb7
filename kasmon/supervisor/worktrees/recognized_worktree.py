"""The git worktree that a session works in, also one that kasmon did not create: the user's own, a plan's, an agent's.

It runs no program: see gitrepository-layout(5) and git-worktree(1), "Details".
"""

from pathlib import Path
from typing import Final

from kasmon import system
from kasmon.model.commands import SessionWorktree
from kasmon.model.session import Session
from kasmon.repository.git import git_folders
from kasmon.supervisor.worktrees.shared_checkout import find_repository_top

BRANCH: Final = "ref: refs/heads/"
CREATED: Final = "branch: Created from "
"""The reason that git writes into a new branch's log, before the name that the branch was created from."""


def worktree_of(session: Session) -> SessionWorktree | None:
    """Return the worktree that kasmon created for *session*, else the one that it works in; None if in none.

    A main checkout is no worktree, and neither is a submodule.
    """
    if session.worktree is not None or not session.has_folder_here:
        return session.worktree
    folder = ""
    if session.exists and session.sandbox is None and session.pid is not None:
        folder = system.HERE.read_folder(session.pid)  # `claude --worktree` changes to the one that it creates
    return recognize(folder) or recognize(session.workdir)


def recognize(folder: str) -> SessionWorktree | None:
    """Return the linked worktree that *folder* is in, with the base that its branch's log names; None if in none."""
    top = find_repository_top(folder) if folder else ""
    if not top or not (Path(top) / ".git").is_file():
        return None
    try:
        own, shared = git_folders(Path(top))
        head = (own / "HEAD").read_text("utf-8", "surrogateescape").rstrip("\n")
        if own.parent != shared / "worktrees" or not head.startswith(BRANCH):
            return None
        branch = head.removeprefix(BRANCH)
        base, base_name = _base(shared, branch)
    except (OSError, ValueError):
        return None
    source = shared.parent if shared.name == ".git" else shared
    return SessionWorktree(
        path=top, branch=branch, is_new_branch=False, base=base, base_name=base_name, source=str(source)
    )


def _base(shared: Path, branch: str) -> tuple[str, str]:
    """Return the commit at which *branch* was created, and the name of what it was created from.

    Raises `OSError` or `ValueError` if its log does not say so.
    """
    with (shared / "logs" / "refs" / "heads" / branch).open(encoding="utf-8", errors="surrogateescape") as log:
        facts, _, reason = log.readline().rstrip("\n").partition("\t")
    _, commit, *_ = facts.split(" ")
    name = reason.removeprefix(CREATED).removesuffix("^{commit}") if reason.startswith(CREATED) else ""
    if name in ("", "HEAD", commit):  # `git worktree add -b` names no branch then, and neither does claude
        name = (shared / "HEAD").read_text("utf-8", "surrogateescape").rstrip("\n").removeprefix(BRANCH)
    for prefix in ("refs/heads/", "refs/remotes/", "refs/tags/"):
        name = name.removeprefix(prefix)
    return commit, name
